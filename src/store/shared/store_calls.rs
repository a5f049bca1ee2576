//! What [`Decider`] asks the store about a request, and what it makes of the reply.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::breaker::DecidedBy;
use super::call::{Call, CallPart, CounterReply, StoreReply};
use super::decider::Decider;
use super::item::{SharedItem, SharedItems, quota};
use super::ledger_entry::Grant;
use super::pending::{CountedIn, PendingCall, Purpose, Role, SharedDecision};
use super::plan::SharingPlan;
use crate::base::clock::Nanos;
use crate::limit::LimitReading;
use crate::store::memory::networks;
use crate::store::{Item, Taking};

impl Decider {
    /// The items of limits that this gateway counts alone.
    pub(super) fn local_items<'a>(&self, items: &'a SharedItems) -> impl Iterator<Item = Item<'a>> {
        items
            .iter()
            .filter(|item| item.plan.is_none())
            .map(SharedItem::as_item)
    }

    /// Uses units in hand, and makes a call for the rest.
    pub(super) fn ask_store(&self, items: SharedItems, taking: Taking, now: Nanos) -> PendingCall {
        let mut call = Call {
            gateway: self.gateway,
            taking,
            parts: SmallVec::new(),
        };
        let mut roles = SmallVec::new();
        for item in &items {
            let Some(plan) = &item.plan else {
                roles.push(Role::Local);
                continue;
            };
            let name = plan.name(item.key);
            let spent = self.ledger.entry(&name, plan, now, |entry| {
                entry.multiply = item.scale.multiply;
                let takes = taking == Taking::All || (taking == Taking::Shadows && item.shadow);
                let leased = takes && plan.lease.is_some() && item.cost > 0;
                let spent = leased.then(|| entry.spend(item.cost, now)).flatten()?;
                Some((spent, entry.runs_low(now)))
            });
            if let Some(Some((spent, low))) = spent {
                roles.push(Role::InHand(spent, low));
                continue;
            }
            roles.push(Role::InStore(call.parts.len()));
            let place = call.parts.len();
            let parts = self.call_parts(
                item,
                plan,
                (item.cost, place),
                taking != Taking::Nothing,
                now,
            );
            call.parts.extend(parts);
        }
        PendingCall {
            call,
            sent: now,
            round: self.breaker.round(),
            life: self.give_backs.life(),
            items,
            roles,
            purpose: Purpose::Decide,
        }
    }

    /// The parts, from index `place` on, that ask for `cost` units of an item and of the networks around its key.
    fn call_parts(
        &self,
        item: &SharedItem,
        plan: &SharingPlan,
        (cost, place): (u32, usize),
        asks: bool,
        now: Nanos,
    ) -> SmallVec<[CallPart; 4]> {
        let mut part = plan.part(item.key, item.scale, cost);
        part.shadow = item.shadow;
        self.fill_in(item, &mut part, asks, now);
        let mut parts: SmallVec<[CallPart; 4]> = SmallVec::new();
        let (cost, want, shadow) = (part.cost, part.want, part.shadow);
        parts.push(part);
        // A cost that the response settles is charged to the key alone.
        let parents = if item.limit.reserves {
            &[]
        } else {
            &item.parents[..]
        };
        let around = networks::parts(&item.limit, item.scale, parents, plan.hash);
        parts.extend(around.map(|net| CallPart {
            around: Some(place as u8),
            shadow,
            cost,
            want,
            ..net
        }));
        parts
    }

    /// Adds the units wanted in advance, unless another call asks for them, and what the store may not know.
    fn fill_in(&self, item: &SharedItem, part: &mut CallPart, asks: bool, now: Nanos) {
        let gateways = self.breaker.gateways();
        let within = self.own_usage(item, now).last().copied().unwrap_or(0);
        self.ledger.with(&part.name, |entry| {
            (part.total, part.acknowledged) = (entry.total, entry.total);
            part.within = entry.own_usage(within).saturating_add(entry.units(now));
            if item.cost > 0 && asks {
                entry.update_demand(gateways, now);
            }
            if entry.plan.lease.is_some() && item.cost > 0 {
                part.spread = gateways;
                if asks && !entry.asking && entry.demand.want > item.cost {
                    entry.asking = true;
                    part.want = entry.demand.want;
                }
            }
        });
    }

    pub(super) fn own_usage(&self, item: &SharedItem, now: Nanos) -> SmallVec<[u32; 2]> {
        self.memory.used(&item.as_item(), now)
    }

    /// Adds calls for more units where those in hand run low.
    pub(super) fn refill(
        &self,
        pending_call: &PendingCall,
        now: Nanos,
        decision: &mut SharedDecision,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let (Some(plan), Role::InHand(_, true)) = (&item.plan, role) else {
                continue;
            };
            let parts = self.call_parts(item, plan, (1, 0), true, now);
            if parts[0].want == 1 {
                // Another worker asks already.
                continue;
            }
            decision.followups.push(PendingCall {
                call: Call {
                    gateway: self.gateway,
                    taking: Taking::All,
                    parts: parts.into_iter().collect(),
                },
                sent: now,
                round: self.breaker.round(),
                life: self.give_backs.life(),
                items: SmallVec::new(),
                roles: SmallVec::new(),
                purpose: Purpose::Refill,
            });
        }
    }

    /// Makes the decision of the store's reply and of the units in hand.
    pub(super) fn conclude(
        &self,
        pending_call: &PendingCall,
        reply: &StoreReply,
        now: Nanos,
    ) -> SharedDecision {
        let mut decision = SharedDecision {
            admitted: reply.admitted && pending_call.call.taking == Taking::All,
            ..SharedDecision::default()
        };
        let own: SmallVec<[Item<'_>; 4]> = self.local_items(&pending_call.items).collect();
        let mut readings: SmallVec<[LimitReading; 4]> = SmallVec::new();
        if !own.is_empty() {
            match (decision.admitted, pending_call.call.taking) {
                (_, Taking::Nothing) => {
                    decision.admitted = reply.admitted & self.memory.peek(&own, now, &mut readings);
                }
                (true, _) => decision.admitted = self.memory.take(&own, now, &mut readings),
                (false, _) => self.memory.refused(&own, now, &mut readings),
            }
        } else if pending_call.call.taking == Taking::Nothing {
            decision.admitted = reply.admitted;
        }
        let mut own = readings.into_iter();
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let (reading, counted) = match role {
                Role::Local => (
                    own.next().unwrap_or_else(|| self.last_reading(item, now)),
                    CountedIn::Gateway,
                ),
                Role::InHand(..) => (self.last_reading(item, now), CountedIn::Gateway),
                Role::InStore(place) => self.read_reply(pending_call, item, *place, reply, now),
            };
            let took = match role {
                Role::Local => false,
                Role::InHand(..) => true,
                Role::InStore(place) => reply.counters[*place].took > 0,
            };
            if took && (decision.admitted || item.shadow) && !item.limit.reserves {
                self.memory.count(&item.as_item(), item.cost, now);
            }
            decision.readings.push(reading);
            decision.counted.push(counted);
        }
        decision
            .followups
            .extend(self.report_unreported(&pending_call.items, now));
        if pending_call.call.taking == Taking::All && !decision.admitted {
            self.unspend(pending_call, now, |item| !item.shadow);
            if reply.admitted {
                // A limit that is counted here refused at the last moment.
                self.give_back(pending_call, reply, &mut decision);
            }
        }
        decision
    }

    /// Records what one counter said, and makes a reading of it.
    pub(super) fn read_reply(
        &self,
        pending_call: &PendingCall,
        item: &SharedItem,
        place: usize,
        reply: &StoreReply,
        now: Nanos,
    ) -> (LimitReading, CountedIn) {
        let counter = within_networks(pending_call, place, reply);
        let mut reading = read(item, &counter);
        if pending_call.call.taking != Taking::Nothing {
            self.record_reply(pending_call, place, reply, item.cost, now);
        }
        let in_hand = counter.took.saturating_sub(item.cost);
        reading.remaining = reading.remaining.saturating_add(in_hand);
        (reading, CountedIn::Store(counter.stamped))
    }

    /// Records the store's reply to the part at `place`, of which `cost` units are used. Where the store has gone away
    /// since the call, or learns, the gateway's share is fixed: units in advance go back, and nothing else is learnt.
    pub(super) fn record_reply(
        &self,
        pending_call: &PendingCall,
        place: usize,
        reply: &StoreReply,
        cost: u32,
        now: Nanos,
    ) {
        let counter = within_networks(pending_call, place, reply);
        let (part, sent) = (&pending_call.call.parts[place], pending_call.sent);
        let hears = self.breaker.is_current(pending_call.round);
        let cost = cost.min(counter.took);
        let granted = self.ledger.with(&part.name, |entry| {
            let life = entry.plan.lease.as_ref().map(|lease| lease.life);
            let learns = || {
                self.breaker
                    .decided_by(entry.plan.counted().longest_window(), now)
                    != DecidedBy::Store
            };
            if !hears || (pending_call.purpose == Purpose::Confirm && learns()) {
                if cost > 0 {
                    entry.total = entry.total.max(counter.total);
                    entry.granted = entry.granted.saturating_add(cost);
                }
                return None;
            }
            entry.record_reply(&counter, cost, part.want, sent, now);
            life
        });
        let more = counter.took - cost;
        match granted {
            _ if more == 0 => {}
            Some(Some(life)) => self.ledger.granted(&part.name, sent.after(life)),
            // They are in no grant.
            Some(None) | None => self.return_later(pending_call, place, reply, more),
        }
    }

    pub(super) fn unspend(
        &self,
        pending_call: &PendingCall,
        now: Nanos,
        which: impl Fn(&SharedItem) -> bool,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            if !which(item) {
                continue;
            }
            if let (Some(plan), Role::InHand(spent, _)) = (&item.plan, role) {
                let name = plan.name(item.key);
                self.ledger.with(&name, |entry| {
                    for (stamped, units) in entry.unspend(spent, now) {
                        let ends = now;
                        let grant = Grant {
                            units,
                            ends,
                            stamped,
                        };
                        self.return_grant(&name, entry, grant, now);
                    }
                });
            }
        }
    }

    fn give_back(
        &self,
        pending_call: &PendingCall,
        reply: &StoreReply,
        decision: &mut SharedDecision,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let Role::InStore(place) = role else { continue };
            if reply.counters[*place].took > 0 && !item.shadow {
                decision.followups.push(self.returning_call(
                    pending_call,
                    *place,
                    reply,
                    item.cost,
                ));
            }
        }
    }

    /// The call that gives back units of the part at `place` and of the networks around it. Each part has the total by
    /// which the store knows whether it granted them.
    fn returning_call(
        &self,
        pending_call: &PendingCall,
        place: usize,
        reply: &StoreReply,
        units: u32,
    ) -> PendingCall {
        let part = &pending_call.call.parts[place];
        let granted = |part: &CallPart, counter: &CounterReply| {
            let mut back = part.return_call(self.gateway, units, counter.stamped);
            for part in &mut back.parts {
                (part.total, part.acknowledged) = (counter.total, counter.total);
            }
            back
        };
        let mut call = granted(part, &reply.counters[place]);
        for (network, counter) in around(pending_call, place, reply) {
            let back = granted(network, counter);
            call.parts
                .extend(back.parts.into_iter().map(|part| CallPart {
                    around: Some(0),
                    ..part
                }));
        }
        PendingCall::report(call, pending_call.sent)
    }

    fn return_later(
        &self,
        pending_call: &PendingCall,
        place: usize,
        reply: &StoreReply,
        units: u32,
    ) {
        let back = self.returning_call(pending_call, place, reply, units);
        self.give_backs.push(back, pending_call.life);
    }

    /// Another server is the master, and its counters were compared: keeps the give-backs that are for it.
    pub(super) fn return_copied(&self) {
        for back in self.give_backs.moved() {
            if let Some(back) = self.copied_part(back) {
                self.give_backs.push(back, self.give_backs.life());
            }
        }
    }

    /// The part of a give-back that is for the current master: units that the former one granted and that were copied.
    /// The others are unknown to it, and it has granted others under the same numbers since.
    fn copied_part(&self, mut back: PendingCall) -> Option<PendingCall> {
        let part = back.call.parts.first_mut()?;
        // Units in hand are reported again where it lacks them.
        if part.total == 0 {
            return Some(back);
        }
        let kept = self.ledger.with(&part.name, |entry| entry.kept);
        let kept = kept.unwrap_or(0).min(part.total);
        let units = u64::from(part.cost).saturating_sub(part.total - kept) as u32;
        (part.total, part.acknowledged) = (kept, kept);
        for part in &mut back.call.parts {
            (part.cost, part.want) = (units, units);
        }
        // Networks around a key are granted with it.
        for part in back.call.parts.iter_mut().skip(1) {
            (part.total, part.acknowledged) = (0, 0);
        }
        (units > 0).then_some(back)
    }

    /// Takes the reply to an abandoned call: its request was decided without the store, or its client has left. None of
    /// the units was used. Those of a lease are in hand now; the others go back, because units admitted without the
    /// store are reported apart and would count twice.
    pub fn take_late_reply(&self, pending_call: &PendingCall, reply: &StoreReply, now: Nanos) {
        if pending_call.purpose == Purpose::Refill {
            return self.record_reply(pending_call, 0, reply, 0, now);
        }
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let Role::InStore(place) = role else { continue };
            let leased = item.plan.as_ref().is_some_and(|plan| plan.lease.is_some());
            let took = reply.counters[*place].took;
            if took == 0 {
                continue;
            }
            if leased && pending_call.purpose == Purpose::Decide {
                self.record_reply(pending_call, *place, reply, 0, now);
            } else {
                self.return_later(pending_call, *place, reply, took);
            }
        }
    }

    /// The call has ended: other calls may ask for units in advance again.
    pub(super) fn allow_asking(&self, call: &Call) {
        let led = call.parts.iter().filter(|part| part.want > part.cost);
        for part in led {
            self.ledger.with(&part.name, |entry| entry.asking = false);
        }
    }
}

/// The networks around the key of the part at `place`, with the replies.
fn around<'a>(
    pending_call: &'a PendingCall,
    place: usize,
    reply: &'a StoreReply,
) -> impl Iterator<Item = (&'a CallPart, &'a CounterReply)> {
    let each = pending_call.call.parts.iter().zip(&reply.counters);
    each.filter(move |(part, _)| part.around == Some(place as u8))
}

/// The reply for a key: it is admitted only where the networks around it admit too.
pub(super) fn within_networks<'a>(
    pending_call: &'a PendingCall,
    place: usize,
    reply: &'a StoreReply,
) -> Cow<'a, CounterReply> {
    let mut counter = Cow::Borrowed(&reply.counters[place]);
    for (_, network) in around(pending_call, place, reply) {
        let counter = counter.to_mut();
        counter.remaining = counter.remaining.min(network.remaining);
        if network.standing.admits() {
            continue;
        }
        if counter.standing.admits() {
            counter.standing = network.standing;
        }
        counter.wait = counter.wait.max(network.wait);
    }
    counter
}

fn read(item: &SharedItem, counter: &CounterReply) -> LimitReading {
    LimitReading {
        standing: counter.standing,
        window: counter.window,
        quota: quota(&item.limit, counter.window, item.scale.multiply),
        remaining: counter.remaining,
        wait: counter.wait,
        reset: counter.reset,
        delay: counter.delay,
        sketched: false,
    }
}
