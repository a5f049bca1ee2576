//! How [`Decider`] makes calls to the store about a request, and turns the replies into decisions. Units in hand are those
//! that the store granted in advance, and no request has used. Units that a call took for a request that does not use them
//! stay in hand, or are given back to the store. Nothing here waits for a reply.

use smallvec::SmallVec;

use super::breaker::DecidedBy;
use super::call::{Call, CallPart, CounterReply, StoreReply};
use super::counter_replies::{networks_around, to_finding, within_networks};
use super::decider::Decider;
use super::ledger_entry::Grant;
use super::pending_call::{CallPurpose, CountedIn, ItemRole, PendingCall, SharedDecision};
use super::shared_item::{SharedItem, SharedItems};
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;
use crate::limit::LimitFinding;
use crate::store::memory::network_calls;
use crate::store::{LimitItem, Taking};

impl Decider {
    /// The items of limits that are not shared.
    pub(super) fn local_items<'a>(
        &self,
        items: &'a SharedItems,
    ) -> impl Iterator<Item = LimitItem<'a>> {
        items
            .iter()
            .filter(|item| item.plan.is_none())
            .map(SharedItem::as_limit_item)
    }

    /// Spends units in hand, and makes a call about all other items of shared limits. For those too few units are in hand,
    /// or none are to be spent. The call has no parts if there are no such items.
    pub(super) fn make_call(&self, items: SharedItems, taking: Taking, now: Nanos) -> PendingCall {
        let mut call = Call {
            gateway: self.gateway,
            taking,
            parts: SmallVec::new(),
        };
        let mut roles = SmallVec::new();
        for item in &items {
            let Some(plan) = &item.plan else {
                roles.push(ItemRole::Local);
                continue;
            };
            let name = plan.counter_name(item.key);
            let spent = self.ledger.with_entry_or_new(&name, plan, now, |entry| {
                entry.plan_factor = item.scale.plan_factor;
                let takes_units =
                    taking == Taking::All || (taking == Taking::Shadows && item.is_shadow);
                if !takes_units || plan.lease.is_none() || item.cost == 0 {
                    return None;
                }
                let spent = entry.spend(item.cost, now)?;
                let runs_low = entry.runs_low(now);
                Some(ItemRole::InHand { spent, runs_low })
            });
            if let Some(role) = spent.flatten() {
                roles.push(role);
                continue;
            }
            let index = call.parts.len();
            roles.push(ItemRole::InStore(index));
            let wants_units = taking != Taking::Nothing;
            let parts = self.call_parts(item, plan, item.cost, index, wants_units, now);
            call.parts.extend(parts);
        }
        PendingCall {
            call,
            sent_at: now,
            outage_count: self.breaker.outage_count(),
            store_epoch: self.give_backs.store_epoch(),
            items,
            roles,
            purpose: CallPurpose::Decide,
        }
    }

    /// The parts of a call that ask for `cost` units of an item and of the networks around its key. `first_index` is the
    /// index of the first part in the call. With `wants_units` the parts may ask for units in advance too.
    fn call_parts(
        &self,
        item: &SharedItem,
        plan: &SharingPlan,
        cost: u32,
        first_index: usize,
        wants_units: bool,
        now: Nanos,
    ) -> SmallVec<[CallPart; 4]> {
        let mut part = plan.call_part(item.key, item.scale, cost, self.wall_at(now));
        part.is_shadow = item.is_shadow;
        self.add_ledger_fields(item, &mut part, wants_units, now);
        let mut parts: SmallVec<[CallPart; 4]> = SmallVec::new();
        let wanted_units = part.wanted_units;
        parts.push(part);
        // A cost that the response settles is charged to the key alone.
        let parents = if item.limit.reserves {
            &[]
        } else {
            &item.parents[..]
        };
        let networks = network_calls::call_parts(&item.limit, item.scale, parents, plan.hash);
        parts.extend(networks.map(|network| CallPart {
            key_part_index: Some(first_index as u8),
            is_shadow: item.is_shadow,
            cost,
            wanted_units,
            ..network
        }));
        parts
    }

    /// Adds what the counter's entry says, if there is one: the totals by which the store sees whether it has lost units,
    /// and the units wanted in advance. One call at a time asks for these, so the entry is marked as refilling.
    fn add_ledger_fields(
        &self,
        item: &SharedItem,
        part: &mut CallPart,
        wants_units: bool,
        now: Nanos,
    ) {
        let gateway_count = self.breaker.gateway_count();
        // All that the store may still have to count. Of a calendar's windows the longest may have the fewest units.
        let counted_units = self.locally_counted_units(item, now);
        let counted_units = counted_units.into_iter().max().unwrap_or(0);
        self.ledger.with_entry(&part.name, |entry| {
            // The store granted all of these units itself, so it has acknowledged all.
            (part.gateway_total, part.acknowledged_total) =
                (entry.granted_total, entry.granted_total);
            part.units_in_window = entry
                .own_units(counted_units)
                .saturating_add(entry.units_in_hand(now));
            if item.cost > 0 && wants_units {
                entry.update_demand(gateway_count, now);
            }
            if entry.sharing_plan.lease.is_some() && item.cost > 0 {
                part.free_units_divisor = gateway_count;
                if wants_units && !entry.is_refilling && entry.demand.wanted_units > item.cost {
                    entry.is_refilling = true;
                    part.wanted_units = entry.demand.wanted_units;
                }
            }
        });
    }

    /// Units of the item's key that this gateway's memory has counted in each window.
    pub(super) fn locally_counted_units(
        &self,
        item: &SharedItem,
        now: Nanos,
    ) -> SmallVec<[u32; 2]> {
        self.memory.used_units(&item.as_limit_item(), now)
    }

    /// Adds calls for more units to the decision's followups, where the units in hand run low.
    pub(super) fn add_refills(
        &self,
        pending_call: &PendingCall,
        now: Nanos,
        decision: &mut SharedDecision,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let (Some(plan), ItemRole::InHand { runs_low: true, .. }) = (&item.plan, role) else {
                continue;
            };
            // With a cost of 1 the store refuses a refill when no unit is free.
            let parts = self.call_parts(item, plan, 1, 0, true, now);
            if parts[0].wanted_units == 1 {
                // No more is wanted than a request costs, or another call asks for it already.
                continue;
            }
            decision.followups.push(PendingCall {
                call: Call {
                    gateway: self.gateway,
                    taking: Taking::All,
                    parts: parts.into_iter().collect(),
                },
                sent_at: now,
                outage_count: self.breaker.outage_count(),
                store_epoch: self.give_backs.store_epoch(),
                items: SmallVec::new(),
                roles: SmallVec::new(),
                purpose: CallPurpose::Refill,
            });
        }
    }

    /// Makes the decision from the store's reply and the spent units. Units of a refused request go back.
    pub(super) fn conclude_call(
        &self,
        pending_call: &PendingCall,
        reply: &StoreReply,
        now: Nanos,
    ) -> SharedDecision {
        let mut decision = SharedDecision {
            // For a call that only peeks, `decide_local_items` sets it.
            is_admitted: reply.is_admitted && pending_call.call.taking == Taking::All,
            ..SharedDecision::default()
        };
        let findings = self.decide_local_items(pending_call, reply, now, &mut decision.is_admitted);
        let mut local_findings = findings.into_iter();
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let (finding, counted_in, is_granted_by_store) = match role {
                ItemRole::Local => {
                    let finding = local_findings.next();
                    let finding = finding.unwrap_or_else(|| self.last_finding(item, now));
                    (finding, CountedIn::Gateway, false)
                }
                ItemRole::InHand { .. } => (self.last_finding(item, now), CountedIn::Gateway, true),
                ItemRole::InStore(index) => {
                    let (finding, counted_in) =
                        self.read_reply(pending_call, item, *index, reply, now);
                    (
                        finding,
                        counted_in,
                        reply.counters[*index].granted_units > 0,
                    )
                }
            };
            if is_granted_by_store
                && (decision.is_admitted || item.is_shadow)
                && !item.limit.reserves
            {
                self.memory
                    .count_units(&item.as_limit_item(), item.cost, now);
            }
            decision.findings.push(finding);
            decision.counted_in.push(counted_in);
        }
        decision
            .followups
            .extend(self.report_unreported(&pending_call.items, now));
        if pending_call.call.taking == Taking::All && !decision.is_admitted {
            self.unspend(pending_call, now, |item| !item.is_shadow);
            if reply.is_admitted {
                // A limit that is not shared refused at the last moment.
                self.add_give_backs(pending_call, reply, &mut decision);
            }
        }
        decision
    }

    /// Decides about the items of limits that are not shared, and updates `is_admitted`. Returns their findings.
    fn decide_local_items(
        &self,
        pending_call: &PendingCall,
        reply: &StoreReply,
        now: Nanos,
        is_admitted: &mut bool,
    ) -> SmallVec<[LimitFinding; 4]> {
        let taking = pending_call.call.taking;
        let local_items: SmallVec<[LimitItem<'_>; 4]> =
            self.local_items(&pending_call.items).collect();
        let mut findings = SmallVec::new();
        match (taking, *is_admitted) {
            (Taking::Nothing, _) if local_items.is_empty() => *is_admitted = reply.is_admitted,
            _ if local_items.is_empty() => {}
            (Taking::Nothing, _) => {
                // `&` instead of `&&`: the peek also writes the findings.
                *is_admitted =
                    reply.is_admitted & self.memory.peek(&local_items, now, &mut findings);
            }
            (_, true) => *is_admitted = self.memory.take(&local_items, now, &mut findings),
            (_, false) => self
                .memory
                .take_for_shadows(&local_items, now, &mut findings),
        }
        findings
    }

    /// Records the reply of one counter, unless the call only peeks, and makes a finding of it.
    pub(super) fn read_reply(
        &self,
        pending_call: &PendingCall,
        item: &SharedItem,
        part_index: usize,
        reply: &StoreReply,
        now: Nanos,
    ) -> (LimitFinding, CountedIn) {
        let counter = within_networks(pending_call, part_index, reply);
        let mut finding = to_finding(item, &counter, self.wall_at(now));
        if pending_call.call.taking != Taking::Nothing {
            self.record_reply(pending_call, part_index, reply, item.cost, now);
        }
        let units_in_hand = counter.granted_units.saturating_sub(item.cost);
        finding.remaining = finding.remaining.saturating_add(units_in_hand);
        (finding, CountedIn::Store(counter.granted_at_micros))
    }

    /// Records the store's reply to the part with this index. The request uses `cost` of the granted units; the others stay
    /// in hand. The gateway's share must not change if the store has gone away since the call, or is learning and only
    /// confirms the request. Then, and without an entry, the other units are given back.
    pub(super) fn record_reply(
        &self,
        pending_call: &PendingCall,
        part_index: usize,
        reply: &StoreReply,
        cost: u32,
        now: Nanos,
    ) {
        let counter = within_networks(pending_call, part_index, reply);
        let (part, sent_at) = (&pending_call.call.parts[part_index], pending_call.sent_at);
        let is_current = self.breaker.is_current(pending_call.outage_count);
        let cost = cost.min(counter.granted_units);
        let lease_life = self.ledger.with_entry(&part.name, |entry| {
            let life = entry.sharing_plan.lease.as_ref().map(|lease| lease.life);
            let is_learning = || {
                self.breaker
                    .decided_by(entry.sharing_plan.learning_window(), now)
                    != DecidedBy::Store
            };
            if !is_current || (pending_call.purpose == CallPurpose::Confirm && is_learning()) {
                if cost > 0 {
                    entry.granted_total = entry.granted_total.max(counter.gateway_total);
                    entry.granted_on_request = entry.granted_on_request.saturating_add(cost);
                }
                return None;
            }
            entry.record_reply(&counter, cost, part.cost, part.wanted_units, sent_at, now);
            life
        });
        let units_in_advance = counter.granted_units - cost;
        match lease_life {
            _ if units_in_advance == 0 => {}
            Some(Some(life)) => self
                .ledger
                .record_grant_end(&part.name, sent_at.after(life)),
            // No grant of the ledger has the units.
            Some(None) | None => {
                self.give_back_later(pending_call, part_index, reply, units_in_advance)
            }
        }
    }

    /// Puts spent units of the items that match `filter` back into their grants. Units of grants that have ended are kept,
    /// to be given back to the store. Without the counter's entry, nothing happens.
    pub(super) fn unspend(
        &self,
        pending_call: &PendingCall,
        now: Nanos,
        filter: impl Fn(&SharedItem) -> bool,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let (Some(plan), ItemRole::InHand { spent, .. }) = (&item.plan, role) else {
                continue;
            };
            if !filter(item) {
                continue;
            }
            let name = plan.counter_name(item.key);
            self.ledger.with_entry(&name, |entry| {
                for ended in entry.unspend(spent, now) {
                    let grant = Grant {
                        units: ended.units,
                        // Nothing reads this time: the grant has ended.
                        ends_at: now,
                        granted_at_micros: ended.granted_at_micros,
                    };
                    self.give_grant_back_later(&name, entry, grant, now);
                }
            });
        }
    }

    /// Adds calls that give the units of a request back to the store, because it is refused after all. Shadows keep theirs.
    fn add_give_backs(
        &self,
        pending_call: &PendingCall,
        reply: &StoreReply,
        decision: &mut SharedDecision,
    ) {
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let ItemRole::InStore(part_index) = role else {
                continue;
            };
            if reply.counters[*part_index].granted_units > 0 && !item.is_shadow {
                let call = self.give_back_call(pending_call, *part_index, reply, item.cost);
                decision.followups.push(call);
            }
        }
    }

    /// The call that gives back units of the part with this index and of the networks around it. Each part states the
    /// gateway's total after the grant. If the store's own total is lower by `n`, it lacks `n` of the units and takes back
    /// `n` fewer.
    fn give_back_call(
        &self,
        pending_call: &PendingCall,
        part_index: usize,
        reply: &StoreReply,
        units: u32,
    ) -> PendingCall {
        let part = &pending_call.call.parts[part_index];
        let give_back = |part: &CallPart, counter: &CounterReply| {
            let mut call = part.give_back_call(self.gateway, units, counter.granted_at_micros);
            for part in &mut call.parts {
                // The total is from the store's reply, so the store has acknowledged it.
                (part.gateway_total, part.acknowledged_total) =
                    (counter.gateway_total, counter.gateway_total);
            }
            call
        };
        let mut call = give_back(part, &reply.counters[part_index]);
        for (network, counter) in networks_around(pending_call, part_index, reply) {
            let network_parts = give_back(network, counter).parts.into_iter();
            call.parts.extend(network_parts.map(|part| CallPart {
                key_part_index: Some(0),
                ..part
            }));
        }
        PendingCall::report(call, pending_call.sent_at)
    }

    /// Keeps granted units of the part with this index, to be given back once the store decides again.
    fn give_back_later(
        &self,
        pending_call: &PendingCall,
        part_index: usize,
        reply: &StoreReply,
        units: u32,
    ) {
        let call = self.give_back_call(pending_call, part_index, reply, units);
        self.give_backs.push(call, pending_call.store_epoch);
    }

    /// Reduces all give-backs to what a new master has copied, once its counters were compared with the former one's.
    pub(super) fn keep_copied_give_backs(&self, now: Nanos) {
        for give_back in self.give_backs.take_for_new_master(now) {
            if let Some(give_back) = self.reduce_to_copied(give_back) {
                self.give_backs
                    .put_back(give_back, self.give_backs.store_epoch());
            }
        }
    }

    /// Reduces a give-back to the units that the current master has copied; `None` if there are none. It does not know the
    /// other units of the former master, and may have granted different ones under the same totals.
    fn reduce_to_copied(&self, mut give_back: PendingCall) -> Option<PendingCall> {
        let part = give_back.call.parts.first_mut()?;
        // Without a total the units are those of a grant in advance, which a master that lacks it counts by the gateway's next
        // total; or those that a request has reserved and not used.
        if part.gateway_total == 0 {
            return Some(give_back);
        }
        let copied_total = self
            .ledger
            .with_entry(&part.name, |entry| entry.copied_total);
        let copied_total = copied_total.unwrap_or(0).min(part.gateway_total);
        let units = u64::from(part.cost).saturating_sub(part.gateway_total - copied_total) as u32;
        // The current master has copied this total, so it has acknowledged it.
        (part.gateway_total, part.acknowledged_total) = (copied_total, copied_total);
        for part in &mut give_back.call.parts {
            (part.cost, part.wanted_units) = (units, units);
        }
        // Networks are granted together with their key, so the number of copied units holds for them too. Without totals
        // the master does not compare them again.
        for part in give_back.call.parts.iter_mut().skip(1) {
            (part.gateway_total, part.acknowledged_total) = (0, 0);
        }
        (units > 0).then_some(give_back)
    }

    /// Records the reply to a late refill, or to a call whose request was decided without the store or whose client has
    /// left. No request uses the units. Leased units are in hand now, unless a learning store granted them. All other units
    /// are given back, because units admitted without the store's reply are reported separately and would count twice.
    pub fn record_late_reply(&self, pending_call: &PendingCall, reply: &StoreReply, now: Nanos) {
        if pending_call.purpose == CallPurpose::Refill {
            return self.record_reply(pending_call, 0, reply, 0, now);
        }
        for (item, role) in pending_call.items.iter().zip(&pending_call.roles) {
            let ItemRole::InStore(index) = role else {
                continue;
            };
            let is_leased = item.plan.as_ref().is_some_and(|plan| plan.lease.is_some());
            let granted_units = reply.counters[*index].granted_units;
            if granted_units == 0 {
                continue;
            }
            if is_leased && pending_call.purpose == CallPurpose::Decide {
                self.record_reply(pending_call, *index, reply, 0, now);
            } else {
                self.give_back_later(pending_call, *index, reply, granted_units);
            }
        }
    }

    /// Allows other calls to ask for units in advance again, because this one has ended or will not ask for them.
    pub(super) fn end_refill(&self, call: &Call) {
        let refilling = call
            .parts
            .iter()
            .filter(|part| part.wanted_units > part.cost);
        for part in refilling {
            self.ledger
                .with_entry(&part.name, |entry| entry.is_refilling = false);
        }
    }
}
