//! [`Sketch`]: the overflow sketch, which counts units for which cells have no room. Window lengths are rounded up to one
//! of eight rungs. Each rung has two epochs of a count-min sketch with conservative update, and both epochs count in
//! full. The sketch only over-estimates, so no decision by it admits too much. (Estan, Varghese: New directions in
//! traffic measurement and accounting, 2002; Cormode, Muthukrishnan, 2005.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::clock::Nanos;
use crate::base::locks::Mutex;

/// Rows of an epoch. With four, an estimate is too high only where other keys share all four counters of a key.
const ROWS: usize = 4;
/// Most counters of a row, so that clearing an epoch takes about a millisecond.
const MAX_ROW_WIDTH: usize = 1 << 20;
/// Fewest counters of a row, however small the budget is.
const MIN_ROW_WIDTH: usize = 16;
/// The epochs of a rung that count: the current and the previous one.
const EPOCHS: usize = 2;
/// The index of the current epoch. Indices are the number of epochs that have begun since.
const CURRENT: usize = 0;
/// The index of the epoch before the current one.
const PREVIOUS: usize = 1;
/// The value of a counter that may stand for any larger number.
const SATURATED: u16 = u16::MAX;

/// Window lengths, in seconds, to which all others are rounded up.
const RUNG_SECONDS: [u64; 8] = [1, 10, 60, 900, 3_600, 86_400, 7 * 86_400, 53 * 7 * 86_400];

/// The index of the shortest rung that covers a window; of the longest rung for windows that none covers.
fn rung_index(window: Nanos) -> usize {
    RUNG_SECONDS
        .iter()
        .position(|seconds| Nanos::from_secs(*seconds) >= window)
        .unwrap_or(RUNG_SECONDS.len() - 1)
}

/// Whether two windows share a rung, so that one charge serves both.
pub(super) fn share_rung(window: Nanos, other_window: Nanos) -> bool {
    rung_index(window) == rung_index(other_window)
}

/// The estimated units of a key in one window, and the epoch in which they were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Units of this epoch and of the epoch before; never too few, and `u32::MAX` if a counter is [`SATURATED`].
    pub(super) units: u32,
    /// Units of this epoch alone, likewise.
    pub(super) current_units: u32,
    /// How long until this epoch ends.
    pub(super) epoch_remaining: Nanos,
    /// The length of an epoch.
    pub(super) epoch_length: Nanos,
}

/// One row of one epoch of one rung, as snapshots hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SketchRow<'a> {
    /// The index of the rung in [`RUNG_SECONDS`].
    pub(super) rung_index: u8,
    /// The number of the epoch, counted from time zero.
    pub(super) epoch: u64,
    /// The index of the row, below [`ROWS`].
    pub(super) row_index: u8,
    /// The counters of the row.
    pub(super) counts: &'a [u16],
}

/// The counters of one rung.
#[derive(Debug)]
struct Rung {
    /// The length of an epoch, in nanoseconds: that of the rung's window.
    epoch_nanos: u64,
    /// The number of the current epoch, counted from time zero.
    epoch: u64,
    /// The rows of the current epoch, then those of the previous one.
    rows: [[Vec<u16>; ROWS]; EPOCHS],
    /// Whether each of these epochs has units.
    has_units: [bool; EPOCHS],
}

/// All rungs. Each rung has its own lock, held for one key's counters at a time. The atomics need no
/// ordering: a key is charged and decided about under the lock of its home bucket.
#[derive(Debug)]
pub(super) struct Sketch {
    /// The rungs that are in use.
    rungs: [Mutex<Option<Rung>>; RUNG_SECONDS.len()],
    /// Most bytes of all counters.
    budget_bytes: usize,
    /// The time at which the last unit of each rung no longer counts, in nanoseconds.
    rung_ends: [AtomicU64; RUNG_SECONDS.len()],
    /// The latest of `rung_ends`.
    latest_end: AtomicU64,
    /// How often the sketch has counted the cost of an admitted item, because its cell had no room.
    decision_count: AtomicU64,
}

impl Sketch {
    /// A sketch whose counters take at most `budget_bytes`, if these suffice for [`MIN_ROW_WIDTH`]. It has no rungs yet.
    pub(super) fn new(budget_bytes: usize) -> Sketch {
        Sketch {
            rungs: [const { Mutex::new(None) }; RUNG_SECONDS.len()],
            budget_bytes,
            rung_ends: [const { AtomicU64::new(0) }; RUNG_SECONDS.len()],
            latest_end: AtomicU64::new(0),
            decision_count: AtomicU64::new(0),
        }
    }

    /// Adds the rung of `window`, if it is missing. When the number of rungs exceeds a power of two, each gets half as many
    /// bytes, and rungs that are too wide are narrowed.
    pub(super) fn add_rung(&self, window: Nanos) {
        let mut rungs = self.rungs.each_ref().map(|rung| rung.lock());
        let index = rung_index(window);
        if rungs[index].is_some() {
            return;
        }
        let rung_count = rungs.iter().filter(|rung| rung.is_some()).count() + 1;
        let rung_bytes = self.budget_bytes / rung_count.next_power_of_two();
        let row_width = rung_bytes / (EPOCHS * ROWS * size_of::<u16>());
        let width = 1 << row_width.max(MIN_ROW_WIDTH).ilog2();
        let width = if width > MAX_ROW_WIDTH {
            MAX_ROW_WIDTH
        } else {
            width
        };
        for rung in rungs.iter_mut().filter_map(|rung| rung.as_mut()) {
            rung.narrow(width);
        }
        let empty_epoch = || std::array::from_fn(|_| vec![0; width]);
        *rungs[index] = Some(Rung {
            epoch_nanos: Nanos::from_secs(RUNG_SECONDS[index]).0,
            epoch: 0,
            rows: [empty_epoch(), empty_epoch()],
            has_units: [false; EPOCHS],
        });
    }

    /// Whether any key may have units in one of these windows. Most requests do nothing else with the sketch, because it is
    /// empty while table and arena have room.
    #[inline]
    pub(super) fn is_active(&self, now: Nanos, mut windows: impl Iterator<Item = Nanos>) -> bool {
        let is_in_future = |end: &AtomicU64| now.0 < end.load(Relaxed);
        is_in_future(&self.latest_end)
            && windows.any(|window| is_in_future(&self.rung_ends[rung_index(window)]))
    }

    /// How often [`Sketch::count_decision`] was called since the start.
    pub(super) fn decision_count(&self) -> u64 {
        self.decision_count.load(Relaxed)
    }

    /// Counts an admitted item whose cost is counted here, because its cell had no room.
    pub(super) fn count_decision(&self) {
        self.decision_count.fetch_add(1, Relaxed);
    }

    /// Bytes of all counters.
    pub(super) fn used_bytes(&self) -> usize {
        let rungs = self.rungs.iter();
        let widths = rungs.map(|rung| rung.lock().as_ref().map_or(0, Rung::width));
        widths.sum::<usize>() * EPOCHS * ROWS * size_of::<u16>()
    }

    /// Calls `use_rung` with the rung of `window`, whose current epoch is that of `now`; `None` where there is no such
    /// rung.
    fn with_rung<R>(
        &self,
        now: Nanos,
        window: Nanos,
        use_rung: impl FnOnce(&mut Rung) -> R,
    ) -> Option<R> {
        let mut rung = self.rungs[rung_index(window)].lock();
        let rung = rung.as_mut()?;
        rung.advance(now);
        Some(use_rung(rung))
    }

    /// The estimated units of a key in `window`, never too few. A window without a rung has unlimited units.
    pub(super) fn estimate(&self, now: Nanos, sketch_hash: u64, window: Nanos) -> Estimate {
        let estimate = self.with_rung(now, window, |rung| {
            let indices = counter_indices(sketch_hash, rung.width());
            let epoch_units = |epochs_ago| match rung.smallest_count(epochs_ago, indices) {
                SATURATED => u32::MAX,
                count => u32::from(count),
            };
            let current_units: u32 = epoch_units(CURRENT);
            let epoch_end = (rung.epoch + 1).saturating_mul(rung.epoch_nanos);
            Estimate {
                units: current_units.saturating_add(epoch_units(PREVIOUS)),
                current_units,
                epoch_remaining: Nanos(epoch_end).since(now),
                epoch_length: Nanos(rung.epoch_nanos),
            }
        });
        estimate.unwrap_or(Estimate {
            units: u32::MAX,
            current_units: u32::MAX,
            epoch_remaining: window,
            epoch_length: window,
        })
    }

    /// Counts `cost` units of a key in `window`. From 65,535 units on, a counter stands for any larger number. Counts
    /// nothing if the window has no rung, because its estimate is unlimited anyway.
    pub(super) fn charge(&self, now: Nanos, sketch_hash: u64, window: Nanos, cost: u32) {
        if cost == 0 {
            return;
        }
        let cost = u16::try_from(cost).unwrap_or(SATURATED);
        let end = self.with_rung(now, window, |rung| {
            let indices = counter_indices(sketch_hash, rung.width());
            let count = rung.smallest_count(CURRENT, indices).saturating_add(cost);
            for (row, index) in rung.rows[CURRENT].iter_mut().zip(indices) {
                row[index] = row[index].max(count);
            }
            rung.has_units[CURRENT] = true;
            (rung.epoch + EPOCHS as u64).saturating_mul(rung.epoch_nanos)
        });
        self.extend_end(rung_index(window), end.unwrap_or(0));
    }

    /// Records that units of a rung count until `end`.
    fn extend_end(&self, rung_index: usize, end: u64) {
        self.rung_ends[rung_index].fetch_max(end, Relaxed);
        self.latest_end.fetch_max(end, Relaxed);
    }

    /// Calls `write` with every row of each rung and epoch that has units, until it fails. A rung is locked while one of
    /// its rows is copied, and not during `write`.
    pub(super) fn copy_rows<E>(
        &self,
        mut write: impl FnMut(SketchRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut copied_row = Vec::new();
        let rungs = self.rungs.iter().enumerate();
        let epochs =
            rungs.flat_map(|(index, rung)| [(index, rung, CURRENT), (index, rung, PREVIOUS)]);
        for (rung_index, rung, epochs_ago) in epochs {
            for row_index in 0..ROWS {
                let epoch = {
                    let rung = rung.lock();
                    let Some(rung) = rung.as_ref().filter(|rung| rung.has_units[epochs_ago]) else {
                        break;
                    };
                    copied_row.clear();
                    copied_row.extend_from_slice(&rung.rows[epochs_ago][row_index]);
                    rung.epoch.saturating_sub(epochs_ago as u64)
                };
                write(SketchRow {
                    rung_index: rung_index as u8,
                    epoch,
                    row_index: row_index as u8,
                    counts: &copied_row,
                })?;
            }
        }
        Ok(())
    }

    /// Whether a row with these indices and this width can exist.
    pub(super) fn is_valid_row(rung_index: u8, row_index: u8, width: usize) -> bool {
        let (rung_index, row_index) = (usize::from(rung_index), usize::from(row_index));
        let has_valid_width = width.is_power_of_two() && width <= MAX_ROW_WIDTH;
        rung_index < RUNG_SECONDS.len() && row_index < ROWS && has_valid_width
    }

    /// Adds a row from [`Sketch::copy_rows`] that [`Sketch::is_valid_row`] accepts, unless its epoch no longer counts, or
    /// the rung is not in use. A row of a later epoch counts as one of the current epoch.
    pub(super) fn restore_row(&self, now: Nanos, row: SketchRow<'_>) {
        let SketchRow { epoch, counts, .. } = row;
        let rung_index = usize::from(row.rung_index);
        let end = {
            let mut rung = self.rungs[rung_index].lock();
            let Some(rung) = rung.as_mut() else { return };
            rung.advance(now);
            if epoch.saturating_add(1) < rung.epoch {
                return;
            }
            let epochs_ago = usize::from(epoch < rung.epoch);
            merge_row(
                &mut rung.rows[epochs_ago][usize::from(row.row_index)],
                counts,
            );
            rung.has_units[epochs_ago] = true;
            (rung.epoch + (EPOCHS - epochs_ago) as u64).saturating_mul(rung.epoch_nanos)
        };
        self.extend_end(rung_index, end);
    }

    /// Counts `cost` units of a key in every rung that is in use.
    pub(super) fn charge_all(&self, now: Nanos, sketch_hash: u64, cost: u32) {
        for seconds in RUNG_SECONDS {
            self.charge(now, sketch_hash, Nanos::from_secs(seconds), cost);
        }
    }

    /// Whether the current epoch of `window` began less than `age` ago; `true` if the window has no rung.
    pub(super) fn has_young_epoch(&self, now: Nanos, window: Nanos, age: Nanos) -> bool {
        let is_young = |rung: &mut Rung| now.0 < rung.epoch * rung.epoch_nanos + age.0;
        self.with_rung(now, window, is_young).unwrap_or(true)
    }
}

impl Rung {
    /// The number of counters of a row, a power of two.
    fn width(&self) -> usize {
        self.rows[CURRENT][0].len()
    }

    /// Begins the epoch of `now`, if it has not begun.
    fn advance(&mut self, now: Nanos) {
        let epoch = now.0 / self.epoch_nanos;
        // Threads read the clock before they lock, so `now` may be earlier than that of the former caller.
        if epoch <= self.epoch {
            return;
        }
        self.rows.swap(CURRENT, PREVIOUS);
        self.has_units.swap(CURRENT, PREVIOUS);
        self.clear_epoch(CURRENT);
        if epoch > self.epoch + 1 {
            self.clear_epoch(PREVIOUS);
        }
        self.epoch = epoch;
    }

    fn clear_epoch(&mut self, epochs_ago: usize) {
        if self.has_units[epochs_ago] {
            for row in &mut self.rows[epochs_ago] {
                row.fill(0);
            }
            self.has_units[epochs_ago] = false;
        }
    }

    /// Narrows the rows to this width. A counter becomes the larger of the two that now share it, so that no key's
    /// estimate shrinks.
    fn narrow(&mut self, width: usize) {
        for row in self.rows.iter_mut().flatten() {
            while row.len() > width {
                let half = row.len() / 2;
                let (kept_half, dropped_half) = row.split_at_mut(half);
                for (count, dropped_count) in kept_half.iter_mut().zip(dropped_half) {
                    *count = (*count).max(*dropped_count);
                }
                row.truncate(half);
            }
            row.shrink_to_fit();
        }
    }

    /// The smallest of a key's counters in the epoch that began `epochs_ago` epochs ago: [`CURRENT`] or [`PREVIOUS`].
    fn smallest_count(&self, epochs_ago: usize, indices: [usize; ROWS]) -> u16 {
        if !self.has_units[epochs_ago] {
            return 0;
        }
        let rows = self.rows[epochs_ago].iter().zip(indices);
        let counts = rows.map(|(row, index)| row[index]);
        counts.min().unwrap_or(SATURATED)
    }
}

/// Raises the counters of `row` to `counts`. If the widths differ, several counters of the wider row stand for one of the
/// narrower.
fn merge_row(row: &mut [u16], counts: &[u16]) {
    // Widths are powers of two.
    let index_mask = row.len().min(counts.len()) - 1;
    if row.len() > counts.len() {
        for (index, count) in row.iter_mut().enumerate() {
            *count = (*count).max(counts[index & index_mask]);
        }
    } else {
        for (index, count) in counts.iter().enumerate() {
            row[index & index_mask] = row[index & index_mask].max(*count);
        }
    }
}

/// A constant of wyhash that mixes a hash again: its own bits serve only two of the rows.
const ROW_FACTOR: u64 = 0xe703_7ed1_a0b4_28db;

/// The index of a key's counter in each row. The rows use different halves of two hashes, so that keys that share a counter
/// in one row hardly ever share one in another.
fn counter_indices(sketch_hash: u64, width: usize) -> [usize; ROWS] {
    let product = (sketch_hash ^ sketch_hash >> 31).wrapping_mul(ROW_FACTOR);
    let second_hash = product ^ product >> 29;
    let index_mask = width - 1;
    [
        sketch_hash,
        sketch_hash >> 32,
        second_hash,
        second_hash >> 32,
    ]
    .map(|bits| bits as u32 as usize & index_mask)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Charge(u64, u32),
        Wait(u64),
        Narrow,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..60u64, 1..40u32).prop_map(|(key, cost)| Step::Charge(key, cost)),
            2 => (1..40u64).prop_map(Step::Wait),
            1 => Just(Step::Narrow),
        ]
    }

    proptest! {
        #[test]
        fn never_under_estimates(steps in prop::collection::vec(step(), 1..200)) {
            let window = Nanos::from_secs(60);
            let sketch = Sketch::new(4 * 1_024);
            sketch.add_rung(window);
            let mut other_rungs = RUNG_SECONDS.iter().filter(|seconds| **seconds != 60);
            let mut now = Nanos::from_secs(100_000);
            let mut charges: HashMap<u64, Vec<(Nanos, u32)>> = HashMap::new();
            for step in steps {
                match step {
                    Step::Charge(key, cost) => {
                        sketch.charge(now, key.wrapping_mul(0x9e37_79b9_7f4a_7c15), window, cost);
                        charges.entry(key).or_default().push((now, cost));
                    }
                    Step::Wait(seconds) => now = now.after(Nanos::from_secs(seconds)),
                    Step::Narrow => {
                        if let Some(seconds) = other_rungs.next() {
                            sketch.add_rung(Nanos::from_secs(*seconds));
                        }
                    }
                }
                prop_assert!(sketch.used_bytes() <= 4 * 1_024);
                for (key, key_charges) in &charges {
                    let in_window = key_charges.iter().filter(|(time, _)| now.since(*time) < window);
                    let true_units: u32 = in_window.map(|(_, cost)| cost).sum();
                    let sketch_hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    prop_assert!(sketch.estimate(now, sketch_hash, window).units >= true_units);
                    prop_assert!(true_units == 0 || sketch.is_active(now, [window].into_iter()));
                }
            }
        }
    }

    #[test]
    fn a_full_counter_is_infinite() {
        let window = Nanos::from_secs(1);
        let sketch = Sketch::new(1 << 16);
        sketch.add_rung(window);
        let now = Nanos::from_secs(5);
        sketch.charge(now, 7, window, 65_000);
        sketch.charge(now, 7, window, 1_000);
        assert_eq!(sketch.estimate(now, 7, window).units, u32::MAX);
    }

    #[test]
    fn one_window_does_not_wake_the_others() {
        let sketch = Sketch::new(1 << 16);
        let [short, long] = [1, 900].map(Nanos::from_secs);
        sketch.add_rung(short);
        sketch.add_rung(long);
        let now = Nanos::from_secs(5);
        sketch.charge(now, 7, long, 1);
        assert!(sketch.is_active(now, [short, long].into_iter()));
        assert!(!sketch.is_active(now, [short].into_iter()));
    }
}
