//! What a gateway knows of the store's counters: units granted in advance, when a refusal ends, what all gateways use.
//! The number of entries is bounded; for a key without an entry the store is asked each time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::call::CounterName;
use super::ledger_entry::{AloneUnits, Grant, LastReply, LeaseDemand, LedgerEntry};
use super::plan::SharingPlan;
use crate::base::clock::Nanos;

const SHARDS: usize = 64;
/// Bytes of an entry in its map, with the note of when a grant ends.
const ENTRY: usize =
    size_of::<(CounterName, LedgerEntry)>() + 1 + size_of::<(Nanos, CounterName)>();
/// In a shard that is nearly full, entries idle for longer are removed.
const IDLE: Nanos = Nanos::from_secs(60);

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
            let longest = plan.counted().longest_window();
            self.longest.fetch_max(longest.0, Relaxed);
            return None;
        }
        let entry = shard.entries.entry(*name).or_insert_with(|| {
            let floor = self.floor.load(Relaxed);
            let longest = plan.counted().longest_window();
            self.longest.fetch_max(longest.0, Relaxed);
            LedgerEntry {
                plan: plan.clone(),
                multiply: 1,
                grants: SmallVec::new(),
                demand: LeaseDemand {
                    want: 1,
                    measured_at: now,
                    spent: 0,
                },
                asking: false,
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
                let kept = idle <= entry.plan.counted().longest_window();
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
