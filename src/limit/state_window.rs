//! One window of a cell, whatever algorithm remembers it.

use super::interval::Interval;
use super::sliding_window::BUCKETS;
use super::{Algorithm, Fingerprint, Limit, Rate};
use super::{fixed_window, gcra, multi_level, sliding_log, sliding_window};
use crate::base::clock::Nanos;

/// How long a request waits when only reservations of unknown length are in its way.
const UNKNOWN_WAIT: Nanos = Nanos::from_secs(1);

/// One window of a cell.
pub(super) struct StateWindow<'a> {
    pub(super) limit: &'a Limit,
    pub(super) rate: &'a Rate,
    pub(super) index: usize,
    pub(super) key: Fingerprint,
    /// The words without the count of pending units.
    pub(super) state: &'a [u32],
    /// Between two units, where the algorithm knows one.
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

    /// Until the oldest of those that count no longer does; there are no more than `most`.
    #[inline]
    pub(super) fn oldest(&self, now: Nanos, most: u32) -> Nanos {
        match self.limit.algorithm {
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket());
                let state = &self.state[self.index * ring.words()..];
                ring.until(state, now, BUCKETS, (most, 1))
            }
            Algorithm::SlidingLog => self.wait(now, self.used(now), 1),
            _ => self.wait(now, most, 1),
        }
    }

    /// Until `units` of those that count no longer do, `committed` of them for a time that is known.
    pub(super) fn wait_for(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        if units <= committed {
            return self.wait(now, committed, units);
        }
        // The rest is pending and may be given back at any moment.
        UNKNOWN_WAIT
    }

    /// Until `units` of the `committed` that count no longer do; there are as many.
    #[inline(always)]
    fn wait(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        let window = self.rate.window();
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                let units = (committed, units);
                sliding_log::wait(self.limit.longest(), self.state, now, window, units)
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

    /// What of the longest delay is no whole interval: so much later than it is, a unit may come.
    fn slack(&self) -> Nanos {
        match self.limit.algorithm {
            Algorithm::LeakyBucket { max_delay } => Nanos(max_delay.0 % self.interval.nanos()),
            _ => Nanos::ZERO,
        }
    }
}
