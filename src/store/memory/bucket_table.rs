//! [`BucketTable`]: a cuckoo hash table of fixed size, which holds the entries of all keys. The table never grows, and
//! never evicts an entry by itself.
//!
//! A key has two buckets: its home bucket, which it prefers, and its alternate bucket. Each follows from the other and
//! the key's tag (partial-key cuckoo hashing: Fan et al., Cuckoo Filter, CoNEXT 2014). An entry in the alternate bucket
//! is displaced. The home bucket counts its displaced entries, so that a lookup reads the alternate bucket only where
//! there are some.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::bucket_choice::{bucket_of_hash, folded_multiply, other_bucket, sketch_hash};
use super::bucket_layout::{
    BUCKET_BYTES, BUCKET_ENTRIES, BUCKET_WORDS, DISPLACED_COUNT_WORD, FIRST_MARK_WORD, LOCK_WORD,
    mark_word, state_word,
};
use super::bucket_lock::{self, count_change, lock, unlock};
use super::copy_progress::CopyProgress;
use super::entry_mark::{
    DISPLACED_BIT, EntryMark, LOWEST_TAG, NETWORK_BIT, SLOT_MASK, TAG_MASK, key_bits, key_from_mark,
};
use super::zeroed_map::ZeroedMap;
use crate::limit::Fingerprint;
use crate::store::LimitSlot;

/// Arbitrary constants that make the two hashes of a key differ: for its tag, and for its home bucket.
const TAG_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
const BUCKET_SALT: u64 = 0xd6e8_feb8_6659_fd93;

/// The two buckets where a key may be, and the key's part of the mark of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyBuckets {
    /// The index of the bucket that the key prefers.
    pub(super) home_bucket: u32,
    /// The index of the bucket for the key's displaced entry. It may be the home bucket, too.
    pub(super) alternate_bucket: u32,
    /// The tag and the network bit of the entry's mark; see [`key_bits`].
    key_bits: u64,
    /// The key's hash for the sketch; see [`sketch_hash`].
    pub(super) sketch_hash: u64,
}

/// The position of one entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    pub(super) bucket_index: u32,
    pub(super) entry_index: u32,
}

impl EntryPosition {
    /// The positions of all entries of a bucket.
    pub(super) fn all_of_bucket(bucket_index: u32) -> impl Iterator<Item = EntryPosition> {
        (0..BUCKET_ENTRIES as u32).map(move |entry_index| EntryPosition {
            bucket_index,
            entry_index,
        })
    }
}

impl KeyBuckets {
    /// The key for the cell's arithmetic: see [`EntryMark::key`].
    pub(super) fn key(&self) -> Fingerprint {
        key_from_mark(self.key_bits)
    }

    /// Whether both belong to the same key.
    pub(super) fn is_same_key(&self, other: &KeyBuckets) -> bool {
        self.key_bits == other.key_bits && self.home_bucket == other.home_bucket
    }
}

/// All buckets, in a mapping of fixed size.
#[derive(Debug)]
pub(super) struct BucketTable {
    mapping: ZeroedMap,
    bucket_count: u32,
    /// How far the snapshot that copies the table is, if one does.
    pub(super) copy_progress: CopyProgress,
}

/// The smallest table, in bytes, for which huge pages are requested. A smaller one needs few pages of the usual size.
const MIN_HUGE_BYTES: usize = 16 << 20;

impl BucketTable {
    /// A table of at most `max_bytes`, but of at least two buckets. Fails if the system gives no memory.
    pub(super) fn new(max_bytes: usize) -> io::Result<BucketTable> {
        let bucket_count = u32::try_from(max_bytes / BUCKET_BYTES)
            .unwrap_or(u32::MAX)
            .max(2);
        Ok(BucketTable {
            mapping: ZeroedMap::new(
                bucket_count as usize * BUCKET_BYTES,
                max_bytes >= MIN_HUGE_BYTES,
            )?,
            bucket_count,
            copy_progress: CopyProgress::default(),
        })
    }

    pub(super) fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// The buckets of `key`, which may be a network's own, under the scope with this hash. The key is a keyed hash already,
    /// so two multiplications mix enough.
    #[inline]
    pub(super) fn key_buckets(
        &self,
        scope_hash: u64,
        key: Fingerprint,
        is_network: bool,
    ) -> KeyBuckets {
        let (tag, home_bucket, sketch_hash) = self.hash_key(scope_hash, key);
        KeyBuckets {
            home_bucket,
            alternate_bucket: self.other_bucket(tag, home_bucket),
            key_bits: tag | if is_network { NETWORK_BIT } else { 0 },
            sketch_hash,
        }
    }

    /// Hashes a key: returns its tag, its home bucket and its hash for the sketch.
    #[inline]
    fn hash_key(&self, scope_hash: u64, key: Fingerprint) -> (u64, u32, u64) {
        let (key_low, key_high) = (key.0 as u64, (key.0 >> 64) as u64);
        let tag_hash = folded_multiply(key_low ^ scope_hash, key_high ^ TAG_SALT);
        let bucket_hash =
            folded_multiply(key_high ^ scope_hash.rotate_left(32), key_low ^ BUCKET_SALT);
        // A mark of zero means an empty entry, so a tag of zero becomes the lowest tag.
        let tag = match tag_hash & TAG_MASK {
            0 => LOWEST_TAG,
            tag => tag,
        };
        let home_bucket = bucket_of_hash(bucket_hash, self.bucket_count);
        (tag, home_bucket, sketch_hash(tag))
    }

    /// The part of [`BucketTable::key_buckets`] that needs no alternate bucket: the home bucket, and the mark of an
    /// entry there.
    #[inline]
    pub(super) fn home_entry(
        &self,
        scope_hash: u64,
        key: Fingerprint,
        slot: LimitSlot,
    ) -> (u32, EntryMark) {
        let (tag, home_bucket, _) = self.hash_key(scope_hash, key);
        (home_bucket, EntryMark(tag | u64::from(slot.0)))
    }

    /// The word that locks a bucket and counts its changes.
    #[inline]
    pub(super) fn lock_word(&self, bucket_index: u32) -> &AtomicU64 {
        &self.words(bucket_index)[LOCK_WORD]
    }

    /// Starts to load a bucket into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self, bucket_index: u32) {
        self.mapping.prefetch(bucket_index as usize);
    }

    /// The other of the two buckets of a tag; the same bucket where both are one.
    fn other_bucket(&self, tag: u64, bucket_index: u32) -> u32 {
        other_bucket(tag, bucket_index, self.bucket_count)
    }

    /// The buckets of the key with this mark and home bucket.
    pub(super) fn key_buckets_from_mark(&self, mark: EntryMark, home_bucket: u32) -> KeyBuckets {
        let tag = mark.0 & TAG_MASK;
        KeyBuckets {
            home_bucket,
            alternate_bucket: self.other_bucket(tag, home_bucket),
            key_bits: key_bits(mark.0),
            sketch_hash: sketch_hash(tag),
        }
    }

    #[inline]
    pub(super) fn words(&self, bucket_index: u32) -> &[AtomicU64; BUCKET_WORDS] {
        self.mapping.bucket(bucket_index as usize)
    }

    /// For each slot number, whether some entry has the slot. Locks one bucket at a time, so the caller may hold none.
    pub(super) fn used_slots(&self) -> Vec<bool> {
        let mut is_used = vec![false; usize::from(u16::MAX) + 1];
        for bucket_index in 0..self.bucket_count {
            let locked = self.lock_all(SmallVec::from_slice(&[bucket_index]));
            let positions = EntryPosition::all_of_bucket(bucket_index);
            let marks = positions.filter_map(|position| locked.mark(position));
            marks.for_each(|mark| is_used[usize::from(mark.slot())] = true);
        }
        is_used
    }

    /// Whether keys with this home bucket may be in their alternate bucket. Certain only while the bucket is locked.
    pub(super) fn has_displaced_keys(&self, bucket_index: u32) -> bool {
        self.words(bucket_index)[DISPLACED_COUNT_WORD].load(Ordering::Relaxed) != 0
    }

    /// Locks a bucket; `false` if it is locked already.
    fn try_lock(&self, bucket_index: u32) -> bool {
        bucket_lock::try_lock(self.lock_word(bucket_index))
    }

    /// The version of a bucket, which changes with every change of a count of a key whose home this is. `None` while the
    /// bucket is locked.
    #[inline]
    pub(super) fn version(&self, bucket_index: u32) -> Option<u64> {
        bucket_lock::version(self.lock_word(bucket_index))
    }

    /// Locks these buckets in ascending order, each once.
    pub(super) fn lock_all(&self, mut buckets: SmallVec<[u32; 8]>) -> LockedBuckets<'_> {
        if buckets.len() > 1 {
            buckets.sort_unstable();
            buckets.dedup();
        }
        for bucket_index in &buckets {
            lock(self.lock_word(*bucket_index));
        }
        LockedBuckets {
            table: self,
            buckets,
            pins: SmallVec::new(),
        }
    }

    /// Whether the bucket has no entries. Only reads: to take the lock would
    /// make the system provide memory for a page that was never written.
    pub(super) fn is_bucket_empty(&self, bucket_index: u32) -> bool {
        let marks = self.words(bucket_index)[FIRST_MARK_WORD..]
            .iter()
            .step_by(2);
        marks.fold(0, |all_bits, mark| all_bits | mark.load(Ordering::Relaxed)) == 0
    }

    /// Locks one bucket; `None` where it is locked already.
    pub(super) fn try_lock_one(&self, bucket_index: u32) -> Option<LockedBuckets<'_>> {
        let buckets = SmallVec::from_slice(&[bucket_index]);
        self.try_lock(bucket_index).then(|| LockedBuckets {
            table: self,
            buckets,
            pins: SmallVec::new(),
        })
    }
}

/// The locked buckets of one decision. Entries are changed only through this type, or through a
/// [`HomeEntry`](super::fast_path::home_bucket::HomeEntry).
#[derive(Debug)]
pub(super) struct LockedBuckets<'a> {
    table: &'a BucketTable,
    buckets: SmallVec<[u32; 8]>,
    /// Entries that the decision works with, and that must not be evicted or moved.
    pins: SmallVec<[EntryPosition; 8]>,
}

impl Drop for LockedBuckets<'_> {
    fn drop(&mut self) {
        for bucket_index in &self.buckets {
            let lock = self.table.lock_word(*bucket_index);
            // Counted even if nothing changed: too many changes cost `throttle::admission::prepared` a decision, too few
            // would be wrong.
            count_change(lock);
            unlock(lock);
        }
    }
}

/// How often [`LockedBuckets::try_add_bucket`] tries to lock a bucket. All attempts take longer than other decisions
/// usually hold a bucket, which is a few microseconds.
const MAX_LOCK_ATTEMPTS: u32 = 1_000;

impl LockedBuckets<'_> {
    pub(super) fn is_locked(&self, bucket_index: u32) -> bool {
        self.buckets.contains(&bucket_index)
    }

    /// Keeps an entry from being evicted or moved.
    pub(super) fn pin(&mut self, position: EntryPosition) {
        self.pins.push(position);
    }

    pub(super) fn is_pinned(&self, position: EntryPosition) -> bool {
        self.pins.contains(&position)
    }

    /// Locks one more bucket, out of order. Gives up after [`MAX_LOCK_ATTEMPTS`], because to wait could be a deadlock.
    /// Returns whether the bucket is locked now.
    pub(super) fn try_add_bucket(&mut self, bucket_index: u32) -> bool {
        for _ in 0..MAX_LOCK_ATTEMPTS {
            if self.is_locked(bucket_index) {
                return true;
            }
            if self.table.try_lock(bucket_index) {
                self.buckets.push(bucket_index);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    fn words(&self, bucket_index: u32) -> &[AtomicU64; BUCKET_WORDS] {
        debug_assert!(self.is_locked(bucket_index));
        self.table.words(bucket_index)
    }

    fn mark_atomic(&self, position: EntryPosition) -> &AtomicU64 {
        &self.words(position.bucket_index)[mark_word(position.entry_index)]
    }

    fn state_atomic(&self, position: EntryPosition) -> &AtomicU64 {
        &self.words(position.bucket_index)[state_word(position.entry_index)]
    }

    /// The mark of an entry; `None` where the entry is empty.
    pub(super) fn mark(&self, position: EntryPosition) -> Option<EntryMark> {
        let mark = self.mark_atomic(position).load(Ordering::Relaxed);
        (mark != 0).then_some(EntryMark(mark))
    }

    /// The state of an entry. That of an empty entry means nothing.
    pub(super) fn state(&self, position: EntryPosition) -> u64 {
        self.state_atomic(position).load(Ordering::Relaxed)
    }

    pub(super) fn set_state(&mut self, position: EntryPosition, state: u64) {
        self.state_atomic(position).store(state, Ordering::Relaxed);
    }

    /// The entry of the key with these buckets, under any slot that `is_own_slot` accepts; `None` if there is none. The
    /// home bucket must be locked. An alternate bucket that is not locked is not searched.
    pub(super) fn find_entry(
        &self,
        key_buckets: &KeyBuckets,
        is_own_slot: impl Fn(u16) -> bool,
    ) -> Option<EntryPosition> {
        let searches_alternate = key_buckets.alternate_bucket != key_buckets.home_bucket
            && self.is_locked(key_buckets.alternate_bucket);
        let buckets = [key_buckets.home_bucket, key_buckets.alternate_bucket];
        for bucket_index in &buckets[..1 + usize::from(searches_alternate)] {
            let words = self.words(*bucket_index);
            for entry_index in 0..BUCKET_ENTRIES as u32 {
                let mark = words[mark_word(entry_index)].load(Ordering::Relaxed);
                let is_displaced = mark & DISPLACED_BIT != 0;
                if key_bits(mark) == key_buckets.key_bits
                    && is_displaced == (*bucket_index != key_buckets.home_bucket)
                    && is_own_slot((mark & SLOT_MASK) as u16)
                {
                    return Some(EntryPosition {
                        bucket_index: *bucket_index,
                        entry_index,
                    });
                }
            }
        }
        None
    }

    /// The first empty entry of a bucket; `None` if the bucket is full.
    pub(super) fn empty_entry(&self, bucket_index: u32) -> Option<EntryPosition> {
        let words = self.words(bucket_index);
        for entry_index in 0..BUCKET_ENTRIES as u32 {
            if words[mark_word(entry_index)].load(Ordering::Relaxed) == 0 {
                return Some(EntryPosition {
                    bucket_index,
                    entry_index,
                });
            }
        }
        None
    }

    /// Gives an empty entry to a key, with a state of zero.
    pub(super) fn fill_entry(
        &mut self,
        position: EntryPosition,
        key_buckets: &KeyBuckets,
        slot: u16,
    ) {
        let is_displaced = position.bucket_index != key_buckets.home_bucket;
        let mark =
            key_buckets.key_bits | u64::from(slot) | if is_displaced { DISPLACED_BIT } else { 0 };
        self.set_state(position, 0);
        self.mark_atomic(position).store(mark, Ordering::Relaxed);
        if is_displaced {
            self.table.words(key_buckets.home_bucket)[DISPLACED_COUNT_WORD]
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves an entry of `bucket_index` that is not pinned to the other bucket of its key. Returns the position that is
    /// empty now; `None` if no entry can be moved. The buckets that it tries stay locked until all are unlocked.
    pub(super) fn move_entry_to_other_bucket(
        &mut self,
        bucket_index: u32,
    ) -> Option<EntryPosition> {
        EntryPosition::all_of_bucket(bucket_index).find_map(|from| {
            let old_mark = self.mark_atomic(from).load(Ordering::Relaxed);
            let other_bucket = self.table.other_bucket(old_mark & TAG_MASK, bucket_index);
            if old_mark == 0
                || other_bucket == bucket_index
                || self.is_pinned(from)
                || !self.try_add_bucket(other_bucket)
            {
                return None;
            }
            let to = self.empty_entry(other_bucket)?;
            let state = self.state(from);
            self.clear_entry(from);
            self.set_state(to, state);
            let new_mark = old_mark ^ DISPLACED_BIT;
            self.mark_atomic(to).store(new_mark, Ordering::Relaxed);
            if new_mark & DISPLACED_BIT != 0 {
                self.table.words(bucket_index)[DISPLACED_COUNT_WORD]
                    .fetch_add(1, Ordering::Relaxed);
            }
            self.table
                .copy_progress
                .record_move(bucket_index, other_bucket);
            Some(from)
        })
    }

    /// Gives an entry to another slot of the same scope.
    pub(super) fn set_slot(&mut self, position: EntryPosition, slot: u16) {
        let word = self.mark_atomic(position);
        word.store(
            word.load(Ordering::Relaxed) & !SLOT_MASK | u64::from(slot),
            Ordering::Relaxed,
        );
    }

    /// Empties an entry. The count in the key's home bucket is atomic and may be lowered without that bucket's lock: a
    /// reader that sees it too high only searches the alternate bucket in vain.
    pub(super) fn clear_entry(&mut self, position: EntryPosition) {
        let word = self.mark_atomic(position);
        let mark = word.load(Ordering::Relaxed);
        word.store(0, Ordering::Relaxed);
        if mark & DISPLACED_BIT != 0 {
            let home_bucket = self
                .table
                .other_bucket(mark & TAG_MASK, position.bucket_index);
            self.table.words(home_bucket)[DISPLACED_COUNT_WORD].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_buckets_lead_to_each_other_and_displaced_entries_are_counted() {
        let table = BucketTable::new(1_000 * BUCKET_BYTES).unwrap();
        for number in 0..2_000u128 {
            let is_network = number % 2 == 0;
            let key_buckets = table.key_buckets(42, Fingerprint(number), is_network);
            assert_eq!(
                table.other_bucket(
                    key_buckets.key_bits & TAG_MASK,
                    key_buckets.alternate_bucket
                ),
                key_buckets.home_bucket
            );
            if key_buckets.home_bucket == key_buckets.alternate_bucket {
                continue;
            }
            let mut locked = table.lock_all(SmallVec::from_slice(&[
                key_buckets.alternate_bucket,
                key_buckets.home_bucket,
            ]));
            let position = locked.empty_entry(key_buckets.alternate_bucket).unwrap();
            locked.fill_entry(position, &key_buckets, 9);
            assert!(table.has_displaced_keys(key_buckets.home_bucket));
            assert_eq!(
                locked.find_entry(&key_buckets, |slot| slot == 9),
                Some(position)
            );
            assert_eq!(locked.find_entry(&key_buckets, |slot| slot == 8), None);
            locked.clear_entry(position);
            assert!(!table.has_displaced_keys(key_buckets.home_bucket));
            assert_eq!(locked.find_entry(&key_buckets, |_| true), None);
        }
    }
}
