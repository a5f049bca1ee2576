//! One gateway's decisions by what several count: what it can say by itself, what it asks the store, and what
//! it makes of the answer. Never waits and never talks to a store; that is [`super::Shared`]'s part.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{Breaker, DecidedBy};
use super::call::{CounterName, StoreError, StoreReply};
use super::give_backs::GiveBacks;
use super::ledger::{Grant, Ledger, LedgerEntry};
use super::line::{SharedItem, SharedItems, quota};
use super::pending::{CountedIn, FirstStep, PendingCall, Purpose, SharedDecision};
use crate::base::clock::Nanos;
use crate::limit::{Limit, LimitStanding, Reading, Scale};
use crate::store::memory::Memory;
use crate::store::{Item, Taking};

/// See the module.
#[derive(Debug)]
pub struct Decider {
    /// What this gateway has admitted itself, and what it counts alone.
    pub memory: Arc<Memory>,
    /// What it knows of the others.
    pub ledger: Ledger,
    /// Whether the store is asked.
    pub ladder: Breaker,
    /// What it gives back later.
    pub backs: GiveBacks,
    /// Its number.
    pub gateway: u32,
}

impl Decider {
    /// Begins to decide about a request; `taking` says whether something else refuses it already.
    pub fn begin(&self, lines: SharedItems, taking: Taking, now: Nanos) -> FirstStep {
        let shared = lines.iter().filter_map(|line| line.plan.as_ref());
        let longest = shared.map(|plan| plan.counted().longest()).max();
        let Some(longest) = longest else {
            return FirstStep::Decided(self.here(&lines, taking, now));
        };
        match (self.ladder.way(longest, now), taking) {
            (DecidedBy::Store, _) => {}
            (DecidedBy::Both, Taking::All) => return self.both(lines, now),
            (DecidedBy::Both | DecidedBy::LocalShare, _) => {
                return FirstStep::Decided(self.alone(&lines, taking, now));
            }
        }
        if taking == Taking::All
            && let Some(done) = self.refused_here(&lines, taking, now)
        {
            return FirstStep::Decided(done);
        }
        let mut asking = self.ask(lines, taking, now);
        if !asking.call.parts.is_empty() {
            return FirstStep::AskStore(Box::new(asking));
        }
        let said = StoreReply {
            admitted: true,
            now: 0,
            answers: SmallVec::new(),
        };
        let mut done = self.conclude(&asking, &said, now);
        asking.purpose = Purpose::Tell;
        self.refill(&asking, now, &mut done);
        FirstStep::Decided(done)
    }

    /// Ends a decision by what the store said, or that it said nothing.
    pub fn finish(
        &self,
        asking: &PendingCall,
        said: Result<StoreReply, StoreError>,
        now: Nanos,
    ) -> SharedDecision {
        self.landed(&asking.call);
        if asking.purpose == Purpose::Confirm {
            self.settled(&asking.lines, now);
        }
        match said {
            Ok(said) => {
                self.ladder.answered(now);
                match asking.purpose {
                    Purpose::Decide | Purpose::Confirm => self.conclude(asking, &said, now),
                    Purpose::Refill => {
                        self.note(asking, 0, &said, 0, now);
                        SharedDecision::default()
                    }
                    Purpose::Tell => {
                        self.acknowledged(asking);
                        SharedDecision::default()
                    }
                }
            }
            Err(failure) => {
                if failure == StoreError::Renewed {
                    self.ladder.renewed(now);
                } else {
                    self.ladder.failed(now);
                }
                match asking.purpose {
                    Purpose::Decide | Purpose::Confirm => {
                        self.unspend(asking, now, |_| true);
                        self.alone(&asking.lines, asking.call.taking, now)
                    }
                    Purpose::Refill | Purpose::Tell => SharedDecision::default(),
                }
            }
        }
    }

    /// The request was given up before the store answered.
    pub fn abandon(&self, asking: &PendingCall, now: Nanos) {
        self.landed(&asking.call);
        if asking.purpose == Purpose::Confirm {
            self.settled(&asking.lines, now);
        }
        self.unspend(asking, now, |_| true);
    }

    /// Units that were granted and not used, given back: those whose time is over, or all; and
    /// [`Decider::backs`]. Before them comes what was admitted without the store, where it was not told or the reply was
    /// lost; a key that still owes that gets nothing back.
    pub fn unused(&self, all: bool, now: Nanos) -> Vec<PendingCall> {
        let mut list = self.tell_owed(now);
        let owes =
            |name: &CounterName| self.ledger.with(name, |entry| entry.owes(now)) == Some(true);
        list.extend(self.backs.take(|name| !owes(name)));
        let give_back = |name: &CounterName, entry: &LedgerEntry, grant: Grant| {
            list.push(self.grant_back(name, entry, grant, now));
        };
        match all {
            true => self.ledger.empty(give_back),
            false => self.ledger.sweep(now, give_back),
        }
        list
    }

    fn grant_back(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) -> PendingCall {
        let part = entry.plan.part(name.key, Scale::plan(entry.multiply), 0);
        PendingCall::tell(
            part.give_back(self.gateway, grant.units, grant.stamped),
            now,
        )
    }

    /// Gives units in hand back, once the store is shared.
    pub(super) fn return_grant(
        &self,
        name: &CounterName,
        entry: &LedgerEntry,
        grant: Grant,
        now: Nanos,
    ) {
        if grant.units > 0 {
            let back = self.grant_back(name, entry, grant, now);
            self.backs.push(back, self.backs.life());
        }
    }

    /// What is known of a request without asking and without taking; what is not known admits.
    pub fn glance(&self, lines: &SharedItems, now: Nanos) -> SharedDecision {
        let shared = lines.iter().filter_map(|line| line.plan.as_ref());
        let longest = shared.map(|plan| plan.counted().longest()).max();
        match longest {
            None => self.here(lines, Taking::Nothing, now),
            Some(longest) if self.ladder.way(longest, now) != DecidedBy::Store => {
                self.alone(lines, Taking::Nothing, now)
            }
            Some(_) => self
                .refused_here(lines, Taking::Nothing, now)
                .unwrap_or_else(|| SharedDecision {
                    admitted: true,
                    readings: lines.iter().map(|line| self.known(line, now)).collect(),
                    counted: lines.iter().map(|_| CountedIn::Gateway).collect(),
                    ..SharedDecision::default()
                }),
        }
    }

    /// What the gateway knows without asking refuses the request.
    fn refused_here(
        &self,
        lines: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> Option<SharedDecision> {
        let mut refuses = false;
        for line in lines.iter().filter(|line| !line.shadow) {
            let Some(plan) = &line.plan else { continue };
            let barred =
                |entry: &mut LedgerEntry| now < entry.not_before && entry.units(now) < line.cost;
            refuses |= self
                .ledger
                .with(&plan.name(line.key), barred)
                .unwrap_or(false);
        }
        let own: SmallVec<[Item<'_>; 4]> = self.own(lines).collect();
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
        let each = lines.iter().map(|line| match &line.plan {
            None => own.next().unwrap_or_else(|| self.known(line, now)),
            Some(_) => self.known(line, now),
        });
        Some(SharedDecision {
            readings: each.collect(),
            counted: lines.iter().map(|_| CountedIn::Gateway).collect(),
            ..SharedDecision::default()
        })
    }

    /// What the store last said of a line.
    pub(super) fn known(&self, line: &SharedItem, now: Nanos) -> Reading {
        let mut reading = Reading {
            standing: LimitStanding::Within,
            window: 0,
            quota: 0,
            remaining: 0,
            wait: Nanos::ZERO,
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            sketched: false,
        };
        let fresh = |reading: &mut Reading| {
            reading.quota = quota(&line.limit, reading.window, line.scale.multiply);
            reading.remaining = reading.quota;
        };
        let Some(plan) = &line.plan else {
            fresh(&mut reading);
            return reading;
        };
        let known = self.ledger.with(&plan.name(line.key), |entry| {
            let units = entry.units(now);
            let (window, remaining, reset) = entry.spoke;
            reading.window = window;
            reading.remaining = remaining.saturating_add(units);
            reading.reset = reset.since(now);
            if now < entry.not_before && units < line.cost {
                reading.standing = LimitStanding::Refused;
                reading.remaining = 0;
                reading.wait = entry.free_at.since(now).max(Nanos(1));
            } else if over(&line.limit, line.scale, &entry.used, units) {
                reading.standing = LimitStanding::Over;
            }
        });
        reading.quota = quota(&line.limit, reading.window, line.scale.multiply);
        if known.is_none() {
            fresh(&mut reading);
        }
        reading
    }
}

/// Whether units beyond the rate are in use, of all that are granted but those in hand.
fn over(limit: &Limit, scale: Scale, used: &[u32], in_hand: u32) -> bool {
    let each = limit.windows.iter().zip(used);
    each.into_iter().any(|(rate, used)| {
        let (base, ceiling) = limit.bounds(rate, scale.multiply);
        base < ceiling && used.saturating_sub(in_hand) > base
    })
}
