//! The running configuration: as all workers get it ([`RunningConfig`]), and as one worker runs it ([`Generation`]) with
//! its own pools and counters.
//!
//! A generation never changes: a reload makes a new one, and open requests finish with the one that they began with.

use std::cell::{OnceCell, RefCell};
use std::hash::Hasher as _;
use std::rc::Rc;
use std::sync::Arc;

use metrics::Counter;
use siphasher::sip::SipHasher13;

use super::listen::RunningListener;
use crate::base::clock::Clock;
use crate::base::telemetry::{Histogram, Label, Metric, Registry};
use crate::identity::{Identifier, Keyer, Unverified};
use crate::limit::Rule;
use crate::limit::pressure::RequestKind;
use crate::net::FlushQueue;
use crate::net::tls::acme::ChallengeTokens;
use crate::policy::Ruleset;
use crate::record::insight::{Insight, Sampler};
use crate::serve::access::members;
use crate::serve::stack::outcome::{RequestOutcome, response_origin};
use crate::serve::stack::refusal_cache::RefusalCache;
use crate::throttle::admission::Admission;
use crate::upstream::pool::PoolCounters;
use crate::upstream::{Servers, UpstreamPool};

/// The running configuration, as all workers get it.
#[derive(Clone, Debug)]
pub struct RunningConfig {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Admission by the limits of the policies, which the store knows already.
    pub admission: Admission,
    /// The state of the servers of each upstream.
    pub upstreams: Vec<Arc<Servers>>,
    /// The process's own key for hashing what is stored. Gateways that share a store use the secret of the store instead.
    pub own_keyer: Keyer,
    /// The TLS and proxy settings of each listener, in the order of the policy.
    pub listeners: Arc<[RunningListener]>,
    /// Responses to ACME challenges at listeners without TLS.
    pub tokens: ChallengeTokens,
    /// Top keys and samples, if they are recorded.
    pub insight: Option<Arc<Insight>>,
}

impl RunningConfig {
    /// The key for hashing what is stored.
    pub fn keyer(&self) -> Keyer {
        self.shared_secret()
            .map_or_else(|| self.own_keyer.clone(), Keyer::new)
    }

    /// The secret of the gateways that share a store, once the store has sent it.
    fn shared_secret(&self) -> Option<[u8; 16]> {
        self.admission.shared_store()?.secret()
    }
}

/// The running configuration, as one worker runs it.
pub struct Generation {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Finds the identities of clients.
    pub identifier: Identifier,
    /// Decides by limits.
    pub admission: Admission,
    /// One pool of connections for each upstream.
    pub pools: Vec<Rc<UpstreamPool>>,
    /// The kind of each route's requests, by which the elastic limits of its upstream tell them apart.
    pub kinds: Vec<RequestKind>,
    /// Counters of requests, for each route and one more for requests without a route.
    pub routes: Vec<RouteCounters>,
    /// Counters of decisions, for each limit.
    pub rules: Vec<RuleCounters>,
    /// Counters of credentials that did not verify.
    pub unverified: UnverifiedCounters,
    /// See [`RunningConfig::listeners`].
    pub listeners: Arc<[RunningListener]>,
    /// See [`RunningConfig::tokens`].
    pub tokens: ChallengeTokens,
    /// See [`RunningConfig::insight`].
    pub insight: Option<Arc<Insight>>,
    /// Chooses which requests are samples.
    pub sampler: Sampler,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
    /// Responses to recent refusals.
    pub refusals: RefusalCache,
    running: RunningConfig,
    /// The secret of the shared store that `identifier` was built with.
    shared_secret: Option<[u8; 16]>,
}

/// Counters of one route.
pub struct RouteCounters {
    /// Requests by [`RequestOutcome`].
    pub outcomes: [Counter; 6],
    /// Requests that were routed to it.
    pub started: Counter,
    /// Bytes of response bodies.
    pub response_bytes: Counter,
    /// Seconds from the arrival of a request to the end of its response.
    pub duration: Histogram,
    /// Seconds from the connection to the upstream to the head of its response.
    pub upstream_duration: Histogram,
    /// Responses by status, and by whether the upstream gave them. A counter is added when its status first occurs.
    responses: RefCell<Vec<((u16, bool), Counter)>>,
    /// What each line of the access log says of the route, as JSON members.
    pub log_members: Box<[u8]>,
    registry: Registry,
    worker: usize,
    route: Box<str>,
}

/// Counters of one limit.
pub struct RuleCounters {
    /// Requests within the rate.
    pub within: Counter,
    /// Requests above the rate that were admitted.
    pub over: Counter,
    /// Requests that the limit refused.
    pub refused: Counter,
    /// Requests that the limit would have refused if it were not in shadow mode.
    pub shadow_refused: Counter,
    /// Requests whose cost never became known.
    pub unknown_cost: Counter,
    /// See [`limit_hash`].
    pub limit_hash: u64,
    /// What each line of the access log says of the limit, as JSON members.
    pub log_members: Box<[u8]>,
}

/// Counters of credentials that did not verify. Each is registered when its reason first occurs.
pub struct UnverifiedCounters {
    by_reason: [OnceCell<Counter>; Unverified::ALL.len()],
    registry: Registry,
    worker: usize,
}

impl UnverifiedCounters {
    fn new(registry: &Registry, worker: usize) -> UnverifiedCounters {
        UnverifiedCounters {
            by_reason: Default::default(),
            registry: registry.clone(),
            worker,
        }
    }

    /// Counts a credential that did not verify for this reason.
    pub fn count(&self, reason: Unverified) {
        let counter = self.by_reason[reason as usize].get_or_init(|| {
            let labels = [(Label::Reason, reason.as_str())];
            let metric = Metric::UnverifiedCredentials;
            self.registry.worker_counter(self.worker, metric, &labels)
        });
        counter.increment(1);
    }
}

impl Generation {
    /// Builds the generation of a worker. It keeps the pools of `previous` for upstreams that did not change.
    pub fn new(
        running: &RunningConfig,
        previous: Option<&Generation>,
        worker: usize,
        registry: &Registry,
        clock: &Clock,
        flushes: &Rc<FlushQueue>,
    ) -> Generation {
        let ruleset = running.ruleset.clone();
        let new_pool = |servers: &Arc<Servers>| {
            let counters = upstream_counters(registry, worker, &servers.settings.name);
            let (servers, flushes) = (servers.clone(), flushes.clone());
            UpstreamPool::new(servers, clock.clone(), counters, worker as u64, flushes)
        };
        let pools: Vec<Rc<UpstreamPool>> = running
            .upstreams
            .iter()
            .map(|servers| {
                previous
                    .and_then(|previous| previous.pool_of(servers))
                    .unwrap_or_else(|| new_pool(servers))
            })
            .collect();
        let kinds = ruleset.routes.iter().map(|route| {
            let pressure = pools[route.upstream_index].servers().pressure();
            pressure.map_or_else(RequestKind::default, |pressure| pressure.kind(&route.name))
        });
        let kinds = kinds.collect();
        let route_names = ruleset
            .routes
            .iter()
            .map(|route| &*route.name)
            .chain(["none"]);
        let routes = route_names
            .map(|name| RouteCounters::new(registry, worker, name))
            .collect();
        let rules: Vec<RuleCounters> = ruleset
            .rules
            .iter()
            .map(|rule| RuleCounters::new(registry, worker, rule))
            .collect();
        let unknown_costs = rules
            .iter()
            .map(|counters| counters.unknown_cost.clone())
            .collect();
        Generation {
            identifier: Identifier::new(ruleset.identity.clone(), running.keyer()),
            admission: running
                .admission
                .for_worker(worker)
                .with_unknown_cost_counters(unknown_costs),
            pools,
            kinds,
            routes,
            rules,
            unverified: UnverifiedCounters::new(registry, worker),
            ruleset,
            listeners: running.listeners.clone(),
            tokens: running.tokens.clone(),
            insight: running.insight.clone(),
            sampler: Sampler::default(),
            clock: clock.clone(),
            refusals: RefusalCache::default(),
            shared_secret: running.shared_secret(),
            running: running.clone(),
        }
    }

    fn pool_of(&self, servers: &Arc<Servers>) -> Option<Rc<UpstreamPool>> {
        let mut pools = self.pools.iter();
        let pool = pools.find(|pool| Arc::ptr_eq(pool.servers(), servers));
        pool.cloned()
    }

    /// The configuration, if a new generation must be built from it because the shared secret has changed.
    pub fn outdated_config(&self) -> Option<&RunningConfig> {
        (self.running.shared_secret() != self.shared_secret).then_some(&self.running)
    }

    /// The counters of a route, or of requests without one.
    pub fn route_counters(&self, route: Option<usize>) -> &RouteCounters {
        let last = self.routes.len() - 1;
        &self.routes[route.unwrap_or(last).min(last)]
    }
}

fn upstream_counters(registry: &Registry, worker: usize, upstream: &str) -> PoolCounters {
    let labels = [(Label::Upstream, upstream)];
    let counter = |metric| registry.worker_counter(worker, metric, &labels);
    PoolCounters {
        connected: counter(Metric::UpstreamConnects),
        retried: counter(Metric::UpstreamRetries),
    }
}

impl RouteCounters {
    fn new(registry: &Registry, worker: usize, route: &str) -> RouteCounters {
        let counter = |outcome: RequestOutcome| {
            let labels = [(Label::Route, route), (Label::Outcome, outcome.as_str())];
            registry.worker_counter(worker, Metric::Requests, &labels)
        };
        let label = (Label::Route, route);
        let total = (Metric::RequestDuration, Metric::RequestSeconds);
        let upstream = (Metric::UpstreamDuration, Metric::UpstreamSeconds);
        RouteCounters {
            outcomes: RequestOutcome::ALL.map(counter),
            started: registry.worker_counter(worker, Metric::RequestsStarted, &[label]),
            response_bytes: registry.worker_counter(worker, Metric::ResponseBytes, &[label]),
            duration: Histogram::new(registry, worker, total, label),
            upstream_duration: Histogram::new(registry, worker, upstream, label),
            responses: RefCell::default(),
            log_members: members::route_members(route),
            registry: registry.clone(),
            worker,
            route: route.into(),
        }
    }

    /// Counts a response.
    pub fn count_response(&self, status: u16, by_upstream: bool) {
        let mut responses = self.responses.borrow_mut();
        let key = (status, by_upstream);
        if let Some((_, counter)) = responses.iter().find(|(counted, _)| *counted == key) {
            return counter.increment(1);
        }
        let response = (status, response_origin(by_upstream));
        let counter = self
            .registry
            .response_counter(self.worker, &self.route, response);
        counter.increment(1);
        // The list is bounded: there are no more than a thousand statuses.
        responses.push((key, counter));
    }
}

impl RuleCounters {
    fn new(registry: &Registry, worker: usize, rule: &Rule) -> RuleCounters {
        let limit = rule.name.as_str();
        let counter = |outcome| {
            let labels = [(Label::Limit, limit), (Label::Outcome, outcome)];
            registry.worker_counter(worker, Metric::LimitDecisions, &labels)
        };
        RuleCounters {
            within: counter("within"),
            over: counter("over"),
            refused: counter("refused"),
            shadow_refused: counter("shadow_refused"),
            unknown_cost: match rule.count.is_cost() {
                true => {
                    let labels = [(Label::Limit, limit)];
                    registry.worker_counter(worker, Metric::CostUnknown, &labels)
                }
                false => Counter::noop(),
            },
            limit_hash: limit_hash(rule),
            log_members: members::limit_members(rule),
        }
    }
}

/// A hash of the limit's name, which keeps its keys apart from those of other limits in lists of top keys.
pub fn limit_hash(rule: &Rule) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(rule.name.as_str().as_bytes());
    hasher.finish()
}
