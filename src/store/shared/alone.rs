//! How [`Decider`] decides without the store, by this gateway's share of each limit. The reports of the admitted units are
//! in `reports`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::{DecidedBy, StoreStatus};
use super::call::CounterName;
use super::decider::Decider;
use super::ledger_entry::{LedgerEntry, OutageShare};
use super::local_share::LocalShare;
use super::pending_call::{CallPurpose, CountedIn, FirstStep, SharedDecision};
use super::shared_item::{SharedItem, SharedItems, window_quota};
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;
use crate::limit::{LimitFinding, LimitStanding, OnStoreError, RateLimit, Scale};
use crate::store::{LimitItem, Taking};

/// The wait in a refusal by a limit that is `closed` without the store.
const CLOSED_LIMIT_WAIT: Nanos = Nanos::from_secs(1);

impl Decider {
    /// Decides about limits of which none is shared.
    pub(super) fn decide_unshared(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> SharedDecision {
        let local: SmallVec<[LimitItem<'_>; 4]> =
            items.iter().map(SharedItem::as_limit_item).collect();
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
        let shares = self.local_limits(items, now);
        let fails_closed = items
            .iter()
            .zip(&shares)
            .any(|(item, share)| share.is_none() && !fails_open(item) && !item.is_shadow);
        let taking = match taking {
            Taking::All if fails_closed => Taking::Shadows,
            _ => taking,
        };
        let local = with_local_limits(items, &shares);
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
                    .unwrap_or_else(|| self.last_finding(item, now)),
                None => self.finding_without_limit(item, now),
            };
            reading.quota = window_quota(&item.limit, reading.window, item.scale.plan_factor);
            let takes_units = reading.standing.admits() && (admitted || item.is_shadow);
            if takes_units && taking != Taking::Nothing && !item.limit.reserves {
                self.record_ungranted(item, item.cost, now);
                if share.is_none() {
                    // The memory has not counted these units yet.
                    self.memory
                        .count_units(&item.as_limit_item(), item.cost, now);
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
            decision
                .followups
                .extend(self.report_ungranted(&names, now));
        }
        decision
    }

    /// The reading of a limit without a share: it admits where it is open without the store, and refuses otherwise.
    fn finding_without_limit(&self, item: &SharedItem, now: Nanos) -> LimitFinding {
        let (standing, wait) = match fails_open(item) {
            true => (LimitStanding::Within, Nanos::ZERO),
            false => (LimitStanding::Refused, CLOSED_LIMIT_WAIT),
        };
        LimitFinding {
            standing,
            wait,
            ..self.last_finding(item, now)
        }
    }

    /// Whether the item's share must have room, too, because the store is learning.
    fn needs_local_room(&self, item: &SharedItem, now: Nanos) -> bool {
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
        let learning = items.iter().filter(|item| self.needs_local_room(item, now));
        let learning: SharedItems = learning.cloned().collect();
        let shares = self.local_limits(&learning, now);
        if shares.iter().any(Option::is_none) {
            return FirstStep::Decided(self.decide_alone(&items, Taking::All, now));
        }
        let mut limited_items = with_local_limits(&learning, &shares);
        for (item, limited_item) in learning.iter().zip(&mut limited_items) {
            limited_item.cost =
                self.change_units_to_confirm(item, now, |pending| *pending += item.cost);
        }
        let mut readings: SmallVec<[LimitFinding; 4]> = SmallVec::new();
        if !self.memory.peek(&limited_items, now, &mut readings) {
            self.remove_units_to_confirm(&learning, now);
            let mut local_findings = readings.into_iter();
            let readings = items.iter().map(|item| {
                let local_finding = match self.needs_local_room(item, now) {
                    true => local_findings.next(),
                    false => None,
                };
                let mut reading = local_finding.unwrap_or_else(|| self.last_finding(item, now));
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
        drop(limited_items);
        let mut pending_call = self.make_call(items, Taking::All, now);
        self.end_refill(&pending_call.call);
        for part in &mut pending_call.call.parts {
            part.wanted_units = part.cost;
        }
        pending_call.purpose = CallPurpose::Confirm;
        FirstStep::AskStore(Box::new(pending_call))
    }

    /// Removes the pending units of a call to a learning store that has a reply, or is abandoned.
    pub(super) fn remove_units_to_confirm(&self, items: &SharedItems, now: Nanos) {
        for item in items {
            self.change_units_to_confirm(item, now, |pending| {
                *pending = pending.saturating_sub(item.cost);
            });
        }
    }

    /// Changes the units of an item's counter that wait for a learning store, and returns them.
    fn change_units_to_confirm(
        &self,
        item: &SharedItem,
        now: Nanos,
        change: impl FnOnce(&mut u32),
    ) -> u32 {
        let pending = item.plan.as_ref().and_then(|plan| {
            self.ledger
                .with_entry_or_new(&plan.counter_name(item.key), plan, now, |entry| {
                    change(&mut entry.units_to_confirm);
                    entry.units_to_confirm
                })
        });
        pending.unwrap_or(item.cost)
    }

    /// The limit by which each item is decided here; `None` where the limit is open or closed without the store, or admits
    /// nothing.
    fn local_limits(&self, items: &SharedItems, now: Nanos) -> SmallVec<[Option<RateLimit>; 4]> {
        let limits = items.iter().map(|item| match &item.plan {
            None => Some((*item.limit).clone()),
            Some(plan) if plan.on_store_error == OnStoreError::Local => {
                self.limit_of_share(plan, item, now)
            }
            Some(_) => None,
        });
        limits.collect()
    }

    /// Records units of a shared limit that were admitted without the store, so that they can be reported.
    fn record_ungranted(&self, item: &SharedItem, units: u32, now: Nanos) {
        let Some(plan) = &item.plan else { return };
        let recorded =
            self.ledger
                .with_entry_or_new(&plan.counter_name(item.key), plan, now, |entry| {
                    entry.plan_factor = item.scale.plan_factor;
                    self.ledger.record_ungranted(entry, units, now);
                });
        if recorded.is_none() {
            self.ledger.record_untracked_alone(now);
        }
    }

    /// The limit to which this gateway holds a key while it decides alone; `None` where nothing may pass.
    fn limit_of_share(
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
            own_units: self.locally_counted_units(item, now),
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
fn fails_open(item: &SharedItem) -> bool {
    let plan = item.plan.as_ref();
    plan.is_some_and(|plan| plan.on_store_error == OnStoreError::Open)
}

/// The items as this gateway counts them, each with the limit of its share. Items without a share are left out.
fn with_local_limits<'a>(
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
            ..item.as_limit_item()
        })
    });
    items.collect()
}
