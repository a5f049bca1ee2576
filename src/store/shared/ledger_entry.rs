//! What a gateway knows of one counter in the store, and the arithmetic on it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::call::CounterReply;
use super::plan::SharingPlan;
use super::share::LocalShare;
use crate::base::clock::Nanos;

/// How long a refusal is believed at most, because limits may be changed and counters forgotten.
const BELIEVED: Nanos = Nanos::from_secs(1);
/// A gateway that got less than it wanted asks again when more is free: at the soonest after 1/`SOONEST` of the lease's
/// life, at the latest after 1/`LATEST` of it.
const SOONEST: u64 = 5;
const LATEST: u64 = 2;

/// Units granted in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Units left of the grant.
    pub units: u32,
    /// Until when they may be used.
    pub ends: Nanos,
    /// The store's time of the grant.
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
    /// Whether a call asks for units in advance at the moment.
    pub asking: bool,
    /// What the store said last.
    pub reply: LastReply,
    /// All units that the store granted to this gateway.
    pub total: u64,
    /// Units that requests used which waited for them, since the entry was made; part of `total`.
    pub granted: u32,
    /// How many units of `total` the current master had when it took over.
    pub kept: u64,
    /// Units that were admitted without the store.
    pub alone: AloneUnits,
    /// Units that wait for the store while it learns.
    pub pending: u32,
    /// What may be used while the store is away, and the outage that it was made for.
    pub share: Option<(u32, LocalShare)>,
    /// When a request last asked for this counter.
    pub seen: Nanos,
}

/// How many units to ask for in advance.
#[derive(Clone, Debug)]
pub struct LeaseDemand {
    /// Units to ask for.
    pub want: u32,
    /// When `want` was last worked out.
    pub measured_at: Nanos,
    /// Units used since then.
    pub spent: u32,
}

/// What the store said last of a counter.
#[derive(Clone, Debug, Default)]
pub struct LastReply {
    /// The store need not be asked before this time.
    pub not_before: Nanos,
    /// When the counter will admit again.
    pub free_at: Nanos,
    /// Units that all gateways use in each window.
    pub used: SmallVec<[u32; 2]>,
    /// The window that decided, the units left in it, and when one more was to be free.
    pub spoke: (u8, u32, Nanos),
}

/// Units of a counter that were admitted without the store. The counts only grow.
#[derive(Clone, Debug)]
pub struct AloneUnits {
    /// The count after the last of them.
    pub total: u64,
    /// The count when the entry was made.
    pub begun: u64,
    /// The count up to which the store knows of them.
    pub reported: u64,
    /// When the last of them was admitted.
    pub admitted_at: Nanos,
    /// When they were last reported to the store.
    pub reporting_at: Nanos,
}

impl LedgerEntry {
    /// Units in hand at `now`.
    pub fn units(&mut self, now: Nanos) -> u32 {
        let usable = self.grants.iter().filter(|grant| grant.ends > now);
        let units = usable.map(|grant| grant.units);
        units.fold(0, u32::saturating_add)
    }

    /// Uses units in hand, first of the grants that end first. Returns what was used of each grant, or `None` where
    /// there are too few units; then none are used.
    pub fn spend(&mut self, cost: u32, now: Nanos) -> Option<SpentUnits> {
        if self.units(now) < cost {
            return None;
        }
        self.demand.spent = self.demand.spent.saturating_add(cost);
        let (mut left, mut spent) = (cost, SpentUnits::new());
        for grant in self.grants.iter_mut().filter(|grant| grant.ends > now) {
            let units = grant.units.min(left);
            grant.units -= units;
            left -= units;
            if units > 0 {
                spent.push((grant.stamped, units));
            }
        }
        Some(spent)
    }

    /// Puts unused units back into their own grants; in another grant they would live longer. Returns those whose grant
    /// has ended or is gone.
    pub fn unspend(&mut self, spent: &SpentUnits, now: Nanos) -> SpentUnits {
        let mut left = SpentUnits::new();
        for (stamped, units) in spent {
            let usable = self.grants.iter_mut().filter(|grant| grant.ends > now);
            match { usable }.find(|grant| grant.stamped == *stamped) {
                Some(grant) => grant.units = grant.units.saturating_add(*units),
                None => left.push((*stamped, *units)),
            }
        }
        left
    }

    /// Units that this gateway has used, of the `counted` ones in its memory. With GCRA the memory counts too many:
    /// there an arrival without the store takes several units, at the pace of a share.
    pub fn own_usage(&self, counted: u32) -> u32 {
        match self.plan.limit.algorithm.is_gcra() {
            true => counted.min(self.granted.saturating_add(self.units_alone())),
            false => counted,
        }
    }

    /// Units admitted without the store that it does not know of.
    pub fn unreported(&self) -> u32 {
        saturate(self.alone.total.saturating_sub(self.alone.reported))
    }

    /// Whether some unreported units are still in a window.
    pub fn owes_report(&self, now: Nanos) -> bool {
        self.unreported() > 0
            && now.since(self.alone.admitted_at) <= self.plan.counted().longest_window()
    }

    /// Units admitted without the store since the entry was made.
    pub fn units_alone(&self) -> u32 {
        saturate(self.alone.total.saturating_sub(self.alone.begun))
    }

    /// Whether it is time to ask for more: a third of a grant or less is in hand.
    pub fn runs_low(&mut self, now: Nanos) -> bool {
        self.demand.want > 1
            && !self.asking
            && now >= self.reply.not_before
            && self.units(now) * 3 <= self.demand.want
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
        self.reply.spoke = (counter.window, counter.remaining, now.after(counter.reset));
        let life = self.plan.lease.as_ref().map(|lease| lease.life);
        if counter.standing.admits() {
            self.reply.not_before = Nanos::ZERO;
            self.demand.spent = self.demand.spent.saturating_add(cost);
            self.granted = self.granted.saturating_add(cost);
            let Some(life) = life else { return };
            // With none taken, another limit refused, and the counter may have enough.
            if (1..want).contains(&counter.took) {
                let pause = counter.reset.0.clamp(life.0 / SOONEST, life.0 / LATEST);
                self.reply.not_before = now.after(Nanos(pause));
                self.reply.free_at = now.after(counter.reset);
            }
            let units = counter.took.saturating_sub(cost);
            if units > 0 {
                self.grants.push(Grant {
                    units,
                    ends: sent.after(life),
                    stamped: counter.stamped,
                });
            }
        } else {
            let soonest = life.map_or(Nanos::ZERO, |life| Nanos(life.0 / SOONEST));
            self.reply.free_at = now.after(counter.wait);
            self.reply.not_before = now.after(counter.wait.min(BELIEVED).max(soonest));
        }
    }

    /// Works out how many units to ask for in advance. To be called when the store is asked.
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
        // Three quarters of what is used in one life: with the third that is in hand then it lasts that long. In
        // steps of two, because requests come in bursts.
        let wanted = u128::from(self.demand.spent) * u128::from(life / 4 * 3) / u128::from(elapsed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let (least, most) = (self.demand.want / 2, self.demand.want.saturating_mul(2));
        let most = most.min(self.plan.most(self.multiply, gateways));
        self.demand.want = wanted.clamp(least.min(most), most).max(1);
        (self.demand.measured_at, self.demand.spent) = (now, 0);
    }
}

fn saturate(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
