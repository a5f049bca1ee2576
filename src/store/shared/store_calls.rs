//! What [`Decider`] asks the store about a request, and what it makes of the answer.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::breaker::DecidedBy;
use super::call::{Call, CallPart, CounterReply, StoreReply};
use super::decider::Decider;
use super::ledger::Grant;
use super::line::{SharedItem, SharedItems, item, quota};
use super::pending::{CountedIn, PendingCall, Purpose, Role, SharedDecision};
use super::plan::SharingPlan;
use crate::base::clock::Nanos;
use crate::limit::Reading;
use crate::store::memory::networks;
use crate::store::{Item, Taking};

impl Decider {
    /// SharedItems that this gateway counts alone.
    pub(super) fn own<'a>(&self, lines: &'a SharedItems) -> impl Iterator<Item = Item<'a>> {
        lines.iter().filter(|line| line.plan.is_none()).map(item)
    }

    /// Uses units in hand, and asks for the rest.
    pub(super) fn ask(&self, lines: SharedItems, taking: Taking, now: Nanos) -> PendingCall {
        let mut call = Call {
            gateway: self.gateway,
            taking,
            parts: SmallVec::new(),
        };
        let mut roles = SmallVec::new();
        for line in &lines {
            let Some(plan) = &line.plan else {
                roles.push(Role::Local);
                continue;
            };
            let name = plan.name(line.key);
            let spent = self.ledger.entry(&name, plan, now, |entry| {
                entry.multiply = line.scale.multiply;
                let takes = taking == Taking::All || (taking == Taking::Shadows && line.shadow);
                let leased = takes && plan.lease.is_some() && line.cost > 0;
                let spent = leased.then(|| entry.spend(line.cost, now)).flatten()?;
                Some((spent, entry.runs_low(now)))
            });
            if let Some(Some((spent, low))) = spent {
                roles.push(Role::InHand(spent, low));
                continue;
            }
            roles.push(Role::InStore(call.parts.len()));
            let place = call.parts.len();
            let parts = self.parts(
                line,
                plan,
                (line.cost, place),
                taking != Taking::Nothing,
                now,
            );
            call.parts.extend(parts);
        }
        PendingCall {
            call,
            sent: now,
            round: self.ladder.round(),
            life: self.backs.life(),
            lines,
            roles,
            purpose: Purpose::Decide,
        }
    }

    /// Asks for `cost` units of a line, from `place` on; the networks around its key must have room for them too.
    fn parts(
        &self,
        line: &SharedItem,
        plan: &SharingPlan,
        (cost, place): (u32, usize),
        asks: bool,
        now: Nanos,
    ) -> SmallVec<[CallPart; 4]> {
        let mut part = plan.part(line.key, line.scale, cost);
        part.shadow = line.shadow;
        self.complete(line, &mut part, asks, now);
        let mut parts: SmallVec<[CallPart; 4]> = SmallVec::new();
        let (cost, want, shadow) = (part.cost, part.want, part.shadow);
        parts.push(part);
        // What only the answer tells is charged to the key alone.
        let parents = if line.limit.reserves {
            &[]
        } else {
            &line.parents[..]
        };
        let around = networks::parts(&line.limit, line.scale, parents, plan.hash);
        parts.extend(around.map(|net| CallPart {
            around: Some(place as u8),
            shadow,
            cost,
            want,
            ..net
        }));
        parts
    }

    /// Adds what is wanted in advance, unless others ask for that already, and what the store may not know.
    fn complete(&self, line: &SharedItem, part: &mut CallPart, asks: bool, now: Nanos) {
        let gateways = self.ladder.gateways();
        let within = self.own_use(line, now).last().copied().unwrap_or(0);
        self.ledger.with(&part.name, |entry| {
            (part.total, part.told) = (entry.total, entry.total);
            part.within = entry.own(within).saturating_add(entry.units(now));
            if line.cost > 0 && asks {
                entry.asks(gateways, now);
            }
            if entry.plan.lease.is_some() && line.cost > 0 {
                part.spread = gateways;
                if asks && !entry.asking && entry.want > line.cost {
                    entry.asking = true;
                    part.want = entry.want;
                }
            }
        });
    }

    pub(super) fn own_use(&self, line: &SharedItem, now: Nanos) -> SmallVec<[u32; 2]> {
        self.memory.used(&item(line), now)
    }

    /// Asks for more where units run low.
    pub(super) fn refill(&self, asking: &PendingCall, now: Nanos, done: &mut SharedDecision) {
        for (line, role) in asking.lines.iter().zip(&asking.roles) {
            let (Some(plan), Role::InHand(_, true)) = (&line.plan, role) else {
                continue;
            };
            let parts = self.parts(line, plan, (1, 0), true, now);
            if parts[0].want == 1 {
                // Another worker was faster.
                continue;
            }
            done.besides.push(PendingCall {
                call: Call {
                    gateway: self.gateway,
                    taking: Taking::All,
                    parts: parts.into_iter().collect(),
                },
                sent: now,
                round: self.ladder.round(),
                life: self.backs.life(),
                lines: SmallVec::new(),
                roles: SmallVec::new(),
                purpose: Purpose::Refill,
            });
        }
    }

    /// Makes the decision of what the store said and what was in hand.
    pub(super) fn conclude(
        &self,
        asking: &PendingCall,
        said: &StoreReply,
        now: Nanos,
    ) -> SharedDecision {
        let mut done = SharedDecision {
            admitted: said.admitted && asking.call.taking == Taking::All,
            ..SharedDecision::default()
        };
        let own: SmallVec<[Item<'_>; 4]> = self.own(&asking.lines).collect();
        let mut readings: SmallVec<[Reading; 4]> = SmallVec::new();
        if !own.is_empty() {
            match (done.admitted, asking.call.taking) {
                (_, Taking::Nothing) => {
                    done.admitted = said.admitted & self.memory.peek(&own, now, &mut readings);
                }
                (true, _) => done.admitted = self.memory.take(&own, now, &mut readings),
                (false, _) => self.memory.refused(&own, now, &mut readings),
            }
        } else if asking.call.taking == Taking::Nothing {
            done.admitted = said.admitted;
        }
        let mut own = readings.into_iter();
        for (line, role) in asking.lines.iter().zip(&asking.roles) {
            let (reading, counted) = match role {
                Role::Local => (
                    own.next().unwrap_or_else(|| self.known(line, now)),
                    CountedIn::Gateway,
                ),
                Role::InHand(..) => (self.known(line, now), CountedIn::Gateway),
                Role::InStore(place) => self.hear(asking, line, *place, said, now),
            };
            let took = match role {
                Role::Local => false,
                Role::InHand(..) => true,
                Role::InStore(place) => said.answers[*place].took > 0,
            };
            if took && (done.admitted || line.shadow) && !line.limit.reserves {
                self.memory.count(&item(line), line.cost, now);
            }
            done.readings.push(reading);
            done.counted.push(counted);
        }
        done.besides.extend(self.tell_untold(&asking.lines, now));
        if asking.call.taking == Taking::All && !done.admitted {
            self.unspend(asking, now, |line| !line.shadow);
            if said.admitted {
                // What is counted here refused at the last moment.
                self.give_back(asking, said, &mut done);
            }
        }
        done
    }

    /// Notes an answer, and reads it.
    pub(super) fn hear(
        &self,
        asking: &PendingCall,
        line: &SharedItem,
        place: usize,
        said: &StoreReply,
        now: Nanos,
    ) -> (Reading, CountedIn) {
        let answer = within_networks(asking, place, said);
        let mut reading = read(line, &answer);
        if asking.call.taking != Taking::Nothing {
            self.note(asking, place, said, line.cost, now);
        }
        let in_hand = answer.took.saturating_sub(line.cost);
        reading.remaining = reading.remaining.saturating_add(in_hand);
        (reading, CountedIn::Store(answer.stamped))
    }

    /// Notes the store's reply to the part at `place`, of which `cost` units are used. When the store has gone away
    /// since it was asked, units in advance are given back and nothing else is learnt, nor while the store learns
    /// itself: what may be used without it is settled.
    pub(super) fn note(
        &self,
        asking: &PendingCall,
        place: usize,
        said: &StoreReply,
        cost: u32,
        now: Nanos,
    ) {
        let answer = within_networks(asking, place, said);
        let (part, sent) = (&asking.call.parts[place], asking.sent);
        let hears = self.ladder.hears(asking.round);
        let cost = cost.min(answer.took);
        let granted = self.ledger.with(&part.name, |entry| {
            let life = entry.plan.lease.as_ref().map(|lease| lease.life);
            let learns =
                || self.ladder.way(entry.plan.counted().longest(), now) != DecidedBy::Store;
            if !hears || (asking.purpose == Purpose::Confirm && learns()) {
                if cost > 0 {
                    entry.total = entry.total.max(answer.total);
                    entry.granted = entry.granted.saturating_add(cost);
                }
                return None;
            }
            entry.told(&answer, cost, part.want, sent, now);
            life
        });
        let more = answer.took - cost;
        match granted {
            _ if more == 0 => {}
            Some(Some(life)) => self.ledger.granted(&part.name, sent.after(life)),
            // Nobody has them in hand.
            Some(None) | None => self.return_later(asking, place, said, more),
        }
    }

    pub(super) fn unspend(
        &self,
        asking: &PendingCall,
        now: Nanos,
        which: impl Fn(&SharedItem) -> bool,
    ) {
        for (line, role) in asking.lines.iter().zip(&asking.roles) {
            if !which(line) {
                continue;
            }
            if let (Some(plan), Role::InHand(spent, _)) = (&line.plan, role) {
                let name = plan.name(line.key);
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

    fn give_back(&self, asking: &PendingCall, said: &StoreReply, done: &mut SharedDecision) {
        for (line, role) in asking.lines.iter().zip(&asking.roles) {
            let Role::InStore(place) = role else { continue };
            if said.answers[*place].took > 0 && !line.shadow {
                done.besides
                    .push(self.returned(asking, *place, said, line.cost));
            }
        }
    }

    /// Gives back units of the part at `place`, and of the networks around it, each with the total by which the store
    /// tells whether it was the one that granted them.
    fn returned(
        &self,
        asking: &PendingCall,
        place: usize,
        said: &StoreReply,
        units: u32,
    ) -> PendingCall {
        let part = &asking.call.parts[place];
        let granted = |part: &CallPart, answer: &CounterReply| {
            let mut back = part.give_back(self.gateway, units, answer.stamped);
            for part in &mut back.parts {
                (part.total, part.told) = (answer.total, answer.total);
            }
            back
        };
        let mut call = granted(part, &said.answers[place]);
        for (network, answer) in around(asking, place, said) {
            let back = granted(network, answer);
            call.parts
                .extend(back.parts.into_iter().map(|part| CallPart {
                    around: Some(0),
                    ..part
                }));
        }
        PendingCall::tell(call, asking.sent)
    }

    fn return_later(&self, asking: &PendingCall, place: usize, said: &StoreReply, units: u32) {
        let back = self.returned(asking, place, said, units);
        self.backs.push(back, asking.life);
    }

    /// Another server leads, and it was compared what it has of these counters.
    pub(super) fn moved(&self) {
        for back in self.backs.moved() {
            if let Some(back) = self.kept(back) {
                self.backs.push(back, self.backs.life());
            }
        }
    }

    /// The part of a give-back that is for the master that leads now: units that the former one granted before this one
    /// had copied them. The others are not there, and their numbers are those of what it has granted since.
    fn kept(&self, mut back: PendingCall) -> Option<PendingCall> {
        let part = back.call.parts.first_mut()?;
        // Units in hand are told again where it lacks them.
        if part.total == 0 {
            return Some(back);
        }
        let kept = self.ledger.with(&part.name, |entry| entry.kept);
        let kept = kept.unwrap_or(0).min(part.total);
        let units = u64::from(part.cost).saturating_sub(part.total - kept) as u32;
        (part.total, part.told) = (kept, kept);
        for part in &mut back.call.parts {
            (part.cost, part.want) = (units, units);
        }
        // Networks around a key are granted with it.
        for part in back.call.parts.iter_mut().skip(1) {
            (part.total, part.told) = (0, 0);
        }
        (units > 0).then_some(back)
    }

    /// The reply to a call that this gateway has given up: its request was decided without the store, or its client
    /// has left. None of the units that the store took was used. Those of a lease are in hand now, all others go
    /// back: what was admitted without the store is told apart, and would count twice.
    pub fn late(&self, asking: &PendingCall, said: &StoreReply, now: Nanos) {
        if asking.purpose == Purpose::Refill {
            return self.note(asking, 0, said, 0, now);
        }
        for (line, role) in asking.lines.iter().zip(&asking.roles) {
            let Role::InStore(place) = role else { continue };
            let leased = line.plan.as_ref().is_some_and(|plan| plan.lease.is_some());
            let took = said.answers[*place].took;
            if took == 0 {
                continue;
            }
            if leased && asking.purpose == Purpose::Decide {
                self.note(asking, *place, said, 0, now);
            } else {
                self.return_later(asking, *place, said, took);
            }
        }
    }

    /// Others may ask for units in advance again.
    pub(super) fn landed(&self, call: &Call) {
        let led = call.parts.iter().filter(|part| part.want > part.cost);
        for part in led {
            self.ledger.with(&part.name, |entry| entry.asking = false);
        }
    }
}

/// What was said of the networks around the key at `place`.
fn around<'a>(
    asking: &'a PendingCall,
    place: usize,
    said: &'a StoreReply,
) -> impl Iterator<Item = (&'a CallPart, &'a CounterReply)> {
    let each = asking.call.parts.iter().zip(&said.answers);
    each.filter(move |(part, _)| part.around == Some(place as u8))
}

/// What was said of a key, which passes where the networks around it do.
pub(super) fn within_networks<'a>(
    asking: &'a PendingCall,
    place: usize,
    said: &'a StoreReply,
) -> Cow<'a, CounterReply> {
    let mut answer = Cow::Borrowed(&said.answers[place]);
    for (_, network) in around(asking, place, said) {
        let answer = answer.to_mut();
        answer.remaining = answer.remaining.min(network.remaining);
        if network.standing.admits() {
            continue;
        }
        if answer.standing.admits() {
            answer.standing = network.standing;
        }
        answer.wait = answer.wait.max(network.wait);
    }
    answer
}

fn read(line: &SharedItem, answer: &CounterReply) -> Reading {
    Reading {
        standing: answer.standing,
        window: answer.window,
        quota: quota(&line.limit, answer.window, line.scale.multiply),
        remaining: answer.remaining,
        wait: answer.wait,
        reset: answer.reset,
        delay: answer.delay,
        sketched: false,
    }
}
