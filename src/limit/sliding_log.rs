//! The exact log: one stamp for each admitted unit in a ring, newest last. One ring serves all windows of a limit, each
//! at its own depth.
//!
//! A stamp is a `u32` count of ticks of 2^k ns, k chosen so that the longest window has fewer than 2^30 ticks. Stamps
//! are rounded up and compared with a `now` that is rounded down. So a unit never leaves a window early, and leaves it
//! less than two ticks late.
//!
//! Words: `[len | head << 16, high half of the newest stamp, stamps …]`. `len` is the number of stamps, and `head` is the
//! index of the oldest.

use super::RateLimit;
use crate::base::clock::Nanos;

/// The number of words before the stamps.
pub(super) const HEAD_WORDS: usize = 2;

/// The largest number of stamps of one key, because the number has half a word. So many stamps fill 256 KiB.
pub(crate) const MAX_STAMPS: u32 = 65_535;

/// The longest window has fewer ticks than two to this power.
const WINDOW_TICK_BITS: u32 = 30;
/// The same for stores whose stamps have three bytes: half of what fits into these.
const STORE_TICK_BITS: u32 = 23;
/// The bits of the first word that hold the number of stamps; the bits above hold the index of the oldest.
const LENGTH_BITS: u32 = 16;
/// The number of stamps in the first word.
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;

/// The binary logarithm of a tick in ns: its length is `1 << tick_shift(..)`.
fn tick_shift(longest: Nanos) -> u32 {
    (64 - longest.0.leading_zeros()).saturating_sub(WINDOW_TICK_BITS)
}

/// The length of a tick in microseconds for stores whose stamps have three bytes.
pub(super) fn tick_micros(limit: &RateLimit) -> u64 {
    let longest = limit.longest_window().0.div_ceil(1_000);
    1 << (64 - longest.leading_zeros()).saturating_sub(STORE_TICK_BITS)
}

/// The time for which a unit may count beyond its window: two ticks.
pub(super) fn coarseness(limit: &RateLimit) -> Nanos {
    Nanos(2 << tick_shift(limit.longest_window()))
}

/// A duration in ticks, rounded up.
fn ticks(span: Nanos, shift: u32) -> u64 {
    span.0.div_ceil(1 << shift)
}

/// `index` modulo `capacity`, for less than two turns. A division would be most of the cost of a lookup.
fn wrap_index(index: usize, capacity: usize) -> usize {
    index.checked_sub(capacity).unwrap_or(index)
}

/// The ring of a key, and the time at which it is read.
struct Log<'a> {
    words: &'a [u32],
    /// The binary logarithm of a tick: see [`tick_shift`].
    shift: u32,
    /// `now` in ticks, rounded down.
    now_ticks: u64,
}

impl<'a> Log<'a> {
    fn new(longest: Nanos, words: &'a [u32], now: Nanos) -> Log<'a> {
        let shift = tick_shift(longest);
        Log {
            words,
            shift,
            now_ticks: now.0 >> shift,
        }
    }

    /// The number of stamps.
    fn len(&self) -> usize {
        (self.words[0] & LENGTH_MASK) as usize
    }

    fn capacity(&self) -> usize {
        capacity(self.words)
    }

    /// The stamp at `index`, counted from the oldest.
    fn stamp(&self, index: usize) -> u32 {
        let head = (self.words[0] >> LENGTH_BITS) as usize;
        self.words[HEAD_WORDS + wrap_index(head + index, self.capacity())]
    }

    /// The newest stamp in full, in ticks; `None` without stamps.
    fn newest(&self) -> Option<u64> {
        let last = self.len().checked_sub(1)?;
        Some(u64::from(self.words[1]) << 32 | u64::from(self.stamp(last)))
    }

    /// The index of the oldest stamp inside a window of so many ticks; the number of stamps if none is inside.
    fn first_inside(&self, window_ticks: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        match self.newest() {
            None => return 0,
            Some(newest) if self.now_ticks >= newest + window_ticks => return high,
            // The clock was read long before the newest unit came: all stamps are later, and differences would wrap.
            Some(newest) if newest >= self.now_ticks + (1 << WINDOW_TICK_BITS) => return 0,
            Some(_) => {}
        }
        // The newest stamp is inside, so none is older than two windows: the difference fits.
        let is_inside = |index| {
            let age = (self.now_ticks as u32).wrapping_sub(self.stamp(index)) as i32;
            i64::from(age) < window_ticks as i64
        };
        if is_inside(0) {
            // The usual case: stamps that have left are dropped when the next one comes.
            return 0;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_inside(middle) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    }
}

/// The number of units inside `window`. `longest` is the limit's longest window, here and in the functions below.
pub(super) fn used(longest: Nanos, words: &[u32], now: Nanos, window: Nanos) -> u32 {
    let log = Log::new(longest, words, now);
    (log.len() - log.first_inside(ticks(window, log.shift))) as u32
}

/// The time until `units` of the `inside` units in `window` have left it; zero without stamps.
pub(super) fn wait(
    longest: Nanos,
    words: &[u32],
    now: Nanos,
    window: Nanos,
    inside: u32,
    units: u32,
) -> Nanos {
    let log = Log::new(longest, words, now);
    let window_ticks = ticks(window, log.shift);
    let Some(newest) = log.newest() else {
        return Nanos::ZERO;
    };
    let last = log.len() - 1;
    let first = log.len().saturating_sub(inside as usize);
    let index = (first + units as usize).saturating_sub(1).min(last);
    let age = log.stamp(last).wrapping_sub(log.stamp(index));
    let leaves_at = (newest - u64::from(age) + window_ticks) << log.shift;
    Nanos(leaves_at).since(now)
}

/// The number of units that have room in `words`, at most [`MAX_STAMPS`].
#[inline]
pub(super) fn capacity(words: &[u32]) -> usize {
    (words.len() - HEAD_WORDS).min(MAX_STAMPS as usize)
}

/// Whether `cost` more units have room without dropping any stamp.
#[inline]
pub(super) fn has_room(words: &[u32], cost: u32) -> bool {
    (words[0] & LENGTH_MASK) as usize + cost as usize <= capacity(words)
}

/// The number of words that are needed for the units inside the longest window and `cost` more.
pub(super) fn required_words(limit: &RateLimit, words: &[u32], now: Nanos, cost: u32) -> usize {
    let live_count = if words.len() > HEAD_WORDS {
        used(limit.longest_window(), words, now, limit.longest_window())
    } else {
        0
    };
    HEAD_WORDS + live_count.saturating_add(cost).clamp(1, MAX_STAMPS) as usize
}

/// The words of the smallest log: with two stamps.
const MIN_LOG_WORDS: usize = HEAD_WORDS + 2;

/// The size in which a log of `words` words is kept: the next power of two, or three quarters of it.
pub(super) fn size_class(words: usize) -> usize {
    let power_of_two = words.max(MIN_LOG_WORDS).next_power_of_two();
    let three_quarters = power_of_two / 4 * 3;
    if three_quarters >= words && three_quarters >= MIN_LOG_WORDS {
        three_quarters
    } else {
        power_of_two
    }
}

/// Copies the stamps inside the longest window to a larger or smaller ring, which must have room for them.
pub(super) fn move_to(limit: &RateLimit, words: &[u32], now: Nanos, target: &mut [u32]) {
    target.fill(0);
    let log = Log::new(limit.longest_window(), words, now);
    let first = log.first_inside(ticks(limit.longest_window(), log.shift));
    let live_count = log.len() - first;
    for index in 0..live_count {
        target[HEAD_WORDS + index] = log.stamp(first + index);
    }
    target[0] = live_count as u32;
    target[1] = words[1];
}

/// Writes the stamps of another limit's log, of which `old_longest` is the longest window, into the fresh log `target`.
/// They are converted to its ticks, and never to an earlier time. Only stamps inside its longest window are kept, and
/// only the newest of them if they are too many.
pub(super) fn convert(
    old_longest: Nanos,
    old_words: &[u32],
    limit: &RateLimit,
    target: &mut [u32],
    now: Nanos,
) {
    let old = Log::new(old_longest, old_words, now);
    let Some(newest) = old.newest() else { return };
    let (shift, last) = (tick_shift(limit.longest_window()), old.len() - 1);
    let capacity = capacity(target);
    let first = old.first_inside(ticks(old_longest.min(limit.longest_window()), old.shift));
    let first = first.max(old.len().saturating_sub(capacity));
    for (index, old_index) in (first..=last).enumerate() {
        let age = old.stamp(last).wrapping_sub(old.stamp(old_index));
        let stamp = ticks(Nanos((newest - u64::from(age)) << old.shift), shift);
        target[HEAD_WORDS + index] = stamp as u32;
        target[0] = index as u32 + 1;
        target[1] = (stamp >> 32) as u32;
    }
}

/// Adds stamps for `cost` units. Stamps that have left the longest window are dropped; in a full ring the oldest are too.
pub(super) fn add_units(longest: Nanos, words: &mut [u32], now: Nanos, cost: u32) {
    let log = Log::new(longest, words, now);
    let capacity = log.capacity();
    let expired_count = log.first_inside(ticks(longest, log.shift));
    let mut head = wrap_index((words[0] >> LENGTH_BITS) as usize + expired_count, capacity);
    let mut len = (words[0] & LENGTH_MASK) as usize - expired_count;
    let now_rounded_up = ticks(now, log.shift);
    let stamp = if len == 0 {
        now_rounded_up
    } else {
        log.newest().map_or(0, |newest| newest.max(now_rounded_up))
    };
    for _ in 0..(cost as usize).min(capacity) {
        if len == capacity {
            // More units than the ring holds were settled late. The newest stamps are kept, because they count longest.
            head = wrap_index(head + 1, capacity);
            len -= 1;
        }
        words[HEAD_WORDS + wrap_index(head + len, capacity)] = stamp as u32;
        len += 1;
    }
    words[0] = len as u32 | (head as u32) << LENGTH_BITS;
    words[1] = (stamp >> 32) as u32;
}

/// The number of words that a log fills if its oldest stamp stands first.
pub(super) fn filled_words(words: &[u32]) -> usize {
    HEAD_WORDS + (words[0] & LENGTH_MASK) as usize
}

/// Whether the words, from an untrusted source, are a log whose oldest stamp stands first.
pub(super) fn is_valid(words: &[u32]) -> bool {
    let [first_word, newest_high, stamps @ ..] = words else {
        return false;
    };
    // The index of the oldest stamp is zero, so the first word is the number of stamps.
    if *first_word as usize != stamps.len()
        || stamps.len() > MAX_STAMPS as usize
        || *newest_high > i32::MAX as u32
    {
        return false;
    }
    let Some(last) = stamps.last() else {
        return true;
    };
    let newest = u64::from(*newest_high) << 32 | u64::from(*last);
    // Ages are differences that wrap: one beyond half of their range would be a stamp in the future.
    let mut max_age = newest.min(1 << 31);
    stamps.iter().all(|stamp| {
        let age = u64::from(last.wrapping_sub(*stamp));
        let is_ordered = age <= max_age;
        max_age = age;
        is_ordered
    })
}

/// The time when the newest stamp leaves the longest window; zero without stamps.
pub(super) fn fresh_at(longest: Nanos, words: &[u32]) -> Nanos {
    let log = Log::new(longest, words, Nanos::ZERO);
    let window_ticks = ticks(longest, log.shift);
    log.newest().map_or(Nanos::ZERO, |newest| {
        Nanos((newest + window_ticks) << log.shift)
    })
}
