//! The ticket of a request: reservations that the response settles, and permits that go back at the end. Nothing else
//! settles a reservation. A refused request has only the reservations of shadow limits.

use std::sync::Arc;

use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::WorkerCounter;
use crate::http::head::Lookup;
use crate::limit::cost;
use crate::limit::{CountMode, Fingerprint, Identity, Rule, Scale};
use crate::store::permits::PermitGuard;
use crate::store::shared::pending_call::{CountedIn, PendingCall};
use crate::store::shared::sharing_plan::SharingPlan;
use crate::store::{LimitItem, MemoryStore, ParentNetwork, RegisteredLimit};

use super::counters::{Admission, RuleCounter, SharedConnection};
use super::holdings::{ChargedCosts, Holdings};
use super::passed_bytes::PassedBytes;
use super::request_progress::{RequestProgress, UsedUnits};

/// The reservations and permits of a request.
///
/// Reservations must be settled once the response is known. A ticket that is dropped charges what it reserved, or the
/// bytes that have passed. So a client that hangs up early gets no free attempt.
///
/// Permits go back when the ticket and its [`Holdings`] are dropped, whatever ends the request. So the ticket must be
/// kept until the last byte of the response is handed on.
///
/// The contents are on the heap, because tickets are moved often and are mostly empty.
#[derive(Debug, Default)]
#[must_use = "a reservation stays counted until it is settled, and permits are out until it is dropped"]
pub struct Ticket(Option<Box<TicketContents>>);

#[derive(Debug, Default)]
struct TicketContents {
    reservations: Vec<Reservation>,
    permits: Option<Arc<PermitGuard>>,
    costs: Option<Arc<ChargedCosts>>,
    bytes: Option<Arc<PassedBytes>>,
}

/// Units that one limit has reserved.
#[derive(Debug)]
struct Reservation {
    clock: Clock,
    store: Arc<MemoryStore>,
    rule: Arc<Rule>,
    registered: RegisteredLimit,
    key: Fingerprint,
    reserved_units: u32,
    /// The multiplier of the key's plan, at least 1.
    plan_factor: u32,
    /// The networks around the key.
    parents: Box<[ParentNetwork]>,
    /// Whether the overflow sketch counts the reserved units; as in the finding of the reservation.
    is_sketched: bool,
    shared: Option<SharedConnection>,
    /// The plan by which gateways share the limit; `None` if each gateway counts for itself.
    plan: Option<Arc<SharingPlan>>,
    /// Where the reserved units are counted.
    counted_in: CountedIn,
    /// The metric of costs that never became known; `None` where they are not counted.
    unknown_cost_counter: Option<WorkerCounter>,
}

impl Ticket {
    fn reservations(&self) -> &[Reservation] {
        let contents = self.0.as_ref();
        contents.map_or(&[], |contents| &contents.reservations)
    }

    /// Adds a reservation of the units that `item` took. `rule` is the item's rule, and `is_sketched` is as in its finding.
    pub(crate) fn reserve(
        &mut self,
        admission: &Admission,
        rule: Arc<Rule>,
        item: &LimitItem<'_>,
        is_sketched: bool,
        counted_in: CountedIn,
    ) {
        let Some(RuleCounter::Rate(registered, sharing)) = admission.counter(&rule) else {
            return;
        };
        let contents = self.0.get_or_insert_default();
        if rule.count.is_cost() {
            contents.costs.get_or_insert_default();
        }
        if let CountMode::CostBytes(_) = rule.count {
            contents.bytes.get_or_insert_default();
        }
        contents.reservations.push(Reservation {
            unknown_cost_counter: admission.unknown_cost_counters.get(rule.index).cloned(),
            clock: admission.clock.clone(),
            store: admission.store.clone(),
            registered: registered.clone(),
            rule,
            key: item.key,
            reserved_units: item.cost,
            plan_factor: item.scale.plan_factor,
            parents: item.parents.into(),
            is_sketched,
            shared: admission.shared.clone(),
            plan: sharing.as_ref().and_then(|sharing| sharing.plan.clone()),
            counted_in,
        });
    }

    /// Adds permits, which go back when the ticket and all of its [`Holdings`] are dropped.
    pub(crate) fn hold_permits(&mut self, permits: PermitGuard) {
        if !permits.is_empty() {
            self.0.get_or_insert_default().permits = Some(Arc::new(permits));
        }
    }

    /// What the request holds until its end; `None` for an empty ticket.
    pub fn holdings(&self) -> Option<Holdings> {
        let contents = self.0.as_ref().filter(|_| !self.is_empty())?;
        Some(Holdings {
            permits: contents.permits.clone(),
            settles_reservations: self.awaits_response(),
            costs: contents.costs.clone(),
            bytes: contents.bytes.clone(),
        })
    }

    /// Whether the end of the request changes nothing: no reservation is open, and no permit is out.
    pub fn is_empty(&self) -> bool {
        self.is_settled() && !self.has_permits()
    }

    /// Whether no reservation is open.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.reservations().is_empty()
    }

    /// Whether a reservation waits for what the response says. A reservation of a limit on bytes does not: when the
    /// client has left, no more bytes pass.
    pub fn awaits_response(&self) -> bool {
        let counts_bytes =
            |reservation: &Reservation| matches!(reservation.rule.count, CountMode::CostBytes(_));
        !self.reservations().iter().all(counts_bytes)
    }

    /// Whether permits are out.
    pub fn has_permits(&self) -> bool {
        let has_permits = |contents: &TicketContents| contents.permits.is_some();
        self.0.as_deref().is_some_and(has_permits)
    }

    /// The bytes of the bodies that have passed; `None` where no limit counts them.
    pub fn passed_bytes(&self) -> Option<&Arc<PassedBytes>> {
        self.0.as_ref()?.bytes.as_ref()
    }

    /// The paths at which the response body may state a cost; a path can come twice.
    pub fn cost_paths(&self) -> impl Iterator<Item = &cost::JsonPath> {
        let reservations = self.reservations().iter();
        reservations.filter_map(|reservation| match &reservation.rule.count {
            CountMode::CostJson(path) => Some(path),
            _ => None,
        })
    }

    /// The key by which [`CostMeter`](cost::CostMeter) shares decompressors out among clients; 0 if no cost is in the body.
    /// Of several limits, one that counts by more than the plan gives the key, because clients share plans.
    pub fn owner_key(&self) -> u128 {
        let needs_body =
            |reservation: &&Reservation| matches!(reservation.rule.count, CountMode::CostJson(_));
        let mut reservations = self.reservations().iter().filter(needs_body);
        let counts_by_plan_only = |reservation: &&Reservation| {
            let key = &reservation.rule.key;
            !key.is_everyone() && key.identities().all(|identity| identity == Identity::Plan)
        };
        let first_reservation = reservations.clone().next();
        let owner = reservations.find(|reservation| !counts_by_plan_only(reservation));
        owner
            .or(first_reservation)
            .map_or(0, |reservation| reservation.key.0)
    }

    /// Settles all reservations by what somebody says who has served the request: the status, header fields that may state
    /// costs, and the bytes of both bodies. A cost that is not stated charges what was reserved.
    pub fn settle_reported(
        &mut self,
        (status, fields): (u16, &dyn Lookup),
        [incoming_bytes, outgoing_bytes]: [usize; 2],
        now: Nanos,
    ) {
        if let Some(bytes) = self.passed_bytes() {
            bytes.add_incoming(incoming_bytes);
            bytes.add_outgoing(outgoing_bytes);
        }
        let head = RequestProgress::Head {
            status,
            fields,
            is_bodiless: false,
        };
        self.settle(head, now);
        let end = RequestProgress::Ended {
            meter: None,
            trailers: None,
        };
        self.settle(end, now);
    }

    /// Settles all reservations that `progress` decides. Those that a later part of the response decides stay.
    pub fn settle(&mut self, progress: RequestProgress<'_>, now: Nanos) {
        let Some(contents) = self.0.as_deref_mut() else {
            return;
        };
        let (costs, bytes) = (contents.costs.as_deref(), contents.bytes.as_deref());
        contents.reservations.retain(|reservation| {
            let used = progress.used_units(&reservation.rule.count, bytes);
            reservation.charge(used, costs, now);
            used == UsedUnits::Later
        });
    }
}

impl Reservation {
    /// Settles the reservation, and records the charge of a cost. Does nothing if a later part of the response decides.
    fn charge(&self, used: UsedUnits, costs: Option<&ChargedCosts>, now: Nanos) {
        let units = match used {
            UsedUnits::Later => return,
            UsedUnits::Units(units) => units,
            UsedUnits::AtLeast(units) => units.max(self.reserved_units),
            UsedUnits::Unknown => self.reserved_units,
        };
        if let Some(costs) = costs.filter(|_| self.rule.count.is_cost()) {
            let is_unknown = used == UsedUnits::Unknown;
            costs.record(units, is_unknown);
            if let Some(counter) = self.unknown_cost_counter.as_ref().filter(|_| is_unknown) {
                counter.increment(1);
            }
        }
        self.settle(units, now);
    }

    /// Settles with `used_units`, in the memory store or with the store that gateways share.
    fn settle(&self, used_units: u32, now: Nanos) {
        let Some(limit) = self.rule.limit.rate() else {
            return;
        };
        let item = LimitItem {
            limit,
            slot: self.registered.slot(),
            key: self.key,
            cost: self.reserved_units,
            scale: Scale::plan(self.plan_factor),
            is_shadow: self.rule.shadow,
            parents: &self.parents,
        };
        if let (Some(shared), Some(plan)) = (&self.shared, &self.plan) {
            return self.settle_shared(shared, plan, &item, used_units, now);
        }
        self.store.settle(&item, self.is_sketched, used_units, now);
    }

    /// Settles with a shared store, which counts units from their reservation on. Unused units are given back to it.
    /// Used units that it has not granted are reported to it later: those beyond the reservation, or all units of a
    /// reservation that only this gateway counted.
    fn settle_shared(
        &self,
        shared: &SharedConnection,
        plan: &Arc<SharingPlan>,
        item: &LimitItem<'_>,
        used_units: u32,
        now: Nanos,
    ) {
        let decider = &shared.store.decider;
        let unreported_units = match self.counted_in {
            CountedIn::Store(granted_at_micros) => {
                self.store.count_units(item, used_units, now);
                let unused_units = item.cost.saturating_sub(used_units);
                if unused_units > 0 {
                    let part =
                        plan.call_part(item.key, item.scale, 0, self.store.wall().wall_at(now));
                    let call =
                        part.give_back_call(decider.gateway, unused_units, granted_at_micros);
                    let pending_call = PendingCall::report(call, now);
                    shared
                        .store
                        .send_in_background(shared.connection_index, pending_call);
                }
                used_units.saturating_sub(item.cost)
            }
            CountedIn::Gateway => {
                self.store.settle(item, self.is_sketched, used_units, now);
                used_units
            }
        };
        let name = plan.counter_name(item.key);
        if unreported_units > 0 {
            let plan_factor = item.scale.plan_factor;
            let ledger = &decider.ledger;
            ledger.record_ungranted_use(&name, plan, plan_factor, unreported_units, now);
        } else {
            // The entry stays, so that the units are reported if the store loses its data.
            decider.ledger.with_entry_or_new(&name, plan, now, |_| ());
        }
    }
}

impl Drop for TicketContents {
    fn drop(&mut self) {
        for reservation in self.reservations.drain(..) {
            let now = reservation.clock.now();
            let progress = RequestProgress::Ended {
                meter: None,
                trailers: None,
            };
            let used = progress.used_units(&reservation.rule.count, self.bytes.as_deref());
            reservation.charge(used, self.costs.as_deref(), now);
        }
    }
}
