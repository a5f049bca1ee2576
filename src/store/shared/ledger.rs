//! What a gateway knows of the store's counters: units granted in advance, when a refusal ends, what all gateways use.
//! The number of entries is bounded; for a key without an entry the store is asked each time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::call::{CounterName, CounterReply};
use super::plan::SharingPlan;
use super::share::LocalShare;
use crate::base::clock::Nanos;

const SHARDS: usize = 64;
/// Bytes of an entry in its map, with the note of when a grant ends.
const ENTRY: usize =
    size_of::<(CounterName, LedgerEntry)>() + 1 + size_of::<(Nanos, CounterName)>();
/// In a shard that is nearly full, entries idle for longer are removed.
const IDLE: Nanos = Nanos::from_secs(60);
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
    /// Whether a call asks for them at the moment.
    pub asking: bool,
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

/// Units of a counter that were admitted without the store. The three counts only grow, from the same start.
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

/// Fingerprints are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(23) ^ word;
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
    }
}

#[derive(Debug, Default)]
struct LedgerShard {
    entries: HashMap<CounterName, LedgerEntry, BuildHasherDefault<FingerprintHasher>>,
    /// Grants in the order in which they were made.
    ends: VecDeque<(Nanos, CounterName)>,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    shards: Box<[Mutex<LedgerShard>]>,
    /// Most entries of a shard.
    most: usize,
    /// The highest [`AloneUnits::total`] of removed entries. New entries start there, because the store ignores
    /// reports of lower totals.
    floor: AtomicU64,
    /// The longest window of any entry, in nanoseconds.
    longest: AtomicU64,
    /// Whether units admitted without the store may be unreported.
    alone: AtomicBool,
    /// When a counter without an entry was last used, and when one last admitted without the store; zero for never.
    untracked: AtomicU64,
    untracked_alone: AtomicU64,
}

impl Ledger {
    /// A ledger that takes at most `budget` bytes.
    pub fn new(budget: usize) -> Ledger {
        // A map is at most seven eighths full and has a power of two of places, so it never grows beyond them.
        let places = (budget / ENTRY / SHARDS).max(32);
        let places = 1 << places.ilog2();
        Ledger {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            most: places / 8 * 7,
            floor: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            alone: AtomicBool::new(false),
            untracked: AtomicU64::new(0),
            untracked_alone: AtomicU64::new(0),
        }
    }

    fn shard(&self, name: &CounterName) -> MutexGuard<'_, LedgerShard> {
        self.shards[(name.key.0 >> 64) as usize % SHARDS].lock()
    }

    /// Changes the entry of a counter, a new one where there is room; `None` where there is none.
    pub fn entry<R>(
        &self,
        name: &CounterName,
        plan: &Arc<SharingPlan>,
        now: Nanos,
        change: impl FnOnce(&mut LedgerEntry) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(name);
        if shard.entries.len() >= self.most && !shard.entries.contains_key(name) {
            self.untracked.fetch_max(now.0, Relaxed);
            let longest = plan.counted().longest();
            self.longest.fetch_max(longest.0, Relaxed);
            return None;
        }
        let entry = shard.entries.entry(*name).or_insert_with(|| {
            let floor = self.floor.load(Relaxed);
            let longest = plan.counted().longest();
            self.longest.fetch_max(longest.0, Relaxed);
            LedgerEntry {
                plan: plan.clone(),
                multiply: 1,
                grants: SmallVec::new(),
                demand: LeaseDemand {
                    want: 1,
                    asking: false,
                    measured_at: now,
                    spent: 0,
                },
                reply: LastReply::default(),
                total: 0,
                granted: 0,
                kept: 0,
                alone: AloneUnits {
                    total: floor,
                    begun: floor,
                    reported: floor,
                    admitted_at: Nanos::ZERO,
                    reporting_at: Nanos::ZERO,
                },
                pending: 0,
                share: None,
                seen: now,
            }
        });
        entry.seen = now;
        if !Arc::ptr_eq(&entry.plan, plan) {
            entry.plan = plan.clone();
        }
        Some(change(entry))
    }

    /// Remembers when a grant of `name` ends.
    pub fn granted(&self, name: &CounterName, ends: Nanos) {
        self.shard(name).ends.push_back((ends, *name));
    }

    /// Changes the entry of a counter; `None` where the counter has none.
    pub fn with<R>(
        &self,
        name: &CounterName,
        change: impl FnOnce(&mut LedgerEntry) -> R,
    ) -> Option<R> {
        self.shard(name).entries.get_mut(name).map(change)
    }

    /// Removes the entry of a counter.
    pub fn forget(&self, name: &CounterName) {
        if let Some(entry) = self.shard(name).entries.remove(name) {
            self.floor.fetch_max(entry.alone.total, Relaxed);
        }
    }

    /// Records units that an entry admitted without the store.
    pub fn admitted_alone(&self, entry: &mut LedgerEntry, units: u32, now: Nanos) {
        entry.alone.total += u64::from(units);
        entry.alone.admitted_at = now;
        self.alone.store(true, Relaxed);
    }

    /// Whether there may be units that the store does not know of.
    pub fn may_be_unreported(&self) -> bool {
        self.alone.load(Relaxed)
    }

    /// Records that a counter without an entry admitted units without the store.
    pub fn note_untracked_alone(&self, now: Nanos) {
        self.untracked_alone.fetch_max(now.0, Relaxed);
    }

    /// When units were last counted that this gateway cannot report. For the `same` store, which has its data, these
    /// are only those that were admitted without it. `None` for never.
    pub fn untracked(&self, same: bool) -> Option<Nanos> {
        let last = match same {
            true => &self.untracked_alone,
            false => &self.untracked,
        };
        Some(Nanos(last.load(Relaxed))).filter(|last| *last > Nanos::ZERO)
    }

    /// The longest window of all counters so far.
    pub fn longest(&self) -> Nanos {
        Nanos(self.longest.load(Relaxed))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().entries.len())
            .sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of all counters whose entries match `which`.
    pub fn names_where(&self, which: impl Fn(&LedgerEntry) -> bool) -> Vec<CounterName> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let those = shard.entries.iter().filter(|(_, entry)| which(entry));
            names.extend(those.map(|(name, _)| *name));
        }
        names
    }

    /// All counters in which this gateway has units.
    pub fn counted(&self) -> Vec<CounterName> {
        self.names_where(|entry| entry.total > 0 || entry.alone.admitted_at > Nanos::ZERO)
    }

    /// Counters with units that the store does not know of.
    pub fn unreported(&self) -> Vec<CounterName> {
        self.names_where(|entry| entry.unreported() > 0)
    }

    /// Of these, the counters whose units are still in a window and were not reported after `since`.
    pub fn owed(&self, since: Nanos, now: Nanos) -> Vec<CounterName> {
        match self.may_be_unreported() {
            true => self
                .names_where(|entry| entry.owes_report(now) && entry.alone.reporting_at <= since),
            false => Vec::new(),
        }
    }

    /// Takes out the unused units of grants that have ended. To be called several times a second.
    pub fn sweep(&self, now: Nanos, mut unused: impl FnMut(&CounterName, &LedgerEntry, Grant)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let LedgerShard { entries, ends } = &mut *shard;
            while let Some((end, name)) = ends.front().copied() {
                if end > now {
                    break;
                }
                ends.pop_front();
                let Some(entry) = entries.get_mut(&name) else {
                    continue;
                };
                while entry.grants.first().is_some_and(|grant| grant.ends <= now) {
                    let grant = entry.grants.remove(0);
                    if grant.units > 0 {
                        unused(&name, entry, grant);
                    }
                }
            }
        }
    }

    /// Takes out all units in hand.
    pub fn empty(&self, mut unused: impl FnMut(&CounterName, &LedgerEntry, Grant)) {
        for shard in &self.shards {
            for (name, entry) in &mut shard.lock().entries {
                for grant in std::mem::take(&mut entry.grants) {
                    unused(name, entry, grant);
                }
            }
        }
    }

    /// Removes entries without units in any window.
    pub fn expire(&self, now: Nanos) {
        // Cleared first, so that what other threads record meanwhile is kept.
        self.alone.store(false, Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let crowded = shard.entries.len() * 4 > self.most * 3;
            shard.entries.retain(|_, entry| {
                if entry.owes_report(now) {
                    self.alone.store(true, Relaxed);
                }
                let idle = now.since(entry.seen);
                let kept = idle <= entry.plan.counted().longest();
                let stays = !entry.grants.is_empty() || (kept && !(crowded && idle > IDLE));
                if !stays {
                    self.floor.fetch_max(entry.alone.total, Relaxed);
                }
                if !stays && kept {
                    self.untracked.fetch_max(now.0, Relaxed);
                }
                stays
            });
        }
    }
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
        self.unreported() > 0 && now.since(self.alone.admitted_at) <= self.plan.counted().longest()
    }

    /// Units admitted without the store since the entry was made.
    pub fn units_alone(&self) -> u32 {
        saturate(self.alone.total.saturating_sub(self.alone.begun))
    }

    /// Whether it is time to ask for more: a third of a grant or less is in hand.
    pub fn runs_low(&mut self, now: Nanos) -> bool {
        self.demand.want > 1
            && !self.demand.asking
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
