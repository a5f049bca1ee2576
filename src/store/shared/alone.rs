//! How [`Decider`] decides by the counts of this gateway: alone, by its share of each limit; together with a store that is
//! learning; and about limits that are not shared. It records ungranted units, and `reports` reports them to the store.

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

/// The wait that a refusal names if the limit fails closed or the share admits nothing. The time of the store's
/// return is unknown, so clients try again soon.
const CLOSED_LIMIT_WAIT: Nanos = Nanos::from_secs(1);

impl Decider {
    /// Decides about limits of which none is shared.
    pub(super) fn decide_unshared(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> SharedDecision {
        let local_items: SmallVec<[LimitItem<'_>; 4]> =
            items.iter().map(SharedItem::as_limit_item).collect();
        let mut decision = SharedDecision::default();
        match taking {
            Taking::All => {
                decision.is_admitted = self.memory.take(&local_items, now, &mut decision.findings)
            }
            Taking::Shadows => {
                self.memory
                    .take_for_shadows(&local_items, now, &mut decision.findings)
            }
            Taking::Nothing => {
                decision.is_admitted = self.memory.peek(&local_items, now, &mut decision.findings)
            }
        }
        decision.counted_in = items.iter().map(|_| CountedIn::Gateway).collect();
        decision
    }

    /// Decides without the store, by this gateway's share of each shared limit. Units that are taken are recorded as
    /// ungranted. If the request is admitted, the decision has a report of them, unless the store is away.
    pub(super) fn decide_alone(
        &self,
        items: &SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> SharedDecision {
        let local_limits = self.local_limits(items, now);
        let fails_closed = items
            .iter()
            .zip(&local_limits)
            .any(|(item, limit)| limit.is_none() && !fails_open(item) && !item.is_shadow);
        let taking = match taking {
            Taking::All if fails_closed => Taking::Shadows,
            _ => taking,
        };
        let local_items = with_local_limits(items, &local_limits);
        let mut findings = SmallVec::new();
        let is_admitted = match taking {
            Taking::All => {
                local_items.is_empty() || self.memory.take(&local_items, now, &mut findings)
            }
            Taking::Shadows => {
                self.memory
                    .take_for_shadows(&local_items, now, &mut findings);
                false
            }
            Taking::Nothing => {
                local_items.is_empty() || self.memory.peek(&local_items, now, &mut findings)
            }
        };
        let mut findings = findings.into_iter();
        let mut decision = SharedDecision {
            is_admitted,
            is_alone: true,
            ..SharedDecision::default()
        };
        for (item, local_limit) in items.iter().zip(&local_limits) {
            let mut finding = match local_limit {
                Some(_) => findings
                    .next()
                    .unwrap_or_else(|| self.last_finding(item, now)),
                None => self.finding_without_limit(item, now),
            };
            finding.quota = window_quota(&item.limit, finding.window, item.scale.plan_factor);
            let takes_units = finding.standing.admits() && (is_admitted || item.is_shadow);
            if takes_units && taking != Taking::Nothing && !item.limit.reserves {
                self.record_ungranted(item, item.cost, now);
                if local_limit.is_none() {
                    // The memory has not counted these units yet.
                    self.memory
                        .count_units(&item.as_limit_item(), item.cost, now);
                }
            }
            decision.findings.push(finding);
            decision.counted_in.push(CountedIn::Gateway);
        }
        if taking == Taking::All
            && is_admitted
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

    /// The finding about an item without a local limit. A limit that fails open admits. A limit that fails closed refuses,
    /// and so does a share that admits nothing.
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

    /// Whether this gateway's own counts must have room for the item while the store is learning. They must if the item's
    /// limit is not shared, or if the store has not learned for longer than the limit's longest window.
    fn needs_local_room(&self, item: &SharedItem, now: Nanos) -> bool {
        let plan = item.plan.as_ref();
        plan.is_none_or(|plan| {
            self.breaker.decided_by(plan.learning_window(), now) != DecidedBy::Store
        })
    }

    /// Decides while the store is learning: refuses at once, or makes a call to the store too. The share must have room,
    /// because some gateways have not reported yet. The store must have room, because other gateways already use it again.
    /// Decides alone if one of the items has no [local limit](Decider::local_limits).
    pub(super) fn decide_with_both(&self, items: SharedItems, now: Nanos) -> FirstStep {
        let local_items = items.iter().filter(|item| self.needs_local_room(item, now));
        let local_items: SharedItems = local_items.cloned().collect();
        let local_limits = self.local_limits(&local_items, now);
        if local_limits.iter().any(Option::is_none) {
            return FirstStep::Decided(self.decide_alone(&items, Taking::All, now));
        }
        let mut limited_items = with_local_limits(&local_items, &local_limits);
        // Units of other requests that wait for the store are not counted in the memory yet.
        for (item, limited_item) in local_items.iter().zip(&mut limited_items) {
            limited_item.cost = self.change_units_to_confirm(item, now, |units| {
                *units = units.saturating_add(item.cost)
            });
        }
        let mut findings: SmallVec<[LimitFinding; 4]> = SmallVec::new();
        if !self.memory.peek(&limited_items, now, &mut findings) {
            self.remove_units_to_confirm(&local_items, now);
            let mut local_findings = findings.into_iter();
            let findings = items.iter().map(|item| {
                let local_finding = match self.needs_local_room(item, now) {
                    true => local_findings.next(),
                    false => None,
                };
                let mut finding = local_finding.unwrap_or_else(|| self.last_finding(item, now));
                finding.quota = window_quota(&item.limit, finding.window, item.scale.plan_factor);
                finding
            });
            return FirstStep::Decided(SharedDecision {
                findings: findings.collect(),
                counted_in: items.iter().map(|_| CountedIn::Gateway).collect(),
                is_alone: true,
                ..SharedDecision::default()
            });
        }
        drop(limited_items);
        let mut pending_call = self.make_call(items, Taking::All, now);
        // A learning store grants nothing in advance.
        self.end_refill(&pending_call.call);
        for part in &mut pending_call.call.parts {
            part.wanted_units = part.cost;
        }
        pending_call.purpose = CallPurpose::Confirm;
        FirstStep::AskStore(Box::new(pending_call))
    }

    /// Subtracts the costs of a request from the units to confirm, once its call to the learning store has a reply or is
    /// abandoned.
    pub(super) fn remove_units_to_confirm(&self, items: &SharedItems, now: Nanos) {
        for item in items {
            self.change_units_to_confirm(item, now, |units| {
                *units = units.saturating_sub(item.cost);
            });
        }
    }

    /// Changes [`LedgerEntry::units_to_confirm`] of an item's counter, and returns the new number. Returns the item's own
    /// cost where there is no entry: the limit is not shared, or the ledger is full.
    fn change_units_to_confirm(
        &self,
        item: &SharedItem,
        now: Nanos,
        change: impl FnOnce(&mut u32),
    ) -> u32 {
        let units_to_confirm = item.plan.as_ref().and_then(|plan| {
            self.ledger
                .with_entry_or_new(&plan.counter_name(item.key), plan, now, |entry| {
                    change(&mut entry.units_to_confirm);
                    entry.units_to_confirm
                })
        });
        units_to_confirm.unwrap_or(item.cost)
    }

    /// The limit by which this gateway decides about each item: its share of a shared limit, or a whole limit that is not
    /// shared. `None` where the limit fails open or closed, or where the share admits nothing.
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

    /// Records ungranted units of a shared limit, so that they can be reported. Does nothing for other limits.
    fn record_ungranted(&self, item: &SharedItem, units: u32, now: Nanos) {
        let Some(plan) = &item.plan else { return };
        let name = plan.counter_name(item.key);
        let plan_factor = item.scale.plan_factor;
        self.ledger
            .record_ungranted_use(&name, plan, plan_factor, units, now);
    }

    /// The limit for a key by this gateway's share of it; `None` if the share admits nothing.
    fn limit_of_share(
        &self,
        plan: &Arc<SharingPlan>,
        item: &SharedItem,
        now: Nanos,
    ) -> Option<RateLimit> {
        let longest_window = plan.learning_window();
        let (outage_number, alone_since) = self.breaker.alone_since(longest_window, now);
        let basis = ShareBasis {
            outage_number,
            alone_since,
            gateway_count: self.breaker.gateway_count(),
            own_units: self.locally_counted_units(item, now),
        };
        let name = plan.counter_name(item.key);
        let share = self.ledger.with_entry_or_new(&name, plan, now, |entry| {
            self.update_share(&name, entry, item, &basis, now);
            entry
                .outage_share
                .as_ref()
                .map(|current| current.local_share.clone())
        });
        let (plan_factor, gateway_count) = (item.scale.plan_factor, basis.gateway_count);
        // Without an entry nothing counts as used.
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

    /// Makes a new share for a counter, unless the counter has the share of this outage already. After a failed call the
    /// gateway decides alone although no outage has begun. Each such decision makes a new share.
    fn update_share(
        &self,
        name: &CounterName,
        entry: &mut LedgerEntry,
        item: &SharedItem,
        basis: &ShareBasis,
        now: Nanos,
    ) {
        let is_alone = basis.alone_since < now;
        let current = entry.outage_share.as_ref();
        if is_alone && current.is_some_and(|share| share.outage_number == basis.outage_number) {
            return;
        }
        let mut units_in_hand = 0;
        if is_alone {
            // Granted units that are left become part of the share. Their use is reported as ungranted, so the grants
            // are given back to the store.
            units_in_hand = entry.units_in_hand(now);
            for grant in std::mem::take(&mut entry.grants) {
                self.give_grant_back_later(name, entry, grant, now);
            }
        }
        let own_units = basis.own_units.iter();
        let own_units: SmallVec<[u32; 2]> = own_units
            .map(|own| own.saturating_add(units_in_hand))
            .collect();
        // The store's last reply does not include unreported units.
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
        if let Some(earlier) = &entry.outage_share {
            share.bound_by(
                &earlier.local_share,
                entry.sharing_plan.store_limit().longest_window(),
            );
        }
        entry.outage_share = Some(OutageShare {
            outage_number: basis.outage_number,
            local_share: share,
        });
    }
}

/// The values from which a gateway's share of a counter is computed.
struct ShareBasis {
    /// The outage in which the share is used.
    outage_number: u32,
    /// When the gateway began to decide alone; now, while the store decides.
    alone_since: Nanos,
    /// The number of gateways that share the limit.
    gateway_count: u32,
    /// Units that this gateway's memory has counted in each window.
    own_units: SmallVec<[u32; 2]>,
}

/// Whether the item's limit admits everything while the store is away.
fn fails_open(item: &SharedItem) -> bool {
    let plan = item.plan.as_ref();
    plan.is_some_and(|plan| plan.on_store_error == OnStoreError::Open)
}

/// The items as this gateway counts them, each with its local limit. Items without a local limit are left out.
fn with_local_limits<'a>(
    items: &'a SharedItems,
    local_limits: &'a [Option<RateLimit>],
) -> SmallVec<[LimitItem<'a>; 4]> {
    let items = items
        .iter()
        .zip(local_limits)
        .filter_map(|(item, local_limit)| {
            let limit = local_limit.as_ref()?;
            let scale = match item.plan {
                // The share is computed with the key's plan already.
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
