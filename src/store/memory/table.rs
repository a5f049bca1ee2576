//! The table of buckets. A bucket has 128 bytes: a spin lock that counts changes, and seven entries. A key may be in two
//! buckets and prefers the first. The first bucket counts the keys that had to move to their second one. So a look-up
//! touches the second only when such keys exist.
//!
//! A bucket is sixteen words of 64 bits: `[version | locked, keys moved away, 7 × (mark, state)]`. A mark is
//! `tag (46 bits) | network | away | slot (16 bits)`, zero when the entry is empty. A state is the
//! two inline words of a limit, a network's arrival time, or `fresh-at second | block`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::buckets::{fold, hashed, partner, scale};
use super::map::ZeroedMap;
use super::snapshot::copying::Copying;
use crate::limit::Fingerprint;
use crate::store::Slot;

/// Bytes of a bucket.
pub(super) const BUCKET: usize = 128;
/// Words of a bucket.
pub(super) const WORDS: usize = BUCKET / 8;
/// Entries of a bucket.
pub(super) const ENTRIES: usize = 7;

/// Bits of a bucket's first word; the rest is its version.
const LOCKED: u64 = 1;
const VERSION: u64 = 2;

const SLOT: u64 = 0xffff;
const AWAY: u64 = 1 << 16;
const NETWORK: u64 = 1 << 17;
const TAG: u64 = !(SLOT | AWAY | NETWORK);

/// The buckets where a key may be, and the mark of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) first: u32,
    pub(super) second: u32,
    /// Tag and network bit.
    mark: u64,
    /// What the sketch hashes: made of the tag alone, because an entry keeps no more of its key.
    pub(super) hash: u64,
}

/// The position of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryAt {
    pub(super) bucket: u32,
    pub(super) entry: u32,
}

/// An entry's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryMark(pub(super) u64);

impl EntryMark {
    pub(super) fn slot(self) -> u16 {
        (self.0 & SLOT) as u16
    }

    pub(super) fn network(self) -> bool {
        self.0 & NETWORK != 0
    }

    /// Whether this is the mark of an entry.
    pub(super) fn named(self) -> bool {
        self.0 & TAG != 0
    }

    /// The first bucket of the entry's key, in a table of `count` buckets, when the entry is in `bucket`.
    pub(super) fn home(self, bucket: u32, count: u32) -> u32 {
        match self.0 & AWAY {
            0 => bucket,
            _ => partner(self.0 & TAG, bucket, count),
        }
    }

    /// The key for the cell's arithmetic. It is made of the tag, because an entry keeps no more of the fingerprint.
    /// It must be the same when a cell is used and when it is checked for eviction.
    pub(super) fn key(self) -> Fingerprint {
        key_of(self.0)
    }
}

/// The bits of a mark that depend on the key alone, not on its bucket or slot.
#[inline]
pub(super) fn tagged(mark: u64) -> u64 {
    mark & (TAG | NETWORK)
}

pub(super) fn key_of(mark: u64) -> Fingerprint {
    let tag = u128::from(mark >> 18);
    Fingerprint(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl Spot {
    /// See [`EntryMark::key`].
    pub(super) fn key(&self) -> Fingerprint {
        key_of(self.mark)
    }

    /// Whether two spots belong to the same key.
    pub(super) fn same(&self, other: &Spot) -> bool {
        self.mark == other.mark && self.first == other.first
    }
}

/// The buckets.
#[derive(Debug)]
pub(super) struct BucketTable {
    map: ZeroedMap,
    count: u32,
    pub(super) copying: Copying,
}

impl BucketTable {
    pub(super) fn new(bytes: usize) -> io::Result<BucketTable> {
        let count = u32::try_from(bytes / BUCKET).unwrap_or(u32::MAX).max(2);
        Ok(BucketTable {
            map: ZeroedMap::new(count as usize * BUCKET, bytes >= 16 << 20)?,
            count,
            copying: Copying::default(),
        })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The spot of `key` under a scope's `seed`. The key is a keyed hash already, so two multiplications mix enough.
    #[inline]
    pub(super) fn spot(&self, seed: u64, key: Fingerprint, network: bool) -> Spot {
        let (tag, first, hash) = self.place(seed, key);
        Spot {
            first,
            second: self.partner(tag, first),
            mark: tag | if network { NETWORK } else { 0 },
            hash,
        }
    }

    /// Tag, first bucket and hash.
    #[inline]
    fn place(&self, seed: u64, key: Fingerprint) -> (u64, u32, u64) {
        let (low, high) = (key.0 as u64, (key.0 >> 64) as u64);
        let a = fold(low ^ seed, high ^ 0x9e37_79b9_7f4a_7c15);
        let b = fold(high ^ seed.rotate_left(32), low ^ 0xd6e8_feb8_6659_fd93);
        let tag = if a & TAG == 0 { 1 << 18 } else { a & TAG };
        (tag, scale(b, self.count), hashed(tag))
    }

    /// The part of [`BucketTable::spot`] that needs no second bucket: the first one, and the mark of an entry there.
    #[inline]
    pub(super) fn home(&self, seed: u64, key: Fingerprint, slot: Slot) -> (u32, EntryMark) {
        let (tag, first, _) = self.place(seed, key);
        (first, EntryMark(tag | u64::from(slot.0)))
    }

    /// A bucket's first word, which locks it and counts its changes.
    #[inline]
    pub(super) fn lock_of(&self, bucket: u32) -> &AtomicU64 {
        &self.words(bucket)[0]
    }

    /// Starts to load a bucket into the cache.
    #[inline]
    pub(super) fn prefetch(&self, bucket: u32) {
        self.map.prefetch(bucket as usize);
    }

    /// See [`partner`].
    fn partner(&self, tag: u64, bucket: u32) -> u32 {
        partner(tag, bucket, self.count)
    }

    /// The spot of the key with this mark and first bucket.
    pub(super) fn spot_of(&self, mark: EntryMark, first: u32) -> Spot {
        let tag = mark.0 & TAG;
        Spot {
            first,
            second: self.partner(tag, first),
            mark: tagged(mark.0),
            hash: hashed(tag),
        }
    }

    #[inline]
    pub(super) fn words(&self, bucket: u32) -> &[AtomicU64; WORDS] {
        self.map.bucket(bucket as usize)
    }

    /// For each slot, whether an entry has it.
    pub(super) fn slots(&self) -> Vec<bool> {
        let mut used = vec![false; usize::from(u16::MAX) + 1];
        for bucket in 0..self.count {
            let held = self.hold(SmallVec::from_slice(&[bucket]));
            let marks =
                (0..ENTRIES as u32).filter_map(|entry| held.mark(EntryAt { bucket, entry }));
            marks.for_each(|mark| used[usize::from(mark.slot())] = true);
        }
        used
    }

    /// Whether keys of this first bucket may be in their second.
    pub(super) fn strays(&self, bucket: u32) -> bool {
        self.words(bucket)[1].load(Ordering::Relaxed) != 0
    }

    fn try_lock(&self, bucket: u32) -> bool {
        self.lock_of(bucket).fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    /// A number that changes with every change of a count of this first bucket's keys; `None` while it is locked.
    #[inline]
    pub(super) fn version(&self, bucket: u32) -> Option<u64> {
        let word = self.lock_of(bucket).load(Ordering::Acquire);
        (word & LOCKED == 0).then_some(word)
    }

    /// Locks these buckets in ascending order.
    pub(super) fn hold(&self, mut buckets: SmallVec<[u32; 8]>) -> LockedBuckets<'_> {
        if buckets.len() > 1 {
            buckets.sort_unstable();
            buckets.dedup();
        }
        for bucket in &buckets {
            lock(self.lock_of(*bucket));
        }
        LockedBuckets {
            table: self,
            buckets,
            pins: SmallVec::new(),
        }
    }

    /// Whether the bucket has no entries. Reads only, so that untouched memory stays with the system.
    pub(super) fn empty(&self, bucket: u32) -> bool {
        let marks = self.words(bucket)[2..].iter().step_by(2);
        marks.fold(0, |all, mark| all | mark.load(Ordering::Relaxed)) == 0
    }

    /// Locks one bucket unless it is locked.
    pub(super) fn try_hold(&self, bucket: u32) -> Option<LockedBuckets<'_>> {
        let buckets = SmallVec::from_slice(&[bucket]);
        self.try_lock(bucket).then(|| LockedBuckets {
            table: self,
            buckets,
            pins: SmallVec::new(),
        })
    }
}

#[inline]
pub(super) fn lock(lock: &AtomicU64) {
    while lock.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
        wait(lock);
    }
}

#[inline]
pub(super) fn unlock(lock: &AtomicU64) {
    lock.store(lock.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
}

/// Counts a change; the bucket must be locked.
#[inline]
pub(super) fn count_change(lock: &AtomicU64) {
    lock.store(lock.load(Ordering::Relaxed) + VERSION, Ordering::Relaxed);
}

#[cold]
fn wait(lock: &AtomicU64) {
    let mut spins = 0;
    while lock.load(Ordering::Relaxed) & LOCKED != 0 {
        spins += 1;
        if spins < 128 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Locked buckets; but for an [`HomeEntry`](super::fast::home::HomeEntry), entries are read and written only through it.
#[derive(Debug)]
pub(super) struct LockedBuckets<'a> {
    table: &'a BucketTable,
    buckets: SmallVec<[u32; 8]>,
    /// Entries that the decision works with, and that must not be evicted.
    pins: SmallVec<[EntryAt; 8]>,
}

impl Drop for LockedBuckets<'_> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            let lock = self.table.lock_of(*bucket);
            // Counted even if nothing changed: see `admission::prepared`.
            count_change(lock);
            unlock(lock);
        }
    }
}

impl LockedBuckets<'_> {
    pub(super) fn has(&self, bucket: u32) -> bool {
        self.buckets.contains(&bucket)
    }

    pub(super) fn pin(&mut self, at: EntryAt) {
        self.pins.push(at);
    }

    pub(super) fn pinned(&self, at: EntryAt) -> bool {
        self.pins.contains(&at)
    }

    /// Locks one more bucket. It is out of order, so this gives up after a while instead of waiting.
    pub(super) fn extend(&mut self, bucket: u32) -> bool {
        for _ in 0..1_000 {
            if self.has(bucket) {
                return true;
            }
            if self.table.try_lock(bucket) {
                self.buckets.push(bucket);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    fn words(&self, bucket: u32) -> &[AtomicU64; WORDS] {
        debug_assert!(self.has(bucket));
        self.table.words(bucket)
    }

    pub(super) fn mark(&self, at: EntryAt) -> Option<EntryMark> {
        let mark = self.words(at.bucket)[2 + 2 * at.entry as usize].load(Ordering::Relaxed);
        (mark != 0).then_some(EntryMark(mark))
    }

    pub(super) fn state(&self, at: EntryAt) -> u64 {
        self.words(at.bucket)[3 + 2 * at.entry as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_state(&mut self, at: EntryAt, state: u64) {
        self.words(at.bucket)[3 + 2 * at.entry as usize].store(state, Ordering::Relaxed);
    }

    /// The entry of `spot` under any slot that `owned` accepts.
    pub(super) fn find(&self, spot: &Spot, owned: impl Fn(u16) -> bool) -> Option<EntryAt> {
        let both = spot.second != spot.first && self.has(spot.second);
        let buckets = [spot.first, spot.second];
        for bucket in &buckets[..1 + usize::from(both)] {
            let words = self.words(*bucket);
            for entry in 0..ENTRIES {
                let mark = words[2 + 2 * entry].load(Ordering::Relaxed);
                let moved = mark & AWAY != 0;
                if tagged(mark) == spot.mark
                    && moved == (*bucket != spot.first)
                    && owned((mark & SLOT) as u16)
                {
                    return Some(EntryAt {
                        bucket: *bucket,
                        entry: entry as u32,
                    });
                }
            }
        }
        None
    }

    /// An empty entry of `bucket`.
    pub(super) fn empty(&self, bucket: u32) -> Option<EntryAt> {
        let words = self.words(bucket);
        for entry in 0..ENTRIES {
            if words[2 + 2 * entry].load(Ordering::Relaxed) == 0 {
                return Some(EntryAt {
                    bucket,
                    entry: entry as u32,
                });
            }
        }
        None
    }

    /// Gives an empty entry to this key, with a state of zero.
    pub(super) fn put(&mut self, at: EntryAt, spot: &Spot, slot: u16) {
        let away = at.bucket != spot.first;
        let mark = spot.mark | u64::from(slot) | if away { AWAY } else { 0 };
        self.set_state(at, 0);
        self.words(at.bucket)[2 + 2 * at.entry as usize].store(mark, Ordering::Relaxed);
        if away {
            self.table.words(spot.first)[1].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves an entry of `bucket` that is not pinned to the other bucket of its key, if that has room. Returns the position
    /// that is empty now.
    pub(super) fn displace(&mut self, bucket: u32) -> Option<EntryAt> {
        (0..ENTRIES as u32).find_map(|entry| {
            let from = EntryAt { bucket, entry };
            let word = self.words(bucket)[2 + 2 * entry as usize].load(Ordering::Relaxed);
            let other = self.table.partner(word & TAG, bucket);
            if word == 0 || other == bucket || self.pinned(from) || !self.extend(other) {
                return None;
            }
            let to = self.empty(other)?;
            let state = self.state(from);
            self.clear(from);
            self.set_state(to, state);
            let mark = word ^ AWAY;
            self.words(other)[2 + 2 * to.entry as usize].store(mark, Ordering::Relaxed);
            if mark & AWAY != 0 {
                self.table.words(bucket)[1].fetch_add(1, Ordering::Relaxed);
            }
            self.table.copying.moved(bucket, other);
            Some(from)
        })
    }

    /// Gives an entry to another slot of its scope.
    pub(super) fn set_slot(&mut self, at: EntryAt, slot: u16) {
        let word = &self.words(at.bucket)[2 + 2 * at.entry as usize];
        word.store(
            word.load(Ordering::Relaxed) & !SLOT | u64::from(slot),
            Ordering::Relaxed,
        );
    }

    /// Empties an entry. The count in the key's first bucket is atomic and may be lowered without that bucket's lock: a
    /// reader that sees it too high only looks into the second bucket in vain.
    pub(super) fn clear(&mut self, at: EntryAt) {
        let word = &self.words(at.bucket)[2 + 2 * at.entry as usize];
        let mark = word.load(Ordering::Relaxed);
        word.store(0, Ordering::Relaxed);
        if mark & AWAY != 0 {
            let home = self.table.partner(mark & TAG, at.bucket);
            self.table.words(home)[1].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_are_mutual_and_strays_are_counted() {
        let table = BucketTable::new(1_000 * BUCKET).unwrap();
        for n in 0..2_000u128 {
            let spot = table.spot(42, Fingerprint(n), n % 2 == 0);
            assert_eq!(table.partner(spot.mark & TAG, spot.second), spot.first);
            if spot.first == spot.second {
                continue;
            }
            let mut held = table.hold(SmallVec::from_slice(&[spot.second, spot.first]));
            let at = held.empty(spot.second).unwrap();
            held.put(at, &spot, 9);
            assert!(table.strays(spot.first));
            assert_eq!(held.find(&spot, |slot| slot == 9), Some(at));
            assert_eq!(held.find(&spot, |slot| slot == 8), None);
            held.clear(at);
            assert!(!table.strays(spot.first));
            assert_eq!(held.find(&spot, |_| true), None);
        }
    }
}
