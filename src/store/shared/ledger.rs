//! What a gateway knows of the counters that it has asked for: units granted in advance, when a refusal ends,
//! what all gateways have used. Bounded in entries; a key that finds no room is asked for each time.

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
/// What a place for an entry takes, with the note of when a grant ends, in bytes.
const ENTRY: usize =
    size_of::<(CounterName, LedgerEntry)>() + 1 + size_of::<(Nanos, CounterName)>();
/// In a shard that is nearly full, entries that nobody asked for so long make room.
const IDLE: Nanos = Nanos::from_secs(60);
/// How long a refusal is believed at most: limits may be changed, counters forgotten.
const BELIEVED: Nanos = Nanos::from_secs(1);
/// A gateway that got less than it wanted asks again when more is free, but no sooner and no later than after
/// these parts of a lease's life.
const SOONEST: u64 = 5;
const LATEST: u64 = 2;

/// Units granted in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Units that are left.
    pub units: u32,
    /// Until when they may be used.
    pub ends: Nanos,
    /// The store's time of the grant.
    pub stamped: u64,
}

/// Units in hand that were used: when they were granted, and how many.
pub type SpentUnits = SmallVec<[(u64, u32); 1]>;

/// What is known of one counter.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// How its limit is shared.
    pub plan: Arc<SharingPlan>,
    /// The multiplier of who was last counted.
    pub multiply: u32,
    /// Units in hand, oldest first.
    pub grants: SmallVec<[Grant; 2]>,
    /// Units to ask for.
    pub want: u32,
    /// Somebody is asking.
    pub asking: bool,
    /// The store need not be asked before.
    pub not_before: Nanos,
    /// When it will admit again.
    pub free_at: Nanos,
    /// All units granted to this gateway.
    pub total: u64,
    /// Those of them that requests used which waited for them, since the entry was made.
    pub granted: u32,
    /// How many of them a master had when it took over that was met last.
    pub kept: u64,
    /// Grows by all units admitted without the store; from where it began here, and up to where the store has been
    /// told of them.
    pub alone: u64,
    /// See `alone`.
    pub begun: u64,
    /// See `alone`.
    pub told: u64,
    /// When the last of them was admitted, and when the store was last to be told.
    pub alone_at: Nanos,
    /// See `alone_at`.
    pub telling: Nanos,
    /// Units that wait for the store while it learns.
    pub pending: u32,
    /// Units of all gateways in each window, as last told.
    pub used: SmallVec<[u32; 2]>,
    /// The window that spoke, what remained in it, and when one more was to be free.
    pub spoke: (u8, u32, Nanos),
    /// What may be used while the store is away, and since which time it was away.
    pub share: Option<(u32, LocalShare)>,
    /// When it was last worked out what to ask for, and units used since.
    pub asked: Nanos,
    /// See `asked`.
    pub spent: u32,
    /// When it was last asked for.
    pub seen: Nanos,
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
    /// Entries of a shard.
    most: usize,
    /// Above what forgotten entries were told to have admitted without the store: what an entry that is made anew
    /// tells must be more than that.
    floor: AtomicU64,
    /// The longest window of any entry, in nanoseconds.
    longest: AtomicU64,
    /// Something was admitted without the store and it may not have been told.
    alone: AtomicBool,
    /// When a counter was last without an entry, and when that last admitted without the store; zero for never.
    untracked: AtomicU64,
    untracked_alone: AtomicU64,
}

impl Ledger {
    /// For so many bytes.
    pub fn new(budget: usize) -> Ledger {
        // A map of so many places is never more than seven eighths full, and never grows beyond them.
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

    /// The entry of a counter, a new one where there is room.
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
                want: 1,
                asking: false,
                not_before: Nanos::ZERO,
                free_at: Nanos::ZERO,
                total: 0,
                granted: 0,
                kept: 0,
                alone: floor,
                begun: floor,
                told: floor,
                alone_at: Nanos::ZERO,
                pending: 0,
                telling: Nanos::ZERO,
                used: SmallVec::new(),
                spoke: (0, 0, Nanos::ZERO),
                share: None,
                asked: now,
                spent: 0,
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

    /// Changes an entry that there is.
    pub fn with<R>(
        &self,
        name: &CounterName,
        change: impl FnOnce(&mut LedgerEntry) -> R,
    ) -> Option<R> {
        self.shard(name).entries.get_mut(name).map(change)
    }

    /// Forgets a counter.
    pub fn forget(&self, name: &CounterName) {
        if let Some(entry) = self.shard(name).entries.remove(name) {
            self.floor.fetch_max(entry.alone, Relaxed);
        }
    }

    /// Notes that an entry admitted units without the store.
    pub fn admitted_alone(&self, entry: &mut LedgerEntry, units: u32, now: Nanos) {
        entry.alone += u64::from(units);
        entry.alone_at = now;
        self.alone.store(true, Relaxed);
    }

    /// Whether there may be something that the store has not been told.
    pub fn may_be_untold(&self) -> bool {
        self.alone.load(Relaxed)
    }

    /// A counter without an entry admitted without the store.
    pub fn cannot_tell(&self, now: Nanos) {
        self.untracked_alone.fetch_max(now.0, Relaxed);
    }

    /// When something was last counted that this gateway cannot tell the store of: whatever it was, or, if it is
    /// the `same` store with all it knew, only what was admitted without it.
    pub fn untracked(&self, same: bool) -> Option<Nanos> {
        let last = match same {
            true => &self.untracked_alone,
            false => &self.untracked,
        };
        Some(Nanos(last.load(Relaxed))).filter(|last| *last > Nanos::ZERO)
    }

    /// The longest window of all that was ever counted.
    pub fn longest(&self) -> Nanos {
        Nanos(self.longest.load(Relaxed))
    }

    /// Entries that there are.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().entries.len())
            .sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of all counters for which `which` holds.
    pub fn names_where(&self, which: impl Fn(&LedgerEntry) -> bool) -> Vec<CounterName> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let those = shard.entries.iter().filter(|(_, entry)| which(entry));
            names.extend(those.map(|(name, _)| *name));
        }
        names
    }

    /// All that this gateway has units of.
    pub fn counted(&self) -> Vec<CounterName> {
        self.names_where(|entry| entry.total > 0 || entry.alone_at > Nanos::ZERO)
    }

    /// Counters of which the store has not been told all.
    pub fn untold(&self) -> Vec<CounterName> {
        self.names_where(|entry| entry.untold() > 0)
    }

    /// Those of them whose units are still in a window, unless the store was told after `since`.
    pub fn owed(&self, since: Nanos, now: Nanos) -> Vec<CounterName> {
        match self.may_be_untold() {
            true => self.names_where(|entry| entry.owes(now) && entry.telling <= since),
            false => Vec::new(),
        }
    }

    /// Takes out what was granted and has ended unused. To be called often.
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

    /// Forgets entries of which nothing is left in any window.
    pub fn expire(&self, now: Nanos) {
        // What is noted meanwhile stays noted.
        self.alone.store(false, Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let crowded = shard.entries.len() * 4 > self.most * 3;
            shard.entries.retain(|_, entry| {
                if entry.owes(now) {
                    self.alone.store(true, Relaxed);
                }
                let idle = now.since(entry.seen);
                let kept = idle <= entry.plan.counted().longest();
                let stays = !entry.grants.is_empty() || (kept && !(crowded && idle > IDLE));
                if !stays {
                    self.floor.fetch_max(entry.alone, Relaxed);
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

    /// Uses units in hand, those that end first, and says of which grants. Nothing is used where there are too
    /// few.
    pub fn spend(&mut self, cost: u32, now: Nanos) -> Option<SpentUnits> {
        if self.units(now) < cost {
            return None;
        }
        self.spent = self.spent.saturating_add(cost);
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

    /// Puts units back that were not used after all, each into its own grant: in another one they would end later.
    /// Those whose grant is over or gone are left.
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

    /// Units that this gateway has used, of those that its memory counts. Arrivals without the store move it on at the
    /// pace of a share, by several units each.
    pub fn own(&self, counted: u32) -> u32 {
        match self.plan.limit.algorithm.is_gcra() {
            true => counted.min(self.granted.saturating_add(self.without())),
            false => counted,
        }
    }

    /// Units admitted without the store that it has not been told of.
    pub fn untold(&self) -> u32 {
        few(self.alone.saturating_sub(self.told))
    }

    /// Whether some of them are still in a window.
    pub fn owes(&self, now: Nanos) -> bool {
        self.untold() > 0 && now.since(self.alone_at) <= self.plan.counted().longest()
    }

    /// Units admitted without the store.
    pub fn without(&self) -> u32 {
        few(self.alone.saturating_sub(self.begun))
    }

    /// Above a third of a grant no more is asked for.
    pub fn runs_low(&mut self, now: Nanos) -> bool {
        self.want > 1 && !self.asking && now >= self.not_before && self.units(now) * 3 <= self.want
    }

    /// Notes what the store said at `now` to a request for `cost` units and, if it is leased, up to `want`.
    /// `sent` is when it was asked.
    pub fn told(&mut self, answer: &CounterReply, cost: u32, want: u32, sent: Nanos, now: Nanos) {
        self.total = self.total.max(answer.total);
        self.used.clone_from(&answer.used);
        self.share = None;
        self.spoke = (answer.window, answer.remaining, now.after(answer.reset));
        let life = self.plan.lease.as_ref().map(|lease| lease.life);
        if answer.standing.admits() {
            self.not_before = Nanos::ZERO;
            self.spent = self.spent.saturating_add(cost);
            self.granted = self.granted.saturating_add(cost);
            let Some(life) = life else { return };
            // Where something else refused nothing was taken, and nothing is short.
            if (1..want).contains(&answer.took) {
                let pause = answer.reset.0.clamp(life.0 / SOONEST, life.0 / LATEST);
                self.not_before = now.after(Nanos(pause));
                self.free_at = now.after(answer.reset);
            }
            let units = answer.took.saturating_sub(cost);
            if units > 0 {
                self.grants.push(Grant {
                    units,
                    ends: sent.after(life),
                    stamped: answer.stamped,
                });
            }
        } else {
            let soonest = life.map_or(Nanos::ZERO, |life| Nanos(life.0 / SOONEST));
            self.free_at = now.after(answer.wait);
            self.not_before = now.after(answer.wait.min(BELIEVED).max(soonest));
        }
    }

    /// The store is asked for units now: works out how many.
    pub fn asks(&mut self, gateways: u32, now: Nanos) {
        let Some(lease) = &self.plan.lease else {
            return;
        };
        let (life, elapsed) = (lease.life.0, now.since(self.asked).0);
        if elapsed < life / 16 {
            return;
        }
        if self.spent == 0 {
            self.asked = now;
            return;
        }
        // With the third that is in hand then, what is used in one life; in steps, for it comes in bursts.
        let wanted = u128::from(self.spent) * u128::from(life / 4 * 3) / u128::from(elapsed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let (least, most) = (self.want / 2, self.want.saturating_mul(2));
        let most = most.min(self.plan.most(self.multiply, gateways));
        self.want = wanted.clamp(least.min(most), most).max(1);
        (self.asked, self.spent) = (now, 0);
    }
}

fn few(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
