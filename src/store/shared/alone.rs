//! How [`Decider`] decides without the store, and what it has to tell of that.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{self, DecidedBy};
use super::call::{ALONE, Call, CallPart, CounterName, StoreReply};
use super::decider::Decider;
use super::ledger::LedgerEntry;
use super::line::{SharedItem, SharedItems, item, quota};
use super::pending::{CountedIn, FirstStep, PendingCall, Purpose, SharedDecision};
use super::plan::SharingPlan;
use super::recovery::BATCH;
use super::share::LocalShare;
use crate::base::clock::Nanos;
use crate::limit::{Limit, LimitStanding, OnError, Reading, Scale};
use crate::store::{Item, Taking};

/// What is told to who waits for a store that is `closed` without it.
const CLOSED_WAIT: Nanos = Nanos::from_secs(1);
/// A message to the store that was not answered for so long is sent again.
const ON_ITS_WAY: Nanos = Nanos::from_millis(50);

impl Decider {
    /// Under which number units are told that were admitted without the store. What was granted and its answer
    /// lost must not hide them, so they have a count of their own, which grows by nothing else.
    fn without(&self) -> u32 {
        self.gateway | ALONE
    }

    /// Tells the store what it may have lost of these counters, and what it was not told.
    pub fn tell_all(&self, names: &[CounterName], now: Nanos) -> SmallVec<[PendingCall; 2]> {
        let granted = names.iter().filter_map(|name| {
            let (mut part, alone) = self.alone_of(name, now)?;
            let (total, units) = self.ledger.with(name, |e| (e.total, e.units(now)))?;
            part.total = total;
            part.within = part.within.saturating_sub(alone).saturating_add(units);
            Some(part)
        });
        let granted = self.tell(self.gateway, granted, now);
        let mut asked: SmallVec<[PendingCall; 2]> = granted.into_iter().collect();
        asked.extend(self.tell_alone(names, now));
        // It may be another life of the store, which has acknowledged nothing.
        let parts = asked.iter_mut().flat_map(|asking| &mut asking.call.parts);
        parts.for_each(|part| part.told = 0);
        asked
    }

    /// Tells the store what was admitted without it.
    pub fn tell_alone(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let alone = names.iter().filter_map(|name| {
            let (mut part, alone) = self.alone_of(name, now)?;
            self.ledger.with(name, |entry| entry.telling = now)?;
            part.within = alone;
            Some(part)
        });
        self.tell(self.without(), alone, now)
    }

    /// The same for what has not been told, unless it is on its way.
    pub(super) fn tell_untold(&self, lines: &SharedItems, now: Nanos) -> Option<PendingCall> {
        if !self.ledger.may_be_untold() {
            return None;
        }
        let names = lines.iter().filter_map(|line| {
            let name = line.plan.as_ref()?.name(line.key);
            let untold = self.ledger.with(&name, |entry| {
                entry.untold() > 0 && now.since(entry.telling) > ON_ITS_WAY
            });
            untold.filter(|untold| *untold).map(|_| name)
        });
        let names: SmallVec<[CounterName; 4]> = names.collect();
        self.tell_alone(&names, now)
    }

    /// The same for all keys.
    pub(super) fn tell_owed(&self, now: Nanos) -> Vec<PendingCall> {
        let since = Nanos(now.0.saturating_sub(ON_ITS_WAY.0));
        let names = self.ledger.owed(since, now);
        let each = names.chunks(BATCH);
        each.filter_map(|batch| self.tell_alone(batch, now))
            .collect()
    }

    fn tell(
        &self,
        gateway: u32,
        parts: impl Iterator<Item = CallPart>,
        now: Nanos,
    ) -> Option<PendingCall> {
        let call = Call {
            gateway,
            taking: Taking::All,
            parts: parts.filter(|part| part.within > 0).collect(),
        };
        (!call.parts.is_empty()).then(|| PendingCall::tell(call, now))
    }

    /// What is to be told of a counter, with what this gateway has used of it, and how much of that may have been
    /// without the store.
    fn alone_of(&self, name: &CounterName, now: Nanos) -> Option<(CallPart, u32)> {
        // At one moment, or what is admitted meanwhile would be told without its units.
        let (plan, scale, alone, at, totals, most) = self.ledger.with(name, |entry| {
            let (scale, totals) = (Scale::plan(entry.multiply), (entry.alone, entry.told));
            let (alone, at, most) = (entry.without(), entry.alone_at, entry.own(u32::MAX));
            (entry.plan.clone(), scale, alone, at, totals, most)
        })?;
        let mut part = plan.part(name.key, scale, 0);
        (part.total, part.told) = totals;
        let item = Item {
            limit: &plan.limit,
            slot: plan.registered.slot(),
            key: name.key,
            cost: 0,
            scale,
            shadow: false,
            parents: &[],
        };
        let used = self.memory.used(&item, now).last().copied();
        part.within = used.unwrap_or(0).min(most);
        let gone = now.since(at) > plan.counted().longest();
        let alone = if gone { 0 } else { alone.min(part.within) };
        Some((part, alone))
    }

    /// Asks another master than before what it has of what this gateway was granted of these counters.
    pub(super) fn compare(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let part = |entry: &mut LedgerEntry| entry.plan.part(name.key, Scale::plan(1), 0);
            self.ledger.with(name, part)
        });
        let call = Call {
            gateway: self.gateway,
            taking: Taking::Nothing,
            parts: parts.collect(),
        };
        (!call.parts.is_empty()).then(|| PendingCall::tell(call, now))
    }

    /// What it said: how much of the grants it had copied.
    pub fn note_copied(&self, asking: &PendingCall, said: &StoreReply) {
        for (part, answer) in asking.call.parts.iter().zip(&said.answers) {
            self.ledger
                .with(&part.name, |entry| entry.kept = answer.total);
        }
    }

    /// The store has been told. What it has granted beyond that was not used: told of to one that never granted it, it
    /// would pass for counted there, and what comes back of it would be taken from what is.
    pub fn acknowledged(&self, asking: &PendingCall) {
        if asking.call.gateway != self.without() {
            return;
        }
        for part in &asking.call.parts {
            self.ledger.with(&part.name, |entry| {
                let news = part.total.saturating_sub(entry.told);
                let news = u32::try_from(news).unwrap_or(u32::MAX);
                entry.told = entry.told.max(part.total);
                entry
                    .used
                    .iter_mut()
                    .for_each(|used| *used = used.saturating_add(news));
            });
        }
    }

    /// Decides where nothing is shared.
    pub(super) fn here(&self, lines: &SharedItems, taking: Taking, now: Nanos) -> SharedDecision {
        let items: SmallVec<[Item<'_>; 4]> = lines.iter().map(item).collect();
        let mut done = SharedDecision::default();
        match taking {
            Taking::All => done.admitted = self.memory.take(&items, now, &mut done.readings),
            Taking::Shadows => self.memory.refused(&items, now, &mut done.readings),
            Taking::Nothing => done.admitted = self.memory.peek(&items, now, &mut done.readings),
        }
        done.counted = lines.iter().map(|_| CountedIn::Gateway).collect();
        done
    }

    /// Decides without the store: by this gateway's share of what is shared.
    pub(super) fn alone(&self, lines: &SharedItems, taking: Taking, now: Nanos) -> SharedDecision {
        let shares = self.shares(lines, now);
        let open = |line: &SharedItem| {
            line.plan
                .as_ref()
                .is_some_and(|p| p.on_error == OnError::Open)
        };
        let closed = lines.iter().zip(&shares);
        let closed = closed.filter(|(line, share)| share.is_none() && !open(line) && !line.shadow);
        let taking = match (taking, closed.count()) {
            (Taking::All, 1..) => Taking::Shadows,
            _ => taking,
        };
        let items = items(lines, &shares);
        let mut readings = SmallVec::new();
        let admitted = match taking {
            Taking::All => items.is_empty() || self.memory.take(&items, now, &mut readings),
            Taking::Shadows => {
                self.memory.refused(&items, now, &mut readings);
                false
            }
            Taking::Nothing => items.is_empty() || self.memory.peek(&items, now, &mut readings),
        };
        let mut said = readings.into_iter();
        let mut done = SharedDecision {
            admitted,
            alone: true,
            ..SharedDecision::default()
        };
        for (line, share) in lines.iter().zip(&shares) {
            let mut reading = match share {
                Some(_) => said.next().unwrap_or_else(|| self.known(line, now)),
                None => Reading {
                    standing: if open(line) {
                        LimitStanding::Within
                    } else {
                        LimitStanding::Refused
                    },
                    wait: if open(line) { Nanos::ZERO } else { CLOSED_WAIT },
                    ..self.known(line, now)
                },
            };
            reading.quota = quota(&line.limit, reading.window, line.scale.multiply);
            let took = reading.standing.admits() && (admitted || line.shadow);
            if took && taking != Taking::Nothing && !line.limit.reserves {
                self.admitted_alone(line, line.cost, share.is_none(), now);
            }
            done.readings.push(reading);
            done.counted.push(CountedIn::Gateway);
        }
        if taking == Taking::All
            && admitted
            && !matches!(self.ladder.standing(), breaker::StoreStatus::Away(_))
        {
            let names = lines.iter();
            let names = names.filter_map(|line| Some(line.plan.as_ref()?.name(line.key)));
            let names: SmallVec<[CounterName; 4]> = names.collect();
            done.besides.extend(self.tell_alone(&names, now));
        }
        done
    }

    /// Whether a line's share must have room beside the store.
    fn learns(&self, line: &SharedItem, now: Nanos) -> bool {
        let plan = line.plan.as_ref();
        plan.is_none_or(|plan| self.ladder.way(plan.counted().longest(), now) != DecidedBy::Store)
    }

    /// Decides while the store learns: the share must have room, for some gateways have not told yet what they
    /// admitted, and the store must, for others ask it again already.
    pub(super) fn both(&self, lines: SharedItems, now: Nanos) -> FirstStep {
        let learning = lines.iter().filter(|line| self.learns(line, now));
        let learning: SharedItems = learning.cloned().collect();
        let shares = self.shares(&learning, now);
        if shares.iter().any(Option::is_none) {
            return FirstStep::Decided(self.alone(&lines, Taking::All, now));
        }
        let mut asked = items(&learning, &shares);
        for (line, asked) in learning.iter().zip(&mut asked) {
            asked.cost = self.pending(line, now, |pending| *pending += line.cost);
        }
        let mut readings: SmallVec<[Reading; 4]> = SmallVec::new();
        if !self.memory.peek(&asked, now, &mut readings) {
            self.settled(&learning, now);
            let mut readings = readings.into_iter();
            let each = lines.iter().map(|line| {
                let held = self.learns(line, now).then(|| readings.next()).flatten();
                let mut reading = held.unwrap_or_else(|| self.known(line, now));
                reading.quota = quota(&line.limit, reading.window, line.scale.multiply);
                reading
            });
            return FirstStep::Decided(SharedDecision {
                readings: each.collect(),
                counted: lines.iter().map(|_| CountedIn::Gateway).collect(),
                alone: true,
                ..SharedDecision::default()
            });
        }
        drop(asked);
        let mut asking = self.ask(lines, Taking::All, now);
        self.landed(&asking.call);
        for part in &mut asking.call.parts {
            part.want = part.cost;
        }
        asking.purpose = Purpose::Confirm;
        FirstStep::AskStore(Box::new(asking))
    }

    /// What was asked of the store while it learns is answered, or given up.
    pub(super) fn settled(&self, lines: &SharedItems, now: Nanos) {
        for line in lines {
            self.pending(line, now, |pending| {
                *pending = pending.saturating_sub(line.cost);
            });
        }
    }

    /// Units of a line that wait for the store while it learns.
    fn pending(&self, line: &SharedItem, now: Nanos, change: impl FnOnce(&mut u32)) -> u32 {
        let pending = line.plan.as_ref().and_then(|plan| {
            self.ledger.entry(&plan.name(line.key), plan, now, |entry| {
                change(&mut entry.pending);
                entry.pending
            })
        });
        pending.unwrap_or(line.cost)
    }

    /// What each line is held to; nothing where that is no limit.
    fn shares(&self, lines: &SharedItems, now: Nanos) -> SmallVec<[Option<Limit>; 4]> {
        let each = lines.iter().map(|line| match &line.plan {
            None => Some((*line.limit).clone()),
            Some(plan) if plan.on_error == OnError::Local => self.share(plan, line, now),
            Some(_) => None,
        });
        each.collect()
    }

    /// Counts what was admitted without the store, so that the store may learn of it.
    pub fn admitted_alone(&self, line: &SharedItem, units: u32, uncounted: bool, now: Nanos) {
        let Some(plan) = &line.plan else { return };
        let noted = self.ledger.entry(&plan.name(line.key), plan, now, |entry| {
            entry.multiply = line.scale.multiply;
            self.ledger.admitted_alone(entry, units, now);
        });
        if noted.is_none() {
            self.ledger.cannot_tell(now);
        }
        if uncounted {
            self.memory.count(&item(line), units, now);
        }
    }

    /// The limit that this gateway holds a key to while it is alone; nothing where nothing may pass.
    pub(super) fn share(
        &self,
        plan: &Arc<SharingPlan>,
        line: &SharedItem,
        now: Nanos,
    ) -> Option<Limit> {
        let longest = plan.counted().longest();
        let (gateways, (round, since)) = (self.ladder.gateways(), self.ladder.alone(longest, now));
        let multiply = line.scale.multiply;
        let own = self.own_use(line, now);
        let made = self.ledger.entry(&plan.name(line.key), plan, now, |entry| {
            // While the store is asked, each late answer is a reason to look again.
            let stays = since < now && entry.share.as_ref().is_some_and(|(made, _)| *made == round);
            if !stays {
                // Units in hand become part of it; where the store is asked again soon, they stay what they are.
                let units = if since < now { entry.units(now) } else { 0 };
                let own: SmallVec<[u32; 2]> =
                    own.iter().map(|own| own.saturating_add(units)).collect();
                // What is used of them is told as admitted without the store, so the store gets them back.
                let grants = if since < now {
                    std::mem::take(&mut entry.grants)
                } else {
                    SmallVec::new()
                };
                for grant in grants {
                    self.return_grant(&plan.name(line.key), entry, grant, now);
                }
                // Nobody knows of what the store was not told.
                let untold = entry.untold();
                let used: SmallVec<[u32; 2]> = entry
                    .used
                    .iter()
                    .map(|used| used.saturating_add(untold))
                    .collect();
                let mut share =
                    LocalShare::new(&line.limit, multiply, gateways, since, &used, &own);
                if let Some((_, before)) = &entry.share {
                    share.no_more_than(before, longest);
                }
                entry.share = Some((round, share));
            }
            entry.share.as_ref().map(|(_, share)| share.clone())
        });
        let share = made
            .flatten()
            .unwrap_or_else(|| LocalShare::new(&line.limit, multiply, gateways, since, &[], &[]));
        share.limit(&line.limit, line.scale, gateways, now)
    }
}

/// SharedItems as this gateway holds them to what they are held to.
fn items<'a>(lines: &'a SharedItems, shares: &'a [Option<Limit>]) -> SmallVec<[Item<'a>; 4]> {
    let each = lines.iter().zip(shares).filter_map(|(line, share)| {
        let limit = share.as_ref()?;
        let scale = match line.plan {
            Some(_) => Scale::plan(1),
            None => line.scale,
        };
        Some(Item {
            limit,
            scale,
            ..item(line)
        })
    });
    each.collect()
}
