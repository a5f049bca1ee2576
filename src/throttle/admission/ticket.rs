//! The single planned step back from response to limits, and the permits that go back at the end.

use std::sync::Arc;

use crate::base::clock::{Clock, Nanos};
use crate::limit::cost;
use crate::limit::{Count, Fingerprint, Identity, Rule, Scale};
use crate::store::permits::Taken;
use crate::store::shared::Shared;
use crate::store::shared::core::{Asking, Counted};
use crate::store::shared::plan::Plan;
use crate::store::{Item, Memory, Parent, Registered};

use super::charge::{Charge, Outcome};
use super::counters::{Admission, Counter};
use super::stake::{Costs, Stake};

/// What was reserved when a request was admitted. It must be settled once the answer is known; one
/// that is dropped counts what it reserved, so that hanging up early never buys another attempt.
///
/// It also holds the request's permits, where the number of open requests is limited: keep it until
/// the last of the answer is handed on. They go back when it is dropped, whatever ends the request.
///
/// On the heap, for a ticket goes through many hands, mostly with nothing.
#[derive(Debug, Default)]
#[must_use = "a reservation stays counted until it is settled, and permits are out until it is dropped"]
pub struct Ticket(Option<Box<Holding>>);

/// What a ticket holds.
#[derive(Debug, Default)]
struct Holding {
    reservations: Vec<Reservation>,
    permits: Option<Arc<Taken>>,
    costs: Option<Arc<Costs>>,
}

#[derive(Debug)]
struct Reservation {
    clock: Clock,
    store: Arc<Memory>,
    rule: Arc<Rule>,
    registered: Registered,
    key: Fingerprint,
    units: u32,
    multiply: u32,
    parents: Box<[Parent]>,
    sketched: bool,
    /// The store that gateways share, and on which of its connections it was asked.
    shared: Option<(Arc<Shared>, usize)>,
    plan: Option<Arc<Plan>>,
    counted: Counted,
    unknown: Option<metrics::Counter>,
}

impl Ticket {
    fn reservations(&self) -> &[Reservation] {
        let holding = self.0.as_ref();
        holding.map_or(&[], |holding| &holding.reservations)
    }

    /// Keeps what `item` reserved; `sketched` is what its reading said.
    pub(crate) fn hold(
        &mut self,
        admission: &Admission,
        rule: Arc<Rule>,
        item: &Item<'_>,
        sketched: bool,
        counted: Counted,
    ) {
        let Counter::Rate(registered, sharing) = &admission.counters[rule.index] else {
            return;
        };
        let holding = self.0.get_or_insert_default();
        if rule.count.is_cost() {
            holding.costs.get_or_insert_default();
        }
        holding.reservations.push(Reservation {
            unknown: admission.unknown.get(rule.index).cloned(),
            clock: admission.clock.clone(),
            store: admission.store.clone(),
            registered: registered.clone(),
            rule,
            key: item.key,
            units: item.cost,
            multiply: item.scale.multiply,
            parents: item.parents.into(),
            sketched,
            shared: admission.shared.clone(),
            plan: sharing.as_ref().and_then(|sharing| sharing.plan.clone()),
            counted,
        });
    }

    /// Keeps permits until it is dropped.
    pub(crate) fn keep(&mut self, permits: Taken) {
        if !permits.is_empty() {
            self.0.get_or_insert_default().permits = Some(Arc::new(permits));
        }
    }

    /// What hangs on the end of the request; none where nothing does.
    pub fn stake(&self) -> Option<Stake> {
        let holding = self.0.as_ref().filter(|_| !self.is_empty())?;
        Some(Stake {
            permits: holding.permits.clone(),
            settles: !self.is_settled(),
            costs: holding.costs.clone(),
        })
    }

    /// It holds nothing that the end of the request would change.
    pub fn is_empty(&self) -> bool {
        let holds = |holding: &Holding| holding.permits.is_some();
        self.is_settled() && !self.0.as_deref().is_some_and(holds)
    }

    /// Nothing is reserved, or not any more.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.reservations().is_empty()
    }

    /// The paths of costs that are still to be found in the body.
    pub fn paths(&self) -> impl Iterator<Item = &cost::Path> {
        let each = self.reservations().iter();
        each.filter_map(|held| match &held.rule.count {
            Count::CostJson(path) => Some(path),
            _ => None,
        })
    }

    /// The key that stands for the client where costs are still to be found in the body: that of a limit which counts
    /// clients apart, if there is one.
    pub fn owner(&self) -> u128 {
        let waits = |held: &&Reservation| matches!(held.rule.count, Count::CostJson(_));
        let mut each = self.reservations().iter().filter(waits);
        let is_shared = |held: &&Reservation| {
            let mut key = held.rule.key.iter();
            key.all(|by| *by == Identity::Plan)
        };
        let first = each.clone().next();
        let owner = each.find(|held| !is_shared(held)).or(first);
        owner.map_or(0, |held| held.key.0)
    }

    /// Settles all reservations that `outcome` decides. Those that need the body stay.
    pub fn settle(&mut self, outcome: Outcome<'_>, now: Nanos) {
        let Some(holding) = self.0.as_deref_mut() else {
            return;
        };
        let costs = holding.costs.as_deref();
        holding.reservations.retain(|held| {
            let charge = outcome.charge(&held.rule.count);
            held.charge(charge, costs, now);
            charge == Charge::Later
        });
    }
}

impl Reservation {
    fn charge(&self, charge: Charge, costs: Option<&Costs>, now: Nanos) {
        let units = match charge {
            Charge::Later => return,
            Charge::Units(units) => units,
            Charge::AtLeast(units) => units.max(self.units),
            Charge::Unknown => self.units,
        };
        if let Some(costs) = costs.filter(|_| self.rule.count.is_cost()) {
            let unknown = charge == Charge::Unknown;
            costs.charge(units, unknown);
            if let Some(counter) = self.unknown.as_ref().filter(|_| unknown) {
                counter.increment(1);
            }
        }
        self.settle(units, now);
    }

    fn settle(&self, used: u32, now: Nanos) {
        let Some(limit) = self.rule.limit.rate() else {
            return;
        };
        let item = Item {
            limit,
            slot: self.registered.slot(),
            key: self.key,
            cost: self.units,
            scale: Scale::plan(self.multiply),
            shadow: self.rule.shadow,
            parents: &self.parents,
        };
        if let (Some((shared, worker)), Some(plan)) = (&self.shared, &self.plan) {
            return self.settle_shared(shared, *worker, plan, &item, used, now);
        }
        self.store.settle(&item, self.sketched, used, now);
    }

    /// In a store that gateways share a unit counts from when it was reserved. What was not used is given back,
    /// and what was used beyond it is told with the next request of the key.
    fn settle_shared(
        &self,
        shared: &Arc<Shared>,
        worker: usize,
        plan: &Arc<Plan>,
        item: &Item<'_>,
        used: u32,
        now: Nanos,
    ) {
        let beyond = match self.counted {
            Counted::There(stamped) => {
                self.store.count(item, used, now);
                let unused = item.cost.saturating_sub(used);
                if unused > 0 {
                    let part = plan.part(item.key, item.scale, 0);
                    let call = part.give_back(shared.core.gateway, unused, stamped);
                    shared.tell(worker, Asking::tell(call, now));
                }
                used.saturating_sub(item.cost)
            }
            Counted::Here => {
                self.store.settle(item, self.sketched, used, now);
                used
            }
        };
        shared
            .core
            .ledger
            .entry(&plan.name(item.key), plan, now, |entry| {
                if beyond > 0 {
                    shared.core.ledger.admitted_alone(entry, beyond, now);
                }
            });
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        for held in self.reservations.drain(..) {
            let now = held.clock.now();
            held.charge(Charge::Unknown, self.costs.as_deref(), now);
        }
    }
}
