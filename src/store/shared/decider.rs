//! One gateway's decisions about shared limits: what it decides by itself, what it asks the store, and what it makes of
//! the reply. Never waits and does no I/O; that is [`super::Shared`]'s part.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{Breaker, DecidedBy};
use super::call::{CounterName, StoreError, StoreReply};
use super::give_backs::GiveBacks;
use super::item::{SharedItem, SharedItems, quota};
use super::ledger::Ledger;
use super::ledger_entry::{Grant, LedgerEntry};
use super::pending::{CountedIn, FirstStep, PendingCall, Purpose, SharedDecision};
use crate::base::clock::Nanos;
use crate::limit::{Limit, LimitReading, LimitStanding, Scale};
use crate::store::memory::Memory;
use crate::store::{Item, Taking};

/// See the module.
#[derive(Debug)]
pub struct Decider {
    /// Counts what this gateway has admitted itself, and limits that are not shared.
    pub memory: Arc<Memory>,
    /// What the gateway knows of the store's counters.
    pub ledger: Ledger,
    /// Whether the store is asked.
    pub breaker: Breaker,
    /// Units that it gives back later.
    pub give_backs: GiveBacks,
    /// The gateway's number, at least 1 and below [`ALONE`](super::call::ALONE).
    pub gateway: u32,
}

impl Decider {
    /// Begins to decide about a request. `taking` is [`Taking::Shadows`] where something else refuses it already.
    pub fn begin(&self, items: SharedItems, taking: Taking, now: Nanos) -> FirstStep {
        let shared = items.iter().filter_map(|item| item.plan.as_ref());
        let longest = shared.map(|plan| plan.counted().longest_window()).max();
        let Some(longest) = longest else {
            return FirstStep::Decided(self.decide_locally(&items, taking, now));
        };
        match (self.breaker.decided_by(longest, now), taking) {
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
        let mut pending_call = self.ask_store(items, taking, now);
        if !pending_call.call.parts.is_empty() {
            return FirstStep::AskStore(Box::new(pending_call));
        }
        let reply = StoreReply {
            admitted: true,
            now: 0,
            counters: SmallVec::new(),
        };
        let mut decision = self.conclude(&pending_call, &reply, now);
        pending_call.purpose = Purpose::Report;
        self.refill(&pending_call, now, &mut decision);
        FirstStep::Decided(decision)
    }

    /// Ends a decision with the store's reply, or without one.
    pub fn finish(
        &self,
        pending_call: &PendingCall,
        reply: Result<StoreReply, StoreError>,
        now: Nanos,
    ) -> SharedDecision {
        self.allow_asking(&pending_call.call);
        if pending_call.purpose == Purpose::Confirm {
            self.remove_pending(&pending_call.items, now);
        }
        match reply {
            Ok(reply) => {
                self.breaker.record_reply(now);
                match pending_call.purpose {
                    Purpose::Decide | Purpose::Confirm => self.conclude(pending_call, &reply, now),
                    Purpose::Refill => {
                        self.record_reply(pending_call, 0, &reply, 0, now);
                        SharedDecision::default()
                    }
                    Purpose::Report => {
                        self.record_report(pending_call);
                        SharedDecision::default()
                    }
                }
            }
            Err(failure) => {
                if failure == StoreError::Renewed {
                    self.breaker.record_renewal(now);
                } else {
                    self.breaker.record_failure(now);
                }
                match pending_call.purpose {
                    Purpose::Decide | Purpose::Confirm => {
                        self.unspend(pending_call, now, |_| true);
                        self.decide_alone(&pending_call.items, pending_call.call.taking, now)
                    }
                    Purpose::Refill | Purpose::Report => SharedDecision::default(),
                }
            }
        }
    }

    /// The request was abandoned before the store replied.
    pub fn abandon(&self, pending_call: &PendingCall, now: Nanos) {
        self.allow_asking(&pending_call.call);
        if pending_call.purpose == Purpose::Confirm {
            self.remove_pending(&pending_call.items, now);
        }
        self.unspend(pending_call, now, |_| true);
    }

    /// The calls that give unused units back: of grants that have ended, or of `all`, and [`Decider::give_backs`]. Reports of
    /// units admitted without the store come before them, where one is due or its reply was lost. A key with a report
    /// due gives nothing back yet.
    pub fn take_unused(&self, all: bool, now: Nanos) -> Vec<PendingCall> {
        let mut list = self.report_owed(now);
        let owes = |name: &CounterName| {
            self.ledger.with(name, |entry| entry.owes_report(now)) == Some(true)
        };
        list.extend(self.give_backs.take(|name| !owes(name)));
        let give_back = |name: &CounterName, entry: &LedgerEntry, grant: Grant| {
            list.push(self.give_grant_back(name, entry, grant, now));
        };
        match all {
            true => self.ledger.empty(give_back),
            false => self.ledger.sweep(now, give_back),
        }
        list
    }

    fn give_grant_back(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) -> PendingCall {
        let part = entry.plan.part(name.key, Scale::plan(entry.multiply), 0);
        PendingCall::report(
            part.return_call(self.gateway, grant.units, grant.stamped),
            now,
        )
    }

    /// Gives units in hand back as soon as the store is shared.
    pub(super) fn return_grant(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) {
        if grant.units > 0 {
            let back = self.give_grant_back(name, entry, grant, now);
            self.give_backs.push(back, self.give_backs.life());
        }
    }

    /// What the gateway knows about a request without asking the store. Takes nothing; unknown counters admit.
    pub fn peek(&self, items: &SharedItems, now: Nanos) -> SharedDecision {
        let shared = items.iter().filter_map(|item| item.plan.as_ref());
        let longest = shared.map(|plan| plan.counted().longest_window()).max();
        match longest {
            None => self.decide_locally(items, Taking::Nothing, now),
            Some(longest) if self.breaker.decided_by(longest, now) != DecidedBy::Store => {
                self.decide_alone(items, Taking::Nothing, now)
            }
            Some(_) => self
                .refuse_early(items, Taking::Nothing, now)
                .unwrap_or_else(|| SharedDecision {
                    admitted: true,
                    readings: items
                        .iter()
                        .map(|item| self.last_reading(item, now))
                        .collect(),
                    counted: items.iter().map(|_| CountedIn::Gateway).collect(),
                    ..SharedDecision::default()
                }),
        }
    }

    /// The refusal of a request, where what the gateway knows is enough for one.
    fn refuse_early(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> Option<SharedDecision> {
        let mut refuses = false;
        for item in items.iter().filter(|item| !item.shadow) {
            let Some(plan) = &item.plan else { continue };
            let barred = |entry: &mut LedgerEntry| {
                now < entry.reply.not_before && entry.units(now) < item.cost
            };
            refuses |= self
                .ledger
                .with(&plan.name(item.key), barred)
                .unwrap_or(false);
        }
        let own: SmallVec<[Item<'_>; 4]> = self.local_items(items).collect();
        if !own.is_empty() && !refuses {
            refuses = !self.memory.peek(&own, now, &mut SmallVec::new());
        }
        if !refuses {
            return None;
        }
        let mut readings = SmallVec::new();
        match taking {
            _ if own.is_empty() => {}
            Taking::Nothing => _ = self.memory.peek(&own, now, &mut readings),
            Taking::All | Taking::Shadows => self.memory.refused(&own, now, &mut readings),
        }
        let mut own = readings.into_iter();
        let each = items.iter().map(|item| match &item.plan {
            None => own.next().unwrap_or_else(|| self.last_reading(item, now)),
            Some(_) => self.last_reading(item, now),
        });
        Some(SharedDecision {
            readings: each.collect(),
            counted: items.iter().map(|_| CountedIn::Gateway).collect(),
            ..SharedDecision::default()
        })
    }

    /// The reading of an item after the store's last reply.
    pub(super) fn last_reading(&self, item: &SharedItem, now: Nanos) -> LimitReading {
        let mut reading = LimitReading {
            standing: LimitStanding::Within,
            window: 0,
            quota: 0,
            remaining: 0,
            wait: Nanos::ZERO,
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            sketched: false,
        };
        let fresh = |reading: &mut LimitReading| {
            reading.quota = quota(&item.limit, reading.window, item.scale.multiply);
            reading.remaining = reading.quota;
        };
        let Some(plan) = &item.plan else {
            fresh(&mut reading);
            return reading;
        };
        let known = self.ledger.with(&plan.name(item.key), |entry| {
            let units = entry.units(now);
            let (window, remaining, reset) = entry.reply.spoke;
            reading.window = window;
            reading.remaining = remaining.saturating_add(units);
            reading.reset = reset.since(now);
            if now < entry.reply.not_before && units < item.cost {
                reading.standing = LimitStanding::Refused;
                reading.remaining = 0;
                reading.wait = entry.reply.free_at.since(now).max(Nanos(1));
            } else if over(&item.limit, item.scale, &entry.reply.used, units) {
                reading.standing = LimitStanding::Over;
            }
        });
        reading.quota = quota(&item.limit, reading.window, item.scale.multiply);
        if known.is_none() {
            fresh(&mut reading);
        }
        reading
    }
}

/// Whether units beyond the rate are in use; those in hand are granted, but not in use.
fn over(limit: &Limit, scale: Scale, used: &[u32], in_hand: u32) -> bool {
    let each = limit.windows.iter().zip(used);
    each.into_iter().any(|(rate, used)| {
        let (base, ceiling) = limit.unit_bounds(rate, scale.multiply);
        base < ceiling && used.saturating_sub(in_hand) > base
    })
}
