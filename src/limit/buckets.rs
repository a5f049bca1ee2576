//! A ring of buckets that counts conservatively: the buckets of a window and the one that is just
//! leaving it, in full. What it says of a window is never less than the truth, and more by at most
//! one bucket.
//!
//! Words: `[number of the current bucket, low half, high half, counts …]`, one count more than the
//! window has buckets.

use super::rate::Interval;
use crate::clock::Nanos;

/// Words before the counts.
const HEAD: usize = 2;
/// Counts of most rings: what is written for this number needs neither divisions nor ends of loops.
const USUAL: usize = 61;

/// How a ring divides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Length of a bucket.
    pub length: Interval,
    /// Buckets of the longest window that is asked for.
    pub buckets: u32,
}

impl Ring {
    /// Words that the ring needs.
    #[inline]
    pub fn words(self) -> usize {
        HEAD + self.kept()
    }

    #[inline]
    fn kept(self) -> usize {
        self.buckets as usize + 1
    }

    #[inline]
    fn slot(self, number: u64) -> usize {
        let place = match self.kept() {
            USUAL => number % USUAL as u64,
            kept => number % kept as u64,
        };
        HEAD + place as usize
    }

    #[inline]
    fn current(words: &[u32]) -> u64 {
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    /// The bucket of `now`; never before the newest one that counts.
    #[inline]
    fn number(self, words: &[u32], now: Nanos) -> u64 {
        self.length.whole(now).max(Ring::current(words))
    }

    /// The oldest bucket that a window of `window` covers, the leaving one included, and how many
    /// buckets before the newest one that is; nothing when all have left.
    #[inline]
    fn covered(self, words: &[u32], now: Nanos, window: Nanos) -> Option<(u64, usize)> {
        let (number, newest) = (self.number(words, now), Ring::current(words));
        let oldest_kept = (newest + 1).saturating_sub(self.kept() as u64);
        let oldest = number.saturating_sub(self.length.count(window));
        let oldest = oldest.max(oldest_kept);
        let apart = newest.checked_sub(oldest)?;
        Some((oldest, apart as usize))
    }

    /// Units in `window`.
    #[inline]
    pub fn used(self, words: &[u32], now: Nanos, window: Nanos) -> u32 {
        let Some((_, apart)) = self.covered(words, now, window) else {
            return 0;
        };
        // All of them, but for the few that have left: those behind the newest.
        let mut units = sum(&words[HEAD..self.words()]);
        let gone = self.kept() - 1 - apart;
        if gone > 0 {
            let newest = self.slot(Ring::current(words));
            let [before, after] = self.counts(words, newest + 1, gone);
            let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
            units -= sum(before) + sum(after);
        }
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// So many counts from the place `first` on: they lie side by side but for one turn of the ring.
    #[inline]
    fn counts(self, words: &[u32], first: usize, many: usize) -> [&[u32]; 2] {
        let turn = self.words();
        let before = &words[first..turn.min(first + many)];
        let after = &words[HEAD..(first + many).max(turn) - turn + HEAD];
        [before, after]
    }

    /// Until `units` of those in `window` no longer count.
    #[inline]
    pub fn wait(self, words: &[u32], now: Nanos, window: Nanos, units: u32) -> Nanos {
        let Some((oldest, apart)) = self.covered(words, now, window) else {
            return Nanos::ZERO;
        };
        let (mut left, mut number) = (units, oldest);
        for counts in self.counts(words, self.slot(oldest), apart + 1) {
            // The oldest are mostly empty where little is used.
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

    /// The same where no more than `most` units count.
    #[inline]
    pub fn until(
        self,
        words: &[u32],
        now: Nanos,
        window: Nanos,
        (most, units): (u32, u32),
    ) -> Nanos {
        let newest = Ring::current(words);
        let all = most > 0 && most < u32::MAX && words[self.slot(newest)] == most;
        if all && units <= most {
            // They are in one bucket: no need to look for it.
            return self.leaves(newest, now, window);
        }
        self.wait(words, now, window, units)
    }

    /// Until this bucket no longer counts.
    #[inline]
    fn leaves(self, number: u64, now: Nanos, window: Nanos) -> Nanos {
        let leaves = number + self.length.count(window) + 1;
        Nanos(leaves.saturating_mul(self.length.nanos())).since(now)
    }

    /// Counts `cost` units at `now`.
    #[inline]
    pub fn apply(self, words: &mut [u32], now: Nanos, cost: u32) {
        let (before, number) = (Ring::current(words), self.number(words, now));
        let slot = self.slot(number);
        if number - before >= self.kept() as u64 {
            words[HEAD..self.words()].fill(0);
        } else {
            for left in before + 1..=number {
                words[self.slot(left)] = 0;
            }
        }
        words[0] = number as u32;
        words[1] = (number >> 32) as u32;
        words[slot] = words[slot].saturating_add(cost);
    }

    /// Whether the words can be a state, from whatever they come.
    pub fn sound(self, words: &[u32]) -> bool {
        words.len() >= self.words() && Ring::current(words) < u64::MAX / 2
    }

    /// When the newest bucket has left the longest window.
    #[inline]
    pub fn fresh_at(self, words: &[u32]) -> Nanos {
        let newest = Ring::current(words);
        let counts = &words[HEAD..self.words()];
        if words[self.slot(newest)] == 0 && counts.iter().all(|count| *count == 0) {
            return Nanos::ZERO;
        }
        let leaves = newest + self.kept() as u64;
        Nanos(leaves.saturating_mul(self.length.nanos()))
    }
}

fn sum(counts: &[u32]) -> u64 {
    // Eight lanes at a time, narrow ones unless they might run over.
    let (eights, rest) = counts.as_chunks::<8>();
    let (mut sums, mut bits) = ([0_u32; 8], [0_u32; 8]);
    for eight in eights {
        for lane in 0..8 {
            sums[lane] = sums[lane].wrapping_add(eight[lane]);
            bits[lane] |= eight[lane];
        }
    }
    let (mut sum, mut any) = (0_u32, 0_u32);
    for lane in 0..8 {
        sum = sum.wrapping_add(sums[lane]);
        any |= bits[lane];
    }
    for count in rest {
        sum = sum.wrapping_add(*count);
        any |= count;
    }
    if any <= u32::MAX / USUAL as u32 && counts.len() <= USUAL {
        return u64::from(sum);
    }
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// How many of the first counts are zero; eight at a time, so perhaps not all of them.
fn empty(counts: &[u32]) -> usize {
    let (eights, _) = counts.as_chunks::<8>();
    let zero = |eight: &&[u32; 8]| eight.iter().fold(0, |any, count| any | count) == 0;
    eights.iter().take_while(zero).count() * 8
}
