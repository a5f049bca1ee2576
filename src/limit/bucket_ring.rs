//! A ring of buckets that counts units conservatively: the buckets of a window, and the one that is leaving it, count
//! in full. So a window is never counted too low, and too high by at most one bucket.
//!
//! Words: `[number of the current bucket, low half, high half, sum of all counts, counts …]`, one count more than the
//! longest window has buckets. The current bucket is the newest one in which units were counted. The sum saturates at
//! `u32::MAX`, as each count does.

use super::interval::Interval;
use crate::base::clock::Nanos;

/// The number of words before the counts.
const HEAD_WORDS: usize = 3;
/// The index of the word that holds the sum of all counts.
const SUM_WORD: usize = 2;

/// How a ring divides time. The counts themselves are in the words of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketRing {
    /// The length of each bucket.
    pub bucket_length: Interval,
    /// The number of buckets of the longest window, without the bucket that is leaving it.
    pub bucket_count: u32,
}

impl BucketRing {
    /// The number of words that the ring needs.
    #[inline]
    pub fn word_count(self) -> usize {
        HEAD_WORDS + self.slot_count()
    }

    /// The number of counts that the ring keeps.
    #[inline(always)]
    fn slot_count(self) -> usize {
        self.bucket_count as usize + 1
    }

    /// The index of the word that counts for the bucket with this number.
    #[inline(always)]
    fn word_index(self, number: u64) -> usize {
        HEAD_WORDS + (number % self.slot_count() as u64) as usize
    }

    /// The number of the newest bucket in which units were counted; 0 in a fresh state.
    #[inline(always)]
    fn current_bucket(words: &[u32]) -> u64 {
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    /// The number of the bucket that contains `now`, or of the current bucket if that is later: another thread may have
    /// read a later time.
    #[inline(always)]
    fn bucket_number(self, words: &[u32], now: Nanos) -> u64 {
        self.bucket_length
            .div_floor(now)
            .max(BucketRing::current_bucket(words))
    }

    /// The number of the oldest bucket that a window of `window_buckets` buckets covers, the leaving one included. Also
    /// the distance from it to the newest bucket. `None` if all counts have left the window.
    #[inline]
    fn oldest_covered_bucket(
        self,
        words: &[u32],
        now: Nanos,
        window_buckets: u32,
    ) -> Option<(u64, usize)> {
        let (number, newest) = (
            self.bucket_number(words, now),
            BucketRing::current_bucket(words),
        );
        let oldest_kept = newest.saturating_sub(u64::from(self.bucket_count));
        let oldest_in_window = number.saturating_sub(u64::from(window_buckets));
        let oldest = oldest_in_window.max(oldest_kept);
        let distance = newest.checked_sub(oldest)?;
        Some((oldest, distance as usize))
    }

    /// The units in the last `window_buckets` buckets.
    #[inline(always)]
    pub fn used(self, words: &[u32], now: Nanos, window_buckets: u32) -> u32 {
        if window_buckets == self.bucket_count
            && self.bucket_length.div_floor(now) <= BucketRing::current_bucket(words)
        {
            // No count has left the window.
            return words[SUM_WORD];
        }
        self.used_after_leaving(words, now, window_buckets)
    }

    /// [`BucketRing::used`] where some counts have left the window.
    fn used_after_leaving(self, words: &[u32], now: Nanos, window_buckets: u32) -> u32 {
        let Some((_, distance)) = self.oldest_covered_bucket(words, now, window_buckets) else {
            return 0;
        };
        // The few counts that have left stand behind the newest one, and are subtracted from the sum of all.
        let departed_count = self.slot_count() - 1 - distance;
        let newest_word = self.word_index(BucketRing::current_bucket(words));
        let [to_ring_end, from_ring_start] =
            self.counts_from(words, newest_word + 1, departed_count);
        let units = self.sum_of_counts(words) - sum(to_ring_end) - sum(from_ring_start);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The sum of all counts.
    #[inline]
    fn sum_of_counts(self, words: &[u32]) -> u64 {
        match words[SUM_WORD] {
            u32::MAX => sum(&words[HEAD_WORDS..self.word_count()]),
            exact => u64::from(exact),
        }
    }

    /// `length` counts from the word `first` on, in two slices: they may wrap around the end of the ring.
    #[inline]
    fn counts_from(self, words: &[u32], first: usize, length: usize) -> [&[u32]; 2] {
        let ring_end = self.word_count();
        let to_ring_end = &words[first..ring_end.min(first + length)];
        let from_ring_start =
            &words[HEAD_WORDS..(first + length).max(ring_end) - ring_end + HEAD_WORDS];
        [to_ring_end, from_ring_start]
    }

    /// The time until `units` of those in the last `window_buckets` buckets no longer count; zero if fewer count.
    // Not inlined: `wait_with_used` has the short path for most calls.
    #[inline(never)]
    pub fn wait(self, words: &[u32], now: Nanos, window_buckets: u32, units: u32) -> Nanos {
        let Some((oldest, distance)) = self.oldest_covered_bucket(words, now, window_buckets)
        else {
            return Nanos::ZERO;
        };
        let (mut remaining, mut number) = (units, oldest);
        for counts in self.counts_from(words, self.word_index(oldest), distance + 1) {
            // Where little is used, the oldest buckets are mostly empty.
            let skipped_count = if remaining > 0 {
                count_leading_zeros(counts)
            } else {
                0
            };
            number += skipped_count as u64;
            for count in &counts[skipped_count..] {
                if *count >= remaining {
                    return self.time_until_bucket_leaves(number, now, window_buckets);
                }
                remaining -= count;
                number += 1;
            }
        }
        Nanos::ZERO
    }

    /// [`BucketRing::wait`] where it is known that `used` units count in the window. It is faster while all of them are
    /// in the newest bucket.
    #[inline(always)]
    pub fn wait_with_used(
        self,
        words: &[u32],
        now: Nanos,
        window_buckets: u32,
        used: u32,
        units: u32,
    ) -> Nanos {
        let newest = BucketRing::current_bucket(words);
        let newest_has_all = used > 0 && used < u32::MAX && words[self.word_index(newest)] == used;
        if newest_has_all && units <= used {
            return self.time_until_bucket_leaves(newest, now, window_buckets);
        }
        self.wait(words, now, window_buckets, units)
    }

    /// The time until the bucket with this number no longer counts.
    #[inline(always)]
    fn time_until_bucket_leaves(self, number: u64, now: Nanos, window_buckets: u32) -> Nanos {
        let end_bucket = number + u64::from(window_buckets) + 1;
        Nanos(end_bucket.saturating_mul(self.bucket_length.nanos())).since(now)
    }

    /// Counts `cost` units at `now`. Returns whether [`BucketRing::fresh_at`] may have changed.
    #[inline(always)]
    pub fn add_units(self, words: &mut [u32], now: Nanos, cost: u32) -> bool {
        let former_number = BucketRing::current_bucket(words);
        let number = self.bucket_number(words, now);
        let was_empty = words[SUM_WORD] == 0;
        if number > former_number {
            self.advance_to(words, former_number, number);
        }
        let slot = self.word_index(number);
        words[slot] = words[slot].saturating_add(cost);
        words[SUM_WORD] = words[SUM_WORD].saturating_add(cost);
        number > former_number || was_empty
    }

    /// Makes `number` the current bucket after `former_number`. Clears its count and those in between, which have left.
    // Not inlined, because it runs at most once for each bucket.
    #[inline(never)]
    fn advance_to(self, words: &mut [u32], former_number: u64, number: u64) {
        let sum = if number - former_number >= self.slot_count() as u64 {
            words[HEAD_WORDS..self.word_count()].fill(0);
            0
        } else {
            let (mut sum, mut slot) = (self.sum_of_counts(words), self.word_index(former_number));
            for _ in former_number..number {
                // This saves the division that `word_index` would cost for each bucket.
                slot = if slot + 1 == self.word_count() {
                    HEAD_WORDS
                } else {
                    slot + 1
                };
                sum -= u64::from(std::mem::take(&mut words[slot]));
            }
            sum
        };
        words[0] = number as u32;
        words[1] = (number >> 32) as u32;
        words[SUM_WORD] = u32::try_from(sum).unwrap_or(u32::MAX);
    }

    /// Whether the words, from an untrusted source, are a valid state.
    pub fn is_valid(self, words: &[u32]) -> bool {
        let Some(counts) = words.get(HEAD_WORDS..self.word_count()) else {
            return false;
        };
        let expected = u32::try_from(sum(counts)).unwrap_or(u32::MAX);
        // Half of the range is never reached, and leaves room for sums of bucket numbers.
        words[SUM_WORD] == expected && BucketRing::current_bucket(words) < u64::MAX / 2
    }

    /// The time from which on no bucket counts; zero if none does now.
    #[inline(always)]
    pub fn fresh_at(self, words: &[u32]) -> Nanos {
        if words[SUM_WORD] == 0 {
            return Nanos::ZERO;
        }
        let end_bucket = BucketRing::current_bucket(words) + self.slot_count() as u64;
        Nanos(end_bucket.saturating_mul(self.bucket_length.nanos()))
    }
}

/// Adds up counts; unlike the sum that a state keeps, the result does not saturate.
fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// The number of zeros before the first count that is not zero. It reads eight counts at a time, so it may be up to
/// seven too low.
fn count_leading_zeros(counts: &[u32]) -> usize {
    let (eights, _) = counts.as_chunks::<8>();
    let is_zero = |eight: &&[u32; 8]| eight.iter().fold(0, |bits, count| bits | count) == 0;
    eights.iter().take_while(is_zero).count() * 8
}
