//! [`CopyProgress`]: how far a snapshot's copy of the table is. The copy would miss an entry that moves to a copied bucket
//! from one that is not yet copied. So such target buckets are remembered, and copied again. Their list is bounded.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::base::locks::Mutex;

/// Most buckets that wait to be copied again, in 256 KiB. With more the copy fails, and the next one tries again.
const MAX_RECOPIED_BUCKETS: usize = 65_536;

/// The progress of a copy. At most one copy is under way at a time.
#[derive(Debug, Default)]
pub(super) struct CopyProgress {
    /// Buckets below this index are copied. A bucket is copied and marked so under its lock. So the holder of the lock
    /// knows whether the bucket is copied.
    copied_count: AtomicU32,
    recopy_list: Mutex<RecopyList>,
}

/// Buckets that must be copied again.
#[derive(Debug, Default)]
struct RecopyList {
    buckets: Vec<u32>,
    /// Whether there were too many buckets to remember.
    has_overflowed: bool,
}

impl CopyProgress {
    /// Records that an entry has moved between these buckets, which the caller has locked. Does nothing unless the first is
    /// not yet copied and the second is.
    pub(super) fn record_move(&self, from_bucket: u32, to_bucket: u32) {
        let copied_count = self.copied_count.load(Relaxed);
        if to_bucket >= copied_count || from_bucket < copied_count {
            return;
        }
        let mut recopy_list = self.recopy_list.lock();
        if recopy_list.buckets.len() < MAX_RECOPIED_BUCKETS {
            recopy_list.buckets.push(to_bucket);
        } else {
            recopy_list.has_overflowed = true;
        }
    }

    /// Begins a copy, or ends it: from now on no bucket counts as copied.
    pub(super) fn reset(&self) {
        self.copied_count.store(0, Relaxed);
        *self.recopy_list.lock() = RecopyList::default();
    }

    /// Records that this bucket, which the caller has locked, is copied. All buckets before it must be copied already.
    pub(super) fn mark_copied(&self, bucket_index: u32) {
        self.copied_count.store(bucket_index + 1, Relaxed);
    }

    /// Takes the buckets to copy again, and empties the list; `None` when there were too many to remember.
    pub(super) fn take_recopied(&self) -> Option<Vec<u32>> {
        let recopy_list = std::mem::take(&mut *self.recopy_list.lock());
        (!recopy_list.has_overflowed).then_some(recopy_list.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_behind_the_copy_is_copied_again() {
        let progress = CopyProgress::default();
        progress.record_move(7, 3);
        assert_eq!(progress.take_recopied(), Some(vec![]), "nothing is copied");
        progress.reset();
        for bucket_index in 0..5 {
            progress.mark_copied(bucket_index);
        }
        for (from, to) in [(7, 3), (3, 7), (2, 4), (9, 8)] {
            progress.record_move(from, to);
        }
        assert_eq!(
            progress.take_recopied(),
            Some(vec![3]),
            "of all moves one got behind"
        );
        for _ in 0..=MAX_RECOPIED_BUCKETS {
            progress.record_move(9, 0);
        }
        assert_eq!(progress.take_recopied(), None);
        assert_eq!(progress.take_recopied(), Some(vec![]));
    }
}
