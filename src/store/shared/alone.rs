//! How [`Decider`] decides without the store, by this gateway's share of each limit, and how it reports the admitted units
//! to the store later. A report never makes a request wait.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{DecidedBy, StoreStatus};
use super::call::{ALONE_BIT, Call, CallPart, CounterName, StoreReply};
use super::decider::Decider;
use super::ledger_entry::{LedgerEntry, OutageShare};
use super::local_share::LocalShare;
use super::pending_call::{CallPurpose, CountedIn, FirstStep, PendingCall, SharedDecision};
use super::recovery::MAX_REPORTED_COUNTERS;
use super::shared_item::{SharedItem, SharedItems, window_quota};
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;
use crate::limit::{LimitReading, LimitStanding, OnStoreError, RateLimit, Scale};
use crate::store::{LimitItem, Taking};

/// The wait in a refusal by a limit that is `closed` without the store.
const CLOSED_LIMIT_WAIT: Nanos = Nanos::from_secs(1);
/// How long a report waits for its reply before it is sent again.
const REPORT_RETRY_DELAY: Nanos = Nanos::from_millis(50);

impl Decider {
    /// The gateway number under which units admitted without the store are reported. Such units have a total of their
    /// own: a grant whose reply was lost would hide them in a common total.
    fn alone_gateway(&self) -> u32 {
        self.gateway | ALONE_BIT
    }

    /// The calls that report the units of these counters that the store may have lost, and their unreported units.
    pub fn report_all(&self, names: &[CounterName], now: Nanos) -> SmallVec<[PendingCall; 2]> {
        let granted = names.iter().filter_map(|name| {
            let (mut part, alone_units) = self.alone_part(name, now)?;
            let (total, units_in_hand) = self
                .ledger
                .with_entry(name, |entry| (entry.total, entry.units_in_hand(now)))?;
            part.total = total;
            let granted_units = part.units_in_window.saturating_sub(alone_units);
            part.units_in_window = granted_units.saturating_add(units_in_hand);
            Some(part)
        });
        let granted = self.make_report(self.gateway, granted, now);
        let mut reports: SmallVec<[PendingCall; 2]> = granted.into_iter().collect();
        reports.extend(self.report_alone(names, now));
        // The store may have lost its data, and with it the totals that it has acknowledged.
        let parts = reports.iter_mut().flat_map(|report| &mut report.call.parts);
        parts.for_each(|part| part.acknowledged_total = 0);
        reports
    }

    /// The call that reports units which were admitted without the store; `None` where there are none.
    pub fn report_alone(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let (mut part, alone_units) = self.alone_part(name, now)?;
            self.ledger
                .with_entry(name, |entry| entry.alone.reported_at = now)?;
            part.units_in_window = alone_units;
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
                entry.unreported_units() > 0
                    && now.since(entry.alone.reported_at) > REPORT_RETRY_DELAY
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
        let batches = names.chunks(MAX_REPORTED_COUNTERS);
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
            parts: parts.filter(|part| part.units_in_window > 0).collect(),
        };
        (!call.parts.is_empty()).then(|| PendingCall::report(call, now))
    }

    /// The part that reports all units of a counter that this gateway has used, and how many of these units were admitted
    /// without the store.
    fn alone_part(&self, name: &CounterName, now: Nanos) -> Option<(CallPart, u32)> {
        // Under one lock, or the total would include units that `units_in_window` lacks.
        let (plan, scale, alone, alone_units, max_used) =
            self.ledger.with_entry(name, |entry| {
                (
                    entry.plan.clone(),
                    Scale::plan(entry.plan_factor),
                    entry.alone.clone(),
                    entry.units_alone(),
                    entry.own_usage(u32::MAX),
                )
            })?;
        let mut part = plan.call_part(name.key, scale, 0);
        (part.total, part.acknowledged_total) = (alone.total, alone.reported_total);
        let item = LimitItem {
            limit: &plan.limit,
            slot: plan.registered.slot(),
            key: name.key,
            cost: 0,
            scale,
            is_shadow: false,
            parents: &[],
        };
        let used = self.memory.used_units(&item, now).last().copied();
        part.units_in_window = used.unwrap_or(0).min(max_used);
        let has_left = now.since(alone.admitted_at) > plan.store_limit().longest_window();
        let alone_units = if has_left { 0 } else { alone_units };
        let alone_units = alone_units.min(part.units_in_window);
        Some((part, alone_units))
    }

    /// The call to which a new master replies how many of this gateway's grants it has copied; `None` without counters.
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

    /// Records the reply to a comparison: how many units of this gateway's grants the master had copied.
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
                let new_units = part.total.saturating_sub(entry.alone.reported_total);
                let new_units = u32::try_from(new_units).unwrap_or(u32::MAX);
                entry.alone.reported_total = entry.alone.reported_total.max(part.total);
                for used in &mut entry.last_reply.used_units {
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
        let local: SmallVec<[LimitItem<'_>; 4]> = items.iter().map(SharedItem::as_item).collect();
        let mut decision = SharedDecision::default();
        match taking {
            Taking::All => {
                decision.is_admitted = self.memory.take(&local, now, &mut decision.readings)
            }
            Taking::Shadows => self
                .memory
                .take_for_shadows(&local, now, &mut decision.readings),
            Taking::Nothing => {
                decision.is_admitted = self.memory.peek(&local, now, &mut decision.readings)
            }
        }
        decision.counted_in = items.iter().map(|_| CountedIn::Gateway).collect();
        decision
    }

    /// Decides without the store, by this gateway's share of each shared limit.
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
            .any(|(item, share)| share.is_none() && !is_open(item) && !item.is_shadow);
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
            is_admitted: admitted,
            is_alone: true,
            ..SharedDecision::default()
        };
        for (item, share) in items.iter().zip(&shares) {
            let mut reading = match share {
                Some(_) => readings
                    .next()
                    .unwrap_or_else(|| self.last_reading(item, now)),
                None => self.reading_without_share(item, now),
            };
            reading.quota = window_quota(&item.limit, reading.window, item.scale.plan_factor);
            let takes_units = reading.standing.admits() && (admitted || item.is_shadow);
            if takes_units && taking != Taking::Nothing && !item.limit.reserves {
                self.record_admitted_alone(item, item.cost, now);
                if share.is_none() {
                    // The memory has not counted these units yet.
                    self.memory.count_units(&item.as_item(), item.cost, now);
                }
            }
            decision.readings.push(reading);
            decision.counted_in.push(CountedIn::Gateway);
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

    /// Decides while the store learns. The share must have room, because some gateways have not reported yet. The store
    /// must have room, too, because other gateways use it again already.
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
                reading.quota = window_quota(&item.limit, reading.window, item.scale.plan_factor);
                reading
            });
            return FirstStep::Decided(SharedDecision {
                readings: readings.collect(),
                counted_in: items.iter().map(|_| CountedIn::Gateway).collect(),
                is_alone: true,
                ..SharedDecision::default()
            });
        }
        drop(share_items);
        let mut pending_call = self.make_call(items, Taking::All, now);
        self.end_refill(&pending_call.call);
        for part in &mut pending_call.call.parts {
            part.wanted_units = part.cost;
        }
        pending_call.purpose = CallPurpose::Confirm;
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
    fn share_limits(&self, items: &SharedItems, now: Nanos) -> SmallVec<[Option<RateLimit>; 4]> {
        let limits = items.iter().map(|item| match &item.plan {
            None => Some((*item.limit).clone()),
            Some(plan) if plan.on_store_error == OnStoreError::Local => {
                self.share_limit(plan, item, now)
            }
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
                    entry.plan_factor = item.scale.plan_factor;
                    self.ledger.record_admitted_alone(entry, units, now);
                });
        if recorded.is_none() {
            self.ledger.record_untracked_alone(now);
        }
    }

    /// The limit to which this gateway holds a key while it decides alone; `None` where nothing may pass.
    fn share_limit(
        &self,
        plan: &Arc<SharingPlan>,
        item: &SharedItem,
        now: Nanos,
    ) -> Option<RateLimit> {
        let longest = plan.store_limit().longest_window();
        let (outage_number, alone_since) = self.breaker.alone_since(longest, now);
        let basis = ShareBasis {
            outage_number,
            alone_since,
            gateway_count: self.breaker.gateway_count(),
            own_units: self.own_usage(item, now),
        };
        let name = plan.counter_name(item.key);
        let share = self.ledger.with_entry_or_new(&name, plan, now, |entry| {
            self.update_share(&name, entry, item, &basis, now);
            entry.share.as_ref().map(|current| current.share.clone())
        });
        let (plan_factor, gateway_count) = (item.scale.plan_factor, basis.gateway_count);
        let share = share.flatten().unwrap_or_else(|| {
            LocalShare::new(
                &item.limit,
                plan_factor,
                gateway_count,
                alone_since,
                &[],
                &[],
            )
        });
        share.limit_at(&item.limit, item.scale, gateway_count, now)
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
        let is_alone = basis.alone_since < now;
        let current = entry.share.as_ref();
        if is_alone && current.is_some_and(|share| share.outage_number == basis.outage_number) {
            return;
        }
        let mut units_in_hand = 0;
        if is_alone {
            // Units in hand become part of the share. Their use is reported as admitted without the store, so the grants
            // are given back.
            units_in_hand = entry.units_in_hand(now);
            for grant in std::mem::take(&mut entry.grants) {
                self.give_grant_back_later(name, entry, grant, now);
            }
        }
        let own_units = basis.own_units.iter();
        let own_units: SmallVec<[u32; 2]> = own_units
            .map(|own| own.saturating_add(units_in_hand))
            .collect();
        // No other gateway knows of unreported units.
        let unreported_units = entry.unreported_units();
        let used = entry.last_reply.used_units.iter();
        let used: SmallVec<[u32; 2]> = used
            .map(|used| used.saturating_add(unreported_units))
            .collect();
        let (plan_factor, gateway_count) = (item.scale.plan_factor, basis.gateway_count);
        let mut share = LocalShare::new(
            &item.limit,
            plan_factor,
            gateway_count,
            basis.alone_since,
            &used,
            &own_units,
        );
        if let Some(earlier) = &entry.share {
            share.bound_by(&earlier.share, entry.plan.store_limit().longest_window());
        }
        entry.share = Some(OutageShare {
            outage_number: basis.outage_number,
            share,
        });
    }
}

/// The facts by which a gateway's share of a counter is made.
struct ShareBasis {
    /// The outage in which the share is used.
    outage_number: u32,
    /// When the gateway began to decide alone; now, while the store decides.
    alone_since: Nanos,
    /// The number of gateways that share the limit.
    gateway_count: u32,
    /// Units that this gateway has counted in each window.
    own_units: SmallVec<[u32; 2]>,
}

/// Whether the item's limit admits everything while the store is away.
fn is_open(item: &SharedItem) -> bool {
    let plan = item.plan.as_ref();
    plan.is_some_and(|plan| plan.on_store_error == OnStoreError::Open)
}

/// The items as this gateway counts them, each with the limit of its share. Items without a share are left out.
fn items_by_share<'a>(
    items: &'a SharedItems,
    shares: &'a [Option<RateLimit>],
) -> SmallVec<[LimitItem<'a>; 4]> {
    let items = items.iter().zip(shares).filter_map(|(item, share)| {
        let limit = share.as_ref()?;
        let scale = match item.plan {
            Some(_) => Scale::plan(1),
            None => item.scale,
        };
        Some(LimitItem {
            limit,
            scale,
            ..item.as_item()
        })
    });
    items.collect()
}
