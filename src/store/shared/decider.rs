//! [`Decider`]: one gateway's decisions about shared limits. It decides by itself where it can, makes calls to the store,
//! and turns their replies into decisions. It never waits and does no I/O; [`super::SharedStore`] sends the calls. The
//! files `store_calls`, `alone` and `reports` extend the type.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{Breaker, DecidedBy};
use super::call::{CounterName, StoreError, StoreReply};
use super::give_backs::GiveBacks;
use super::ledger::Ledger;
use super::ledger_entry::{Grant, LedgerEntry};
use super::pending_call::{CallPurpose, CountedIn, FirstStep, PendingCall, SharedDecision};
use super::shared_item::{SharedItem, SharedItems, window_quota};
use crate::base::clock::Nanos;
use crate::limit::{LimitFinding, LimitStanding, RateLimit, Scale};
use crate::store::memory::MemoryStore;
use crate::store::{LimitItem, Taking};

/// Which grants give their unused units back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantsToReturn {
    /// Grants that have ended.
    Ended,
    /// All grants, because the gateway leaves the store.
    All,
}

/// The state by which one gateway decides about shared limits.
#[derive(Debug)]
pub struct Decider {
    /// Counts this gateway's own admissions, and all units of limits that are not shared.
    pub memory: Arc<MemoryStore>,
    /// What the gateway knows of the store's counters.
    pub ledger: Ledger,
    /// Whether the store is called.
    pub breaker: Breaker,
    /// Units to give back once the store decides again.
    pub give_backs: GiveBacks,
    /// The gateway's number, at least 1 and below [`UNGRANTED_UNITS_BIT`](super::call::UNGRANTED_UNITS_BIT).
    pub gateway: u32,
}

impl Decider {
    /// Begins to decide about a request: decides it, or makes the call to the store that it needs. `taking` is
    /// [`Taking::Shadows`] where something else refuses it already.
    pub fn begin_decision(&self, items: SharedItems, taking: Taking, now: Nanos) -> FirstStep {
        let shared = items.iter().filter_map(|item| item.plan.as_ref());
        let longest_window = shared.map(|plan| plan.learning_window()).max();
        let Some(longest_window) = longest_window else {
            return FirstStep::Decided(self.decide_unshared(&items, taking, now));
        };
        match (self.breaker.decided_by(longest_window, now), taking) {
            (DecidedBy::Store, _) => {}
            (DecidedBy::Both, Taking::All) => return self.decide_with_both(items, now),
            (DecidedBy::Both | DecidedBy::Share, _) => {
                return FirstStep::Decided(self.decide_alone(&items, taking, now));
            }
        }
        if taking == Taking::All
            && let Some(decision) = self.refuse_early(&items, taking, now)
        {
            return FirstStep::Decided(decision);
        }
        let mut pending_call = self.make_call(items, taking, now);
        if !pending_call.call.parts.is_empty() {
            return FirstStep::AskStore(Box::new(pending_call));
        }
        // The store has no part in the decision, so it has nothing to refuse: units in hand suffice for all shared limits.
        let reply = StoreReply {
            is_admitted: true,
            now_micros: 0,
            counters: SmallVec::new(),
        };
        let mut decision = self.conclude_call(&pending_call, &reply, now);
        pending_call.purpose = CallPurpose::Report;
        self.add_refills(&pending_call, now, &mut decision);
        FirstStep::Decided(decision)
    }

    /// Finishes a decision with the store's reply, or without one. Also records the replies to refills and reports: then
    /// the returned decision is empty.
    pub fn finish_decision(
        &self,
        pending_call: &PendingCall,
        reply: Result<StoreReply, StoreError>,
        now: Nanos,
    ) -> SharedDecision {
        self.end_refill(&pending_call.call);
        if pending_call.purpose == CallPurpose::Confirm {
            self.remove_units_to_confirm(&pending_call.items, now);
        }
        match reply {
            Ok(reply) => {
                self.breaker.record_reply(now);
                match pending_call.purpose {
                    CallPurpose::Decide | CallPurpose::Confirm => {
                        self.conclude_call(pending_call, &reply, now)
                    }
                    CallPurpose::Refill => {
                        self.record_reply(pending_call, 0, &reply, 0, now);
                        SharedDecision::default()
                    }
                    CallPurpose::Report => {
                        self.record_report(pending_call, now);
                        SharedDecision::default()
                    }
                }
            }
            Err(error) => {
                match error {
                    StoreError::MarkMismatch => {
                        self.breaker.record_outage(now);
                    }
                    // The store has replied, and other limits need not do without it.
                    StoreError::OffCalendar => self.breaker.record_reply(now),
                    _ => {
                        self.breaker.record_failure(now);
                    }
                }
                match pending_call.purpose {
                    CallPurpose::Decide | CallPurpose::Confirm => {
                        self.unspend(pending_call, now, |_| true);
                        self.decide_alone(&pending_call.items, pending_call.call.taking, now)
                    }
                    CallPurpose::Report => {
                        self.retry_give_back_of_credits(pending_call);
                        SharedDecision::default()
                    }
                    CallPurpose::Refill => SharedDecision::default(),
                }
            }
        }
    }

    /// Ends the call of a request that was abandoned before the store replied. Puts the units in hand that the request
    /// spent back into their grants.
    pub fn abandon_call(&self, pending_call: &PendingCall, now: Nanos) {
        self.end_refill(&pending_call.call);
        if pending_call.purpose == CallPurpose::Confirm {
            self.remove_units_to_confirm(&pending_call.items, now);
        }
        self.unspend(pending_call, now, |_| true);
    }

    /// Keeps a give-back of credits whose call has failed. It is sent again with its number, so Redis applies it once.
    /// Units of other limits leave their window instead, but credits would stay used for ever.
    pub(super) fn retry_give_back_of_credits(&self, failed_call: &PendingCall) {
        let parts = failed_call.call.parts.iter();
        let mut give_backs = parts.filter(|part| part.give_back.is_some());
        let is_of_credits = give_backs.any(|part| {
            let is_credits = |entry: &mut LedgerEntry| entry.sharing_plan.limit.is_credits();
            self.ledger.with_entry(&part.name, is_credits) == Some(true)
        });
        if is_of_credits {
            self.give_backs
                .put_back(failed_call.clone(), failed_call.store_epoch);
        }
    }

    /// Calls to send in this order: reports of ungranted units that the store has not acknowledged, then waiting
    /// [give-backs](Decider::give_backs), then calls that give back the unused units of these `grants`. Waiting give-backs
    /// of a counter that owes a report keep waiting.
    pub fn take_unused_units(&self, grants: GrantsToReturn, now: Nanos) -> Vec<PendingCall> {
        let mut calls = self.report_owed(now);
        let owes_report = |name: &CounterName| {
            self.ledger.with_entry(name, |entry| entry.owes_report(now)) == Some(true)
        };
        calls.extend(self.give_backs.take_ready(|name| !owes_report(name)));
        let give_back = |name: &CounterName, entry: &LedgerEntry, grant: Grant| {
            calls.push(self.give_grant_back(name, entry, grant, now));
        };
        match grants {
            GrantsToReturn::All => self.ledger.take_all_grants(give_back),
            GrantsToReturn::Ended => self.ledger.take_ended_grants(now, give_back),
        }
        calls
    }

    /// The call that gives the units of a grant back.
    fn give_grant_back(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) -> PendingCall {
        let part = entry.sharing_plan.call_part(
            name.key,
            Scale::plan(entry.plan_factor),
            0,
            self.wall_at(now),
        );
        PendingCall::report(
            part.give_back_call(self.gateway, grant.units, grant.granted_at_micros),
            now,
        )
    }

    /// Keeps the units of a grant, to be given back once the store decides again. Does nothing if the grant is used up.
    pub(super) fn give_grant_back_later(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) {
        if grant.units > 0 {
            let call = self.give_grant_back(name, entry, grant, now);
            self.give_backs.push(call, self.give_backs.store_epoch());
        }
    }

    /// Decides by what the gateway knows, without a call and without taking units. Counters without an entry in the ledger
    /// admit.
    pub fn peek(&self, items: &SharedItems, now: Nanos) -> SharedDecision {
        let shared = items.iter().filter_map(|item| item.plan.as_ref());
        let longest_window = shared.map(|plan| plan.learning_window()).max();
        match longest_window {
            None => self.decide_unshared(items, Taking::Nothing, now),
            Some(longest_window)
                if self.breaker.decided_by(longest_window, now) != DecidedBy::Store =>
            {
                self.decide_alone(items, Taking::Nothing, now)
            }
            Some(_) => self
                .refuse_early(items, Taking::Nothing, now)
                .unwrap_or_else(|| SharedDecision {
                    is_admitted: true,
                    findings: items
                        .iter()
                        .map(|item| self.last_finding(item, now))
                        .collect(),
                    counted_in: items.iter().map(|_| CountedIn::Gateway).collect(),
                    ..SharedDecision::default()
                }),
        }
    }

    /// The refusal of a request that this gateway knows to be refused: a refusal of the store still holds, or a limit that
    /// is not shared refuses. `None` if the store must decide. Unless `taking` is nothing, shadows of limits that are not
    /// shared take their units.
    fn refuse_early(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> Option<SharedDecision> {
        let mut is_refused = false;
        for item in items.iter().filter(|item| !item.is_shadow) {
            let Some(plan) = &item.plan else { continue };
            let name = plan.counter_name(item.key);
            let refuses = |entry: &mut LedgerEntry| entry.refuses(plan, item.cost, now);
            let refuses = self.ledger.with_entry(&name, refuses);
            is_refused |= refuses.unwrap_or(false);
        }
        let local_items: SmallVec<[LimitItem<'_>; 4]> = self.local_items(items).collect();
        if !local_items.is_empty() && !is_refused {
            is_refused = !self.memory.peek(&local_items, now, &mut SmallVec::new());
        }
        if !is_refused {
            return None;
        }
        let mut local_findings = SmallVec::new();
        match taking {
            _ if local_items.is_empty() => {}
            Taking::Nothing => _ = self.memory.peek(&local_items, now, &mut local_findings),
            Taking::All | Taking::Shadows => {
                self.memory
                    .take_for_shadows(&local_items, now, &mut local_findings);
            }
        }
        let mut local_findings = local_findings.into_iter();
        let findings = items.iter().map(|item| {
            let local_finding = match item.plan {
                None => local_findings.next(),
                Some(_) => None,
            };
            local_finding.unwrap_or_else(|| self.last_finding(item, now))
        });
        Some(SharedDecision {
            findings: findings.collect(),
            counted_in: items.iter().map(|_| CountedIn::Gateway).collect(),
            ..SharedDecision::default()
        })
    }

    /// The wall time at `now`, by this gateway's clock.
    pub(super) fn wall_at(&self, now: Nanos) -> Nanos {
        self.memory.wall().wall_at(now)
    }

    /// The finding of an item by the store's last reply. Without an entry in the ledger the limit counts as unused.
    pub(super) fn last_finding(&self, item: &SharedItem, now: Nanos) -> LimitFinding {
        let mut finding = LimitFinding {
            standing: LimitStanding::Within,
            window: 0,
            quota: 0,
            remaining: 0,
            wait: Nanos::ZERO,
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            calendar_window: None,
            sketched: false,
        };
        let last_reply = item.plan.as_ref().and_then(|plan| {
            let name = plan.counter_name(item.key);
            self.ledger.with_entry(&name, |entry| {
                let units_in_hand = entry.units_in_hand(now);
                let reply = &entry.last_reply;
                finding.window = reply.window_index;
                finding.remaining = reply.remaining.saturating_add(units_in_hand);
                finding.reset = reply.reset_at.since(now);
                if entry.refuses(plan, item.cost, now) {
                    finding.standing = LimitStanding::Refused;
                    finding.remaining = 0;
                    finding.wait = reply.free_at.since(now).max(Nanos(1));
                } else if exceeds_rate(&item.limit, item.scale, &reply.used_units, units_in_hand) {
                    finding.standing = LimitStanding::Over;
                }
            })
        });
        finding.quota = window_quota(&item.limit, finding.window, item.scale.plan_factor);
        let wall = self.wall_at(now);
        finding.calendar_window = item.limit.calendar_window(finding.window, wall);
        if last_reply.is_none() {
            finding.remaining = finding.quota;
        }
        finding
    }
}

/// Whether units beyond the rate are in use, of a limit that admits such units. Units in hand are granted, but not in use.
fn exceeds_rate(limit: &RateLimit, scale: Scale, used_units: &[u32], units_in_hand: u32) -> bool {
    let mut windows = limit.windows.iter().zip(used_units);
    windows.any(|(rate, used)| {
        let (base, ceiling) = limit.unit_bounds(rate, scale.plan_factor);
        base < ceiling && used.saturating_sub(units_in_hand) > base
    })
}

#[cfg(test)]
mod tests {
    use super::super::breaker::StoreStatus;
    use super::super::call::Call;
    use super::super::sharing_plan::SharingPlan;
    use super::*;
    use crate::limit::{Fingerprint, OnStoreError, Sharing};
    use crate::store::Settings;

    impl Decider {
        /// A gateway that has counted nothing and has not reached the store.
        pub(in super::super) fn of_test() -> Decider {
            let memory = MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            });
            Decider {
                memory: Arc::new(memory.unwrap()),
                ledger: Ledger::new(1 << 20),
                breaker: Breaker::new(Nanos::ZERO),
                give_backs: GiveBacks::default(),
                gateway: 1,
            }
        }
    }

    #[test]
    fn a_clock_that_is_off_the_calendar_is_no_failure_of_the_store() {
        let decider = Decider::of_test();
        decider.breaker.start_learning(Nanos::ZERO);
        decider.breaker.finish_learning(Nanos::ZERO);
        let call = Call {
            gateway: 1,
            taking: Taking::All,
            parts: SmallVec::new(),
        };
        let pending_call = PendingCall::report(call, Nanos(1));
        let end_with = |error: StoreError| {
            decider.finish_decision(&pending_call, Err(error), Nanos(1));
            decider.breaker.status()
        };
        for _ in 0..30 {
            assert_eq!(end_with(StoreError::OffCalendar), StoreStatus::Shared);
        }
        for _ in 0..30 {
            end_with(StoreError::NotConnected);
        }
        assert_eq!(decider.breaker.status(), StoreStatus::Away(Nanos(1)));
    }

    #[test]
    fn credits_are_given_back_after_a_call_that_failed() {
        let decider = Decider::of_test();
        let limit = RateLimit::of_credits(true);
        let registered = decider.memory.register("limit", &limit).unwrap();
        let (sharing, on_error) = (Sharing::Strict, OnStoreError::Closed);
        let plan = SharingPlan::new("limit", &limit, &registered, sharing, on_error).unwrap();
        let (plan, key) = (Arc::new(plan), Fingerprint(7));
        let name = plan.counter_name(key);
        let ledger = &decider.ledger;
        ledger.record_ungranted_use(&name, &plan, 1, 1, Nanos(1));
        let part = plan.call_part(key, Scale::plan(1), 0, Nanos(1));
        let mut call = PendingCall::report(part.give_back_call(1, 40, 1).numbered(), Nanos(1));
        call.store_epoch = decider.give_backs.store_epoch();
        decider.finish_decision(&call, Err(StoreError::Late), Nanos(1));
        let kept = decider.give_backs.take_ready(|_| true);
        let parts = |calls: &[PendingCall]| calls.first().map(|call| call.call.parts.clone());
        assert_eq!(
            parts(&kept),
            Some(call.call.parts.clone()),
            "with its number"
        );
        // The connection was not ready when it should have been sent again.
        let epoch = decider.give_backs.store_epoch();
        decider.give_backs.push(call.clone(), epoch);
        let again = decider.give_backs.take_ready(|_| true);
        assert_eq!(parts(&again), parts(&kept), "with its first number");
        // The store has lost its data, and with it what was granted.
        decider.give_backs.clear();
        decider.finish_decision(&call, Err(StoreError::Late), Nanos(1));
        assert!(decider.give_backs.take_ready(|_| true).is_empty());
    }
}
