//! [`LedgerEntry`]: what a gateway knows of one counter in the store, and the arithmetic on it. An entry has the units in
//! hand, which were granted in advance; the demand for more; the store's last reply; and the units that the store does not
//! know yet. It makes no calls.

use std::sync::Arc;

use smallvec::SmallVec;

use super::call::CounterReply;
use super::local_share::LocalShare;
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;

/// How long a reply keeps the gateway from asking again at most, because limits may be changed, and operators reset counters.
/// Such an order takes effect at all gateways within this time.
const MAX_WAIT: Nanos = Nanos::from_millis(500);
/// A gateway that got fewer units than it wanted waits until more are free, and then asks again. It waits at least for the
/// lease's life divided by this. The same minimum holds after a refusal. No wait is longer than [`MAX_WAIT`].
const MIN_RETRY_DIVISOR: u64 = 5;
/// A gateway that got some units, but fewer than it wanted, waits at most for the lease's life divided by this.
const MAX_RETRY_DIVISOR: u64 = 2;
/// More units are asked for once at most `wanted_units` divided by this are in hand: a third.
const LOW_UNITS_DIVISOR: u32 = 3;
/// Demand is measured over at least the lease's life divided by this, because requests come in bursts.
const MIN_MEASURE_DIVISOR: u64 = 16;

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
    pub sharing_plan: Arc<SharingPlan>,
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
    /// All units that the store has granted to this gateway, as the store's last replies count them.
    pub granted_total: u64,
    /// Units of `granted_total` that were not granted in advance, but to a request that waited. Counted since the entry was
    /// made.
    pub granted_on_request: u32,
    /// How many units of `granted_total` the current master had copied from the former one when it took over.
    pub copied_total: u64,
    /// Units that were counted without a grant of the store.
    pub ungranted: UngrantedUnits,
    /// Units of requests that wait for a learning store to confirm them: see `CallPurpose::Confirm`.
    pub units_to_confirm: u32,
    /// The share that may be used while the store is away; `None` if none was needed since the store's last reply.
    pub outage_share: Option<OutageShare>,
    /// When a request last used this counter.
    pub last_used_at: Nanos,
}

/// A gateway's share of a counter in one outage of the store.
#[derive(Clone, Debug)]
pub struct OutageShare {
    /// The number of the outage, or of the last one while the store decides.
    pub outage_number: u32,
    /// The units that may be used in that outage.
    pub local_share: LocalShare,
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
    /// Units that the call of `retry_at` needed. Its refusal says nothing about requests that need less.
    pub needed_units: u32,
    /// When the counter will admit a call for `needed_units`, or grant more units. It may be past, and says nothing where
    /// the store granted all units.
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

impl LastReply {
    /// Whether the reply refuses a request of this cost too, as long as the gateway has fewer units in hand.
    pub fn refuses(&self, cost: u32, units_in_hand: u32, now: Nanos) -> bool {
        now < self.retry_at && cost >= self.needed_units && units_in_hand < cost
    }
}

/// Units of a counter that this gateway counted without a grant of the store: before the first contact, while the store is
/// away or learning, after a failed call, or because a response used more than was reserved. The totals only grow. The
/// store learns of the units by reports.
#[derive(Clone, Debug)]
pub struct UngrantedUnits {
    /// All ungranted units so far, counted from `initial_total` on.
    pub admitted_total: u64,
    /// `admitted_total` when the entry was made.
    pub initial_total: u64,
    /// The highest `admitted_total` whose report the store has acknowledged.
    pub reported_total: u64,
    /// When the last ungranted unit was counted; zero for never.
    pub admitted_at: Nanos,
    /// When the last report was made; zero for never.
    pub reported_at: Nanos,
}

impl LedgerEntry {
    /// The entry of a counter without units. Ungranted units are counted from `initial_ungranted` on.
    pub fn new(sharing_plan: Arc<SharingPlan>, initial_ungranted: u64, now: Nanos) -> LedgerEntry {
        LedgerEntry {
            sharing_plan,
            plan_factor: 1,
            grants: SmallVec::new(),
            demand: LeaseDemand {
                wanted_units: 1,
                measured_at: now,
                spent_units: 0,
            },
            is_refilling: false,
            last_reply: LastReply::default(),
            granted_total: 0,
            granted_on_request: 0,
            copied_total: 0,
            ungranted: UngrantedUnits {
                admitted_total: initial_ungranted,
                initial_total: initial_ungranted,
                reported_total: initial_ungranted,
                admitted_at: Nanos::ZERO,
                reported_at: Nanos::ZERO,
            },
            units_to_confirm: 0,
            outage_share: None,
            last_used_at: now,
        }
    }

    /// Whether the store's last reply refuses a request of this cost under `plan` too. A limit that was changed since then
    /// must be asked for anew.
    pub fn refuses(&self, plan: &Arc<SharingPlan>, cost: u32, now: Nanos) -> bool {
        let units_in_hand = self.units_in_hand(now);
        self.has_limit_of(plan) && self.last_reply.refuses(cost, units_in_hand, now)
    }

    /// Whether the store has replied about the counter.
    pub fn has_reply(&self) -> bool {
        !self.last_reply.used_units.is_empty()
    }

    /// Counts by another plan from now on.
    pub fn use_plan(&mut self, plan: &Arc<SharingPlan>) {
        if !self.has_limit_of(plan) {
            self.last_reply.retry_at = Nanos::ZERO;
        }
        self.sharing_plan = plan.clone();
    }

    /// Whether the last call had the limit of this plan.
    fn has_limit_of(&self, plan: &Arc<SharingPlan>) -> bool {
        Arc::ptr_eq(&self.sharing_plan, plan) || self.sharing_plan.limit == plan.limit
    }

    /// Units of the grants that have not ended at `now`.
    pub fn units_in_hand(&self, now: Nanos) -> u32 {
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
            let mut usable = self.grants.iter_mut().filter(|grant| grant.ends_at > now);
            match usable.find(|grant| grant.granted_at_micros == granted_at_micros) {
                Some(grant) => grant.units = grant.units.saturating_add(units),
                None => ended.push(*grant_spend),
            }
        }
        ended
    }

    /// Units that this gateway has used, of the `counted_units` in its memory. With GCRA the memory counts too many:
    /// a unit of a share moves the theoretical arrival time as far as several units of the whole limit.
    pub fn own_units(&self, counted_units: u32) -> u32 {
        match self.sharing_plan.limit.algorithm.is_gcra() {
            true => counted_units.min(
                self.granted_on_request
                    .saturating_add(self.ungranted_units()),
            ),
            false => counted_units,
        }
    }

    /// Ungranted units whose report the store has not acknowledged yet.
    pub fn unreported_units(&self) -> u32 {
        saturating_u32(
            self.ungranted
                .admitted_total
                .saturating_sub(self.ungranted.reported_total),
        )
    }

    /// Whether some unreported units are still in a window.
    pub fn owes_report(&self, now: Nanos) -> bool {
        self.unreported_units() > 0
            && now.since(self.ungranted.admitted_at)
                <= self.sharing_plan.store_limit().longest_window()
    }

    /// Ungranted units since the entry was made.
    pub fn ungranted_units(&self) -> u32 {
        saturating_u32(
            self.ungranted
                .admitted_total
                .saturating_sub(self.ungranted.initial_total),
        )
    }

    /// Whether it is time to ask for more units: few are in hand, no call asks for more, and the store may have more.
    pub fn runs_low(&self, now: Nanos) -> bool {
        self.demand.wanted_units > 1
            && !self.is_refilling
            && now >= self.last_reply.retry_at
            && self.units_in_hand(now) * LOW_UNITS_DIVISOR <= self.demand.wanted_units
    }

    /// Records the store's reply, at `now`, to a call at `sent_at` for `needed_units` and, with a lease, up to
    /// `wanted_units`. The request that made the call used `cost` of the granted units. The former share of an outage ends.
    pub fn record_reply(
        &mut self,
        counter: &CounterReply,
        cost: u32,
        needed_units: u32,
        wanted_units: u32,
        sent_at: Nanos,
        now: Nanos,
    ) {
        self.granted_total = self.granted_total.max(counter.gateway_total);
        self.last_reply.used_units.clone_from(&counter.used_units);
        self.outage_share = None;
        self.last_reply.window_index = counter.window_index;
        self.last_reply.remaining = counter.remaining;
        self.last_reply.reset_at = now.after(counter.reset_after);
        let life = self.sharing_plan.lease.as_ref().map(|lease| lease.life);
        if counter.standing.admits() {
            self.last_reply.needed_units = needed_units;
            self.last_reply.retry_at = Nanos::ZERO;
            self.demand.spent_units = self.demand.spent_units.saturating_add(cost);
            self.granted_on_request = self.granted_on_request.saturating_add(cost);
            let Some(life) = life else { return };
            // If no units were taken, another limit refused, and the counter may have enough.
            if (1..wanted_units).contains(&counter.granted_units) {
                let (min_wait, max_wait) = (life.0 / MIN_RETRY_DIVISOR, life.0 / MAX_RETRY_DIVISOR);
                let wait = Nanos(counter.reset_after.0.clamp(min_wait, max_wait));
                self.last_reply.retry_at = now.after(wait.min(MAX_WAIT));
                self.last_reply.free_at = now.after(counter.reset_after);
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
            // A refusal of fewer units that still holds covers this call too, and may be over sooner.
            if now < self.last_reply.retry_at && needed_units >= self.last_reply.needed_units {
                return;
            }
            let min_wait = life.map_or(Nanos::ZERO, |life| Nanos(life.0 / MIN_RETRY_DIVISOR));
            self.last_reply.needed_units = needed_units;
            self.last_reply.free_at = now.after(counter.retry_after);
            self.last_reply.retry_at = now.after(counter.retry_after.max(min_wait).min(MAX_WAIT));
        }
    }

    /// Computes how many units to ask for in advance. To be called with each call about the counter.
    pub fn update_demand(&mut self, gateway_count: u32, now: Nanos) {
        let Some(lease) = &self.sharing_plan.lease else {
            return;
        };
        let (life, elapsed) = (lease.life.0, now.since(self.demand.measured_at).0);
        if elapsed < life / MIN_MEASURE_DIVISOR {
            return;
        }
        if self.demand.spent_units == 0 {
            self.demand.measured_at = now;
            return;
        }
        // A call asks for three quarters of the units that are used in one life. When it is made, a third of these three
        // quarters is still in hand, which is another quarter. Together they last for one life. Requests come in bursts, so
        // the number at most doubles or halves.
        let wanted_units =
            u128::from(self.demand.spent_units) * u128::from(life / 4 * 3) / u128::from(elapsed);
        let wanted_units = u32::try_from(wanted_units).unwrap_or(u32::MAX);
        let least_units = self.demand.wanted_units / 2;
        let most_units = self.demand.wanted_units.saturating_mul(2);
        let max_grant_units = self
            .sharing_plan
            .max_grant_units(self.plan_factor, gateway_count);
        let most_units = most_units.min(max_grant_units);
        let least_units = least_units.min(most_units);
        self.demand.wanted_units = wanted_units.clamp(least_units, most_units).max(1);
        (self.demand.measured_at, self.demand.spent_units) = (now, 0);
    }
}

/// The units as 32 bits; a larger number becomes the largest one.
fn saturating_u32(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{LimitStanding, OnStoreError, RateLimit, Sharing};
    use crate::store::memory::{MemoryStore, Settings};

    fn entry(limit: &str, sharing: Sharing, now: Nanos) -> LedgerEntry {
        let budget_bytes = Settings::MIN_BUDGET_BYTES;
        let memory = MemoryStore::new(Settings { budget_bytes }).unwrap();
        let limit = RateLimit::hard(limit.parse().unwrap());
        let registered = memory.register("limit", &limit).unwrap();
        let on_error = OnStoreError::Local;
        let sharing_plan =
            SharingPlan::new("limit", &limit, &registered, sharing, on_error).unwrap();
        LedgerEntry::new(Arc::new(sharing_plan), 0, now)
    }

    /// The reply to a call that must wait so long for more units.
    fn reply(standing: LimitStanding, granted_units: u32, wait: Nanos) -> CounterReply {
        CounterReply {
            standing,
            window_index: 0,
            remaining: 3,
            retry_after: wait,
            reset_after: wait,
            delay: Nanos::ZERO,
            granted_units,
            gateway_total: 0,
            granted_at_micros: 0,
            used_units: SmallVec::new(),
        }
    }

    fn refuse(entry: &mut LedgerEntry, needed_units: u32, wait: Nanos, now: Nanos) {
        let reply = reply(LimitStanding::Refused, 0, wait);
        entry.record_reply(&reply, 0, needed_units, needed_units, now, now);
    }

    fn refuses(entry: &LedgerEntry, cost: u32, now: Nanos) -> bool {
        entry.last_reply.refuses(cost, 0, now)
    }

    /// An operator may have reset the counter, and another gateway has told the store.
    #[test]
    fn the_store_is_asked_again_after_half_a_second() {
        let (now, hour) = (Nanos::from_secs(1_000), Nanos::from_secs(3_600));
        let [soon, later] = [499, 501].map(|millis| now.after(Nanos::from_millis(millis)));
        for sharing in [Sharing::Strict, Sharing::Leased] {
            let mut refused = entry("8/h", sharing, now);
            refuse(&mut refused, 1, hour, now);
            assert_eq!(
                [soon, later].map(|at| refuses(&refused, 1, at)),
                [true, false]
            );
        }
        let mut granted = entry("8/h", Sharing::Leased, now);
        let reply = reply(LimitStanding::Within, 1, hour);
        granted.record_reply(&reply, 1, 1, 2, now, now);
        assert_eq!(
            [soon, later].map(|at| refuses(&granted, 1, at)),
            [true, false]
        );
    }

    /// A late refusal of a dear request neither hides nor prolongs that of a cheaper one.
    #[test]
    fn the_cheapest_refusal_holds() {
        let now = Nanos::from_secs(1_000);
        let mut entry = entry("100/m", Sharing::Strict, now);
        let (long, short) = (Nanos::from_millis(400), Nanos::from_millis(100));
        refuse(&mut entry, 50, long, now);
        assert_eq!(
            [49, 50].map(|cost| refuses(&entry, cost, now)),
            [false, true]
        );
        refuse(&mut entry, 4, short, now);
        refuse(&mut entry, 50, long, now);
        assert_eq!(
            [3, 4, 50].map(|cost| refuses(&entry, cost, now)),
            [false, true, true]
        );
        let later = now.after(Nanos::from_millis(101));
        assert!(!refuses(&entry, 50, later));
        refuse(&mut entry, 50, long, later);
        assert_eq!(
            [49, 50].map(|cost| refuses(&entry, cost, later)),
            [false, true]
        );
    }
}
