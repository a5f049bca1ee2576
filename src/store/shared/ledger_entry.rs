//! [`LedgerEntry`]: what a gateway knows of one counter in the store, and the arithmetic on it. An entry has the units in
//! hand, which were granted in advance; the demand for more; the store's last reply; and the units that the store does not
//! know yet. It makes no calls.

use std::sync::Arc;

use smallvec::SmallVec;

use super::call::CounterReply;
use super::local_share::LocalShare;
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;

/// How long a refusal holds here at most, because limits may be changed and counters deleted.
const MAX_REFUSAL_LIFE: Nanos = Nanos::from_secs(1);
/// A gateway that got fewer units than it wanted waits until more are free, and then asks again. It waits at least for the
/// lease's life divided by this. The same minimum holds after a refusal.
const MIN_RETRY_DIVISOR: u64 = 5;
/// A gateway that got some units, but fewer than it wanted, waits at most for the lease's life divided by this.
const MAX_RETRY_DIVISOR: u64 = 2;

/// Units granted in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Units left of the grant.
    pub units: u32,
    /// When the units can no longer be used.
    pub ends_at: Nanos,
    /// The store's time of the grant, in microseconds, which names the grant.
    pub granted_at_micros: u64,
}

/// Units of one grant that a request used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantSpend {
    /// The [`Grant::granted_at_micros`] of the grant.
    pub granted_at_micros: u64,
    /// The units taken from the grant.
    pub units: u32,
}

/// Units in hand that a request used, one part for each grant.
pub type SpentUnits = SmallVec<[GrantSpend; 1]>;

/// What this gateway knows of one counter.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// How the limit is shared.
    pub plan: Arc<SharingPlan>,
    /// The multiplier of the key that was counted last.
    pub plan_factor: u32,
    /// Units in hand, in the order of the replies that granted them. Grants that have ended stay until they are given back.
    pub grants: SmallVec<[Grant; 2]>,
    /// How many units to ask for in advance.
    pub demand: LeaseDemand,
    /// Whether a call that asks for units in advance is under way.
    pub is_refilling: bool,
    /// What the store's last replies say.
    pub last_reply: LastReply,
    /// All units that the store has granted to this gateway.
    pub total: u64,
    /// Units of `total` for which a request waited, since the entry was made.
    pub granted_on_request: u32,
    /// How many units of `granted_total` the current master had copied from the former one when it took over.
    pub copied_total: u64,
    /// Units that were counted without a grant of the store.
    pub ungranted: UngrantedUnits,
    /// Units of requests that wait for a learning store to confirm them: see `CallPurpose::Confirm`.
    pub units_to_confirm: u32,
    /// The share that may be used while the store is away.
    pub share: Option<OutageShare>,
    /// When a request last used this counter.
    pub last_used_at: Nanos,
}

/// A gateway's share of a counter in one outage of the store.
#[derive(Clone, Debug)]
pub struct OutageShare {
    /// The number of the outage, or of the last one while the store decides.
    pub outage_number: u32,
    /// The share itself.
    pub share: LocalShare,
}

/// How many units to ask for in advance.
#[derive(Clone, Debug)]
pub struct LeaseDemand {
    /// Units to ask for, at least 1; 1 means none in advance.
    pub wanted_units: u32,
    /// When `wanted_units` was last computed.
    pub measured_at: Nanos,
    /// Units used since `measured_at`.
    pub spent_units: u32,
}

/// What the store's last replies about a counter say. `retry_at`, `needed_units` and `free_at` are of an earlier reply as
/// long as that one's refusal still holds. All other fields are of the last reply.
#[derive(Clone, Debug, Default)]
pub struct LastReply {
    /// The time before which no call about the counter is of use, unless it asks for less than `needed_units`.
    pub retry_at: Nanos,
    /// When the counter will admit again.
    pub free_at: Nanos,
    /// Units that all gateways use in each window.
    pub used_units: SmallVec<[u32; 2]>,
    /// The index of the window that decided.
    pub window_index: u8,
    /// Units that were left in that window.
    pub remaining: u32,
    /// When one more unit will be free in that window.
    pub reset_at: Nanos,
}

/// Units of a counter that were admitted without the store. The counts only grow.
#[derive(Clone, Debug)]
pub struct UngrantedUnits {
    /// All units so far, counted from `initial_total` on.
    pub total: u64,
    /// The total when the entry was made.
    pub initial_total: u64,
    /// The highest `admitted_total` whose report the store has acknowledged.
    pub reported_total: u64,
    /// When the last ungranted unit was counted; zero for never.
    pub admitted_at: Nanos,
    /// When the last report was made; zero for never.
    pub reported_at: Nanos,
}

impl LedgerEntry {
    /// The entry of a counter without units. Units admitted without the store are counted from `initial_ungranted` on.
    pub fn new(plan: Arc<SharingPlan>, initial_ungranted: u64, now: Nanos) -> LedgerEntry {
        LedgerEntry {
            plan,
            plan_factor: 1,
            grants: SmallVec::new(),
            demand: LeaseDemand {
                wanted_units: 1,
                measured_at: now,
                spent_units: 0,
            },
            is_refilling: false,
            last_reply: LastReply::default(),
            total: 0,
            granted_on_request: 0,
            copied_total: 0,
            ungranted: UngrantedUnits {
                total: initial_ungranted,
                initial_total: initial_ungranted,
                reported_total: initial_ungranted,
                admitted_at: Nanos::ZERO,
                reported_at: Nanos::ZERO,
            },
            units_to_confirm: 0,
            share: None,
            last_used_at: now,
        }
    }

    /// Units in hand at `now`.
    pub fn units_in_hand(&mut self, now: Nanos) -> u32 {
        let usable = self.grants.iter().filter(|grant| grant.ends_at > now);
        let units = usable.map(|grant| grant.units);
        units.fold(0, u32::saturating_add)
    }

    /// Uses `cost` units in hand, those of earlier replies first. Returns the units used of each grant. If too few units
    /// are in hand, uses none and returns `None`.
    pub fn spend(&mut self, cost: u32, now: Nanos) -> Option<SpentUnits> {
        if self.units_in_hand(now) < cost {
            return None;
        }
        self.demand.spent_units = self.demand.spent_units.saturating_add(cost);
        let (mut missing_units, mut spent) = (cost, SpentUnits::new());
        for grant in self.grants.iter_mut().filter(|grant| grant.ends_at > now) {
            let units = grant.units.min(missing_units);
            grant.units -= units;
            missing_units -= units;
            if units > 0 {
                spent.push(GrantSpend {
                    granted_at_micros: grant.granted_at_micros,
                    units,
                });
            }
        }
        Some(spent)
    }

    /// Puts spent units back into their own grants, because in another grant they would live longer. Returns the units
    /// whose grant has ended.
    pub fn unspend(&mut self, spent: &SpentUnits, now: Nanos) -> SpentUnits {
        let mut ended = SpentUnits::new();
        for grant_spend in spent {
            let GrantSpend {
                granted_at_micros,
                units,
            } = *grant_spend;
            let usable = self.grants.iter_mut().filter(|grant| grant.ends_at > now);
            match { usable }.find(|grant| grant.granted_at_micros == granted_at_micros) {
                Some(grant) => grant.units = grant.units.saturating_add(units),
                None => ended.push(*grant_spend),
            }
        }
        ended
    }

    /// Units that this gateway has used, of the `counted_units` units in its memory. With GCRA the memory counts too many,
    /// because an arrival without the store takes several units, at the pace of a share.
    pub fn locally_counted_units(&self, counted_units: u32) -> u32 {
        match self.plan.limit.algorithm.is_gcra() {
            true => counted_units.min(self.granted_on_request.saturating_add(self.units_alone())),
            false => counted_units,
        }
    }

    /// Ungranted units whose report the store has not acknowledged yet.
    pub fn unreported_units(&self) -> u32 {
        saturating_u32(
            self.ungranted
                .total
                .saturating_sub(self.ungranted.reported_total),
        )
    }

    /// Whether some unreported units are still in a window.
    pub fn owes_report(&self, now: Nanos) -> bool {
        self.unreported_units() > 0
            && now.since(self.ungranted.admitted_at) <= self.plan.store_limit().longest_window()
    }

    /// Units admitted without the store since the entry was made.
    pub fn units_alone(&self) -> u32 {
        saturating_u32(
            self.ungranted
                .total
                .saturating_sub(self.ungranted.initial_total),
        )
    }

    /// Whether it is time to ask for more units: at most a third of a grant is in hand.
    pub fn runs_low(&mut self, now: Nanos) -> bool {
        self.demand.wanted_units > 1
            && !self.is_refilling
            && now >= self.last_reply.retry_at
            && self.units_in_hand(now) * 3 <= self.demand.wanted_units
    }

    /// Records the store's reply, at `now`, to a call at `sent_at` for `needed_units` and, with a lease, up to
    /// `wanted_units`. The request that made the call used `cost` of the granted units. The former share of an outage ends.
    pub fn record_reply(
        &mut self,
        counter: &CounterReply,
        cost: u32,
        wanted_units: u32,
        sent_at: Nanos,
        now: Nanos,
    ) {
        self.total = self.total.max(counter.total);
        self.last_reply.used_units.clone_from(&counter.used_units);
        self.share = None;
        self.last_reply.window_index = counter.window_index;
        self.last_reply.remaining = counter.remaining;
        self.last_reply.reset_at = now.after(counter.reset);
        let life = self.plan.lease.as_ref().map(|lease| lease.life);
        if counter.standing.admits() {
            self.last_reply.retry_at = Nanos::ZERO;
            self.demand.spent_units = self.demand.spent_units.saturating_add(cost);
            self.granted_on_request = self.granted_on_request.saturating_add(cost);
            let Some(life) = life else { return };
            // If no units were taken, another limit refused, and the counter may have enough.
            if (1..wanted_units).contains(&counter.granted_units) {
                let (min, max) = (life.0 / MIN_RETRY_DIVISOR, life.0 / MAX_RETRY_DIVISOR);
                self.last_reply.retry_at = now.after(Nanos(counter.reset.0.clamp(min, max)));
                self.last_reply.free_at = now.after(counter.reset);
            }
            let units = counter.granted_units.saturating_sub(cost);
            if units > 0 {
                self.grants.push(Grant {
                    units,
                    ends_at: sent_at.after(life),
                    granted_at_micros: counter.granted_at_micros,
                });
            }
        } else {
            let min = life.map_or(Nanos::ZERO, |life| Nanos(life.0 / MIN_RETRY_DIVISOR));
            self.last_reply.free_at = now.after(counter.wait);
            self.last_reply.retry_at = now.after(counter.wait.min(MAX_REFUSAL_LIFE).max(min));
        }
    }

    /// Computes how many units to ask for in advance. To be called with each call about the counter.
    pub fn update_demand(&mut self, gateway_count: u32, now: Nanos) {
        let Some(lease) = &self.plan.lease else {
            return;
        };
        let (life, elapsed) = (lease.life.0, now.since(self.demand.measured_at).0);
        if elapsed < life / 16 {
            return;
        }
        if self.demand.spent_units == 0 {
            self.demand.measured_at = now;
            return;
        }
        // Three quarters of the units used in one life: with the third that is in hand then, they last that long. It
        // changes at most by a factor of two at a time, because requests come in bursts.
        let wanted =
            u128::from(self.demand.spent_units) * u128::from(life / 4 * 3) / u128::from(elapsed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let (min, max) = (
            self.demand.wanted_units / 2,
            self.demand.wanted_units.saturating_mul(2),
        );
        let max = max.min(self.plan.max_grant_units(self.plan_factor, gateway_count));
        self.demand.wanted_units = wanted.clamp(min.min(max), max).max(1);
        (self.demand.measured_at, self.demand.spent_units) = (now, 0);
    }
}

/// The units as 32 bits; a larger number becomes the largest one.
fn saturating_u32(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
