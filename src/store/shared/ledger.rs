//! [`Ledger`]: what a gateway knows of the store's counters. Its entries have units granted in advance, refusals that
//! still hold, units that all gateways use, and ungranted units. Their number is bounded. A key without an entry costs a
//! call to the store for each request.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::call::CounterName;
use super::ledger_entry::{Grant, LedgerEntry};
use super::sharing_plan::SharingPlan;
use crate::base::clock::Nanos;

/// The number of shards, each with a lock of its own.
const SHARD_COUNT: usize = 64;
/// Bytes of an entry in its map, with the map's control byte and one item of the list of grant ends.
const ENTRY_BYTES: usize =
    size_of::<(CounterName, LedgerEntry)>() + 1 + size_of::<(Nanos, CounterName)>();
/// The fewest buckets of a shard's map.
const MIN_SHARD_BUCKETS: usize = 32;
/// In a shard that is more than three quarters full, entries idle for longer than this are removed.
const MAX_IDLE_TIME_WHEN_CROWDED: Nanos = Nanos::from_secs(60);

/// A hasher that mixes little, because fingerprints are hashes already. It takes only the low half of a fingerprint; the
/// high half chooses the shard.
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
    /// When each grant ends, and its counter, in the order in which the grants were recorded.
    grant_ends: VecDeque<(Nanos, CounterName)>,
}

/// The entries of all counters, bounded by bytes. The atomics are summaries of entries, so relaxed ordering suffices: code
/// that must not miss a change reads the entries under their locks.
#[derive(Debug)]
pub struct Ledger {
    shards: Box<[Mutex<LedgerShard>]>,
    /// The most entries of a shard.
    max_shard_entries: usize,
    /// The highest [`UngrantedUnits::admitted_total`](super::ledger_entry::UngrantedUnits::admitted_total) of removed
    /// entries. New entries start there, because the store ignores reports of totals that it has already.
    ungranted_total_floor: AtomicU64,
    /// The longest window of any limit since the start, in nanoseconds.
    longest_window_nanos: AtomicU64,
    /// Whether some ungranted units may be unreported.
    may_be_unreported: AtomicBool,
    /// When a counter without an entry was last used, or an entry with units in a window was last removed, in nanoseconds;
    /// 0 for never.
    untracked_use_at: AtomicU64,
    /// When the last ungranted units were counted that no entry has, or that a removed entry had not reported, in
    /// nanoseconds; 0 for never.
    untracked_ungranted_at: AtomicU64,
}

impl Ledger {
    /// A ledger whose entries take at most `max_bytes`, or 64 shards of [`MIN_SHARD_BUCKETS`] if that is more.
    pub fn new(max_bytes: usize) -> Ledger {
        // A map has a power of two of buckets and is at most seven eighths full, so it never grows beyond them.
        let buckets = (max_bytes / ENTRY_BYTES / SHARD_COUNT).max(MIN_SHARD_BUCKETS);
        let buckets = 1 << buckets.ilog2();
        Ledger {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            max_shard_entries: buckets / 8 * 7,
            ungranted_total_floor: AtomicU64::new(0),
            longest_window_nanos: AtomicU64::new(0),
            may_be_unreported: AtomicBool::new(false),
            untracked_use_at: AtomicU64::new(0),
            untracked_ungranted_at: AtomicU64::new(0),
        }
    }

    fn shard(&self, name: &CounterName) -> MutexGuard<'_, LedgerShard> {
        self.shards[(name.key.0 >> 64) as usize % SHARD_COUNT].lock()
    }

    /// Changes the entry of a counter, which is created if it is missing, and marks it as used. `None` if it is missing and
    /// its shard is full. `change` is called under the shard's lock, so it must not use the ledger.
    pub fn with_entry_or_new<R>(
        &self,
        name: &CounterName,
        plan: &Arc<SharingPlan>,
        now: Nanos,
        change: impl FnOnce(&mut LedgerEntry) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(name);
        if shard.entries.len() >= self.max_shard_entries && !shard.entries.contains_key(name) {
            self.untracked_use_at.fetch_max(now.0, Relaxed);
            return None;
        }
        let entry = shard.entries.entry(*name).or_insert_with(|| {
            LedgerEntry::new(plan.clone(), self.ungranted_total_floor.load(Relaxed), now)
        });
        entry.last_used_at = now;
        if !Arc::ptr_eq(&entry.sharing_plan, plan) {
            entry.use_plan(plan);
        }
        Some(change(entry))
    }

    /// Records when a grant of `name` ends, for [`Ledger::take_ended_grants`].
    pub fn record_grant_end(&self, name: &CounterName, end: Nanos) {
        self.shard(name).grant_ends.push_back((end, *name));
    }

    /// Changes the entry of a counter; `None` if there is no entry. `change` is called under the shard's lock, so it must
    /// not use the ledger.
    pub fn with_entry<R>(
        &self,
        name: &CounterName,
        change: impl FnOnce(&mut LedgerEntry) -> R,
    ) -> Option<R> {
        self.shard(name).entries.get_mut(name).map(change)
    }

    /// Removes the entry of a counter, if there is one.
    pub fn remove(&self, name: &CounterName) {
        if let Some(entry) = self.shard(name).entries.remove(name) {
            self.ungranted_total_floor
                .fetch_max(entry.ungranted.admitted_total, Relaxed);
        }
    }

    /// Records ungranted units of an entry, so that they are reported.
    fn record_ungranted(&self, entry: &mut LedgerEntry, units: u32, now: Nanos) {
        entry.ungranted.admitted_total += u64::from(units);
        entry.ungranted.admitted_at = now;
        self.may_be_unreported.store(true, Relaxed);
    }

    /// Whether the store may not know all ungranted units. It stays `true` until the next [`Ledger::remove_idle_entries`].
    pub fn may_be_unreported(&self) -> bool {
        self.may_be_unreported.load(Relaxed)
    }

    /// Records ungranted units of a counter, so that they are reported. If the ledger has no room for its entry, they never
    /// are: then their time is kept, for [`Ledger::last_unreportable_use`].
    pub fn record_ungranted_use(
        &self,
        name: &CounterName,
        plan: &Arc<SharingPlan>,
        plan_factor: u32,
        units: u32,
        now: Nanos,
    ) {
        let recorded = self.with_entry_or_new(name, plan, now, |entry| {
            entry.plan_factor = plan_factor;
            self.record_ungranted(entry, units, now);
        });
        if recorded.is_none() {
            self.untracked_ungranted_at.fetch_max(now.0, Relaxed);
        }
    }

    /// When units were last counted that this gateway cannot report; `None` for never. For a store that `has_data` only
    /// ungranted units matter, because the store knows the others.
    pub fn last_unreportable_use(&self, has_data: bool) -> Option<Nanos> {
        let last_at = match has_data {
            true => &self.untracked_ungranted_at,
            false => &self.untracked_use_at,
        };
        Some(Nanos(last_at.load(Relaxed))).filter(|last_at| *last_at > Nanos::ZERO)
    }

    /// Records that the units of a limit count for so long.
    pub fn record_window(&self, window: Nanos) {
        self.longest_window_nanos.fetch_max(window.0, Relaxed);
    }

    /// Records the windows of a limit, whether or not this gateway ever counts by it: others may.
    pub fn record_windows(&self, plan: &SharingPlan) {
        self.record_window(plan.learning_window());
    }

    /// The longest window of all limits since the start, as the store counts; zero before the first limit.
    pub fn longest_window(&self) -> Nanos {
        Nanos(self.longest_window_nanos.load(Relaxed))
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

    /// The counters whose entries match `filter`. Locks one shard at a time.
    pub fn counters_where(&self, filter: impl Fn(&LedgerEntry) -> bool) -> Vec<CounterName> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let matching = shard.entries.iter().filter(|(_, entry)| filter(entry));
            names.extend(matching.map(|(name, _)| *name));
        }
        names
    }

    /// The counters with granted or ungranted units of this gateway.
    pub fn counters_with_units(&self) -> Vec<CounterName> {
        self.counters_where(|entry| {
            entry.granted_total > 0 || entry.ungranted.admitted_at > Nanos::ZERO
        })
    }

    /// The counters with units that the store does not know yet.
    pub fn counters_with_unreported_units(&self) -> Vec<CounterName> {
        self.counters_where(|entry| entry.unreported_units() > 0)
    }

    /// The counters with unreported units that are still in a window, and without a report after `since`.
    pub fn counters_owing_report(&self, since: Nanos, now: Nanos) -> Vec<CounterName> {
        match self.may_be_unreported() {
            true => self.counters_where(|entry| {
                entry.owes_report(now) && entry.ungranted.reported_at <= since
            }),
            false => Vec::new(),
        }
    }

    /// Takes out grants that have ended, and calls `give_back` with each grant that has unused units. A grant waits for all
    /// that were recorded before it in its shard. The keeper calls this ten times a second, because other gateways lack the
    /// units until then. `give_back` is called under a shard's lock.
    pub fn take_ended_grants(
        &self,
        now: Nanos,
        mut give_back: impl FnMut(&CounterName, &LedgerEntry, Grant),
    ) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let LedgerShard {
                entries,
                grant_ends,
            } = &mut *shard;
            while let Some((end, name)) = grant_ends.front().copied() {
                if end > now {
                    break;
                }
                grant_ends.pop_front();
                let Some(entry) = entries.get_mut(&name) else {
                    continue;
                };
                while entry
                    .grants
                    .first()
                    .is_some_and(|grant| grant.ends_at <= now)
                {
                    let grant = entry.grants.remove(0);
                    if grant.units > 0 {
                        give_back(&name, entry, grant);
                    }
                }
            }
        }
    }

    /// Takes out all grants, and calls `give_back` with each of them under a shard's lock.
    pub fn take_all_grants(&self, mut give_back: impl FnMut(&CounterName, &LedgerEntry, Grant)) {
        for shard in &self.shards {
            for (name, entry) in &mut shard.lock().entries {
                for grant in std::mem::take(&mut entry.grants) {
                    give_back(name, entry, grant);
                }
            }
        }
    }

    /// Removes entries that were idle for their longest window. From a shard that is more than three quarters full it also
    /// removes those idle for [`MAX_IDLE_TIME_WHEN_CROWDED`]. Entries with grants stay. Updates
    /// [`Ledger::may_be_unreported`].
    pub fn remove_idle_entries(&self, now: Nanos) {
        // Cleared first, so that units which other threads record during the search are not missed.
        self.may_be_unreported.store(false, Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let is_crowded = shard.entries.len() * 4 > self.max_shard_entries * 3;
            shard.entries.retain(|_, entry| {
                if entry.owes_report(now) {
                    self.may_be_unreported.store(true, Relaxed);
                }
                let idle_time = now.since(entry.last_used_at);
                let may_count = idle_time <= entry.sharing_plan.store_limit().longest_window();
                let must_yield = is_crowded && idle_time > MAX_IDLE_TIME_WHEN_CROWDED;
                let is_kept = !entry.grants.is_empty() || (may_count && !must_yield);
                if !is_kept {
                    self.ungranted_total_floor
                        .fetch_max(entry.ungranted.admitted_total, Relaxed);
                }
                if !is_kept && may_count {
                    self.untracked_use_at.fetch_max(now.0, Relaxed);
                }
                if !is_kept && entry.owes_report(now) {
                    let admitted_at = entry.ungranted.admitted_at;
                    self.untracked_ungranted_at
                        .fetch_max(admitted_at.0, Relaxed);
                }
                is_kept
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Fingerprint, OnStoreError, RateLimit, Sharing};
    use crate::store::memory::{MemoryStore, Settings};

    fn sharing_plan(rate: &str) -> Arc<SharingPlan> {
        let budget_bytes = Settings::MIN_BUDGET_BYTES;
        let memory = MemoryStore::new(Settings { budget_bytes }).unwrap();
        let limit = RateLimit::hard(rate.parse().unwrap());
        let registered = memory.register("limit", &limit).unwrap();
        let (sharing, on_error) = (Sharing::Strict, OnStoreError::Local);
        Arc::new(SharingPlan::new("limit", &limit, &registered, sharing, on_error).unwrap())
    }

    /// Units charged at the end of a request were lost where the ledger was full. A store with data then decided before
    /// their window had passed.
    #[test]
    fn ungranted_units_without_an_entry_are_remembered() {
        let plan = sharing_plan("100/m");
        let ledger = Ledger::new(0);
        let now = Nanos::from_secs(1_000);
        // All names are of one shard.
        let name = |key| plan.counter_name(Fingerprint(key));
        let most = ledger.max_shard_entries as u128;
        for key in 0..most {
            ledger.record_ungranted_use(&name(key), &plan, 1, 1, now);
        }
        assert_eq!(ledger.last_unreportable_use(true), None);
        let later = Nanos::from_secs(1_001);
        ledger.record_ungranted_use(&name(0), &plan, 1, 1, later);
        assert_eq!(ledger.last_unreportable_use(true), None);
        ledger.record_ungranted_use(&name(most), &plan, 1, 1, later);
        assert_eq!(ledger.last_unreportable_use(true), Some(later));
    }

    /// The same for entries that yield to others before their units are reported.
    #[test]
    fn ungranted_units_of_removed_entries_are_remembered() {
        let plan = sharing_plan("100/h");
        let ledger = Ledger::new(0);
        let now = Nanos::from_secs(1_000);
        for key in 0..ledger.max_shard_entries as u128 {
            let name = plan.counter_name(Fingerprint(key));
            ledger.record_ungranted_use(&name, &plan, 1, 1, now);
        }
        ledger.remove_idle_entries(now.after(MAX_IDLE_TIME_WHEN_CROWDED));
        assert_eq!(ledger.last_unreportable_use(true), None);
        let later = now.after(MAX_IDLE_TIME_WHEN_CROWDED).after(Nanos(1));
        ledger.remove_idle_entries(later);
        assert!(ledger.is_empty());
        assert_eq!(ledger.last_unreportable_use(true), Some(now));
    }
}
