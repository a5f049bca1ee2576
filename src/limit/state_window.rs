//! One window of a key's state, whatever the algorithm.

use super::interval::Interval;
use super::sliding_window::BUCKETS;
use super::{Algorithm, Fingerprint, Limit, Rate};
use super::{fixed_window, gcra, multi_level, sliding_log, sliding_window};
use crate::base::clock::Nanos;

/// The wait of a request that only reservations of unknown length keep out.
const UNKNOWN_WAIT: Nanos = Nanos::from_secs(1);

/// One window of a key's state.
pub(super) struct StateWindow<'a> {
    pub(super) limit: &'a Limit,
    pub(super) rate: &'a Rate,
    pub(super) index: usize,
    pub(super) key: Fingerprint,
    /// The words without the count of pending units.
    pub(super) state: &'a [u32],
    /// The time between two units, for algorithms with arrival times.
    pub(super) interval: Interval,
}

impl StateWindow<'_> {
    #[inline(always)]
    pub(super) fn used(&self, now: Nanos) -> u32 {
        let window = self.rate.window();
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                sliding_log::used(self.limit.longest(), self.state, now, window)
            }
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket());
                ring.used(&self.state[self.index * ring.words()..], now, BUCKETS)
            }
            Algorithm::MultiLevel => {
                let (offset, ring, window) = multi_level::ring_of(self.limit, window);
                ring.used(&self.state[offset..], now, window)
            }
            Algorithm::FixedWindow => {
                let words = &self.state[self.index * fixed_window::WORDS..];
                fixed_window::used(words, self.key, now, window)
            }
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let words = &self.state[self.index * gcra::WORDS..];
                gcra::used(words, now.after(self.slack()), self.interval)
            }
        }
    }

    /// Time until the oldest unit no longer counts. `most` units count.
    #[inline]
    pub(super) fn oldest(&self, now: Nanos, most: u32) -> Nanos {
        match self.limit.algorithm {
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket());
                let state = &self.state[self.index * ring.words()..];
                ring.until(state, now, BUCKETS, most, 1)
            }
            Algorithm::SlidingLog => self.wait(now, self.used(now), 1),
            _ => self.wait(now, most, 1),
        }
    }

    /// Time until `units` of those that count no longer do. Of `committed` units the time is known; others are pending.
    pub(super) fn wait_for(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        if units <= committed {
            return self.wait(now, committed, units);
        }
        // The rest is pending and may be settled at any moment.
        UNKNOWN_WAIT
    }

    /// Time until `units` of the `committed` ones no longer count; `units` must not be more than these.
    #[inline(always)]
    fn wait(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        let window = self.rate.window();
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                let longest = self.limit.longest();
                sliding_log::wait(longest, self.state, now, window, committed, units)
            }
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket());
                ring.wait(
                    &self.state[self.index * ring.words()..],
                    now,
                    BUCKETS,
                    units,
                )
            }
            Algorithm::MultiLevel => {
                let (offset, ring, window) = multi_level::ring_of(self.limit, window);
                ring.wait(&self.state[offset..], now, window, units)
            }
            Algorithm::FixedWindow => {
                let words = &self.state[self.index * fixed_window::WORDS..];
                fixed_window::wait(words, self.key, now, window)
            }
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let words = &self.state[self.index * gcra::WORDS..];
                gcra::wait(words, now.after(self.slack()), self.interval, units)
            }
        }
    }

    /// The part of the longest delay that is no whole interval. A unit may come early by this much more.
    fn slack(&self) -> Nanos {
        match self.limit.algorithm {
            Algorithm::LeakyBucket { max_delay } => Nanos(max_delay.0 % self.interval.nanos()),
            _ => Nanos::ZERO,
        }
    }
}
