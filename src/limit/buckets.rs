//! A ring of buckets that counts conservatively: the buckets of a window and the one that is just
//! leaving it, in full. What it says of a window is never less than the truth, and more by at most
//! one bucket.
//!
//! Words: `[number of the current bucket, low half, high half, counts …]`, one count more than the
//! window has buckets.

use crate::clock::Nanos;

/// Words before the counts.
const HEAD: usize = 2;

/// How a ring divides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Length of a bucket.
    pub length: Nanos,
    /// Buckets of the longest window that is asked for.
    pub buckets: u32,
}

impl Ring {
    /// Words that the ring needs.
    pub fn words(self) -> usize {
        HEAD + self.buckets as usize + 1
    }

    fn kept(self) -> u64 {
        u64::from(self.buckets) + 1
    }

    fn slot(self, number: u64) -> usize {
        HEAD + (number % self.kept()) as usize
    }

    fn current(words: &[u32]) -> u64 {
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    /// The bucket of `now`; never before the newest one that counts.
    fn number(self, words: &[u32], now: Nanos) -> u64 {
        (now.0 / self.length.0).max(Ring::current(words))
    }

    /// Buckets that a window of `window` covers, the leaving one included, oldest first, as numbers.
    fn covered(self, words: &[u32], now: Nanos, window: Nanos) -> std::ops::RangeInclusive<u64> {
        let number = self.number(words, now);
        let span = window.0.div_ceil(self.length.0);
        let oldest_kept = (Ring::current(words) + 1).saturating_sub(self.kept());
        number.saturating_sub(span).max(oldest_kept)..=Ring::current(words)
    }

    /// Units in `window`.
    pub fn used(self, words: &[u32], now: Nanos, window: Nanos) -> u32 {
        let (oldest, newest) = self.covered(words, now, window).into_inner();
        let Some(apart) = newest.checked_sub(oldest) else {
            return 0;
        };
        let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let [before, after] = self.counts(words, oldest, apart);
        u32::try_from(sum(before) + sum(after)).unwrap_or(u32::MAX)
    }

    /// The counts from bucket `oldest` on: they lie side by side but for one turn of the ring.
    fn counts(self, words: &[u32], oldest: u64, apart: u64) -> [&[u32]; 2] {
        let (first, many) = (self.slot(oldest), apart as usize + 1);
        let turn = self.words();
        let before = &words[first..turn.min(first + many)];
        let after = &words[HEAD..(first + many).max(turn) - turn + HEAD];
        [before, after]
    }

    /// Until `units` of those in `window` no longer count.
    pub fn wait(self, words: &[u32], now: Nanos, window: Nanos, units: u32) -> Nanos {
        let span = window.0.div_ceil(self.length.0);
        let (oldest, newest) = self.covered(words, now, window).into_inner();
        let Some(apart) = newest.checked_sub(oldest) else {
            return Nanos::ZERO;
        };
        let (mut left, mut number) = (units, oldest);
        for counts in self.counts(words, oldest, apart) {
            // Eight at a time, for most are empty where little is used.
            let (eights, rest) = counts.as_chunks::<8>();
            for eight in eights.iter().map(<[u32; 8]>::as_slice).chain([rest]) {
                if left > 0 && eight.iter().fold(0, |any, count| any | count) == 0 {
                    number += eight.len() as u64;
                    continue;
                }
                for count in eight {
                    if *count >= left {
                        return Nanos((number + span + 1).saturating_mul(self.length.0)).since(now);
                    }
                    left -= count;
                    number += 1;
                }
            }
        }
        Nanos::ZERO
    }

    /// Counts `cost` units at `now`.
    pub fn apply(self, words: &mut [u32], now: Nanos, cost: u32) {
        let (before, number) = (Ring::current(words), self.number(words, now));
        if number - before >= self.kept() {
            words[HEAD..self.words()].fill(0);
        } else {
            for left in before + 1..=number {
                words[self.slot(left)] = 0;
            }
        }
        words[0] = number as u32;
        words[1] = (number >> 32) as u32;
        let slot = self.slot(number);
        words[slot] = words[slot].saturating_add(cost);
    }

    /// Whether the words can be a state, from whatever they come.
    pub fn sound(self, words: &[u32]) -> bool {
        words.len() >= self.words() && Ring::current(words) < u64::MAX / 2
    }

    /// When the newest bucket has left the longest window.
    pub fn fresh_at(self, words: &[u32]) -> Nanos {
        if words[HEAD..self.words()].iter().all(|count| *count == 0) {
            return Nanos::ZERO;
        }
        Nanos((Ring::current(words) + self.kept()).saturating_mul(self.length.0))
    }
}
