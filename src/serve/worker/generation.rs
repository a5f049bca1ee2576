//! The running configuration as one worker runs it ([`Generation`]), with its own pools and counters.
//!
//! The configuration of a generation never changes: a reload makes a new generation, and open requests finish with the one
//! that they began with.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::Hasher as _;
use std::rc::Rc;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::identity_counters::IdentityCounters;
use super::listen::RunningListener;
pub use super::running_config::RunningConfig;
use crate::base::clock::Clock;
use crate::base::telemetry::{Histogram, Label, Metric, Registry, WorkerCounter};
use crate::identity::{Identifier, Unverified};
use crate::limit::Rule;
use crate::limit::pressure::{Pressure, RequestKind};
use crate::net::FlushQueue;
use crate::net::tls::acme::ChallengeTokens;
use crate::policy::Ruleset;
use crate::record::insight::{LiveInsight, Sampler, ShadowTally};
use crate::route::Route;
use crate::serve::access::members;
use crate::serve::stack::ban_view::BanView;
use crate::serve::stack::refusal_cache::RefusalCache;
use crate::serve::stack::request_outcome::{RequestOutcome, response_origin};
use crate::throttle::admission::Admission;
use crate::upstream::upstream_pool::PoolCounters;
use crate::upstream::{Servers, UpstreamPool};

/// The running configuration, as one worker runs it.
pub struct Generation {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Reads the identities of clients from requests.
    pub identifier: Identifier,
    /// Decides by the limits whether a request is admitted.
    pub admission: Admission,
    /// One pool of connections for each upstream, in the order of the ruleset.
    pub pools: Vec<Rc<UpstreamPool>>,
    /// The kind of each route's requests, by which the pressure on its upstream distinguishes their latencies.
    pub request_kinds: Vec<RequestKind>,
    /// Counters of requests, for each route and one more for requests without a route.
    pub counters_by_route: Vec<RouteCounters>,
    /// Counters of decisions, for each limit.
    pub counters_by_rule: Vec<RuleCounters>,
    /// Counters of requests by the values of identities; `None` if no identity is counted.
    pub identity_counters: Option<Box<IdentityCounters>>,
    /// Counters of credentials that did not verify.
    pub unverified_counters: UnverifiedCounters,
    /// See [`RunningConfig::listeners`].
    pub listeners: Arc<[RunningListener]>,
    /// See [`RunningConfig::challenge_tokens`].
    pub challenge_tokens: ChallengeTokens,
    /// See [`RunningConfig::insight`].
    pub insight: Option<Arc<LiveInsight>>,
    /// Chooses which requests are samples.
    pub sampler: Sampler,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
    /// Responses to recent refusals.
    pub refusal_cache: RefusalCache,
    /// The bans, and responses to banned clients.
    pub bans: BanView,
    /// The configuration that the generation was built from.
    running_config: RunningConfig,
    /// The secret of the shared store that `identifier` was built with; `None` before the store has sent one.
    shared_secret: Option<[u8; 16]>,
}

/// Counters of one route.
pub struct RouteCounters {
    /// Requests that have ended, by [`RequestOutcome`].
    pub requests_by_outcome: [WorkerCounter; RequestOutcome::ALL.len()],
    /// Requests that were routed to the route, whether they have ended or not.
    pub started_requests: WorkerCounter,
    /// Bytes of response bodies.
    pub response_bytes: WorkerCounter,
    /// Seconds from the arrival of a request to the end of its response.
    pub request_duration: Histogram,
    /// Seconds from when a connection to the upstream is ready until the head of the response has come.
    pub upstream_duration: Histogram,
    /// Counters of responses, by status and origin. Each is added when it first counts.
    response_counters: RefCell<Vec<ResponseCounter>>,
    /// The JSON members that name the route in each line of the access log.
    pub log_members: Box<[u8]>,
    registry: Registry,
    worker_number: usize,
    route_name: Box<str>,
}

/// Counts the responses of one route with one status, from one side.
struct ResponseCounter {
    status: u16,
    /// Whether the responses came from the upstream, not from the gateway itself.
    is_from_upstream: bool,
    counter: WorkerCounter,
}

/// Counters of one limit. A request is counted once for each limit that it was checked against; so is a message of a
/// WebSocket that limits count.
pub struct RuleCounters {
    /// Requests within the rate.
    pub within: WorkerCounter,
    /// Requests above the rate that a soft or elastic limit admitted.
    pub over: WorkerCounter,
    /// Requests that the limit refused.
    pub refused: WorkerCounter,
    /// Requests that the limit would have refused if it were not in shadow mode.
    pub shadow_refused: WorkerCounter,
    /// The keys that the limit would have refused; `None` for a limit that refuses, and where nobody counts keys.
    pub shadow_tally: Option<Arc<ShadowTally>>,
    /// Requests whose cost the response never stated; counts nothing for limits without such a cost.
    pub unknown_cost: WorkerCounter,
    /// See [`limit_hash`].
    pub limit_hash: u64,
    /// The JSON members that name the limit in each line of the access log.
    pub log_members: Box<[u8]>,
}

/// Counters of credentials that did not verify. Each is registered when its reason first occurs.
pub struct UnverifiedCounters {
    by_reason: [OnceCell<WorkerCounter>; Unverified::ALL.len()],
    registry: Registry,
    worker_number: usize,
}

impl UnverifiedCounters {
    fn new(registry: &Registry, worker_number: usize) -> UnverifiedCounters {
        UnverifiedCounters {
            by_reason: Default::default(),
            registry: registry.clone(),
            worker_number,
        }
    }

    /// Counts a credential that did not verify for this reason.
    pub fn count(&self, reason: Unverified) {
        let counter = self.by_reason[reason as usize].get_or_init(|| {
            let labels = [(Label::Reason, reason.as_str())];
            let metric = Metric::UnverifiedCredentials;
            self.registry
                .worker_counter(self.worker_number, metric, &labels)
        });
        counter.increment(1);
    }
}

/// The pressure on the upstream of a route; `None` if it is not measured, or if the route has no upstream.
#[inline]
fn pressure_on<'p>(pools: &'p [Rc<UpstreamPool>], route: &Route) -> Option<&'p Arc<Pressure>> {
    pools[route.upstream_index()?].servers().pressure()
}

impl Generation {
    /// The pressure on the upstream of a route; `None` if it is not measured, or if the route has no upstream.
    #[inline]
    pub fn pressure_on(&self, route: &Route) -> Option<&Arc<Pressure>> {
        pressure_on(&self.pools, route)
    }

    /// Builds the generation of worker `worker_number`. Upstreams that did not change keep their pools of
    /// `previous_generation`.
    pub fn new(
        running_config: &RunningConfig,
        previous_generation: Option<&Generation>,
        worker_number: usize,
        registry: &Registry,
        clock: &Clock,
        flush_queue: &Rc<FlushQueue>,
    ) -> Generation {
        let ruleset = running_config.ruleset.clone();
        let new_pool = |servers: &Arc<Servers>| {
            let counters = register_pool_counters(registry, worker_number, &servers.settings.name);
            let random_seed = worker_number as u64;
            UpstreamPool::new(
                servers.clone(),
                clock.clone(),
                counters,
                random_seed,
                flush_queue.clone(),
            )
        };
        let pools: Vec<Rc<UpstreamPool>> = running_config
            .upstreams
            .iter()
            .map(|servers| {
                previous_generation
                    .and_then(|generation| generation.pool_to(servers))
                    .unwrap_or_else(|| new_pool(servers))
            })
            .collect();
        let request_kinds = ruleset.routes.iter().map(|route| {
            let pressure = pressure_on(&pools, route);
            pressure.map_or_else(RequestKind::default, |pressure| pressure.kind(&route.name))
        });
        let request_kinds = request_kinds.collect();
        let named_routes = ruleset
            .routes
            .iter()
            .map(|route| (&*route.name, route.action.is_usage()))
            // The label of requests without a route.
            .chain([("none", false)]);
        let counters_by_route = named_routes
            .map(|(name, is_usage)| RouteCounters::new(registry, worker_number, name, is_usage))
            .collect();
        let shadow_tallies = find_shadow_tallies(running_config, clock);
        let counters_by_rule: Vec<RuleCounters> = ruleset
            .rules
            .iter()
            .map(|rule| RuleCounters {
                shadow_tally: shadow_tallies.get(&rule.index).cloned(),
                ..RuleCounters::new(registry, worker_number, rule)
            })
            .collect();
        let unknown_costs = counters_by_rule
            .iter()
            .map(|counters| counters.unknown_cost.clone())
            .collect();
        Generation {
            identifier: running_config.build_identifier(),
            admission: running_config
                .admission
                .for_worker(worker_number)
                .with_unknown_cost_counters(unknown_costs),
            pools,
            request_kinds,
            counters_by_route,
            counters_by_rule,
            identity_counters: IdentityCounters::new(&ruleset, registry, worker_number)
                .map(Box::new),
            unverified_counters: UnverifiedCounters::new(registry, worker_number),
            ruleset,
            listeners: running_config.listeners.clone(),
            challenge_tokens: running_config.challenge_tokens.clone(),
            insight: running_config.insight.clone(),
            sampler: Sampler::default(),
            clock: clock.clone(),
            refusal_cache: RefusalCache::default(),
            bans: BanView::new(&running_config.bans, running_config.ruleset.ban_response),
            shared_secret: running_config.shared_secret(),
            running_config: running_config.clone(),
        }
    }

    /// The pool of connections to these servers, if the generation has one.
    fn pool_to(&self, servers: &Arc<Servers>) -> Option<Rc<UpstreamPool>> {
        let mut pools = self.pools.iter();
        let pool = pools.find(|pool| Arc::ptr_eq(pool.servers(), servers));
        pool.cloned()
    }

    /// The running configuration if the shared secret has changed, so that a new generation must be built from it; `None`
    /// otherwise.
    pub fn config_to_rebuild(&self) -> Option<&RunningConfig> {
        let has_changed = self.running_config.shared_secret() != self.shared_secret;
        has_changed.then_some(&self.running_config)
    }

    /// The counters of the route with this index; for `None` those of requests without a route.
    pub fn route_counters(&self, route_index: Option<usize>) -> &RouteCounters {
        let last_index = self.counters_by_route.len() - 1;
        &self.counters_by_route[route_index.unwrap_or(last_index).min(last_index)]
    }
}

/// The tallies of the limits that refuse nothing, by the index of the limit; none where nobody counts keys.
fn find_shadow_tallies(
    running_config: &RunningConfig,
    clock: &Clock,
) -> HashMap<usize, Arc<ShadowTally>> {
    let Some(insight) = &running_config.insight else {
        return HashMap::new();
    };
    let rules = running_config.ruleset.rules.iter();
    let shadow_rules: Vec<&Arc<Rule>> = rules.filter(|rule| rule.shadow).collect();
    let now = clock.wall().as_secs();
    let tallies = shadow_rules.iter().map(|rule| {
        let Rule {
            key,
            clients,
            limit,
            count,
            reserve,
            plans,
            exempt,
            ..
        } = &***rule;
        let terms =
            format!("{key:?} {clients:?} {limit:?} {count:?} {reserve:?} {plans} {exempt:?}");
        let tallies = &insight.shadow_tallies;
        let tally = tallies.find_or_begin(&rule.scope, terms, now, shadow_rules.len());
        (rule.index, tally)
    });
    let tallies = tallies.collect();
    let scopes: HashSet<&str> = shadow_rules.iter().map(|rule| &*rule.scope).collect();
    insight
        .shadow_tallies
        .retain(|scope| scopes.contains(scope));
    tallies
}

/// Registers the counters of one upstream's pool.
fn register_pool_counters(
    registry: &Registry,
    worker_number: usize,
    upstream_name: &str,
) -> PoolCounters {
    let labels = [(Label::Upstream, upstream_name)];
    let counter = |metric| registry.worker_counter(worker_number, metric, &labels);
    PoolCounters {
        connections_made: counter(Metric::UpstreamConnects),
        retries: counter(Metric::UpstreamRetries),
    }
}

impl RouteCounters {
    /// Registers the counters of a route. Only a route of `usage` has requests with the outcome of that name.
    fn new(
        registry: &Registry,
        worker_number: usize,
        route_name: &str,
        is_usage: bool,
    ) -> RouteCounters {
        let route_label = (Label::Route, route_name);
        let outcome_counter = |outcome: RequestOutcome| {
            if outcome == RequestOutcome::Usage && !is_usage {
                return WorkerCounter::default();
            }
            let labels = [route_label, (Label::Outcome, outcome.as_str())];
            registry.worker_counter(worker_number, Metric::Requests, &labels)
        };
        let counter = |metric| registry.worker_counter(worker_number, metric, &[route_label]);
        let histogram = |metrics| Histogram::new(registry, worker_number, metrics, route_label);
        RouteCounters {
            requests_by_outcome: RequestOutcome::ALL.map(outcome_counter),
            started_requests: counter(Metric::RequestsStarted),
            response_bytes: counter(Metric::ResponseBytes),
            request_duration: histogram((Metric::RequestDuration, Metric::RequestDurationSum)),
            upstream_duration: histogram((Metric::UpstreamDuration, Metric::UpstreamDurationSum)),
            response_counters: RefCell::default(),
            log_members: members::route_members(route_name),
            registry: registry.clone(),
            worker_number,
            route_name: route_name.into(),
        }
    }

    /// Counts a response with this status, which came from the upstream or from the gateway itself.
    // As the stack needs it; the other caller is rarer.
    #[inline(always)]
    pub fn count_response(&self, status: u16, is_from_upstream: bool) {
        let mut response_counters = self.response_counters.borrow_mut();
        let existing_counter = response_counters.iter().find(|existing| {
            existing.status == status && existing.is_from_upstream == is_from_upstream
        });
        if let Some(existing) = existing_counter {
            return existing.counter.increment(1);
        }
        let status_and_origin = (status, response_origin(is_from_upstream));
        let counter =
            self.registry
                .response_counter(self.worker_number, &self.route_name, status_and_origin);
        counter.increment(1);
        // The list is bounded: there are fewer than a thousand statuses, each from two sides.
        response_counters.push(ResponseCounter {
            status,
            is_from_upstream,
            counter,
        });
    }
}

impl RuleCounters {
    fn new(registry: &Registry, worker_number: usize, rule: &Rule) -> RuleCounters {
        let limit_label = (Label::Limit, rule.name.as_str());
        let counter = |outcome| {
            let labels = [limit_label, (Label::Outcome, outcome)];
            registry.worker_counter(worker_number, Metric::LimitDecisions, &labels)
        };
        if rule.is_candidate {
            // The limit itself counts the same requests.
            return RuleCounters {
                within: WorkerCounter::default(),
                over: WorkerCounter::default(),
                refused: WorkerCounter::default(),
                shadow_refused: counter("try_refused"),
                unknown_cost: WorkerCounter::default(),
                shadow_tally: None,
                limit_hash: limit_hash(rule),
                log_members: members::limit_members(rule),
            };
        }
        RuleCounters {
            within: counter("within"),
            over: counter("over"),
            refused: counter("refused"),
            shadow_refused: counter("shadow_refused"),
            shadow_tally: None,
            unknown_cost: match rule.count.is_stated_in_response() {
                true => registry.worker_counter(worker_number, Metric::CostUnknown, &[limit_label]),
                false => WorkerCounter::default(),
            },
            limit_hash: limit_hash(rule),
            log_members: members::limit_members(rule),
        }
    }
}

/// A hash of the limit's name, of which candidate rates have one of their own. It keeps the limit's keys apart from those of
/// other limits in lists of top keys.
pub fn limit_hash(rule: &Rule) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(rule.name.as_str().as_bytes());
    if rule.is_candidate {
        hasher.write(Rule::CANDIDATE_SUFFIX.as_bytes());
    }
    hasher.finish()
}
