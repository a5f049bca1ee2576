//! Entries where most are, in the bucket that their key prefers and under the slot that is asked for. For
//! decisions that make, move and evict nothing; all others go through [`Held`](super::table::Held).

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::table::{WORDS, count_change, key_of, lock, tagged, unlock};
use crate::limit::Fingerprint;

/// An entry's mark and the bucket its key prefers.
pub(super) struct Home<'a> {
    pub(super) words: &'a [AtomicU64; WORDS],
    pub(super) mark: u64,
}

/// A locked bucket.
pub(super) struct Lock<'a>(&'a AtomicU64);

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        unlock(self.0);
    }
}

/// Locks the buckets of all `homes`, in ascending order; nothing where one was locked already.
#[inline]
pub(super) fn lock_all<'a, const N: usize>(homes: &[Home<'a>; N]) -> [Option<Lock<'a>>; N] {
    // They lie in one piece of memory, by their numbers.
    let mut order = homes.each_ref().map(|home| &home.words[0]);
    order.sort_unstable_by_key(|lock| ptr::from_ref(*lock));
    std::array::from_fn(|place| {
        let locked = place > 0 && ptr::eq(order[place - 1], order[place]);
        (!locked).then(|| Lock::new(order[place]))
    })
}

impl<'a> Lock<'a> {
    #[inline]
    fn new(word: &'a AtomicU64) -> Lock<'a> {
        lock(word);
        Lock(word)
    }
}

impl<'a> Home<'a> {
    /// The entry, for as long as the bucket is locked.
    #[inline]
    pub(super) fn entry<'l>(&self, _locked: &'l [Option<Lock<'a>>]) -> Entry<'l> {
        let mark = self.mark;
        // Without branches, for nobody can predict which entry it is; but the second half is another cache line.
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
        Entry {
            lock: &self.words[0],
            state: &self.words[found],
            mark: if found == 0 { 0 } else { mark },
        }
    }

    /// Whether the key has no entry at all, neither elsewhere nor under another slot, while the bucket is locked.
    #[inline]
    pub(super) fn vacant(&self, _locked: &[Option<Lock<'a>>]) -> bool {
        let strays = self.words[1].load(Ordering::Relaxed);
        let mut marks = self.words[2..].iter().step_by(2);
        let key = tagged(self.mark);
        strays == 0 && !marks.any(|mark| tagged(mark.load(Ordering::Relaxed)) == key)
    }

    /// Whether the keys are the same, or may not be told apart.
    #[inline]
    pub(super) fn same(&self, other: &Home<'a>) -> bool {
        tagged(self.mark) == tagged(other.mark) && ptr::eq(self.words, other.words)
    }
}

/// One entry, while its bucket is locked.
pub(super) struct Entry<'l> {
    lock: &'l AtomicU64,
    state: &'l AtomicU64,
    mark: u64,
}

impl Entry<'_> {
    /// See [`Mark::key`](super::table::Mark::key).
    #[inline]
    pub(super) fn key(&self) -> Fingerprint {
        key_of(self.mark)
    }

    #[inline]
    pub(super) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_state(&mut self, state: u64) {
        // Else it would be the bucket's lock.
        debug_assert!(self.there());
        self.state.store(state, Ordering::Relaxed);
        count_change(self.lock);
    }

    /// Whether it was found; if not, it must not be written.
    #[inline]
    pub(super) fn there(&self) -> bool {
        self.mark != 0
    }
}
