//! The progress of a copy of the table. An entry that moves from a bucket not yet copied to one that is copied would be
//! missed; so such target buckets are remembered, and copied again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// Most buckets that wait to be copied again. With more the copy fails.
const MOST: usize = 65_536;

/// See the module. One copy at a time.
#[derive(Debug, Default)]
pub(in super::super) struct Copying {
    /// Buckets below this number are copied. A bucket is copied and passed under its lock, so the holder of the lock knows
    /// on which side it is.
    passed: AtomicU32,
    again: Mutex<RecopyList>,
}

#[derive(Debug, Default)]
struct RecopyList {
    buckets: Vec<u32>,
    spoilt: bool,
}

impl Copying {
    /// An entry has moved; both buckets are locked.
    pub(in super::super) fn moved(&self, from: u32, to: u32) {
        let passed = self.passed.load(Relaxed);
        if to >= passed || from < passed {
            return;
        }
        let mut again = self.again.lock();
        if again.buckets.len() < MOST {
            again.buckets.push(to);
        } else {
            again.spoilt = true;
        }
    }

    /// A new copy begins.
    pub(super) fn begin(&self) {
        self.passed.store(0, Relaxed);
        *self.again.lock() = RecopyList::default();
    }

    /// This bucket, which is locked, is copied.
    pub(super) fn pass(&self, bucket: u32) {
        self.passed.store(bucket + 1, Relaxed);
    }

    /// Buckets to copy again; nothing when there were too many to remember.
    pub(super) fn again(&self) -> Option<Vec<u32>> {
        let again = std::mem::take(&mut *self.again.lock());
        (!again.spoilt).then_some(again.buckets)
    }

    /// The copy has ended.
    pub(super) fn end(&self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_behind_the_copy_is_copied_again() {
        let copying = Copying::default();
        copying.moved(7, 3);
        assert_eq!(copying.again(), Some(vec![]), "nothing is copied");
        copying.begin();
        for bucket in 0..5 {
            copying.pass(bucket);
        }
        for (from, to) in [(7, 3), (3, 7), (2, 4), (9, 8)] {
            copying.moved(from, to);
        }
        assert_eq!(
            copying.again(),
            Some(vec![3]),
            "of all moves one got behind"
        );
        for _ in 0..=MOST {
            copying.moved(9, 0);
        }
        assert_eq!(copying.again(), None);
        assert_eq!(copying.again(), Some(vec![]));
    }
}
