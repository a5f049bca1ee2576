//! A ring of buckets that counts conservatively: the buckets of a window, and the one that is leaving it, count in
//! full. So a window is never counted too low, and too high by at most one bucket.
//!
//! Words: `[number of the current bucket, low half, high half, sum of all counts, counts …]`, one count more than the
//! window has buckets. The sum saturates at `u32::MAX`, as each count does.

use super::interval::Interval;
use crate::base::clock::Nanos;

/// Words before the counts.
const HEAD: usize = 3;
/// The word that holds the sum of all counts.
const ALL: usize = 2;

/// How a ring divides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Length of a bucket.
    pub length: Interval,
    /// Buckets of the longest window.
    pub buckets: u32,
}

impl Ring {
    /// Words that the ring needs.
    #[inline]
    pub fn words(self) -> usize {
        HEAD + self.kept()
    }

    #[inline(always)]
    fn kept(self) -> usize {
        self.buckets as usize + 1
    }

    #[inline(always)]
    fn slot(self, number: u64) -> usize {
        HEAD + (number % self.kept() as u64) as usize
    }

    #[inline(always)]
    fn current(words: &[u32]) -> u64 {
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    /// The bucket of `now`; never before the newest one that counts.
    #[inline(always)]
    fn number(self, words: &[u32], now: Nanos) -> u64 {
        self.length.whole(now).max(Ring::current(words))
    }

    /// The oldest bucket that a window of `window` buckets covers, the leaving one included, and its distance to the
    /// newest bucket. None if all counts have left the window.
    #[inline]
    fn covered(self, words: &[u32], now: Nanos, window: u32) -> Option<(u64, usize)> {
        let (number, newest) = (self.number(words, now), Ring::current(words));
        let oldest_kept = newest.saturating_sub(u64::from(self.buckets));
        let oldest = number.saturating_sub(u64::from(window));
        let oldest = oldest.max(oldest_kept);
        let apart = newest.checked_sub(oldest)?;
        Some((oldest, apart as usize))
    }

    /// Units in the last `window` buckets.
    #[inline(always)]
    pub fn used(self, words: &[u32], now: Nanos, window: u32) -> u32 {
        if window == self.buckets && self.length.whole(now) <= Ring::current(words) {
            // No count has left the window.
            return words[ALL];
        }
        self.inside(words, now, window)
    }

    /// [`Ring::used`] where some counts have left the window.
    fn inside(self, words: &[u32], now: Nanos, window: u32) -> u32 {
        let Some((_, apart)) = self.covered(words, now, window) else {
            return 0;
        };
        // The sum of all, without the few that have left: those behind the newest.
        let gone = self.kept() - 1 - apart;
        let newest = self.slot(Ring::current(words));
        let [before, after] = self.counts(words, newest + 1, gone);
        let units = self.all(words) - sum(before) - sum(after);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The sum of all counts.
    #[inline]
    fn all(self, words: &[u32]) -> u64 {
        match words[ALL] {
            u32::MAX => sum(&words[HEAD..self.words()]),
            all => u64::from(all),
        }
    }

    /// `many` counts from the word `first` on, in two slices: they may wrap around the end of the ring.
    #[inline]
    fn counts(self, words: &[u32], first: usize, many: usize) -> [&[u32]; 2] {
        let turn = self.words();
        let before = &words[first..turn.min(first + many)];
        let after = &words[HEAD..(first + many).max(turn) - turn + HEAD];
        [before, after]
    }

    /// Time until `units` of those in the last `window` buckets no longer count.
    #[inline(never)]
    pub fn wait(self, words: &[u32], now: Nanos, window: u32, units: u32) -> Nanos {
        let Some((oldest, apart)) = self.covered(words, now, window) else {
            return Nanos::ZERO;
        };
        let (mut left, mut number) = (units, oldest);
        for counts in self.counts(words, self.slot(oldest), apart + 1) {
            // Where little is used, the oldest buckets are mostly empty.
            let skipped = if left > 0 { empty(counts) } else { 0 };
            number += skipped as u64;
            for count in &counts[skipped..] {
                if *count >= left {
                    return self.leaves(number, now, window);
                }
                left -= count;
                number += 1;
            }
        }
        Nanos::ZERO
    }

    /// [`Ring::wait`] where `most` units count in the window.
    #[inline(always)]
    pub fn until(self, words: &[u32], now: Nanos, window: u32, most: u32, units: u32) -> Nanos {
        let newest = Ring::current(words);
        let all = most > 0 && most < u32::MAX && words[self.slot(newest)] == most;
        if all && units <= most {
            // All units are in the newest bucket.
            return self.leaves(newest, now, window);
        }
        self.wait(words, now, window, units)
    }

    /// Time until this bucket no longer counts.
    #[inline(always)]
    fn leaves(self, number: u64, now: Nanos, window: u32) -> Nanos {
        let leaves = number + u64::from(window) + 1;
        Nanos(leaves.saturating_mul(self.length.nanos())).since(now)
    }

    /// Counts `cost` units at `now`. Returns whether [`Ring::fresh_at`] may have changed.
    #[inline(always)]
    pub fn apply(self, words: &mut [u32], now: Nanos, cost: u32) -> bool {
        let (before, number) = (Ring::current(words), self.number(words, now));
        let none = words[ALL] == 0;
        if number > before {
            self.turn(words, before, number);
        }
        let slot = self.slot(number);
        words[slot] = words[slot].saturating_add(cost);
        words[ALL] = words[ALL].saturating_add(cost);
        number > before || none
    }

    /// Makes `number` the current bucket after `before`. Clears its count and those in between, which have left.
    #[inline(never)]
    fn turn(self, words: &mut [u32], before: u64, number: u64) {
        let all = if number - before >= self.kept() as u64 {
            words[HEAD..self.words()].fill(0);
            0
        } else {
            let (mut all, mut slot) = (self.all(words), self.slot(before));
            for _ in before..number {
                // Without a division for each.
                slot = if slot + 1 == self.words() {
                    HEAD
                } else {
                    slot + 1
                };
                all -= u64::from(std::mem::take(&mut words[slot]));
            }
            all
        };
        words[0] = number as u32;
        words[1] = (number >> 32) as u32;
        words[ALL] = u32::try_from(all).unwrap_or(u32::MAX);
    }

    /// Whether the words, from an untrusted source, are a valid state.
    pub fn sound(self, words: &[u32]) -> bool {
        let Some(counts) = words.get(HEAD..self.words()) else {
            return false;
        };
        let all = u32::try_from(sum(counts)).unwrap_or(u32::MAX);
        words[ALL] == all && Ring::current(words) < u64::MAX / 2
    }

    /// The time when the newest bucket has left the longest window.
    #[inline(always)]
    pub fn fresh_at(self, words: &[u32]) -> Nanos {
        if words[ALL] == 0 {
            return Nanos::ZERO;
        }
        let leaves = Ring::current(words) + self.kept() as u64;
        Nanos(leaves.saturating_mul(self.length.nanos()))
    }
}

fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// How many of the first counts are zero. Looks at eight at a time, so it may miss up to seven.
fn empty(counts: &[u32]) -> usize {
    let (eights, _) = counts.as_chunks::<8>();
    let zero = |eight: &&[u32; 8]| eight.iter().fold(0, |any, count| any | count) == 0;
    eights.iter().take_while(zero).count() * 8
}
