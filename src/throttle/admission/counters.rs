//! [`Admission`]: the counters of all rules of one set of running policies, and the stores that keep them. Decisions
//! are in `decide.rs` and `shared_decision.rs`.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::limit::{Limit, Rule, RuleLimit};
use crate::store::permits::PermitScope;
use crate::store::shared::plan::SharingPlan;
use crate::store::{self, Memory, Permits, Registered, Shared, Slot};

/// Decides by the rules of one set of running policies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) store: Arc<Memory>,
    pub(super) permits: Arc<Permits>,
    pub(super) counters: Arc<[RuleCounter]>,
    pub(super) clock: Clock,
    /// The store that gateways share, and the index of the connection to it.
    pub(super) shared: Option<(Arc<Shared>, usize)>,
    /// A counter for each rule of costs that never became known; empty where they are not counted.
    pub(super) unknown_costs: Arc<[metrics::Counter]>,
}

/// Where the counts of a rule are kept.
#[derive(Clone, Debug)]
pub(super) enum RuleCounter {
    /// The slot in the memory store, and how gateways share the counts, if they do.
    Rate(Registered, Option<SharedCounter>),
    /// The scope of the permits.
    Open(PermitScope),
}

/// How gateways share a limit. Without a plan each gateway counts for itself. The limit is in an `Arc` so that a
/// pending decision can keep it.
#[derive(Clone, Debug)]
pub(super) struct SharedCounter {
    pub(super) limit: Arc<Limit>,
    pub(super) plan: Option<Arc<SharingPlan>>,
}

impl Admission {
    /// Registers the rules with the store. Limits that the store already has keep their counts.
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit.
    pub fn new(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        Admission::build(rules, store, Arc::default(), clock, None)
    }

    /// Registers the rules as [`Admission::new`] does, with counts that several gateways share.
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit.
    pub fn shared(
        rules: &[Arc<Rule>],
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        let (memory, connection) = (
            shared.decider.memory.clone(),
            shared.background_connection(),
        );
        let shared = Some((shared, connection));
        Admission::build(rules, memory, Arc::default(), clock, shared)
    }

    /// The same admission for a worker, with its own connection to the shared store.
    pub fn for_worker(&self, worker: usize) -> Admission {
        let shared = self.shared.as_ref();
        Admission {
            shared: shared.map(|(shared, _)| (shared.clone(), worker)),
            ..self.clone()
        }
    }

    /// The same admission, which counts costs that never become known; one counter for each rule.
    pub fn with_unknown_costs(self, unknown_costs: Arc<[metrics::Counter]>) -> Admission {
        Admission {
            unknown_costs,
            ..self
        }
    }

    /// The same stores under other rules. Permits that are out stay out.
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit.
    pub fn with_rules(&self, rules: &[Arc<Rule>]) -> Result<Admission, store::Error> {
        let (store, permits) = (self.store.clone(), self.permits.clone());
        let shared = self.shared.clone();
        Admission::build(rules, store, permits, self.clock.clone(), shared)
    }

    fn build(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        permits: Arc<Permits>,
        clock: Clock,
        shared: Option<(Arc<Shared>, usize)>,
    ) -> Result<Admission, store::Error> {
        let register_rule = |rule: &Arc<Rule>| -> Result<RuleCounter, store::Error> {
            match &rule.limit {
                RuleLimit::Rate(limit) => {
                    let registered = store.register(&rule.scope, limit)?;
                    let modes = (rule.sharing, rule.on_store_error);
                    let sharing = shared.as_ref().map(|_| SharedCounter {
                        limit: Arc::new(limit.clone()),
                        plan: SharingPlan::new(&rule.scope, limit, &registered, modes)
                            .map(Arc::new),
                    });
                    Ok(RuleCounter::Rate(registered, sharing))
                }
                RuleLimit::Open(_) => Ok(RuleCounter::Open(PermitScope::new(&rule.scope))),
            }
        };
        let counters = rules.iter().map(register_rule);
        let counters = counters.collect::<Result<_, store::Error>>()?;
        Ok(Admission {
            store,
            permits,
            counters,
            clock,
            shared,
            unknown_costs: Arc::default(),
        })
    }

    /// The slot where the store keeps a rule's counters. None if the rule counts permits.
    pub fn slot(&self, rule: &Rule) -> Option<Slot> {
        match self.counters.get(rule.index)? {
            RuleCounter::Rate(registered, _) => Some(registered.slot()),
            RuleCounter::Open(_) => None,
        }
    }

    /// The plan by which several gateways share a rule's counters, if they do.
    pub fn plan(&self, rule: &Rule) -> Option<&Arc<SharingPlan>> {
        match self.counters.get(rule.index)? {
            RuleCounter::Rate(_, sharing) => sharing.as_ref()?.plan.as_ref(),
            RuleCounter::Open(_) => None,
        }
    }

    /// The store that gateways share, if there is one.
    pub fn shared_store(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref().map(|(shared, _)| shared)
    }

    /// The number of permits that are out for each rule, of all keys together. None for limits on a rate.
    pub fn open_permits(&self) -> Vec<Option<u64>> {
        let open_by_scope = self.permits.counts_by_scope();
        let open = self.counters.iter().map(|counter| match counter {
            RuleCounter::Rate(..) => None,
            RuleCounter::Open(scope) => Some(open_by_scope.get(scope).copied().unwrap_or(0)),
        });
        open.collect()
    }

    /// The memory store.
    pub fn store(&self) -> &Arc<Memory> {
        &self.store
    }

    /// The permits of all limits on open requests.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }
}
