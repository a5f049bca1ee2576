//! The table of buckets. A bucket has 128 bytes: a spin lock that counts changes, and seven entries. A key may be in two
//! buckets and prefers the first. The first bucket counts the keys that had to move to their second one. So a look-up
//! touches the second only when such keys exist. The table never grows, and never evicts an entry by itself.
//!
//! A bucket is sixteen words of 64 bits: `[version | locked, keys moved away, 7 × (mark, state)]`. A mark is
//! `tag (46 bits) | network | away | slot (16 bits)`, zero when the entry is empty. A state is the
//! two inline words of a limit, a network's arrival time, or `fresh-at second | block`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::bucket_lock::{self, count_change, lock, unlock};
use super::buckets::{bucket_of, fold, partner, sketch_hash};
use super::map::ZeroedMap;
use super::snapshot::progress::CopyProgress;
use crate::limit::Fingerprint;
use crate::store::Slot;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 128;
/// Bytes of an entry: mark and state.
pub(super) const ENTRY_BYTES: usize = 16;
/// Words of a bucket.
pub(super) const BUCKET_WORDS: usize = BUCKET_BYTES / 8;
/// Entries of a bucket.
pub(super) const BUCKET_ENTRIES: usize = 7;

/// The slot in a mark.
const SLOT_MASK: u64 = 0xffff;
/// Set in the mark of an entry that is in the second bucket of its key.
const AWAY_BIT: u64 = 1 << 16;
/// Set in the mark of a network's entry.
const NETWORK_BIT: u64 = 1 << 17;
/// The tag in a mark: the part of a key that an entry keeps.
const TAG_MASK: u64 = !(SLOT_MASK | AWAY_BIT | NETWORK_BIT);

/// The buckets where a key may be, and the mark of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) first: u32,
    pub(super) second: u32,
    /// Tag and network bit.
    mark: u64,
    /// The hash for the sketch. It is made of the tag alone, because an entry keeps no more of its key.
    pub(super) hash: u64,
}

/// The position of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryAt {
    pub(super) bucket: u32,
    pub(super) entry: u32,
}

/// An entry's mark: which key it is for, under which slot, and in which of the key's buckets it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryMark(pub(super) u64);

impl EntryMark {
    pub(super) fn slot(self) -> u16 {
        (self.0 & SLOT_MASK) as u16
    }

    pub(super) fn is_network(self) -> bool {
        self.0 & NETWORK_BIT != 0
    }

    /// Whether this is the mark of an entry.
    pub(super) fn has_key(self) -> bool {
        self.0 & TAG_MASK != 0
    }

    /// The first bucket of the entry's key, in a table of `count` buckets, when the entry is in `bucket`.
    pub(super) fn home_bucket(self, bucket: u32, count: u32) -> u32 {
        match self.0 & AWAY_BIT {
            0 => bucket,
            _ => partner(self.0 & TAG_MASK, bucket, count),
        }
    }

    /// The key for the cell's arithmetic. It is made of the tag, because an entry keeps no more of the fingerprint.
    /// It must be the same when a cell is used and when it is checked for eviction.
    pub(super) fn key(self) -> Fingerprint {
        key_from_mark(self.0)
    }
}

/// The bits of a mark that depend on the key alone, not on its bucket or slot.
#[inline]
pub(super) fn key_bits(mark: u64) -> u64 {
    mark & (TAG_MASK | NETWORK_BIT)
}

pub(super) fn key_from_mark(mark: u64) -> Fingerprint {
    let tag = u128::from(mark >> 18);
    Fingerprint(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl Spot {
    /// The key for the cell's arithmetic: see [`EntryMark::key`].
    pub(super) fn key(&self) -> Fingerprint {
        key_from_mark(self.mark)
    }

    /// Whether two spots belong to the same key.
    pub(super) fn is_same_key(&self, other: &Spot) -> bool {
        self.mark == other.mark && self.first == other.first
    }
}

/// All buckets, in a mapping of fixed size.
#[derive(Debug)]
pub(super) struct BucketTable {
    map: ZeroedMap,
    bucket_count: u32,
    /// The progress of a snapshot.
    pub(super) copy_progress: CopyProgress,
}

/// Smallest table, in bytes, that is mapped in huge pages.
const MIN_HUGE_BYTES: usize = 16 << 20;

impl BucketTable {
    /// A table of at most `bytes`, and of two buckets at least.
    pub(super) fn new(bytes: usize) -> io::Result<BucketTable> {
        let count = u32::try_from(bytes / BUCKET_BYTES)
            .unwrap_or(u32::MAX)
            .max(2);
        Ok(BucketTable {
            map: ZeroedMap::new(count as usize * BUCKET_BYTES, bytes >= MIN_HUGE_BYTES)?,
            bucket_count: count,
            copy_progress: CopyProgress::default(),
        })
    }

    pub(super) fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// The spot of `key` under a scope's `seed`. The key is a keyed hash already, so two multiplications mix enough.
    #[inline]
    pub(super) fn spot(&self, seed: u64, key: Fingerprint, network: bool) -> Spot {
        let (tag, first, hash) = self.locate(seed, key);
        Spot {
            first,
            second: self.partner(tag, first),
            mark: tag | if network { NETWORK_BIT } else { 0 },
            hash,
        }
    }

    /// The tag, the first bucket and the sketch's hash of a key.
    #[inline]
    fn locate(&self, seed: u64, key: Fingerprint) -> (u64, u32, u64) {
        let (low, high) = (key.0 as u64, (key.0 >> 64) as u64);
        let a = fold(low ^ seed, high ^ 0x9e37_79b9_7f4a_7c15);
        let b = fold(high ^ seed.rotate_left(32), low ^ 0xd6e8_feb8_6659_fd93);
        let tag = if a & TAG_MASK == 0 {
            1 << 18
        } else {
            a & TAG_MASK
        };
        (tag, bucket_of(b, self.bucket_count), sketch_hash(tag))
    }

    /// The part of [`BucketTable::spot`] that needs no second bucket: the first one, and the mark of an entry there.
    #[inline]
    pub(super) fn home_entry(&self, seed: u64, key: Fingerprint, slot: Slot) -> (u32, EntryMark) {
        let (tag, first, _) = self.locate(seed, key);
        (first, EntryMark(tag | u64::from(slot.0)))
    }

    /// A bucket's first word, which locks it and counts its changes.
    #[inline]
    pub(super) fn lock_of(&self, bucket: u32) -> &AtomicU64 {
        &self.words(bucket)[0]
    }

    /// Starts to load a bucket into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self, bucket: u32) {
        self.map.prefetch(bucket as usize);
    }

    /// The other bucket of a tag.
    fn partner(&self, tag: u64, bucket: u32) -> u32 {
        partner(tag, bucket, self.bucket_count)
    }

    /// The spot of the key with this mark and first bucket.
    pub(super) fn spot_of(&self, mark: EntryMark, first: u32) -> Spot {
        let tag = mark.0 & TAG_MASK;
        Spot {
            first,
            second: self.partner(tag, first),
            mark: key_bits(mark.0),
            hash: sketch_hash(tag),
        }
    }

    #[inline]
    pub(super) fn words(&self, bucket: u32) -> &[AtomicU64; BUCKET_WORDS] {
        self.map.bucket(bucket as usize)
    }

    /// Whether each slot is used by an entry, by the slot's number.
    pub(super) fn used_slots(&self) -> Vec<bool> {
        let mut used = vec![false; usize::from(u16::MAX) + 1];
        for bucket in 0..self.bucket_count {
            let locked = self.lock_all(SmallVec::from_slice(&[bucket]));
            let marks = (0..BUCKET_ENTRIES as u32)
                .filter_map(|entry| locked.mark(EntryAt { bucket, entry }));
            marks.for_each(|mark| used[usize::from(mark.slot())] = true);
        }
        used
    }

    /// Whether keys of this first bucket may be in their second bucket.
    pub(super) fn has_moved_keys(&self, bucket: u32) -> bool {
        self.words(bucket)[1].load(Ordering::Relaxed) != 0
    }

    fn try_lock(&self, bucket: u32) -> bool {
        bucket_lock::try_lock(self.lock_of(bucket))
    }

    /// A number that changes with every change of a count of this first bucket's keys; `None` while it is locked.
    #[inline]
    pub(super) fn version(&self, bucket: u32) -> Option<u64> {
        bucket_lock::version(self.lock_of(bucket))
    }

    /// Locks these buckets in ascending order.
    pub(super) fn lock_all(&self, mut buckets: SmallVec<[u32; 8]>) -> LockedBuckets<'_> {
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

    /// Whether the bucket has no entries. It only reads, so that untouched memory stays with the system.
    pub(super) fn is_bucket_empty(&self, bucket: u32) -> bool {
        let marks = self.words(bucket)[2..].iter().step_by(2);
        marks.fold(0, |all, mark| all | mark.load(Ordering::Relaxed)) == 0
    }

    /// Locks one bucket; `None` where it is locked already.
    pub(super) fn try_lock_one(&self, bucket: u32) -> Option<LockedBuckets<'_>> {
        let buckets = SmallVec::from_slice(&[bucket]);
        self.try_lock(bucket).then(|| LockedBuckets {
            table: self,
            buckets,
            pins: SmallVec::new(),
        })
    }
}

/// The locked buckets of one decision. Entries are read and written only through it, or through a
/// [`HomeEntry`](super::fast::home::HomeEntry).
#[derive(Debug)]
pub(super) struct LockedBuckets<'a> {
    table: &'a BucketTable,
    buckets: SmallVec<[u32; 8]>,
    /// Entries that the decision works with, and that must not be evicted or moved.
    pins: SmallVec<[EntryAt; 8]>,
}

impl Drop for LockedBuckets<'_> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            let lock = self.table.lock_of(*bucket);
            // Counted even if nothing changed, which `throttle::admission::prepared` allows for.
            count_change(lock);
            unlock(lock);
        }
    }
}

/// Attempts to lock a bucket out of order.
const MAX_EXTEND_ATTEMPTS: u32 = 1_000;

impl LockedBuckets<'_> {
    pub(super) fn is_locked(&self, bucket: u32) -> bool {
        self.buckets.contains(&bucket)
    }

    /// Keeps an entry from being evicted or moved.
    pub(super) fn pin(&mut self, at: EntryAt) {
        self.pins.push(at);
    }

    pub(super) fn is_pinned(&self, at: EntryAt) -> bool {
        self.pins.contains(&at)
    }

    /// Locks one more bucket, out of order; so this gives up after a while instead of waiting. Returns whether the bucket is
    /// locked.
    pub(super) fn try_extend(&mut self, bucket: u32) -> bool {
        for _ in 0..MAX_EXTEND_ATTEMPTS {
            if self.is_locked(bucket) {
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

    fn words(&self, bucket: u32) -> &[AtomicU64; BUCKET_WORDS] {
        debug_assert!(self.is_locked(bucket));
        self.table.words(bucket)
    }

    /// The mark of an entry; `None` where the entry is empty.
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

    /// The entry of `spot` under any slot that `is_own_slot` accepts.
    pub(super) fn find(&self, spot: &Spot, is_own_slot: impl Fn(u16) -> bool) -> Option<EntryAt> {
        let has_second = spot.second != spot.first && self.is_locked(spot.second);
        let buckets = [spot.first, spot.second];
        for bucket in &buckets[..1 + usize::from(has_second)] {
            let words = self.words(*bucket);
            for entry in 0..BUCKET_ENTRIES {
                let mark = words[2 + 2 * entry].load(Ordering::Relaxed);
                let is_away = mark & AWAY_BIT != 0;
                if key_bits(mark) == spot.mark
                    && is_away == (*bucket != spot.first)
                    && is_own_slot((mark & SLOT_MASK) as u16)
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
    pub(super) fn empty_entry(&self, bucket: u32) -> Option<EntryAt> {
        let words = self.words(bucket);
        for entry in 0..BUCKET_ENTRIES {
            if words[2 + 2 * entry].load(Ordering::Relaxed) == 0 {
                return Some(EntryAt {
                    bucket,
                    entry: entry as u32,
                });
            }
        }
        None
    }

    /// Gives an empty entry to a key, with a state of zero.
    pub(super) fn fill_entry(&mut self, at: EntryAt, spot: &Spot, slot: u16) {
        let away = at.bucket != spot.first;
        let mark = spot.mark | u64::from(slot) | if away { AWAY_BIT } else { 0 };
        self.set_state(at, 0);
        self.words(at.bucket)[2 + 2 * at.entry as usize].store(mark, Ordering::Relaxed);
        if away {
            self.table.words(spot.first)[1].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves an entry of `bucket` that is not pinned to the other bucket of its key. Returns the position that is empty now;
    /// `None` where no other bucket has room.
    pub(super) fn move_entry_away(&mut self, bucket: u32) -> Option<EntryAt> {
        (0..BUCKET_ENTRIES as u32).find_map(|entry| {
            let from = EntryAt { bucket, entry };
            let word = self.words(bucket)[2 + 2 * entry as usize].load(Ordering::Relaxed);
            let other = self.table.partner(word & TAG_MASK, bucket);
            if word == 0 || other == bucket || self.is_pinned(from) || !self.try_extend(other) {
                return None;
            }
            let to = self.empty_entry(other)?;
            let state = self.state(from);
            self.clear_entry(from);
            self.set_state(to, state);
            let mark = word ^ AWAY_BIT;
            self.words(other)[2 + 2 * to.entry as usize].store(mark, Ordering::Relaxed);
            if mark & AWAY_BIT != 0 {
                self.table.words(bucket)[1].fetch_add(1, Ordering::Relaxed);
            }
            self.table.copy_progress.record_move(bucket, other);
            Some(from)
        })
    }

    /// Gives an entry to another slot of its scope.
    pub(super) fn set_slot(&mut self, at: EntryAt, slot: u16) {
        let word = &self.words(at.bucket)[2 + 2 * at.entry as usize];
        word.store(
            word.load(Ordering::Relaxed) & !SLOT_MASK | u64::from(slot),
            Ordering::Relaxed,
        );
    }

    /// Empties an entry. The count in the key's first bucket is atomic and may be lowered without that bucket's lock: a
    /// reader that sees it too high only looks into the second bucket in vain.
    pub(super) fn clear_entry(&mut self, at: EntryAt) {
        let word = &self.words(at.bucket)[2 + 2 * at.entry as usize];
        let mark = word.load(Ordering::Relaxed);
        word.store(0, Ordering::Relaxed);
        if mark & AWAY_BIT != 0 {
            let home = self.table.partner(mark & TAG_MASK, at.bucket);
            self.table.words(home)[1].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_are_mutual_and_strays_are_counted() {
        let table = BucketTable::new(1_000 * BUCKET_BYTES).unwrap();
        for n in 0..2_000u128 {
            let spot = table.spot(42, Fingerprint(n), n % 2 == 0);
            assert_eq!(table.partner(spot.mark & TAG_MASK, spot.second), spot.first);
            if spot.first == spot.second {
                continue;
            }
            let mut locked = table.lock_all(SmallVec::from_slice(&[spot.second, spot.first]));
            let at = locked.empty_entry(spot.second).unwrap();
            locked.fill_entry(at, &spot, 9);
            assert!(table.has_moved_keys(spot.first));
            assert_eq!(locked.find(&spot, |slot| slot == 9), Some(at));
            assert_eq!(locked.find(&spot, |slot| slot == 8), None);
            locked.clear_entry(at);
            assert!(!table.has_moved_keys(spot.first));
            assert_eq!(locked.find(&spot, |_| true), None);
        }
    }
}
