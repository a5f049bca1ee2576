//! The single planned step back from response to limits, and the permits that go back at the end.

use std::sync::Arc;

use crate::clock::{Clock, Nanos};
use crate::head::Lookup;
use crate::limit::{Count, Fingerprint, Rule, Scale};
use crate::store::permits::Taken;
use crate::store::shared::Shared;
use crate::store::shared::core::{Asking, Counted};
use crate::store::shared::plan::Plan;
use crate::store::{Item, Memory, Parent, Registered};

use super::{Admission, Counter, units, used};

/// What was reserved when a request was admitted. It must be settled once the answer is known; one
/// that is dropped counts what it reserved, so that hanging up early never buys another attempt.
///
/// It also holds the request's permits, where the number of open requests is limited: keep it until
/// the last of the answer is handed on. They go back when it is dropped, whatever ends the request.
#[derive(Debug, Default)]
#[must_use = "a reservation stays counted until it is settled, and permits are out until it is dropped"]
pub struct Ticket {
    /// On the heap, for a ticket goes through many hands, mostly with none.
    reservations: Vec<Reservation>,
    /// Boxed, for few routes have such limits.
    permits: Option<Box<Taken>>,
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
    /// The store that counted it, on which connection, at what time of its own; or how it is shared.
    shared: Option<(Arc<Shared>, usize)>,
    plan: Option<Arc<Plan>>,
    counted: Counted,
}

/// How an admitted request ended.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// It never reached an upstream: nothing was used.
    Unsent,
    /// The head of the answer is there.
    Answered {
        /// Status of the answer.
        status: u16,
        /// Its fields.
        fields: &'a dyn Lookup,
    },
    /// The body of the answer is there: the JSON document, when it was whole and small enough.
    Body(Option<&'a serde_json::Value>),
}

impl Ticket {
    #[cold]
    fn count_all(&mut self) {
        for held in self.reservations.drain(..) {
            held.settle(held.units, held.clock.now());
        }
    }

    /// Keeps what `item` reserved; `sketched` is what its reading said.
    pub(super) fn hold(
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
        self.reservations.push(Reservation {
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
    pub(super) fn keep(&mut self, permits: Taken) {
        self.permits = Some(permits)
            .filter(|taken| !taken.is_empty())
            .map(Box::new);
    }

    /// It holds nothing that the end of the request would change.
    pub fn is_empty(&self) -> bool {
        self.is_settled() && self.permits.is_none()
    }

    /// Nothing is reserved, or not any more.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.reservations.is_empty()
    }

    /// Settles all reservations that `outcome` decides. Those that need the body stay.
    pub fn settle(&mut self, outcome: Outcome<'_>, now: Nanos) {
        self.reservations.retain(|held| {
            let units = match outcome {
                Outcome::Unsent => Some(0),
                Outcome::Answered { status, fields } => used(&held.rule.count, status, fields),
                Outcome::Body(document) => Some(cost(&held.rule.count, document)),
            };
            match units {
                Some(units) => {
                    held.settle(units, now);
                    false
                }
                None => true,
            }
        });
    }
}

impl Reservation {
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

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        if !self.is_settled() {
            self.count_all();
        }
    }
}

fn cost(count: &Count, document: Option<&serde_json::Value>) -> u32 {
    let Count::CostJson(path) = count else {
        return 1;
    };
    let value = document.and_then(|root| path.iter().try_fold(root, |value, part| value.get(part)));
    let units = match value {
        Some(serde_json::Value::Number(number)) => units(number.to_string().as_bytes()),
        Some(serde_json::Value::String(text)) => units(text.as_bytes()),
        _ => None,
    };
    units.unwrap_or(1)
}
