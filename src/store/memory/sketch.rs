//! The overflow sketch, which decides about keys without a cell. For each window length, rounded up to one of eight
//! rungs, it has two epochs of a count-min sketch with conservative update. Both are counted in full. It only
//! over-estimates, so it
//! never admits too much. (Estan, Varghese: New directions in traffic measurement and accounting, 2002; Cormode,
//! Muthukrishnan, 2005.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::base::clock::Nanos;

/// Rows of an epoch.
const ROWS: usize = 4;
/// Most counters of a row, so that clearing an epoch takes about a millisecond.
const WIDEST: usize = 1 << 20;
/// A counter with this value may stand for any larger number.
const FULL: u16 = u16::MAX;

/// Window lengths, in seconds, to which all others are rounded up.
const LADDER: [u64; 8] = [1, 10, 60, 900, 3_600, 86_400, 7 * 86_400, 53 * 7 * 86_400];

/// The rung of a window.
fn rung_of(window: Nanos) -> usize {
    LADDER
        .iter()
        .position(|s| Nanos::from_secs(*s) >= window)
        .unwrap_or(LADDER.len() - 1)
}

/// Whether two windows share a rung, so that one charge serves both.
pub(super) fn shared(a: Nanos, b: Nanos) -> bool {
    rung_of(a) == rung_of(b)
}

/// The estimated use of a key in one window length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Units of this epoch and the one before; never too few.
    pub(super) units: u32,
    /// The units of this epoch among them.
    pub(super) current: u32,
    /// How long until this epoch ends.
    pub(super) left: Nanos,
    /// How long an epoch is.
    pub(super) length: Nanos,
}

#[derive(Debug)]
struct Rung {
    length: u64,
    epoch: u64,
    /// This epoch's rows and the previous one's.
    rows: [[Vec<u16>; ROWS]; 2],
    charged: [bool; 2],
}

/// See the module. Each rung has its own lock, held for one key's counters at a time.
#[derive(Debug)]
pub(super) struct Sketch {
    rungs: [Mutex<Option<Rung>>; LADDER.len()],
    bytes: usize,
    /// When the last unit of each rung is forgotten; `end` is the latest of these times.
    ends: [AtomicU64; LADDER.len()],
    end: AtomicU64,
    decided: AtomicU64,
}

impl Sketch {
    /// A sketch that never takes more than `bytes`.
    pub(super) fn new(bytes: usize) -> Sketch {
        Sketch {
            rungs: [const { Mutex::new(None) }; LADDER.len()],
            bytes,
            ends: [const { AtomicU64::new(0) }; LADDER.len()],
            end: AtomicU64::new(0),
            decided: AtomicU64::new(0),
        }
    }

    /// Makes a rung for `window`. All rungs are halved when their number passes a power of two.
    pub(super) fn prepare(&self, window: Nanos) {
        let mut rungs = self.rungs.each_ref().map(|rung| rung.lock());
        let rung = rung_of(window);
        if rungs[rung].is_some() {
            return;
        }
        let count = rungs.iter().filter(|rung| rung.is_some()).count() + 1;
        let each = self.bytes / count.next_power_of_two() / (2 * ROWS * size_of::<u16>());
        let width = 1 << each.max(16).ilog2();
        let width = if width > WIDEST { WIDEST } else { width };
        for old in rungs.iter_mut().filter_map(|rung| rung.as_mut()) {
            old.fold(width);
        }
        let row = || vec![0; width];
        let epoch = || std::array::from_fn(|_| row());
        *rungs[rung] = Some(Rung {
            length: Nanos::from_secs(LADDER[rung]).0,
            epoch: 0,
            rows: [epoch(), epoch()],
            charged: [false; 2],
        });
    }

    /// Whether any key may have units in one of these windows. This is the only check on the usual path.
    #[inline]
    pub(super) fn active(&self, now: Nanos, mut windows: impl Iterator<Item = Nanos>) -> bool {
        let before = |end: &AtomicU64| now.0 < end.load(Relaxed);
        before(&self.end) && windows.any(|window| before(&self.ends[rung_of(window)]))
    }

    /// Decisions made here so far.
    pub(super) fn decided(&self) -> u64 {
        self.decided.load(Relaxed)
    }

    pub(super) fn count_decision(&self) {
        self.decided.fetch_add(1, Relaxed);
    }

    /// Bytes of all counters.
    pub(super) fn used(&self) -> usize {
        let widths = self.rungs.iter();
        let widths = widths.map(|rung| rung.lock().as_ref().map_or(0, Rung::width));
        widths.sum::<usize>() * 2 * ROWS * size_of::<u16>()
    }

    /// Calls `read` with the rung of `window`, rolled to `now`.
    fn with<R>(&self, now: Nanos, window: Nanos, read: impl FnOnce(&mut Rung) -> R) -> Option<R> {
        let mut rung = self.rungs[rung_of(window)].lock();
        let rung = rung.as_mut()?;
        rung.roll(now);
        Some(read(rung))
    }

    /// The estimated use of `hash` in `window`: never too low.
    pub(super) fn estimate(&self, now: Nanos, hash: u64, window: Nanos) -> Estimate {
        let known = self.with(now, window, |rung| {
            let places = places(hash, rung.width());
            let units = |which| match rung.minimum(which, places) {
                FULL => u32::MAX,
                some => u32::from(some),
            };
            let current: u32 = units(0);
            let ends = (rung.epoch + 1).saturating_mul(rung.length);
            Estimate {
                units: current.saturating_add(units(1)),
                current,
                left: Nanos(ends).since(now),
                length: Nanos(rung.length),
            }
        });
        known.unwrap_or(Estimate {
            units: u32::MAX,
            current: u32::MAX,
            left: window,
            length: window,
        })
    }

    /// Counts `cost` units.
    pub(super) fn charge(&self, now: Nanos, hash: u64, window: Nanos, cost: u32) {
        if cost == 0 {
            return;
        }
        let cost = u16::try_from(cost).unwrap_or(FULL);
        let end = self.with(now, window, |rung| {
            let places = places(hash, rung.width());
            let value = rung.minimum(0, places).saturating_add(cost);
            for (row, place) in rung.rows[0].iter_mut().zip(places) {
                row[place] = row[place].max(value);
            }
            rung.charged[0] = true;
            (rung.epoch + 2).saturating_mul(rung.length)
        });
        let end = end.unwrap_or(0);
        self.ends[rung_of(window)].fetch_max(end, Relaxed);
        self.end.fetch_max(end, Relaxed);
    }

    /// Calls `each` with every row of each rung and epoch that has units: the rung's index, the epoch's number, the row's
    /// index, and the row. A lock is held while one row is copied, and not during `each`.
    pub(super) fn copy<E>(
        &self,
        mut each: impl FnMut(u8, u64, u8, &[u16]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut copied = Vec::new();
        for (place, rung) in self.rungs.iter().enumerate() {
            for which in 0..2 {
                for row in 0..ROWS {
                    let epoch = {
                        let rung = rung.lock();
                        let Some(rung) = rung.as_ref().filter(|rung| rung.charged[which]) else {
                            break;
                        };
                        copied.clear();
                        copied.extend_from_slice(&rung.rows[which][row]);
                        rung.epoch.saturating_sub(which as u64)
                    };
                    each(place as u8, epoch, row as u8, &copied)?;
                }
            }
        }
        Ok(())
    }

    /// Whether there is such a row.
    pub(super) fn has(rung: u8, row: u8, width: usize) -> bool {
        let (rung, row) = (usize::from(rung), usize::from(row));
        rung < LADDER.len() && row < ROWS && width.is_power_of_two() && width <= WIDEST
    }

    /// Adds a row from [`Sketch::copy`], unless its epoch is over, or there is no such rung any more.
    pub(super) fn restore(&self, now: Nanos, place: u8, epoch: u64, row: u8, counts: &[u16]) {
        let place = usize::from(place);
        let end = {
            let mut rung = self.rungs[place].lock();
            let Some(rung) = rung.as_mut() else { return };
            rung.roll(now);
            let which = usize::from(epoch < rung.epoch);
            if epoch.saturating_add(1) < rung.epoch {
                return;
            }
            let to = &mut rung.rows[which][usize::from(row)];
            // Where the widths differ, several counters of one stand for one of the other.
            let mask = to.len().min(counts.len()) - 1;
            if to.len() > counts.len() {
                for (at, count) in to.iter_mut().enumerate() {
                    *count = (*count).max(counts[at & mask]);
                }
            } else {
                for (at, count) in counts.iter().enumerate() {
                    to[at & mask] = to[at & mask].max(*count);
                }
            }
            rung.charged[which] = true;
            (rung.epoch + 2 - which as u64).saturating_mul(rung.length)
        };
        self.ends[place].fetch_max(end, Relaxed);
        self.end.fetch_max(end, Relaxed);
    }

    /// Counts `cost` units in windows of every length.
    pub(super) fn charge_all(&self, now: Nanos, hash: u64, cost: u32) {
        for seconds in LADDER {
            self.charge(now, hash, Nanos::from_secs(seconds), cost);
        }
    }

    /// Whether the epoch of `window` began less than `span` ago.
    pub(super) fn younger(&self, now: Nanos, window: Nanos, span: Nanos) -> bool {
        let younger = |rung: &mut Rung| now.0 < rung.epoch * rung.length + span.0;
        self.with(now, window, younger).unwrap_or(true)
    }
}

impl Rung {
    fn width(&self) -> usize {
        self.rows[0][0].len()
    }

    fn roll(&mut self, now: Nanos) {
        let epoch = now.0 / self.length;
        // Threads read the clock before they lock, so time may seem to stand still here.
        if epoch <= self.epoch {
            return;
        }
        self.rows.swap(0, 1);
        self.charged.swap(0, 1);
        self.clear(0);
        if epoch > self.epoch + 1 {
            self.clear(1);
        }
        self.epoch = epoch;
    }

    fn clear(&mut self, which: usize) {
        if self.charged[which] {
            for row in &mut self.rows[which] {
                row.fill(0);
            }
            self.charged[which] = false;
        }
    }

    /// Narrows the rows: a counter becomes the larger of the two that now share it, so that no key's
    /// estimate shrinks.
    fn fold(&mut self, width: usize) {
        for row in self.rows.iter_mut().flatten() {
            while row.len() > width {
                let half = row.len() / 2;
                let (low, high) = row.split_at_mut(half);
                for (a, b) in low.iter_mut().zip(high) {
                    *a = (*a).max(*b);
                }
                row.truncate(half);
            }
            row.shrink_to_fit();
        }
    }

    fn minimum(&self, which: usize, places: [usize; ROWS]) -> u16 {
        if !self.charged[which] {
            return 0;
        }
        let rows = self.rows[which].iter().zip(places);
        rows.map(|(row, place)| row[place]).min().unwrap_or(FULL)
    }
}

fn places(hash: u64, width: usize) -> [usize; ROWS] {
    let other = (hash ^ hash >> 31).wrapping_mul(0xe703_7ed1_a0b4_28db);
    let other = other ^ other >> 29;
    let mask = width - 1;
    [hash, hash >> 32, other, other >> 32].map(|bits| bits as u32 as usize & mask)
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
            sketch.prepare(window);
            let mut others = LADDER.iter().filter(|s| **s != 60);
            let mut now = Nanos::from_secs(100_000);
            let mut log: HashMap<u64, Vec<(Nanos, u32)>> = HashMap::new();
            for step in steps {
                match step {
                    Step::Charge(key, cost) => {
                        sketch.charge(now, key.wrapping_mul(0x9e37_79b9_7f4a_7c15), window, cost);
                        log.entry(key).or_default().push((now, cost));
                    }
                    Step::Wait(seconds) => now = now.after(Nanos::from_secs(seconds)),
                    Step::Narrow => {
                        if let Some(seconds) = others.next() {
                            sketch.prepare(Nanos::from_secs(*seconds));
                        }
                    }
                }
                prop_assert!(sketch.used() <= 4 * 1_024);
                for (key, units) in &log {
                    let inside = units.iter().filter(|(at, _)| now.since(*at) < window);
                    let truth: u32 = inside.map(|(_, cost)| cost).sum();
                    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    prop_assert!(sketch.estimate(now, hash, window).units >= truth);
                    prop_assert!(truth == 0 || sketch.active(now, [window].into_iter()));
                }
            }
        }
    }

    #[test]
    fn a_full_counter_is_infinite() {
        let window = Nanos::from_secs(1);
        let sketch = Sketch::new(1 << 16);
        sketch.prepare(window);
        let now = Nanos::from_secs(5);
        sketch.charge(now, 7, window, 65_000);
        sketch.charge(now, 7, window, 1_000);
        assert_eq!(sketch.estimate(now, 7, window).units, u32::MAX);
    }

    #[test]
    fn one_window_does_not_wake_the_others() {
        let sketch = Sketch::new(1 << 16);
        let [short, long] = [1, 900].map(Nanos::from_secs);
        sketch.prepare(short);
        sketch.prepare(long);
        let now = Nanos::from_secs(5);
        sketch.charge(now, 7, long, 1);
        assert!(sketch.active(now, [short, long].into_iter()));
        assert!(!sketch.active(now, [short].into_iter()));
    }
}
