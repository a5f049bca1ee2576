//! One worker's copy of the running policies. A reload makes a new one; requests under way finish
//! with the one they began with.

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
use crate::net::tls::acme::Tokens;
use crate::policy::Ruleset;
use crate::record::insight::{Facts, Sampler};
use crate::serve::access::members;
use crate::serve::stack::outcome::{RequestOutcome, origin};
use crate::serve::stack::refusal_cache::RefusalCache;
use crate::throttle::admission::Admission;
use crate::upstream::pool::Counters;
use crate::upstream::{Pool, Servers};

/// What the workers are told to run by.
#[derive(Clone, Debug)]
pub struct Running {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Their limits, known to the store.
    pub admission: Admission,
    /// What the process knows of the servers of each upstream.
    pub upstreams: Vec<Arc<Servers>>,
    /// The process's key for everything that is stored, where gateways share no other.
    pub own: Keyer,
    /// What clients meet at the listeners, in their order.
    pub entrances: Arc<[RunningEntrance]>,
    /// What listeners without TLS answer to ACME directories.
    pub tokens: Tokens,
    /// Who is counted, where that is recorded.
    pub facts: Option<Arc<Facts>>,
}

impl Running {
    /// The key for everything that is stored.
    pub fn keyer(&self) -> Keyer {
        self.secret().map_or_else(|| self.own.clone(), Keyer::new)
    }

    /// What gateways that share a store hash under, once it is known.
    fn secret(&self) -> Option<[u8; 16]> {
        self.admission.shared_store()?.secret()
    }
}

/// One worker's copy of the running policies.
pub struct Generation {
    /// The compiled policies.
    pub ruleset: Arc<Ruleset>,
    /// Knows who asks.
    pub identifier: Identifier,
    /// Decides.
    pub admission: Admission,
    /// One pool for each upstream.
    pub pools: Vec<Rc<Pool>>,
    /// What each route's requests are to its upstream's pressure.
    pub kinds: Vec<RequestKind>,
    /// Counters of requests, for each route and one more for requests without a route.
    pub routes: Vec<RouteCounters>,
    /// Counters of decisions, for each limit.
    pub rules: Vec<RuleCounters>,
    /// Counters of credentials that proved nobody.
    pub unverified: UnverifiedCounters,
    /// See [`Running::entrances`].
    pub entrances: Arc<[RunningEntrance]>,
    /// See [`Running::tokens`].
    pub tokens: Tokens,
    /// See [`Running::facts`].
    pub facts: Option<Arc<Facts>>,
    /// Chooses single requests for it.
    pub sampler: Sampler,
    /// Time.
    pub clock: Clock,
    /// Refusals told before.
    pub refusals: RefusalCache,
    running: Running,
    secret: Option<[u8; 16]>,
}

/// Counters of one route.
pub struct RouteCounters {
    /// By [`RequestOutcome`].
    pub outcomes: [Counter; 6],
    /// Requests that found it.
    pub started: Counter,
    /// Bytes of responses' bodies.
    pub bytes: Counter,
    /// From arrival to the end of the response.
    pub took: Histogram,
    /// From the connection to the upstream to the head of its response.
    pub upstream: Histogram,
    /// By status, and whether the upstream gave the response; as they appear.
    responses: RefCell<Vec<((u16, bool), Counter)>>,
    /// What the access log says of it.
    pub logged: Box<[u8]>,
    registry: Registry,
    worker: usize,
    route: Box<str>,
}

/// Counters of one limit.
pub struct RuleCounters {
    /// Within the rate.
    pub within: Counter,
    /// Above the rate, admitted.
    pub over: Counter,
    /// Refused.
    pub refused: Counter,
    /// Would have been refused.
    pub shadow_refused: Counter,
    /// Costs that never became known.
    pub unknown: Counter,
    /// Tells its keys from those of other limits.
    pub mark: u64,
    /// What the access log says of it.
    pub logged: Box<[u8]>,
}

/// Counters of credentials that proved nobody, by reason; as they appear.
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
    /// Builds a worker's copy. Pools of upstreams that did not change go on.
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
                Pool::new(servers, clock.clone(), counters, worker as u64, flushes)
            })
        });
        let pools: Vec<Rc<Pool>> = pools.collect();
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
            facts: running.facts.clone(),
            sampler: Sampler::default(),
            clock: clock.clone(),
            refusals: RefusalCache::default(),
            secret: running.secret(),
            running: running.clone(),
        }
    }

    /// What it runs by, where that must be built anew: gateways share another secret than it was built with.
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

/// What tells a limit's keys from those of others.
pub fn mark(rule: &Rule) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(rule.name.as_str().as_bytes());
    hasher.finish()
}
