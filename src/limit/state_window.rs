//! Reads one window of a key's state, by the algorithm that keeps it. Nothing here changes the state.

use super::fixed_window::{self, FixedWindows};
use super::interval::Interval;
use super::sliding_window::BUCKETS;
use super::{Algorithm, CalendarWindow, Fingerprint, Rate, RateLimit};
use super::{gcra, multi_level, sliding_log, sliding_window};
use crate::base::clock::{Nanos, WallOffset};

/// The wait of a request that is refused because of pending units. It is a guess, because they may be settled at any
/// moment.
const PENDING_WAIT: Nanos = Nanos::from_secs(1);

/// One window of a key's state, and what is needed to read it.
pub(super) struct StateWindow<'a> {
    pub(super) limit: &'a RateLimit,
    pub(super) rate: &'a Rate,
    /// The index of the window among those of the limit.
    pub(super) index: usize,
    pub(super) key: Fingerprint,
    /// What gives the wall time, by which windows of the clock and the calendar begin.
    pub(super) wall: WallOffset,
    /// The words of the algorithm, without those of pending and lent units.
    pub(super) state: &'a [u32],
    /// The time between two units, with the plan's multiplier if the algorithm has theoretical arrival times. Other
    /// algorithms do not use it.
    pub(super) interval: Interval,
}

impl StateWindow<'_> {
    /// The number of units that count at `now`, without pending ones.
    #[inline(always)]
    pub(super) fn used(&self, now: Nanos) -> u32 {
        let window = self.rate.window();
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                sliding_log::used(self.limit.longest_window(), self.state, now, window)
            }
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket_length());
                ring.used(&self.state[self.index * ring.word_count()..], now, BUCKETS)
            }
            Algorithm::MultiLevel => {
                let (offset, ring, window_buckets) = multi_level::ring_for(self.limit, window);
                ring.used(&self.state[offset..], now, window_buckets)
            }
            Algorithm::FixedWindow => {
                let words = &self.state[self.index * fixed_window::WORDS_PER_WINDOW..];
                self.fixed_windows().used(words, now)
            }
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let words = &self.state[self.index * gcra::WORDS_PER_WINDOW..];
                gcra::used(words, now.after(self.early_slack()), self.interval)
            }
        }
    }

    /// The time until the oldest of the `used` units no longer counts.
    #[inline]
    pub(super) fn time_until_oldest_leaves(&self, now: Nanos, used: u32) -> Nanos {
        match self.limit.algorithm {
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket_length());
                let state = &self.state[self.index * ring.word_count()..];
                ring.wait_with_used(state, now, BUCKETS, used, 1)
            }
            Algorithm::SlidingLog => self.wait(now, self.used(now), 1),
            _ => self.wait(now, used, 1),
        }
    }

    /// The time until `units` of the units that count no longer do so. For up to `committed` units the time is certain.
    /// Beyond that, pending units must be settled first, and the time is [`PENDING_WAIT`].
    pub(super) fn wait_for(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        if units <= committed {
            return self.wait(now, committed, units);
        }
        PENDING_WAIT
    }

    /// The time until `units` of the `committed` ones no longer count. `units` must not be more than `committed`.
    #[inline(always)]
    fn wait(&self, now: Nanos, committed: u32, units: u32) -> Nanos {
        let window = self.rate.window();
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                let longest = self.limit.longest_window();
                sliding_log::wait(longest, self.state, now, window, committed, units)
            }
            Algorithm::SlidingWindow => {
                let ring = sliding_window::ring(self.rate.bucket_length());
                ring.wait(
                    &self.state[self.index * ring.word_count()..],
                    now,
                    BUCKETS,
                    units,
                )
            }
            Algorithm::MultiLevel => {
                let (offset, ring, window_buckets) = multi_level::ring_for(self.limit, window);
                ring.wait(&self.state[offset..], now, window_buckets, units)
            }
            Algorithm::FixedWindow => {
                let words = &self.state[self.index * fixed_window::WORDS_PER_WINDOW..];
                self.fixed_windows().wait(words, now)
            }
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let words = &self.state[self.index * gcra::WORDS_PER_WINDOW..];
                gcra::wait(words, now.after(self.early_slack()), self.interval, units)
            }
        }
    }

    /// The fixed windows of the rate for the key.
    pub(super) fn fixed_windows(&self) -> FixedWindows {
        FixedWindows::new(self.rate, self.key, self.wall)
    }

    /// The window of the calendar at `now`; `None` if the rate is not by the calendar.
    #[inline]
    pub(super) fn calendar_window(&self, now: Nanos) -> Option<CalendarWindow> {
        self.rate.calendar()?;
        let words = &self.state[self.index * fixed_window::WORDS_PER_WINDOW..];
        self.fixed_windows().calendar_window(words, now)
    }

    /// The part of a leaky bucket's longest delay that is no whole interval. A unit may come early by this much more.
    fn early_slack(&self) -> Nanos {
        match self.limit.algorithm {
            Algorithm::LeakyBucket { max_delay } => Nanos(max_delay.0 % self.interval.nanos()),
            _ => Nanos::ZERO,
        }
    }
}
