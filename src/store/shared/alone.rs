//! How [`Decider`] decides without the store, and how it reports that later.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{self, DecidedBy};
use super::call::{ALONE, Call, CallPart, CounterName, StoreReply};
use super::decider::Decider;
use super::item::{SharedItem, SharedItems, quota};
use super::ledger_entry::LedgerEntry;
use super::pending::{CountedIn, FirstStep, PendingCall, Purpose, SharedDecision};
use super::plan::SharingPlan;
use super::recovery::BATCH;
use super::share::LocalShare;
use crate::base::clock::Nanos;
use crate::limit::{Limit, LimitReading, LimitStanding, OnStoreError, Scale};
use crate::store::{Item, Taking};

/// The wait in a refusal by a limit that is `closed` without the store.
const CLOSED_WAIT: Nanos = Nanos::from_secs(1);
/// A report without a reply is sent again after this time.
const ON_ITS_WAY: Nanos = Nanos::from_millis(50);

impl Decider {
    /// The number under which units admitted without the store are reported. They have a count of their own, because a
    /// grant whose reply was lost would hide them in a common one.
    fn alone_number(&self) -> u32 {
        self.gateway | ALONE
    }

    /// The calls that report what the store may have lost of these counters, and what is unreported.
    pub fn report_all(&self, names: &[CounterName], now: Nanos) -> SmallVec<[PendingCall; 2]> {
        let granted = names.iter().filter_map(|name| {
            let (mut part, alone) = self.alone_part(name, now)?;
            let (total, units) = self.ledger.with(name, |e| (e.total, e.units(now)))?;
            part.total = total;
            part.within = part.within.saturating_sub(alone).saturating_add(units);
            Some(part)
        });
        let granted = self.report(self.gateway, granted, now);
        let mut asked: SmallVec<[PendingCall; 2]> = granted.into_iter().collect();
        asked.extend(self.report_alone(names, now));
        // The store may have lost its data, and with it what it has acknowledged.
        let parts = asked
            .iter_mut()
            .flat_map(|pending_call| &mut pending_call.call.parts);
        parts.for_each(|part| part.acknowledged = 0);
        asked
    }

    /// The call that reports what was admitted without the store.
    pub fn report_alone(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let alone = names.iter().filter_map(|name| {
            let (mut part, alone) = self.alone_part(name, now)?;
            self.ledger
                .with(name, |entry| entry.alone.reporting_at = now)?;
            part.within = alone;
            Some(part)
        });
        self.report(self.alone_number(), alone, now)
    }

    /// The call that reports unreported units of these items, unless a report is on its way.
    pub(super) fn report_unreported(&self, items: &SharedItems, now: Nanos) -> Option<PendingCall> {
        if !self.ledger.may_be_unreported() {
            return None;
        }
        let names = items.iter().filter_map(|item| {
            let name = item.plan.as_ref()?.name(item.key);
            let untold = self.ledger.with(&name, |entry| {
                entry.unreported() > 0 && now.since(entry.alone.reporting_at) > ON_ITS_WAY
            });
            untold.filter(|untold| *untold).map(|_| name)
        });
        let names: SmallVec<[CounterName; 4]> = names.collect();
        self.report_alone(&names, now)
    }

    /// The calls that report what is due of all keys.
    pub(super) fn report_owed(&self, now: Nanos) -> Vec<PendingCall> {
        let since = Nanos(now.0.saturating_sub(ON_ITS_WAY.0));
        let names = self.ledger.owed(since, now);
        let each = names.chunks(BATCH);
        each.filter_map(|batch| self.report_alone(batch, now))
            .collect()
    }

    fn report(
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
        (!call.parts.is_empty()).then(|| PendingCall::report(call, now))
    }

    /// The part that reports all units of a counter that this gateway has used, and how many of them the store may
    /// not know.
    fn alone_part(&self, name: &CounterName, now: Nanos) -> Option<(CallPart, u32)> {
        // Under one lock, or the total would include units that `within` lacks.
        let (plan, scale, alone, at, totals, most) = self.ledger.with(name, |entry| {
            let (scale, totals) = (
                Scale::plan(entry.multiply),
                (entry.alone.total, entry.alone.reported),
            );
            let (alone, at, most) = (
                entry.units_alone(),
                entry.alone.admitted_at,
                entry.own_usage(u32::MAX),
            );
            (entry.plan.clone(), scale, alone, at, totals, most)
        })?;
        let mut part = plan.part(name.key, scale, 0);
        (part.total, part.acknowledged) = totals;
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
        let gone = now.since(at) > plan.counted().longest_window();
        let alone = if gone { 0 } else { alone.min(part.within) };
        Some((part, alone))
    }

    /// The call that asks a new master how many of this gateway's grants it has copied.
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
        (!call.parts.is_empty()).then(|| PendingCall::report(call, now))
    }

    /// Records the reply: how many of the grants the master had copied.
    pub fn record_copied(&self, pending_call: &PendingCall, reply: &StoreReply) {
        for (part, counter) in pending_call.call.parts.iter().zip(&reply.counters) {
            self.ledger
                .with(&part.name, |entry| entry.kept = counter.total);
        }
    }

    /// The store knows what was reported. Only units admitted without it are marked as known: grants beyond that were not
    /// used, and a store that never granted them would take them for counted and subtract what comes back.
    pub fn record_report(&self, pending_call: &PendingCall) {
        if pending_call.call.gateway != self.alone_number() {
            return;
        }
        for part in &pending_call.call.parts {
            self.ledger.with(&part.name, |entry| {
                let news = part.total.saturating_sub(entry.alone.reported);
                let news = u32::try_from(news).unwrap_or(u32::MAX);
                entry.alone.reported = entry.alone.reported.max(part.total);
                entry
                    .reply
                    .used
                    .iter_mut()
                    .for_each(|used| *used = used.saturating_add(news));
            });
        }
    }

    /// Decides about limits of which none is shared.
    pub(super) fn decide_locally(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> SharedDecision {
        let local: SmallVec<[Item<'_>; 4]> = items.iter().map(SharedItem::as_item).collect();
        let mut decision = SharedDecision::default();
        match taking {
            Taking::All => {
                decision.admitted = self.memory.take(&local, now, &mut decision.readings)
            }
            Taking::Shadows => self.memory.refused(&local, now, &mut decision.readings),
            Taking::Nothing => {
                decision.admitted = self.memory.peek(&local, now, &mut decision.readings)
            }
        }
        decision.counted = items.iter().map(|_| CountedIn::Gateway).collect();
        decision
    }

    /// Decides without the store: shared limits by this gateway's share of them.
    pub(super) fn decide_alone(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> SharedDecision {
        let shares = self.shares(items, now);
        let open = |item: &SharedItem| {
            item.plan
                .as_ref()
                .is_some_and(|p| p.on_error == OnStoreError::Open)
        };
        let closed = items.iter().zip(&shares);
        let closed = closed.filter(|(item, share)| share.is_none() && !open(item) && !item.shadow);
        let taking = match (taking, closed.count()) {
            (Taking::All, 1..) => Taking::Shadows,
            _ => taking,
        };
        let local = items_by_share(items, &shares);
        let mut readings = SmallVec::new();
        let admitted = match taking {
            Taking::All => local.is_empty() || self.memory.take(&local, now, &mut readings),
            Taking::Shadows => {
                self.memory.refused(&local, now, &mut readings);
                false
            }
            Taking::Nothing => local.is_empty() || self.memory.peek(&local, now, &mut readings),
        };
        let mut reply = readings.into_iter();
        let mut decision = SharedDecision {
            admitted,
            alone: true,
            ..SharedDecision::default()
        };
        for (item, share) in items.iter().zip(&shares) {
            let mut reading = match share {
                Some(_) => reply.next().unwrap_or_else(|| self.last_reading(item, now)),
                None => LimitReading {
                    standing: if open(item) {
                        LimitStanding::Within
                    } else {
                        LimitStanding::Refused
                    },
                    wait: if open(item) { Nanos::ZERO } else { CLOSED_WAIT },
                    ..self.last_reading(item, now)
                },
            };
            reading.quota = quota(&item.limit, reading.window, item.scale.multiply);
            let took = reading.standing.admits() && (admitted || item.shadow);
            if took && taking != Taking::Nothing && !item.limit.reserves {
                self.admitted_alone(item, item.cost, share.is_none(), now);
            }
            decision.readings.push(reading);
            decision.counted.push(CountedIn::Gateway);
        }
        if taking == Taking::All
            && admitted
            && !matches!(self.breaker.status(), breaker::StoreStatus::Away(_))
        {
            let names = items.iter();
            let names = names.filter_map(|item| Some(item.plan.as_ref()?.name(item.key)));
            let names: SmallVec<[CounterName; 4]> = names.collect();
            decision.followups.extend(self.report_alone(&names, now));
        }
        decision
    }

    /// Whether the item's share must have room, too, because the store learns.
    fn is_learning(&self, item: &SharedItem, now: Nanos) -> bool {
        let plan = item.plan.as_ref();
        plan.is_none_or(|plan| {
            self.breaker
                .decided_by(plan.counted().longest_window(), now)
                != DecidedBy::Store
        })
    }

    /// Decides while the store learns. The share must have room, because some gateways have not reported yet; and the
    /// store must, because others use it again already.
    pub(super) fn decide_with_both(&self, items: SharedItems, now: Nanos) -> FirstStep {
        let learning = items.iter().filter(|item| self.is_learning(item, now));
        let learning: SharedItems = learning.cloned().collect();
        let shares = self.shares(&learning, now);
        if shares.iter().any(Option::is_none) {
            return FirstStep::Decided(self.decide_alone(&items, Taking::All, now));
        }
        let mut asked = items_by_share(&learning, &shares);
        for (item, asked) in learning.iter().zip(&mut asked) {
            asked.cost = self.change_pending(item, now, |pending| *pending += item.cost);
        }
        let mut readings: SmallVec<[LimitReading; 4]> = SmallVec::new();
        if !self.memory.peek(&asked, now, &mut readings) {
            self.remove_pending(&learning, now);
            let mut readings = readings.into_iter();
            let each = items.iter().map(|item| {
                let held = self
                    .is_learning(item, now)
                    .then(|| readings.next())
                    .flatten();
                let mut reading = held.unwrap_or_else(|| self.last_reading(item, now));
                reading.quota = quota(&item.limit, reading.window, item.scale.multiply);
                reading
            });
            return FirstStep::Decided(SharedDecision {
                readings: each.collect(),
                counted: items.iter().map(|_| CountedIn::Gateway).collect(),
                alone: true,
                ..SharedDecision::default()
            });
        }
        drop(asked);
        let mut pending_call = self.ask_store(items, Taking::All, now);
        self.allow_asking(&pending_call.call);
        for part in &mut pending_call.call.parts {
            part.want = part.cost;
        }
        pending_call.purpose = Purpose::Confirm;
        FirstStep::AskStore(Box::new(pending_call))
    }

    /// A call to a learning store has a reply, or is abandoned.
    pub(super) fn remove_pending(&self, items: &SharedItems, now: Nanos) {
        for item in items {
            self.change_pending(item, now, |pending| {
                *pending = pending.saturating_sub(item.cost);
            });
        }
    }

    /// Changes the units of an item that wait for a learning store, and returns them.
    fn change_pending(&self, item: &SharedItem, now: Nanos, change: impl FnOnce(&mut u32)) -> u32 {
        let pending = item.plan.as_ref().and_then(|plan| {
            self.ledger.entry(&plan.name(item.key), plan, now, |entry| {
                change(&mut entry.pending);
                entry.pending
            })
        });
        pending.unwrap_or(item.cost)
    }

    /// The limit that each item is held to; `None` where the store's absence decides.
    fn shares(&self, items: &SharedItems, now: Nanos) -> SmallVec<[Option<Limit>; 4]> {
        let each = items.iter().map(|item| match &item.plan {
            None => Some((*item.limit).clone()),
            Some(plan) if plan.on_error == OnStoreError::Local => self.share(plan, item, now),
            Some(_) => None,
        });
        each.collect()
    }

    /// Records units admitted without the store, so that they can be reported.
    pub fn admitted_alone(&self, item: &SharedItem, units: u32, uncounted: bool, now: Nanos) {
        let Some(plan) = &item.plan else { return };
        let noted = self.ledger.entry(&plan.name(item.key), plan, now, |entry| {
            entry.multiply = item.scale.multiply;
            self.ledger.admitted_alone(entry, units, now);
        });
        if noted.is_none() {
            self.ledger.note_untracked_alone(now);
        }
        if uncounted {
            self.memory.count(&item.as_item(), units, now);
        }
    }

    /// The limit that this gateway holds a key to while it decides alone; `None` where nothing may pass.
    pub(super) fn share(
        &self,
        plan: &Arc<SharingPlan>,
        item: &SharedItem,
        now: Nanos,
    ) -> Option<Limit> {
        let longest = plan.counted().longest_window();
        let (gateways, (round, since)) = (
            self.breaker.gateways(),
            self.breaker.alone_since(longest, now),
        );
        let multiply = item.scale.multiply;
        let own = self.own_usage(item, now);
        let made = self.ledger.entry(&plan.name(item.key), plan, now, |entry| {
            // While the store is asked, each late reply is a reason to make the share anew.
            let stays = since < now && entry.share.as_ref().is_some_and(|(made, _)| *made == round);
            if !stays {
                // Units in hand become part of the share; where the store is asked again soon, they stay in hand.
                let units = if since < now { entry.units(now) } else { 0 };
                let own: SmallVec<[u32; 2]> =
                    own.iter().map(|own| own.saturating_add(units)).collect();
                // Their use is reported as admitted without the store, so the grants go back.
                let grants = if since < now {
                    std::mem::take(&mut entry.grants)
                } else {
                    SmallVec::new()
                };
                for grant in grants {
                    self.return_grant(&plan.name(item.key), entry, grant, now);
                }
                // No other gateway knows of unreported units.
                let untold = entry.unreported();
                let used: SmallVec<[u32; 2]> = entry
                    .reply
                    .used
                    .iter()
                    .map(|used| used.saturating_add(untold))
                    .collect();
                let mut share =
                    LocalShare::new(&item.limit, multiply, gateways, since, &used, &own);
                if let Some((_, before)) = &entry.share {
                    share.no_more_than(before, longest);
                }
                entry.share = Some((round, share));
            }
            entry.share.as_ref().map(|(_, share)| share.clone())
        });
        let share = made
            .flatten()
            .unwrap_or_else(|| LocalShare::new(&item.limit, multiply, gateways, since, &[], &[]));
        share.limit(&item.limit, item.scale, gateways, now)
    }
}

/// The items as this gateway counts them, each with the limit that its share allows.
fn items_by_share<'a>(
    items: &'a SharedItems,
    shares: &'a [Option<Limit>],
) -> SmallVec<[Item<'a>; 4]> {
    let each = items.iter().zip(shares).filter_map(|(item, share)| {
        let limit = share.as_ref()?;
        let scale = match item.plan {
            Some(_) => Scale::plan(1),
            None => item.scale,
        };
        Some(Item {
            limit,
            scale,
            ..item.as_item()
        })
    });
    each.collect()
}
