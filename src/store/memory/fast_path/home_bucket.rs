//! Access to a key's entry in its home bucket, under the slot that is decided about. Most entries are there. Decisions that
//! make, move, convert or evict cells use [`LockedBuckets`](super::super::bucket_table::LockedBuckets) instead.

use std::num::NonZeroU8;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::bucket_layout::{BUCKET_WORDS, DISPLACED_COUNT_WORD, FIRST_MARK_WORD, LOCK_WORD};
use super::super::bucket_lock::{count_change, lock, unlock};
use super::super::bucket_table::BucketTable;
use super::super::entry_mark::{EntryMark, key_bits};
use super::cell_places::CellPlaces;

/// A key's home bucket, and the mark of its entry there.
pub(in super::super) struct HomeBucket<'a> {
    words: &'a [AtomicU64; BUCKET_WORDS],
    mark: u64,
}

/// The locked buckets of a request. Unlocking them counts no change: see [`HomeEntry::count_change`].
pub(in super::super) struct HomeLocks<'a> {
    table: &'a BucketTable,
    places: &'a CellPlaces,
}

impl<'a> HomeLocks<'a> {
    /// Locks the buckets of all places, in ascending order.
    #[inline]
    pub(in super::super) fn new(table: &'a BucketTable, places: &'a CellPlaces) -> HomeLocks<'a> {
        places
            .buckets()
            .for_each(|bucket_index| lock(table.lock_word(bucket_index)));
        HomeLocks { table, places }
    }
}

impl Drop for HomeLocks<'_> {
    #[inline]
    fn drop(&mut self) {
        let buckets = self.places.buckets();
        buckets.for_each(|bucket_index| unlock(self.table.lock_word(bucket_index)));
    }
}

impl<'a> HomeBucket<'a> {
    /// The bucket with this index, for the entry with this mark.
    #[inline]
    pub(in super::super) fn new(
        table: &'a BucketTable,
        bucket_index: u32,
        mark: EntryMark,
    ) -> HomeBucket<'a> {
        HomeBucket {
            words: table.words(bucket_index),
            mark: mark.0,
        }
    }

    /// The position of the entry's state among the bucket's words; `None` where the bucket has no such entry.
    #[inline]
    pub(in super::super) fn find_entry(&self, _locked: &HomeLocks<'_>) -> Option<NonZeroU8> {
        let mark = self.mark;
        // There are no branches within a half, because the processor cannot predict the entry's position. The second half
        // is another cache line, so it is read only when it is needed.
        let find_state = |words: Range<usize>| {
            words.step_by(2).fold(0, |position, mark_word| {
                let is_same = self.words[mark_word].load(Ordering::Relaxed) == mark;
                position | if is_same { mark_word + 1 } else { 0 }
            })
        };
        let mut position = find_state(FIRST_MARK_WORD..BUCKET_WORDS / 2);
        if position == 0 {
            position = find_state(BUCKET_WORDS / 2..BUCKET_WORDS);
        }
        NonZeroU8::new(position as u8)
    }

    /// The entry with the state at this position, for as long as the bucket is locked.
    #[inline]
    pub(in super::super) fn entry<'l>(
        &self,
        position: NonZeroU8,
        _locked: &'l HomeLocks<'a>,
    ) -> HomeEntry<'l> {
        let position = usize::from(position.get());
        // The position is never that of the lock, which is zero. The modulo costs less than a bounds check.
        debug_assert!(position < BUCKET_WORDS);
        HomeEntry {
            lock: &self.words[LOCK_WORD],
            state: &self.words[position % BUCKET_WORDS],
        }
    }

    /// Whether the key has certainly no entry, neither in its alternate bucket nor under another slot. `false` may be
    /// wrong: another key of this home bucket may be displaced, or an entry may have the same tag.
    #[inline]
    pub(in super::super) fn lacks_key(&self, _locked: &HomeLocks<'_>) -> bool {
        let displaced_count = self.words[DISPLACED_COUNT_WORD].load(Ordering::Relaxed);
        let mut marks = self.words[FIRST_MARK_WORD..].iter().step_by(2);
        let own_bits = key_bits(self.mark);
        displaced_count == 0
            && !marks.any(|mark| key_bits(mark.load(Ordering::Relaxed)) == own_bits)
    }
}

/// One entry, while its bucket is locked.
pub(in super::super) struct HomeEntry<'l> {
    /// The word that locks the bucket and counts its changes.
    lock: &'l AtomicU64,
    state: &'l AtomicU64,
}

impl HomeEntry<'_> {
    #[inline]
    pub(in super::super) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    #[inline]
    pub(in super::super) fn set_state(&mut self, state: u64) {
        self.state.store(state, Ordering::Relaxed);
    }

    /// Counts a change of the bucket. It must be called when the state has changed, whether its words are in the entry or
    /// in the arena.
    #[inline]
    pub(in super::super) fn count_change(&mut self) {
        count_change(self.lock);
    }
}
