//! How [`Decider`] reports used units that the store may not know: ungranted units, and after a loss of data the granted
//! ones. It also compares what a new master has copied of the gateway's grants. No request waits for these calls. `alone`
//! records ungranted units; `recovery` says when all units are reported or compared.

use smallvec::SmallVec;

use super::call::{Call, CallPart, CounterName, StoreReply, UNGRANTED_UNITS_BIT};
use super::decider::Decider;
use super::ledger_entry::LedgerEntry;
use super::pending_call::PendingCall;
use super::recovery::MAX_REPORTED_COUNTERS;
use super::shared_item::SharedItems;
use crate::base::clock::Nanos;
use crate::limit::Scale;
use crate::store::{LimitItem, Taking};

/// How long a report waits for its reply before it is sent again.
const REPORT_RETRY_DELAY: Nanos = Nanos::from_millis(50);

impl Decider {
    /// The gateway number under which ungranted units are reported. They have a total of their own, because a grant whose
    /// reply was lost would hide them in a common total.
    fn gateway_for_ungranted(&self) -> u32 {
        self.gateway | UNGRANTED_UNITS_BIT
    }

    /// The calls that report all units of these counters, granted and ungranted, to a store that may have lost some.
    pub fn report_all(&self, names: &[CounterName], now: Nanos) -> SmallVec<[PendingCall; 2]> {
        let granted_parts = names.iter().filter_map(|name| {
            let (mut part, ungranted_units) = self.report_part(name, now)?;
            let (total, units_in_hand) = self.ledger.with_entry(name, |entry| {
                (entry.granted_total, entry.units_in_hand(now))
            })?;
            part.gateway_total = total;
            // Used units that are not ungranted were granted. Units in hand were granted too, and are not used.
            let granted_units = part.units_in_window.saturating_sub(ungranted_units);
            part.units_in_window = granted_units.saturating_add(units_in_hand);
            Some(part)
        });
        let granted_report = self.make_report(self.gateway, granted_parts, now);
        let mut reports: SmallVec<[PendingCall; 2]> = granted_report.into_iter().collect();
        reports.extend(self.report_ungranted(names, now));
        // The store may have lost its data, and with it the totals that it has acknowledged.
        let parts = reports.iter_mut().flat_map(|report| &mut report.call.parts);
        parts.for_each(|part| part.acknowledged_total = 0);
        reports
    }

    /// The call that reports ungranted units of these counters; `None` if none of their windows has any. Records that the
    /// counters are reported at `now`.
    pub fn report_ungranted(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let (mut part, ungranted_units) = self.report_part(name, now)?;
            self.ledger
                .with_entry(name, |entry| entry.ungranted.reported_at = now)?;
            part.units_in_window = ungranted_units;
            Some(part)
        });
        self.make_report(self.gateway_for_ungranted(), parts, now)
    }

    /// The call that reports unreported units of these items' counters. Leaves out counters whose last report is so recent
    /// that its reply may still come. `None` if no counter is left.
    pub(super) fn report_unreported(&self, items: &SharedItems, now: Nanos) -> Option<PendingCall> {
        if !self.ledger.may_be_unreported() {
            return None;
        }
        let names = items.iter().filter_map(|item| {
            let name = item.plan.as_ref()?.counter_name(item.key);
            let is_due = self.ledger.with_entry(&name, |entry| {
                entry.unreported_units() > 0
                    && now.since(entry.ungranted.reported_at) > REPORT_RETRY_DELAY
            });
            (is_due == Some(true)).then_some(name)
        });
        let names: SmallVec<[CounterName; 4]> = names.collect();
        self.report_ungranted(&names, now)
    }

    /// The calls that report unreported units of all counters, except those with a recent report.
    pub(super) fn report_owed(&self, now: Nanos) -> Vec<PendingCall> {
        let since = Nanos(now.0.saturating_sub(REPORT_RETRY_DELAY.0));
        let names = self.ledger.counters_owing_report(since, now);
        let batches = names.chunks(MAX_REPORTED_COUNTERS);
        batches
            .filter_map(|batch| self.report_ungranted(batch, now))
            .collect()
    }

    /// The call that reports these parts; `None` if no part has units in a window.
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

    /// The part that reports all units of a counter that this gateway has used in the fullest window, and how many of them
    /// are ungranted. `None` if the counter has no entry.
    fn report_part(&self, name: &CounterName, now: Nanos) -> Option<(CallPart, u32)> {
        // Under one lock, or the total would include units that `units_in_window` lacks.
        let (plan, scale, ungranted, ungranted_units, max_used_units) =
            self.ledger.with_entry(name, |entry| {
                (
                    entry.sharing_plan.clone(),
                    Scale::plan(entry.plan_factor),
                    entry.ungranted.clone(),
                    entry.ungranted_units(),
                    // The bound of `own_units`, which the memory's units get below.
                    entry.own_units(u32::MAX),
                )
            })?;
        let mut part = plan.call_part(name.key, scale, 0, self.wall_at(now));
        (part.gateway_total, part.acknowledged_total) =
            (ungranted.admitted_total, ungranted.reported_total);
        let item = LimitItem {
            limit: &plan.limit,
            slot: plan.registered.slot(),
            key: name.key,
            cost: 0,
            scale,
            is_shadow: false,
            parents: &[],
        };
        // Windows of the calendar begin at different times, so the longest may have the fewest units.
        let used_units = self.memory.used_units(&item, now).into_iter().max();
        let used_units = used_units.unwrap_or(0);
        part.units_in_window = match plan.limit.is_credits() {
            // A full memory lacks units that it has admitted, and credits have no window that would free them.
            true => used_units.max(ungranted_units),
            false => used_units.min(max_used_units),
        };
        let has_left_window =
            now.since(ungranted.admitted_at) > plan.store_limit().longest_window();
        let ungranted_units = if has_left_window { 0 } else { ungranted_units };
        let ungranted_units = ungranted_units.min(part.units_in_window);
        Some((part, ungranted_units))
    }

    /// The call to which a new master replies how many of this gateway's grants it has copied; `None` without counters.
    pub(super) fn make_comparison(&self, names: &[CounterName], now: Nanos) -> Option<PendingCall> {
        let parts = names.iter().filter_map(|name| {
            let part = |entry: &mut LedgerEntry| {
                let plan = &entry.sharing_plan;
                plan.call_part(name.key, Scale::plan(1), 0, self.wall_at(now))
            };
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
            self.ledger.with_entry(&part.name, |entry| {
                entry.copied_total = counter.gateway_total
            });
        }
    }

    /// Records that the store has applied a report or a give-back. Of reports, only those of ungranted units change the
    /// ledger: they are marked as reported, and added to the used units of the last reply.
    pub fn record_report(&self, pending_call: &PendingCall, now: Nanos) {
        if pending_call.call.gives_back() {
            self.give_backs.record_applied(pending_call, now);
        }
        if pending_call.call.gateway != self.gateway_for_ungranted() {
            return;
        }
        for part in &pending_call.call.parts {
            self.ledger.with_entry(&part.name, |entry| {
                let new_units = part
                    .gateway_total
                    .saturating_sub(entry.ungranted.reported_total);
                let new_units = u32::try_from(new_units).unwrap_or(u32::MAX);
                entry.ungranted.reported_total =
                    entry.ungranted.reported_total.max(part.gateway_total);
                for used in &mut entry.last_reply.used_units {
                    *used = used.saturating_add(new_units);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::sharing_plan::SharingPlan;
    use super::*;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::{
        Algorithm, Fingerprint, OnStoreError, Rate, RateLimit, Sharing, ThrottleMode,
    };

    /// 2026-11-30 12:00:00 UTC, a Monday.
    const END_OF_MONTH: Nanos = Nanos::from_secs(1_796_040_000);

    #[test]
    fn units_of_a_week_are_reported_when_the_month_has_none() {
        let quota = |quota, period| {
            Rate::of_calendar(quota, Calendar::new(period, "UTC").unwrap()).unwrap()
        };
        let limit = RateLimit {
            windows: vec![
                quota(100, Period::Week { first_day: 1 }),
                quota(300, Period::Month { first_day: 1 }),
            ],
            algorithm: Algorithm::FixedWindow,
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_plan_factor: 1,
        };
        let decider = Decider::of_test();
        let registered = decider.memory.register("limit", &limit).unwrap();
        let (sharing, on_error) = (Sharing::Strict, OnStoreError::Local);
        let plan = SharingPlan::new("limit", &limit, &registered, sharing, on_error).unwrap();
        let (plan, key) = (Arc::new(plan), Fingerprint(7));
        let name = plan.counter_name(key);
        let item = LimitItem {
            limit: &limit,
            slot: registered.slot(),
            key,
            cost: 0,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        decider.memory.count_units(&item, 90, END_OF_MONTH);
        decider
            .ledger
            .record_ungranted_use(&name, &plan, 1, 90, END_OF_MONTH);
        let next_day = END_OF_MONTH.after(Nanos::from_secs(86_400));
        let used_units = decider.memory.used_units(&item, next_day);
        assert_eq!(used_units.as_slice(), [90, 0]);
        let report = decider.report_ungranted(&[name], next_day).unwrap();
        assert_eq!(report.call.parts[0].units_in_window, 90);
    }

    /// A full memory has no cell for the key.
    #[test]
    fn credits_are_reported_without_a_count_in_memory() {
        let decider = Decider::of_test();
        let limit = RateLimit::of_credits(true);
        let registered = decider.memory.register("limit", &limit).unwrap();
        let (sharing, on_error) = (Sharing::Strict, OnStoreError::Closed);
        let plan = SharingPlan::new("limit", &limit, &registered, sharing, on_error).unwrap();
        let plan = Arc::new(plan);
        let name = plan.counter_name(Fingerprint(7));
        let now = END_OF_MONTH;
        decider
            .ledger
            .record_ungranted_use(&name, &plan, 1, 90, now);
        let report = decider.report_ungranted(&[name], now).unwrap();
        assert_eq!(report.call.parts[0].units_in_window, 90);
        let reports = decider.report_all(&[name], now);
        let units = reports
            .iter()
            .map(|report| report.call.parts[0].units_in_window);
        assert_eq!(units.collect::<Vec<_>>(), [90], "none were granted");
    }
}
