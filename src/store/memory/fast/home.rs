//! Entries in the bucket that their key prefers, under the slot of the item, where most are. For decisions that make, move
//! and evict no cell; all others go through [`LockedBuckets`](super::super::table::LockedBuckets).

use std::num::NonZeroU8;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::table::{BucketTable, EntryMark, WORDS, count_change, lock, tagged, unlock};
use super::places::CellPlaces;

/// The bucket that a key prefers, and the mark of the key's entry.
pub(in super::super) struct HomeBucket<'a> {
    words: &'a [AtomicU64; WORDS],
    mark: u64,
}

/// The locked buckets of a request.
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
            .for_each(|bucket| lock(table.lock_of(bucket)));
        HomeLocks { table, places }
    }
}

impl Drop for HomeLocks<'_> {
    #[inline]
    fn drop(&mut self) {
        let each = self.places.buckets();
        each.for_each(|bucket| unlock(self.table.lock_of(bucket)));
    }
}

impl<'a> HomeBucket<'a> {
    /// The bucket `first`, for entries of `mark`.
    #[inline]
    pub(in super::super) fn new(
        table: &'a BucketTable,
        first: u32,
        mark: EntryMark,
    ) -> HomeBucket<'a> {
        HomeBucket {
            words: table.words(first),
            mark: mark.0,
        }
    }

    /// The position of the entry in the bucket.
    #[inline]
    pub(in super::super) fn find(&self, _locked: &HomeLocks<'_>) -> Option<NonZeroU8> {
        let mark = self.mark;
        // Without branches, because the entry is unpredictable; but the second half is another cache line.
        let within = |places: Range<usize>| {
            places.step_by(2).fold(0, |found, place| {
                let same = self.words[place].load(Ordering::Relaxed) == mark;
                found | if same { place + 1 } else { 0 }
            })
        };
        let mut found = within(2..WORDS / 2);
        if found == 0 {
            found = within(WORDS / 2..WORDS);
        }
        NonZeroU8::new(found as u8)
    }

    /// The entry there, for as long as the bucket is locked.
    #[inline]
    pub(in super::super) fn entry<'l>(
        &self,
        at: NonZeroU8,
        _locked: &'l HomeLocks<'a>,
    ) -> HomeEntry<'l> {
        let at = usize::from(at.get());
        // At 0 it would be the lock. The modulo costs less than a bounds check.
        debug_assert!(at < WORDS);
        HomeEntry {
            lock: &self.words[0],
            state: &self.words[at % WORDS],
        }
    }

    /// Whether the key has no entry at all, neither in its other bucket nor under another slot.
    #[inline]
    pub(in super::super) fn vacant(&self, _locked: &HomeLocks<'_>) -> bool {
        let strays = self.words[1].load(Ordering::Relaxed);
        let mut marks = self.words[2..].iter().step_by(2);
        let key = tagged(self.mark);
        strays == 0 && !marks.any(|mark| tagged(mark.load(Ordering::Relaxed)) == key)
    }
}

/// One entry, while its bucket is locked.
pub(in super::super) struct HomeEntry<'l> {
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

    /// Must be called where the state has changed, whether its words are here or in the arena.
    #[inline]
    pub(in super::super) fn count_change(&mut self) {
        count_change(self.lock);
    }
}
