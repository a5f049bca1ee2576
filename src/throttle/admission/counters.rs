//! The counters of all rules of one set of running policies, and the stores that keep them.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::limit::{Bound, Limit, Rule};
use crate::store::permits::Scope;
use crate::store::shared::plan::Plan;
use crate::store::{self, Memory, Permits, Registered, Shared, Slot};

/// Decides by the rules of one set of running policies.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) store: Arc<Memory>,
    pub(super) permits: Arc<Permits>,
    pub(super) counters: Arc<[Counter]>,
    pub(super) clock: Clock,
    /// The store that gateways share, and which connection to it is used.
    pub(super) shared: Option<(Arc<Shared>, usize)>,
    /// For each rule, costs that never became known; empty where nobody counts them.
    pub(super) unknown: Arc<[metrics::Counter]>,
}

/// Where the counts of a rule are kept.
#[derive(Clone, Debug)]
pub(super) enum Counter {
    /// Here, and how several gateways share them.
    Rate(Registered, Option<Sharing>),
    Open(Scope),
}

/// How a limit is shared, and the limit where it can be kept beyond a request.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    pub(super) limit: Arc<Limit>,
    pub(super) plan: Option<Arc<Plan>>,
}

impl Admission {
    /// Makes the rules known to the store; counters of limits it already knows go on.
    pub fn new(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        Admission::over(rules, store, Arc::default(), clock, None)
    }

    /// The same, by counts that several gateways share.
    pub fn shared(
        rules: &[Arc<Rule>],
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        let (memory, outsider) = (shared.core.memory.clone(), shared.outsider());
        let shared = Some((shared, outsider));
        Admission::over(rules, memory, Arc::default(), clock, shared)
    }

    /// The same for a worker, with a connection of its own.
    pub fn for_worker(&self, worker: usize) -> Admission {
        let shared = self.shared.as_ref();
        Admission {
            shared: shared.map(|(shared, _)| (shared.clone(), worker)),
            ..self.clone()
        }
    }

    /// The same, counting costs that never become known; a counter for each rule.
    pub fn counting(self, unknown: Arc<[metrics::Counter]>) -> Admission {
        Admission { unknown, ..self }
    }

    /// By other rules, over the same counts: a permit that is out stays out.
    pub fn with_rules(&self, rules: &[Arc<Rule>]) -> Result<Admission, store::Error> {
        let (store, permits) = (self.store.clone(), self.permits.clone());
        let shared = self.shared.clone();
        Admission::over(rules, store, permits, self.clock.clone(), shared)
    }

    fn over(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        permits: Arc<Permits>,
        clock: Clock,
        shared: Option<(Arc<Shared>, usize)>,
    ) -> Result<Admission, store::Error> {
        let counter = |rule: &Arc<Rule>| -> Result<Counter, store::Error> {
            match &rule.limit {
                Bound::Rate(limit) => {
                    let registered = store.register(&rule.scope, limit)?;
                    let terms = (rule.sharing, rule.on_store_error);
                    let sharing = shared.as_ref().map(|_| Sharing {
                        limit: Arc::new(limit.clone()),
                        plan: Plan::new(&rule.scope, limit, &registered, terms).map(Arc::new),
                    });
                    Ok(Counter::Rate(registered, sharing))
                }
                Bound::Open(_) => Ok(Counter::Open(Scope::new(&rule.scope))),
            }
        };
        let counters = rules.iter().map(counter);
        let counters = counters.collect::<Result<_, store::Error>>()?;
        Ok(Admission {
            store,
            permits,
            counters,
            clock,
            shared,
            unknown: Arc::default(),
        })
    }

    /// Where the store keeps a rule's counters, unless the rule counts permits.
    pub fn slot(&self, rule: &Rule) -> Option<Slot> {
        match self.counters.get(rule.index)? {
            Counter::Rate(registered, _) => Some(registered.slot()),
            Counter::Open(_) => None,
        }
    }

    /// How several gateways share a rule's counters, if they do.
    pub fn plan(&self, rule: &Rule) -> Option<&Arc<Plan>> {
        match self.counters.get(rule.index)? {
            Counter::Rate(_, sharing) => sharing.as_ref()?.plan.as_ref(),
            Counter::Open(_) => None,
        }
    }

    /// The store that gateways share.
    pub fn shared_store(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref().map(|(shared, _)| shared)
    }

    /// Permits that are out, of all keys of each rule, in the order of the rules; nothing for a rule
    /// on a rate.
    pub fn open(&self) -> Vec<Option<u64>> {
        let out = self.permits.out();
        let each = self.counters.iter().map(|counter| match counter {
            Counter::Rate(..) => None,
            Counter::Open(scope) => Some(out.get(scope).copied().unwrap_or(0)),
        });
        each.collect()
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<Memory> {
        &self.store
    }

    /// The permits behind.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }
}
