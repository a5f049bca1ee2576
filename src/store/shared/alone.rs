//! How [`Decider`] decides without the store, by this gateway's share of each limit, and how it reports those units to the
//! store later. A report never makes a request wait.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{DecidedBy, StoreStatus};
use super::call::{ALONE, Call, CallPart, CounterName, StoreReply};
use super::decider::Decider;
use super::item::{SharedItem, SharedItems, window_quota};
use super::ledger_entry::LedgerEntry;
use super::pending::{CountedIn, FirstStep, PendingCall, Purpose, SharedDecision};
use super::plan::SharingPlan;
use super::recovery::REPORT_BATCH;
use super::share::LocalShare;
use crate::base::clock::Nanos;
use crate::limit::{Limit, LimitReading, LimitStanding, OnStoreError, Scale};
use crate::store::{Item, Taking};

/// The wait in a refusal by a limit that is `closed` without the store.
const CLOSED_LIMIT_WAIT: Nanos = Nanos::from_secs(1);
/// A report without a reply is sent again after this time.
const REPORT_RETRY_DELAY: Nanos = Nanos::from_millis(50);

impl Decider {
    /// The gateway number under which units admitted without the store are reported. They have a total of their own, because
    /// a grant whose reply was lost would hide them in a common one.
    fn alone_gateway(&self) -> u32 {
        self.gateway | ALONE
    }

    /// The calls that report the units of these counters which the store may have lost, and those that are unreported.
    pub fn report_all(&self, names: &[CounterName], now: Nanos) -> SmallVec<[PendingCall; 2]> {
        let granted = names.iter().filter_map(|name| {
            let (mut part, alone_units) = self.alone_part(name, now)?;
            let (total, in_hand) = self
                .ledger
                .with_entry(name, |entry| (entry.total, entry.units_in_hand(now)))?;
            part.total = total;
            let granted_units = part.within.saturating_sub(alone_units);
            part.within = granted_units.saturating_add(in_hand);
            Some(part)
        });
        let granted = self.make_report(self.gateway, granted, now);
        let mut reports: SmallVec<[PendingCall; 2]> = granted.into_iter().collect();
        reports.extend(self.report_alone(names, now));
        // The store may have lost its data, and with it the totals that it has acknowledged.
        let parts = reports.iter_mut().flat_map(|report| &mut report.call.parts);
        parts.for_each(|part| part.acknowledged = 0);
        reports
    }

    /// The call that reports units which were admitted without the store; `None` where there are none.
    pub fn report_alone(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let (mut part, alone_units) = self.alone_part(name, now)?;
            self.ledger
                .with_entry(name, |entry| entry.alone.reported_at = now)?;
            part.within = alone_units;
            Some(part)
        });
        self.make_report(self.alone_gateway(), parts, now)
    }

    /// The call that reports unreported units of these items, unless a report is under way.
    pub(super) fn report_unreported(&self, items: &SharedItems, now: Nanos) -> Option<PendingCall> {
        if !self.ledger.may_be_unreported() {
            return None;
        }
        let names = items.iter().filter_map(|item| {
            let name = item.plan.as_ref()?.counter_name(item.key);
            let is_due = self.ledger.with_entry(&name, |entry| {
                entry.unreported() > 0 && now.since(entry.alone.reported_at) > REPORT_RETRY_DELAY
            });
            (is_due == Some(true)).then_some(name)
        });
        let names: SmallVec<[CounterName; 4]> = names.collect();
        self.report_alone(&names, now)
    }

    /// The calls that report units of all keys whose report is due.
    pub(super) fn report_owed(&self, now: Nanos) -> Vec<PendingCall> {
        let since = Nanos(now.0.saturating_sub(REPORT_RETRY_DELAY.0));
        let names = self.ledger.counters_owing_report(since, now);
        let batches = names.chunks(REPORT_BATCH);
        batches
            .filter_map(|batch| self.report_alone(batch, now))
            .collect()
    }

    /// The call that reports these parts; `None` where no part has units.
    fn make_report(
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

    /// The part that reports all units of a counter that this gateway has used. Also returns how many of them were admitted
    /// without the store.
    fn alone_part(&self, name: &CounterName, now: Nanos) -> Option<(CallPart, u32)> {
        // Under one lock, or the total would include units that `within` lacks.
        let (plan, scale, alone, alone_units, max_used) =
            self.ledger.with_entry(name, |entry| {
                (
                    entry.plan.clone(),
                    Scale::plan(entry.multiply),
                    entry.alone.clone(),
                    entry.units_alone(),
                    entry.own_usage(u32::MAX),
                )
            })?;
        let mut part = plan.call_part(name.key, scale, 0);
        (part.total, part.acknowledged) = (alone.total, alone.reported);
        let item = Item {
            limit: &plan.limit,
            slot: plan.registered.slot(),
            key: name.key,
            cost: 0,
            scale,
            shadow: false,
            parents: &[],
        };
        let used = self.memory.used_units(&item, now).last().copied();
        part.within = used.unwrap_or(0).min(max_used);
        let has_left = now.since(alone.admitted_at) > plan.store_limit().longest_window();
        let alone_units = if has_left { 0 } else { alone_units };
        let alone_units = alone_units.min(part.within);
        Some((part, alone_units))
    }

    /// The call by which a new master tells how many of this gateway's grants it has copied; `None` without counters.
    pub(super) fn make_comparison(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let part = |entry: &mut LedgerEntry| entry.plan.call_part(name.key, Scale::plan(1), 0);
            self.ledger.with_entry(name, part)
        });
        let call = Call {
            gateway: self.gateway,
            taking: Taking::Nothing,
            parts: parts.collect(),
        };
        (!call.parts.is_empty()).then(|| PendingCall::report(call, now))
    }

    /// Records the reply to a comparison: how many units of its grants the master had copied.
    pub fn record_copied(&self, pending_call: &PendingCall, reply: &StoreReply) {
        for (part, counter) in pending_call.call.parts.iter().zip(&reply.counters) {
            self.ledger
                .with_entry(&part.name, |entry| entry.copied_total = counter.total);
        }
    }

    /// Records that the store knows the units of a report. Only units admitted without the store are marked as known. Other
    /// grants of the report were not used, and a store that never granted them would take them for counted.
    pub fn record_report(&self, pending_call: &PendingCall) {
        if pending_call.call.gateway != self.alone_gateway() {
            return;
        }
        for part in &pending_call.call.parts {
            self.ledger.with_entry(&part.name, |entry| {
                let new_units = part.total.saturating_sub(entry.alone.reported);
                let new_units = u32::try_from(new_units).unwrap_or(u32::MAX);
                entry.alone.reported = entry.alone.reported.max(part.total);
                for used in &mut entry.reply.used {
                    *used = used.saturating_add(new_units);
                }
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
            Taking::Shadows => self
                .memory
                .take_for_shadows(&local, now, &mut decision.readings),
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
        let shares = self.share_limits(items, now);
        let has_closed = items
            .iter()
            .zip(&shares)
            .any(|(item, share)| share.is_none() && !is_open(item) && !item.shadow);
        let taking = match taking {
            Taking::All if has_closed => Taking::Shadows,
            _ => taking,
        };
        let local = items_by_share(items, &shares);
        let mut readings = SmallVec::new();
        let admitted = match taking {
            Taking::All => local.is_empty() || self.memory.take(&local, now, &mut readings),
            Taking::Shadows => {
                self.memory.take_for_shadows(&local, now, &mut readings);
                false
            }
            Taking::Nothing => local.is_empty() || self.memory.peek(&local, now, &mut readings),
        };
        let mut readings = readings.into_iter();
        let mut decision = SharedDecision {
            admitted,
            alone: true,
            ..SharedDecision::default()
        };
        for (item, share) in items.iter().zip(&shares) {
            let mut reading = match share {
                Some(_) => readings
                    .next()
                    .unwrap_or_else(|| self.last_reading(item, now)),
                None => self.reading_without_share(item, now),
            };
            reading.quota = window_quota(&item.limit, reading.window, item.scale.multiply);
            let takes_units = reading.standing.admits() && (admitted || item.shadow);
            if takes_units && taking != Taking::Nothing && !item.limit.reserves {
                self.record_admitted_alone(item, item.cost, now);
                if share.is_none() {
                    // The memory has not counted them yet.
                    self.memory.count_units(&item.as_item(), item.cost, now);
                }
            }
            decision.readings.push(reading);
            decision.counted.push(CountedIn::Gateway);
        }
        if taking == Taking::All
            && admitted
            && !matches!(self.breaker.status(), StoreStatus::Away(_))
        {
            let names = items.iter();
            let names = names.filter_map(|item| Some(item.plan.as_ref()?.counter_name(item.key)));
            let names: SmallVec<[CounterName; 4]> = names.collect();
            decision.followups.extend(self.report_alone(&names, now));
        }
        decision
    }

    /// The reading of a limit without a share: it admits where it is open without the store, and refuses otherwise.
    fn reading_without_share(&self, item: &SharedItem, now: Nanos) -> LimitReading {
        let (standing, wait) = match is_open(item) {
            true => (LimitStanding::Within, Nanos::ZERO),
            false => (LimitStanding::Refused, CLOSED_LIMIT_WAIT),
        };
        LimitReading {
            standing,
            wait,
            ..self.last_reading(item, now)
        }
    }

    /// Whether the item's share must have room, too, because the store is learning.
    fn is_learning(&self, item: &SharedItem, now: Nanos) -> bool {
        let plan = item.plan.as_ref();
        plan.is_none_or(|plan| {
            self.breaker
                .decided_by(plan.store_limit().longest_window(), now)
                != DecidedBy::Store
        })
    }

    /// Decides while the store learns. The share must have room, because some gateways have not reported yet. The store must
    /// have room, too, because other gateways use it again already.
    pub(super) fn decide_with_both(&self, items: SharedItems, now: Nanos) -> FirstStep {
        let learning = items.iter().filter(|item| self.is_learning(item, now));
        let learning: SharedItems = learning.cloned().collect();
        let shares = self.share_limits(&learning, now);
        if shares.iter().any(Option::is_none) {
            return FirstStep::Decided(self.decide_alone(&items, Taking::All, now));
        }
        let mut share_items = items_by_share(&learning, &shares);
        for (item, share_item) in learning.iter().zip(&mut share_items) {
            share_item.cost = self.change_pending(item, now, |pending| *pending += item.cost);
        }
        let mut readings: SmallVec<[LimitReading; 4]> = SmallVec::new();
        if !self.memory.peek(&share_items, now, &mut readings) {
            self.remove_pending(&learning, now);
            let mut share_readings = readings.into_iter();
            let readings = items.iter().map(|item| {
                let share_reading = match self.is_learning(item, now) {
                    true => share_readings.next(),
                    false => None,
                };
                let mut reading = share_reading.unwrap_or_else(|| self.last_reading(item, now));
                reading.quota = window_quota(&item.limit, reading.window, item.scale.multiply);
                reading
            });
            return FirstStep::Decided(SharedDecision {
                readings: readings.collect(),
                counted: items.iter().map(|_| CountedIn::Gateway).collect(),
                alone: true,
                ..SharedDecision::default()
            });
        }
        drop(share_items);
        let mut pending_call = self.make_call(items, Taking::All, now);
        self.end_refill(&pending_call.call);
        for part in &mut pending_call.call.parts {
            part.want = part.cost;
        }
        pending_call.purpose = Purpose::Confirm;
        FirstStep::AskStore(Box::new(pending_call))
    }

    /// Removes the pending units of a call to a learning store that has a reply, or is abandoned.
    pub(super) fn remove_pending(&self, items: &SharedItems, now: Nanos) {
        for item in items {
            self.change_pending(item, now, |pending| {
                *pending = pending.saturating_sub(item.cost);
            });
        }
    }

    /// Changes the units of an item's counter that wait for a learning store, and returns them.
    fn change_pending(&self, item: &SharedItem, now: Nanos, change: impl FnOnce(&mut u32)) -> u32 {
        let pending = item.plan.as_ref().and_then(|plan| {
            self.ledger
                .with_entry_or_new(&plan.counter_name(item.key), plan, now, |entry| {
                    change(&mut entry.pending_units);
                    entry.pending_units
                })
        });
        pending.unwrap_or(item.cost)
    }

    /// The limit by which each item is decided here; `None` where the limit is open or closed without the store, or admits
    /// nothing.
    fn share_limits(&self, items: &SharedItems, now: Nanos) -> SmallVec<[Option<Limit>; 4]> {
        let limits = items.iter().map(|item| match &item.plan {
            None => Some((*item.limit).clone()),
            Some(plan) if plan.on_error == OnStoreError::Local => self.share_limit(plan, item, now),
            Some(_) => None,
        });
        limits.collect()
    }

    /// Records units of a shared limit that were admitted without the store, so that they can be reported.
    fn record_admitted_alone(&self, item: &SharedItem, units: u32, now: Nanos) {
        let Some(plan) = &item.plan else { return };
        let recorded =
            self.ledger
                .with_entry_or_new(&plan.counter_name(item.key), plan, now, |entry| {
                    entry.multiply = item.scale.multiply;
                    self.ledger.record_admitted_alone(entry, units, now);
                });
        if recorded.is_none() {
            self.ledger.record_untracked_alone(now);
        }
    }

    /// The limit to which this gateway holds a key while it decides alone; `None` where nothing may pass.
    fn share_limit(&self, plan: &Arc<SharingPlan>, item: &SharedItem, now: Nanos) -> Option<Limit> {
        let longest = plan.store_limit().longest_window();
        let (outage_number, since) = self.breaker.alone_since(longest, now);
        let basis = ShareBasis {
            outage_number,
            since,
            gateways: self.breaker.gateways(),
            own: self.own_usage(item, now),
        };
        let name = plan.counter_name(item.key);
        let share = self.ledger.with_entry_or_new(&name, plan, now, |entry| {
            self.update_share(&name, entry, item, &basis, now);
            entry.share.as_ref().map(|(_, share)| share.clone())
        });
        let (multiply, gateways) = (item.scale.multiply, basis.gateways);
        let share = share
            .flatten()
            .unwrap_or_else(|| LocalShare::new(&item.limit, multiply, gateways, since, &[], &[]));
        share.limit_at(&item.limit, item.scale, gateways, now)
    }

    /// Makes a new share for a counter, unless it has the share of this outage. While the store decides, each late reply
    /// makes a new share.
    fn update_share(
        &self,
        name: &CounterName,
        entry: &mut LedgerEntry,
        item: &SharedItem,
        basis: &ShareBasis,
        now: Nanos,
    ) {
        let is_alone = basis.since < now;
        let share = entry.share.as_ref();
        if is_alone && share.is_some_and(|(number, _)| *number == basis.outage_number) {
            return;
        }
        let mut in_hand = 0;
        if is_alone {
            // Units in hand become part of the share. Their use is reported as admitted without the store, so the grants
            // are given back.
            in_hand = entry.units_in_hand(now);
            for grant in std::mem::take(&mut entry.grants) {
                self.give_grant_back_later(name, entry, grant, now);
            }
        }
        let own = basis.own.iter();
        let own: SmallVec<[u32; 2]> = own.map(|own| own.saturating_add(in_hand)).collect();
        // No other gateway knows of unreported units.
        let unreported = entry.unreported();
        let used = entry.reply.used.iter();
        let used: SmallVec<[u32; 2]> = used.map(|used| used.saturating_add(unreported)).collect();
        let (multiply, gateways) = (item.scale.multiply, basis.gateways);
        let mut share = LocalShare::new(&item.limit, multiply, gateways, basis.since, &used, &own);
        if let Some((_, earlier)) = &entry.share {
            share.bound_by(earlier, entry.plan.store_limit().longest_window());
        }
        entry.share = Some((basis.outage_number, share));
    }
}

/// The facts by which a gateway's share of a counter is made.
struct ShareBasis {
    /// The outage in which the share is used.
    outage_number: u32,
    /// When the gateway began to decide alone; now, while the store decides.
    since: Nanos,
    /// Gateways that share the limit.
    gateways: u32,
    /// Units that this gateway has counted in each window.
    own: SmallVec<[u32; 2]>,
}

/// Whether the item's limit admits everything while the store is away.
fn is_open(item: &SharedItem) -> bool {
    let plan = item.plan.as_ref();
    plan.is_some_and(|plan| plan.on_error == OnStoreError::Open)
}

/// The items as this gateway counts them, each with the limit of its share. Items without a share are left out.
fn items_by_share<'a>(
    items: &'a SharedItems,
    shares: &'a [Option<Limit>],
) -> SmallVec<[Item<'a>; 4]> {
    let items = items.iter().zip(shares).filter_map(|(item, share)| {
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
    items.collect()
}
