//! What a gateway knows of one counter in the store, and the arithmetic on it: units in hand, the demand for more, and
//! units that the store does not know yet. It makes no calls.

use std::sync::Arc;

use smallvec::SmallVec;

use super::call::CounterReply;
use super::plan::SharingPlan;
use super::share::LocalShare;
use crate::base::clock::Nanos;

/// How long a refusal holds here at most, because limits may be changed and counters deleted.
const MAX_REFUSAL_LIFE: Nanos = Nanos::from_secs(1);
/// A gateway that got fewer units than it wanted asks again when more are free, but not before this part of the lease's
/// life: one divided by this.
const MIN_RETRY_DIVISOR: u64 = 5;
/// It asks again at the latest after this part of the lease's life: one divided by this.
const MAX_RETRY_DIVISOR: u64 = 2;

/// Units granted in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Units left of the grant.
    pub units: u32,
    /// When the units can no longer be used.
    pub ends: Nanos,
    /// The store's time of the grant, in microseconds.
    pub stamped: u64,
}

/// Units in hand that a request used: the [`Grant::stamped`] of each grant, and the units taken from it.
pub type SpentUnits = SmallVec<[(u64, u32); 1]>;

/// What this gateway knows of one counter.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// How the limit is shared.
    pub plan: Arc<SharingPlan>,
    /// The multiplier of the key that was counted last.
    pub multiply: u32,
    /// Units in hand, oldest grant first.
    pub grants: SmallVec<[Grant; 2]>,
    /// How many units to ask for in advance.
    pub demand: LeaseDemand,
    /// Whether a call that asks for units in advance is under way.
    pub is_refilling: bool,
    /// The store's last reply.
    pub reply: LastReply,
    /// All units that the store has granted to this gateway.
    pub total: u64,
    /// Units of `total` that requests used which waited for them, since the entry was made.
    pub granted_on_request: u32,
    /// How many units of `total` the current master had when it took over.
    pub copied_total: u64,
    /// Units that were admitted without the store.
    pub alone: AloneUnits,
    /// Units of requests that wait for the store while it learns.
    pub pending_units: u32,
    /// The share that may be used while the store is away, and the number of the outage that it was made for.
    pub share: Option<(u32, LocalShare)>,
    /// When a request last used this counter.
    pub used_at: Nanos,
}

/// How many units to ask for in advance.
#[derive(Clone, Debug)]
pub struct LeaseDemand {
    /// Units to ask for, at least 1.
    pub want: u32,
    /// When `want` was last computed.
    pub measured_at: Nanos,
    /// Units used since then.
    pub spent: u32,
}

/// The store's last reply about a counter.
#[derive(Clone, Debug, Default)]
pub struct LastReply {
    /// No call about the counter is of use before this time.
    pub retry_at: Nanos,
    /// When the counter will admit again.
    pub free_at: Nanos,
    /// Units that all gateways use in each window.
    pub used: SmallVec<[u32; 2]>,
    /// The index of the window that decided.
    pub window: u8,
    /// Units that were left in that window.
    pub remaining: u32,
    /// When one more unit was to be free in it.
    pub reset_at: Nanos,
}

/// Units of a counter that were admitted without the store. The counts only grow.
#[derive(Clone, Debug)]
pub struct AloneUnits {
    /// All units so far, from `initial` on.
    pub total: u64,
    /// The count when the entry was made.
    pub initial: u64,
    /// The count that the store knows.
    pub reported: u64,
    /// When the last unit was admitted.
    pub admitted_at: Nanos,
    /// When the last report was sent.
    pub reported_at: Nanos,
}

impl LedgerEntry {
    /// The entry of a counter without units. Units admitted without the store are counted from `initial_alone` on.
    pub fn new(plan: Arc<SharingPlan>, initial_alone: u64, now: Nanos) -> LedgerEntry {
        LedgerEntry {
            plan,
            multiply: 1,
            grants: SmallVec::new(),
            demand: LeaseDemand {
                want: 1,
                measured_at: now,
                spent: 0,
            },
            is_refilling: false,
            reply: LastReply::default(),
            total: 0,
            granted_on_request: 0,
            copied_total: 0,
            alone: AloneUnits {
                total: initial_alone,
                initial: initial_alone,
                reported: initial_alone,
                admitted_at: Nanos::ZERO,
                reported_at: Nanos::ZERO,
            },
            pending_units: 0,
            share: None,
            used_at: now,
        }
    }

    /// Units in hand at `now`.
    pub fn units_in_hand(&mut self, now: Nanos) -> u32 {
        let usable = self.grants.iter().filter(|grant| grant.ends > now);
        let units = usable.map(|grant| grant.units);
        units.fold(0, u32::saturating_add)
    }

    /// Uses units in hand, first those of the grants that end first. Returns the units used of each grant. If there are too
    /// few units, none are used and the result is `None`.
    pub fn spend(&mut self, cost: u32, now: Nanos) -> Option<SpentUnits> {
        if self.units_in_hand(now) < cost {
            return None;
        }
        self.demand.spent = self.demand.spent.saturating_add(cost);
        let (mut missing, mut spent) = (cost, SpentUnits::new());
        for grant in self.grants.iter_mut().filter(|grant| grant.ends > now) {
            let units = grant.units.min(missing);
            grant.units -= units;
            missing -= units;
            if units > 0 {
                spent.push((grant.stamped, units));
            }
        }
        Some(spent)
    }

    /// Puts spent units back into their own grants, because in another grant they would live longer. Returns the units
    /// whose grant has ended.
    pub fn unspend(&mut self, spent: &SpentUnits, now: Nanos) -> SpentUnits {
        let mut ended = SpentUnits::new();
        for (stamped, units) in spent {
            let usable = self.grants.iter_mut().filter(|grant| grant.ends > now);
            match { usable }.find(|grant| grant.stamped == *stamped) {
                Some(grant) => grant.units = grant.units.saturating_add(*units),
                None => ended.push((*stamped, *units)),
            }
        }
        ended
    }

    /// Units that this gateway has used, of those `counted` in its memory. With GCRA the memory counts too many, because
    /// an arrival without the store takes several units, at the pace of a share.
    pub fn own_usage(&self, counted: u32) -> u32 {
        match self.plan.limit.algorithm.is_gcra() {
            true => counted.min(self.granted_on_request.saturating_add(self.units_alone())),
            false => counted,
        }
    }

    /// Units admitted without the store that it does not know yet.
    pub fn unreported(&self) -> u32 {
        saturating_u32(self.alone.total.saturating_sub(self.alone.reported))
    }

    /// Whether some unreported units are still in a window.
    pub fn owes_report(&self, now: Nanos) -> bool {
        self.unreported() > 0
            && now.since(self.alone.admitted_at) <= self.plan.store_limit().longest_window()
    }

    /// Units admitted without the store since the entry was made.
    pub fn units_alone(&self) -> u32 {
        saturating_u32(self.alone.total.saturating_sub(self.alone.initial))
    }

    /// Whether it is time to ask for more units: a third of a grant or less is in hand.
    pub fn runs_low(&mut self, now: Nanos) -> bool {
        self.demand.want > 1
            && !self.is_refilling
            && now >= self.reply.retry_at
            && self.units_in_hand(now) * 3 <= self.demand.want
    }

    /// Records the store's reply, at `now`, to a call at `sent` for `cost` units and, with a lease, up to `want`.
    pub fn record_reply(
        &mut self,
        counter: &CounterReply,
        cost: u32,
        want: u32,
        sent: Nanos,
        now: Nanos,
    ) {
        self.total = self.total.max(counter.total);
        self.reply.used.clone_from(&counter.used);
        self.share = None;
        self.reply.window = counter.window;
        self.reply.remaining = counter.remaining;
        self.reply.reset_at = now.after(counter.reset);
        let life = self.plan.lease.as_ref().map(|lease| lease.life);
        if counter.standing.admits() {
            self.reply.retry_at = Nanos::ZERO;
            self.demand.spent = self.demand.spent.saturating_add(cost);
            self.granted_on_request = self.granted_on_request.saturating_add(cost);
            let Some(life) = life else { return };
            // If no units were taken, another limit refused, and the counter may have enough.
            if (1..want).contains(&counter.granted_units) {
                let (min, max) = (life.0 / MIN_RETRY_DIVISOR, life.0 / MAX_RETRY_DIVISOR);
                self.reply.retry_at = now.after(Nanos(counter.reset.0.clamp(min, max)));
                self.reply.free_at = now.after(counter.reset);
            }
            let units = counter.granted_units.saturating_sub(cost);
            if units > 0 {
                self.grants.push(Grant {
                    units,
                    ends: sent.after(life),
                    stamped: counter.stamped,
                });
            }
        } else {
            let min = life.map_or(Nanos::ZERO, |life| Nanos(life.0 / MIN_RETRY_DIVISOR));
            self.reply.free_at = now.after(counter.wait);
            self.reply.retry_at = now.after(counter.wait.min(MAX_REFUSAL_LIFE).max(min));
        }
    }

    /// Computes how many units to ask for in advance. To be called with each call about the counter.
    pub fn update_demand(&mut self, gateways: u32, now: Nanos) {
        let Some(lease) = &self.plan.lease else {
            return;
        };
        let (life, elapsed) = (lease.life.0, now.since(self.demand.measured_at).0);
        if elapsed < life / 16 {
            return;
        }
        if self.demand.spent == 0 {
            self.demand.measured_at = now;
            return;
        }
        // Three quarters of the units used in one life: with the third that is in hand then, they last that long. It changes
        // at most by a factor of two at a time, because requests come in bursts.
        let wanted = u128::from(self.demand.spent) * u128::from(life / 4 * 3) / u128::from(elapsed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let (min, max) = (self.demand.want / 2, self.demand.want.saturating_mul(2));
        let max = max.min(self.plan.max_grant(self.multiply, gateways));
        self.demand.want = wanted.clamp(min.min(max), max).max(1);
        (self.demand.measured_at, self.demand.spent) = (now, 0);
    }
}

fn saturating_u32(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
