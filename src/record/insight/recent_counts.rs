//! Collects the counts of one worker, and passes them on in batches. Clients repeat their requests, and counting each
//! request where all workers count would take as long as deciding it.
//!
//! Bound: [`SLOT_COUNT`] keys for each worker.

use std::cell::RefCell;

use crate::base::random::GOLDEN_RATIO;

/// The number of slots, each for the counts of one key that wait. They are passed on when another key needs the slot.
pub const SLOT_COUNT: usize = 1 << SLOT_BITS;
/// Bits of a hash that choose the slot.
const SLOT_BITS: u32 = 10;

/// The receiver of the counts of one key.
pub trait CountSink {
    /// Adds the number of decisions about the key since the last call, and how many of them were refusals. It must not
    /// call the [`RecentCounts`] that calls it.
    fn record(&self, hash: u64, decisions: u32, refusals: u32);
}

/// The counts of a worker that wait to be passed on. Dropping this value passes them on too.
pub struct RecentCounts<S: CountSink>(RefCell<Vec<Option<PendingCount<S>>>>);

/// The counts of one key since they were passed on last.
struct PendingCount<S> {
    hash: u64,
    decisions: u32,
    refusals: u32,
    sink: S,
}

impl<S: CountSink> Default for RecentCounts<S> {
    fn default() -> RecentCounts<S> {
        let slots = std::iter::repeat_with(|| None);
        RecentCounts(RefCell::new(slots.take(SLOT_COUNT).collect()))
    }
}

impl<S: CountSink> RecentCounts<S> {
    /// Counts a decision about a key, by the key's hash, which must be spread evenly.
    ///
    /// If the slot has another key, or a sink for which `is_same_sink` does not hold, for instance after a reload, its
    /// counts are passed on. `new_sink` then makes the sink of the new count.
    #[inline]
    pub fn count(
        &self,
        hash: u64,
        is_refused: bool,
        is_same_sink: impl FnOnce(&S) -> bool,
        new_sink: impl FnOnce() -> S,
    ) {
        let slot = &mut self.0.borrow_mut()[slot_index(hash)];
        match slot {
            Some(pending) if pending.hash == hash && is_same_sink(&pending.sink) => {
                pending.decisions += 1;
                pending.refusals += u32::from(is_refused);
            }
            _ => {
                let first_count = PendingCount {
                    hash,
                    decisions: 1,
                    refusals: is_refused.into(),
                    sink: new_sink(),
                };
                if let Some(displaced) = slot.replace(first_count) {
                    displaced.flush();
                }
            }
        }
    }

    /// Passes all counts on, and empties the slots. It must be called before any count exceeds 32 bits.
    pub fn flush(&self) {
        let mut slots = self.0.borrow_mut();
        slots
            .iter_mut()
            .filter_map(Option::take)
            .for_each(|pending| pending.flush());
    }
}

impl<S: CountSink> Drop for RecentCounts<S> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Chooses a slot by bits that are mixed from all of the hash. The hashes of one key under two limits may share some
/// bits, and those of other keys then share them too. Such bits alone would give both limits the same slots.
fn slot_index(hash: u64) -> usize {
    (hash.wrapping_mul(GOLDEN_RATIO) >> (u64::BITS - SLOT_BITS)) as usize
}

impl<S: CountSink> PendingCount<S> {
    /// Passes the counts on.
    fn flush(&self) {
        self.sink.record(self.hash, self.decisions, self.refusals);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct RecordingSink(Rc<RefCell<BTreeMap<u64, (u32, u32)>>>);

    impl CountSink for RecordingSink {
        fn record(&self, hash: u64, decisions: u32, refusals: u32) {
            let mut counts = self.0.borrow_mut();
            let (decision_sum, refusal_sum) = counts.entry(hash).or_default();
            *decision_sum += decisions;
            *refusal_sum += refusals;
        }
    }

    #[test]
    fn every_count_is_passed_on_once() {
        let (sink, recent) = (RecordingSink::default(), RecentCounts::default());
        let recorded = || sink.0.borrow().clone();
        // A hash that needs the slot of 7.
        let colliding_hash = (9..).find(|hash| slot_index(*hash) == slot_index(7));
        let colliding_hash = colliding_hash.unwrap_or(0);
        for refused in [false, true, true] {
            recent.count(7, refused, |_| true, || sink.clone());
            recent.count(8, false, |_| true, || sink.clone());
        }
        assert!(recorded().is_empty());
        recent.count(colliding_hash, true, |_| true, || sink.clone());
        assert_eq!(recorded(), [(7, (3, 2))].into());
        recent.flush();
        recent.flush();
        assert_eq!(
            recorded(),
            [(7, (3, 2)), (8, (3, 0)), (colliding_hash, (1, 1))].into()
        );
        recent.count(7, false, |_| true, || sink.clone());
        let before = recorded();
        recent.count(7, false, |_| false, || sink.clone());
        assert_ne!(recorded(), before);
        drop(recent);
        assert_eq!(recorded()[&7], (5, 2));
    }

    #[test]
    fn two_limits_on_the_same_keys_rarely_share_slots() {
        let (sink, recent) = (RecordingSink::default(), RecentCounts::default());
        for key in 1..=32_u64 {
            let hash = key.wrapping_mul(0xd129_0d35_4f3a_9d6b);
            for mark in [0x1f00, 0x2f00 << 40] {
                recent.count(hash ^ mark, false, |_| true, || sink.clone());
            }
        }
        assert!(sink.0.borrow().len() < 8);
    }
}
