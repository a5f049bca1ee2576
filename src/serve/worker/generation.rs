//! The running configuration: as all workers get it ([`Running`]), and as one worker runs it ([`Generation`]). A reload makes
//! a new generation; open requests finish with the one that they began with.

use std::cell::{OnceCell, RefCell};
use std::hash::Hasher as _;
use std::rc::Rc;
use std::sync::Arc;

use metrics::Counter;
use siphasher::sip::SipHasher13;

use super::listen::RunningEntrance;
use crate::base::clock::Clock;
use crate::base::telemetry::{Histogram, Label, Metric, Registry};
use crate::identity::{Identifier, Keyer, Unverified};
use crate::limit::Rule;
use crate::limit::pressure::RequestKind;
use crate::net::Flushes;
use crate::net::tls::acme::ChallengeTokens;
use crate::policy::Ruleset;
use crate::record::insight::{Insight, Sampler};
use crate::serve::access::members;
use crate::serve::stack::outcome::{RequestOutcome, origin};
use crate::serve::stack::refusal_cache::RefusalCache;
use crate::throttle::admission::Admission;
use crate::upstream::pool::Counters;
use crate::upstream::{Servers, UpstreamPool};

/// The running configuration, as all workers get it.
#[derive(Clone, Debug)]
pub struct Running {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Admission by their limits, which the store has been told.
    pub admission: Admission,
    /// The state of the servers of each upstream.
    pub upstreams: Vec<Arc<Servers>>,
    /// The process's own key for hashing what is stored. Gateways that share a store use its secret instead.
    pub own: Keyer,
    /// What is spoken at each listener, in their order.
    pub entrances: Arc<[RunningEntrance]>,
    /// Responses to ACME challenges at listeners without TLS.
    pub tokens: ChallengeTokens,
    /// Top keys and samples, if they are recorded.
    pub insight: Option<Arc<Insight>>,
}

impl Running {
    /// The key for hashing what is stored.
    pub fn keyer(&self) -> Keyer {
        self.secret().map_or_else(|| self.own.clone(), Keyer::new)
    }

    /// The secret of the gateways that share a store, once it is known.
    fn secret(&self) -> Option<[u8; 16]> {
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
    /// One pool for each upstream.
    pub pools: Vec<Rc<UpstreamPool>>,
    /// The kind of each route's requests, for the pressure on its upstream.
    pub kinds: Vec<RequestKind>,
    /// Counters of requests, for each route and one more for requests without a route.
    pub routes: Vec<RouteCounters>,
    /// Counters of decisions, for each limit.
    pub rules: Vec<RuleCounters>,
    /// Counters of credentials that did not verify.
    pub unverified: UnverifiedCounters,
    /// See [`Running::entrances`].
    pub entrances: Arc<[RunningEntrance]>,
    /// See [`Running::tokens`].
    pub tokens: ChallengeTokens,
    /// See [`Running::insight`].
    pub insight: Option<Arc<Insight>>,
    /// Chooses which requests are samples.
    pub sampler: Sampler,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
    /// Responses to refusals that were made before.
    pub refusals: RefusalCache,
    running: Running,
    secret: Option<[u8; 16]>,
}

/// Counters of one route.
pub struct RouteCounters {
    /// By [`RequestOutcome`].
    pub outcomes: [Counter; 6],
    /// Requests that were routed to it.
    pub started: Counter,
    /// Bytes of responses' bodies.
    pub bytes: Counter,
    /// From arrival to the end of the response.
    pub took: Histogram,
    /// From the connection to the upstream to the head of its response.
    pub upstream: Histogram,
    /// By status, and whether the upstream gave the response. Entries are added as they appear.
    responses: RefCell<Vec<((u16, bool), Counter)>>,
    /// Its members of a line in the access log.
    pub logged: Box<[u8]>,
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
    /// Requests that it refused.
    pub refused: Counter,
    /// Requests that it would have refused if it were not in shadow mode.
    pub shadow_refused: Counter,
    /// Costs that never became known.
    pub unknown: Counter,
    /// See [`mark`].
    pub mark: u64,
    /// Its members of a line in the access log.
    pub logged: Box<[u8]>,
}

/// Counters of credentials that did not verify, by reason. Each is registered when it is first needed.
pub struct UnverifiedCounters {
    reasons: [OnceCell<Counter>; Unverified::ALL.len()],
    registry: Registry,
    worker: usize,
}

impl UnverifiedCounters {
    fn new(registry: &Registry, worker: usize) -> UnverifiedCounters {
        UnverifiedCounters {
            reasons: Default::default(),
            registry: registry.clone(),
            worker,
        }
    }

    /// Counts one.
    pub fn count(&self, reason: Unverified) {
        let counter = self.reasons[reason as usize].get_or_init(|| {
            let labels = [(Label::Reason, reason.as_str())];
            let metric = Metric::UnverifiedCredentials;
            self.registry.worker_counter(self.worker, metric, &labels)
        });
        counter.increment(1);
    }
}

impl Generation {
    /// Builds the generation of a worker. Pools of upstreams that did not change are taken over from `before`.
    pub fn new(
        running: &Running,
        before: Option<&Generation>,
        worker: usize,
        registry: &Registry,
        clock: &Clock,
        flushes: &Rc<Flushes>,
    ) -> Generation {
        let ruleset = running.ruleset.clone();
        let kept = |servers: &Arc<Servers>| {
            let mut pools = before.iter().flat_map(|before| &before.pools);
            let kept = pools.find(|pool| Arc::ptr_eq(pool.servers(), servers));
            kept.cloned()
        };
        let pools = running.upstreams.iter().map(|servers| {
            kept(servers).unwrap_or_else(|| {
                let labels = [(Label::Upstream, servers.settings.name.as_str())];
                let counter = |metric| registry.worker_counter(worker, metric, &labels);
                let counters = Counters {
                    connected: counter(Metric::UpstreamConnects),
                    retried: counter(Metric::UpstreamRetries),
                };
                let (servers, flushes) = (servers.clone(), flushes.clone());
                UpstreamPool::new(servers, clock.clone(), counters, worker as u64, flushes)
            })
        });
        let pools: Vec<Rc<UpstreamPool>> = pools.collect();
        let kinds = ruleset.routes.iter().map(|route| {
            let pressure = pools[route.upstream].servers().pressure();
            pressure.map_or_else(RequestKind::default, |pressure| pressure.kind(&route.name))
        });
        let kinds = kinds.collect();
        let names = ruleset
            .routes
            .iter()
            .map(|route| &*route.name)
            .chain(["none"]);
        let routes = names
            .map(|name| RouteCounters::new(registry, worker, name))
            .collect();
        let rules = ruleset.rules.iter();
        let rules = rules.map(|rule| RuleCounters::new(registry, worker, rule));
        let rules: Vec<RuleCounters> = rules.collect();
        let unknown = rules
            .iter()
            .map(|counters| counters.unknown.clone())
            .collect();
        Generation {
            identifier: Identifier::new(ruleset.identity.clone(), running.keyer()),
            admission: running
                .admission
                .for_worker(worker)
                .with_unknown_costs(unknown),
            pools,
            kinds,
            routes,
            rules,
            unverified: UnverifiedCounters::new(registry, worker),
            ruleset,
            entrances: running.entrances.clone(),
            tokens: running.tokens.clone(),
            insight: running.insight.clone(),
            sampler: Sampler::default(),
            clock: clock.clone(),
            refusals: RefusalCache::default(),
            secret: running.secret(),
            running: running.clone(),
        }
    }

    /// The configuration, if the generation must be built anew because the shared secret has changed since.
    pub fn outdated(&self) -> Option<&Running> {
        (self.running.secret() != self.secret).then_some(&self.running)
    }

    /// The counters of a route, or of requests without one.
    pub fn route_counters(&self, route: Option<usize>) -> &RouteCounters {
        let last = self.routes.len() - 1;
        &self.routes[route.unwrap_or(last).min(last)]
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
            bytes: registry.worker_counter(worker, Metric::ResponseBytes, &[label]),
            took: Histogram::new(registry, worker, total, label),
            upstream: Histogram::new(registry, worker, upstream, label),
            responses: RefCell::default(),
            logged: members::of_route(route),
            registry: registry.clone(),
            worker,
            route: route.into(),
        }
    }

    /// Counts a response.
    pub fn count_response(&self, status: u16, by_upstream: bool) {
        let mut responses = self.responses.borrow_mut();
        let key = (status, by_upstream);
        if let Some((_, counter)) = responses.iter().find(|(known, _)| *known == key) {
            return counter.increment(1);
        }
        let response = (status, origin(by_upstream));
        let counter = self
            .registry
            .response_counter(self.worker, &self.route, response);
        counter.increment(1);
        // There are no more than a thousand statuses.
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
            unknown: match rule.count.is_cost() {
                true => {
                    let labels = [(Label::Limit, limit)];
                    registry.worker_counter(worker, Metric::CostUnknown, &labels)
                }
                false => Counter::noop(),
            },
            mark: mark(rule),
            logged: members::of_rule(rule),
        }
    }
}

/// A number that tells the keys of a limit from those of other limits: a hash of its name.
pub fn mark(rule: &Rule) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(rule.name.as_str().as_bytes());
    hasher.finish()
}
