//! [`Admission`]: the counters of all rules of one set of running policies, and the stores that keep them. Nothing here
//! decides. `decide.rs`, `shared_decision.rs`, `demand.rs` and `prepared.rs` add methods to it.

use std::sync::Arc;

use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::WorkerCounter;
use crate::limit::{Concurrency, Fingerprint, RateLimit, Rule, RuleLimit, Sharing};
use crate::store::permits::{PermitScope, SharedTerms};
use crate::store::shared::sharing_plan::SharingPlan;
use crate::store::{self, LimitSlot, MemoryStore, Permits, RegisteredLimit, SharedStore};

/// What decisions by the rules of one set of running policies need: the counters and the stores. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) store: Arc<MemoryStore>,
    pub(super) permits: Arc<Permits>,
    /// The counters of each rule, by [`Rule::index`].
    counters: Arc<[RuleCounterSet]>,
    pub(super) clock: Clock,
    /// `None` if this gateway counts for itself.
    pub(super) shared: Option<SharedConnection>,
    /// The metrics of costs that never became known, by [`Rule::index`]. Empty where they are not counted.
    pub(super) unknown_cost_counters: Arc<[WorkerCounter]>,
}

/// The store that gateways share, and the connection over which it is called.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    pub(crate) store: Arc<SharedStore>,
    /// A worker's index, or [`SharedStore::background_connection`].
    pub(crate) connection_index: usize,
}

/// Where the counts of one rule and of its overrides are kept.
#[derive(Clone, Debug)]
struct RuleCounterSet {
    /// The counter of keys without an override.
    rule_counter: RuleCounter,
    /// The counter of each override, by its number less one: numbers begin at 1. An override of the rule's shape has
    /// the rule's slot, so a key keeps its counts when it gets the override or loses it.
    override_counters: Box<[RuleCounter]>,
}

/// Where the counts of one rule, or of one override, are kept.
#[derive(Clone, Debug)]
pub(super) enum RuleCounter {
    /// The slot in the memory store, and how gateways share the counts; `None` if there is no store that they share.
    Rate(RegisteredLimit, Option<SharedCounter>),
    /// Where the permits are counted.
    Open(OpenCounter),
}

/// Where the permits of one rule, or of one override, are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCounter {
    pub(super) scope: PermitScope,
    /// How gateways share the permits; `None` if this gateway counts for itself.
    pub(super) shared: Option<SharedTerms>,
}

/// How gateways share a limit. The limit is in an `Arc` so that a pending decision can keep it.
#[derive(Clone, Debug)]
pub(super) struct SharedCounter {
    pub(super) limit: Arc<RateLimit>,
    /// The plan by which they share it, which is no plan of a client. `None` if each gateway counts for itself.
    pub(super) plan: Option<Arc<SharingPlan>>,
}

impl Admission {
    /// Registers the rules with the store. Limits that the store already has keep their counts. No permits are out.
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit.
    pub fn new(
        rules: &[Arc<Rule>],
        store: Arc<MemoryStore>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        Admission::build(rules, store, Arc::default(), clock, None)
    }

    /// Registers the rules as [`Admission::new`] does, with counts that several gateways share. The shared store is called
    /// over [`SharedStore::background_connection`].
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit.
    pub fn shared(
        rules: &[Arc<Rule>],
        shared: Arc<SharedStore>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        let memory = shared.decider.memory.clone();
        let permits = shared.permits.clone();
        shared.connect_permits();
        let shared = SharedConnection {
            connection_index: shared.background_connection(),
            store: shared,
        };
        Admission::build(rules, memory, permits, clock, Some(shared))
    }

    /// The same admission for a worker, with its own connection to the shared store.
    pub fn for_worker(&self, worker_index: usize) -> Admission {
        let shared = self.shared.as_ref();
        Admission {
            shared: shared.map(|shared| SharedConnection {
                store: shared.store.clone(),
                connection_index: worker_index,
            }),
            ..self.clone()
        }
    }

    /// The same admission with these metrics, one for each rule, which count costs that never become known.
    pub fn with_unknown_cost_counters(
        self,
        unknown_cost_counters: Arc<[WorkerCounter]>,
    ) -> Admission {
        Admission {
            unknown_cost_counters,
            ..self
        }
    }

    /// An admission by other rules with the same stores, without metrics of unknown costs. Permits that are out stay out.
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
        store: Arc<MemoryStore>,
        permits: Arc<Permits>,
        clock: Clock,
        shared: Option<SharedConnection>,
    ) -> Result<Admission, store::Error> {
        store.set_wall(clock.wall_offset());
        let register = |rule: &Arc<Rule>| -> Result<RuleCounter, store::Error> {
            match &rule.limit {
                RuleLimit::Rate(limit) => {
                    let registered = store.register(&rule.scope, limit)?;
                    let sharing = shared.as_ref().map(|shared| {
                        let plan = SharingPlan::new(
                            &rule.scope,
                            limit,
                            &registered,
                            rule.sharing,
                            rule.on_store_error,
                        );
                        if let Some(plan) = &plan {
                            shared.store.decider.ledger.record_windows(plan);
                        }
                        SharedCounter {
                            limit: Arc::new(limit.clone()),
                            plan: plan.map(Arc::new),
                        }
                    });
                    Ok(RuleCounter::Rate(registered, sharing))
                }
                RuleLimit::Open(limit) => Ok(RuleCounter::Open(OpenCounter {
                    scope: PermitScope::new(&rule.scope),
                    shared: shared
                        .as_ref()
                        .and_then(|shared| share_permits(&shared.store, rule, limit, clock.now())),
                })),
            }
        };
        let register_rule = |rule: &Arc<Rule>| -> Result<RuleCounterSet, store::Error> {
            let overrides = rule.overrides.iter();
            let overrides = overrides.flat_map(|overrides| &overrides.rules);
            Ok(RuleCounterSet {
                override_counters: overrides.map(register).collect::<Result<_, _>>()?,
                // Last, because it may have one slot with overrides. Of a slot's limits, the store keeps the one that
                // was registered last, for its own work.
                rule_counter: register(rule)?,
            })
        };
        let counters = rules.iter().map(register_rule);
        let counters = counters.collect::<Result<_, store::Error>>()?;
        Ok(Admission {
            store,
            permits,
            counters,
            clock,
            shared,
            unknown_cost_counters: Arc::default(),
        })
    }

    /// Where the counts of a rule, or of an override, are kept. `rule` must be one that the admission was made for; `None`
    /// if its index or number is too high.
    #[inline]
    pub(super) fn counter(&self, rule: &Rule) -> Option<&RuleCounter> {
        let counters = self.counters.get(rule.index)?;
        match usize::from(rule.override_number).checked_sub(1) {
            None => Some(&counters.rule_counter),
            Some(index) => counters.override_counters.get(index),
        }
    }

    /// The slot where the store keeps a rule's counters; `None` if the rule counts permits. `rule` must be one that the
    /// admission was made for.
    pub fn slot(&self, rule: &Rule) -> Option<LimitSlot> {
        match self.counter(rule)? {
            RuleCounter::Rate(registered, _) => Some(registered.slot()),
            RuleCounter::Open(_) => None,
        }
    }

    /// The plan by which several gateways share a rule's counters; `None` if they do not, or if the rule counts permits.
    /// `rule` must be one that the admission was made for.
    pub fn plan(&self, rule: &Rule) -> Option<&Arc<SharingPlan>> {
        match self.counter(rule)? {
            RuleCounter::Rate(_, sharing) => sharing.as_ref()?.plan.as_ref(),
            RuleCounter::Open(_) => None,
        }
    }

    /// Whether this gateway knows what a key has used: of a limit in a shared store, whether that has replied about the key.
    /// `rule` must be one that the admission was made for.
    pub fn knows_use(&self, rule: &Rule, key: Fingerprint) -> bool {
        let (Some(shared), Some(plan)) = (&self.shared, self.plan(rule)) else {
            return true;
        };
        let ledger = &shared.store.decider.ledger;
        ledger.with_entry(&plan.counter_name(key), |entry| entry.has_reply()) == Some(true)
    }

    /// The store that gateways share; `None` if this gateway counts for itself.
    pub fn shared_store(&self) -> Option<&Arc<SharedStore>> {
        self.shared.as_ref().map(|shared| &shared.store)
    }

    /// For each rule, the number of permits that all its keys hold. `None` for limits on a rate.
    pub fn open_permits(&self) -> Vec<Option<u64>> {
        let open_by_scope = self.permits.counts_by_scope();
        let open_permits = self
            .counters
            .iter()
            .map(|counters| match &counters.rule_counter {
                RuleCounter::Rate(..) => None,
                RuleCounter::Open(counter) => {
                    Some(open_by_scope.get(&counter.scope).copied().unwrap_or(0))
                }
            });
        open_permits.collect()
    }

    /// The store that counts in this gateway's memory.
    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    /// The permits of all limits on open requests.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }
}

/// How gateways share the permits of a rule; `None` if they do not. Requests that are open already count from now on.
fn share_permits(
    store: &SharedStore,
    rule: &Rule,
    limit: &Concurrency,
    now: Nanos,
) -> Option<SharedTerms> {
    let is_leased = match rule.sharing {
        Sharing::Local => return None,
        Sharing::Strict => false,
        Sharing::Leased => true,
    };
    let terms = SharedTerms {
        is_leased,
        is_shadow: rule.shadow,
        on_store_error: rule.on_store_error,
    };
    store.record_shared_permits();
    // The plans of these requests are not known here.
    let ceiling = limit.ceiling(limit.max_plan_factor);
    let scope = PermitScope::new(&rule.scope);
    store.permits.adopt(scope, terms, ceiling, now);
    Some(terms)
}
