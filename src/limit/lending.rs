//! What an elastic limit lends: units that the rate does not admit, one by one at a pace. Lent units are counted apart,
//! so they never take from the units that are guaranteed. At an elastic factor of 1.5, a rate of 60 units a minute
//! lends half as many: one unit each 2 s. No window gets more lent units than the difference of `at_most` and the rate.
//!
//! The state is a leaky bucket as a meter: each unit fills it by one, and it leaks at the current pace. The state keeps
//! the level. [The generic cell rate algorithm](super::gcra) keeps the time when the bucket will be empty instead, but
//! here that time changes with the factor.
//!
//! With a level of at most `max_level` before each unit, a window sees at most ceil(max_level + window / interval)
//! units: one unit leaks each `interval`. Paces below one unit in four of the longest windows lend nothing, so a state
//! can be forgotten after a while.
//!
//! Words: `[ns of the last unit, low half, high half, level after it in 2^-20 units, low half, high half]`.

use super::{Rate, RateLimit, Scale};
use crate::base::clock::Nanos;

/// The number of words of a state.
pub(super) const STATE_WORDS: usize = 4;

/// The largest number of units that were not lent in time and may still be lent at once.
const BURST_UNITS: u64 = 3;
/// Where the pace is fast, all units of this time may still be lent at once, if they are more than [`BURST_UNITS`].
const BURST_TIME: Nanos = Nanos::from_millis(100);
/// A burst is at most the units that a window may lend, divided by this.
const BURST_DIVISOR: u64 = 4;
/// [`BURST_TIME`] is at most the shortest window, divided by this.
const BURST_TIME_DIVISOR: u64 = 16;
/// The slowest pace is one unit in this many windows.
const MAX_INTERVAL_WINDOWS: u64 = 4;
/// A state is forgotten this many longest windows after its last unit: the time of two units at the slowest pace.
pub(super) const FORGET_AFTER_WINDOWS: u64 = 2 * MAX_INTERVAL_WINDOWS;

/// One unit in the state's level.
const LEVEL_PER_UNIT: u64 = 1 << 20;

/// The pace of lending at one moment, in microseconds and units, for stores that do the arithmetic elsewhere. All zeros
/// where nothing is lent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The time between two units; zero if nothing is lent.
    pub interval_micros: f64,
    /// The highest level at which one more unit is lent, in units.
    pub max_level: f64,
    /// The time after the last unit from which on the state is forgotten; zero if nothing is lent.
    pub forget_after_micros: f64,
}

/// The pace of lending at one moment, exact in nanoseconds, for the memory store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending {
    /// The time between two units, at least 1.
    interval_nanos: u64,
    /// The highest level at which one more unit is lent; one unit is [`LEVEL_PER_UNIT`].
    max_level: u64,
    /// The time after the last unit from which on the state is forgotten.
    forget_after: Nanos,
}

impl Lending {
    /// The pace at which `limit` lends; `None` if it lends nothing now. Nothing is lent if the limit is not elastic, or if
    /// `scale` lends nothing. The same holds while a window may lend less than a unit, or the pace is below the slowest.
    pub(super) fn new(limit: &RateLimit, scale: Scale) -> Option<Lending> {
        if !limit.throttle.is_elastic() {
            return None;
        }
        let shortest = limit.windows.first().filter(|_| scale.lent > 0)?.window();
        let burst_time = BURST_TIME.min(Nanos(shortest.0 / BURST_TIME_DIVISOR)).0;
        let max_lent = |rate: &Rate| {
            let quota = rate.quota_times(scale.plan_factor);
            u64::from(limit.throttle.max_lent(quota))
        };
        let min_lent = limit.windows.iter().map(max_lent).min()?;
        let burst_units = BURST_UNITS.min(min_lent.checked_sub(1)? / BURST_DIVISOR);
        let mut interval_nanos = 1;
        for rate in &limit.windows {
            let (quota, window) = (rate.quota_times(scale.plan_factor), rate.window().0);
            let lent_thousandths = (u64::from(quota) * u64::from(scale.lent)).max(1);
            let paced_interval = (u128::from(window) * 1000).div_ceil(u128::from(lent_thousandths));
            // The burst and the units of a window together do not exceed `at_most`.
            let max_lent = max_lent(rate);
            interval_nanos = interval_nanos
                .max(window.div_ceil(max_lent - burst_units))
                .max(burst_time.saturating_add(window).div_ceil(max_lent))
                .max(u64::try_from(paced_interval).unwrap_or(u64::MAX));
        }
        let longest = limit.longest_window();
        (interval_nanos <= longest.0 * MAX_INTERVAL_WINDOWS).then(|| Lending {
            interval_nanos,
            max_level: (burst_time * LEVEL_PER_UNIT / interval_nanos)
                .max(burst_units * LEVEL_PER_UNIT),
            forget_after: forget_after(limit),
        })
    }

    /// The same pace, in the units of other stores.
    pub(super) fn pace(self) -> Pace {
        Pace {
            interval_micros: self.interval_nanos as f64 / 1e3,
            max_level: self.max_level as f64 / LEVEL_PER_UNIT as f64,
            forget_after_micros: self.forget_after.0 as f64 / 1e3,
        }
    }

    /// The level at `now`, after what has leaked since the last unit.
    fn level_at(self, words: &[u32], now: Nanos) -> u64 {
        let elapsed = now.since(last_unit_time(words));
        if elapsed >= self.forget_after {
            return 0;
        }
        let leaked =
            u128::from(elapsed.0) * u128::from(LEVEL_PER_UNIT) / u128::from(self.interval_nanos);
        let leaked = u64::try_from(leaked).unwrap_or(u64::MAX);
        read_u64(&words[2..]).saturating_sub(leaked)
    }

    /// The time until `cost` units can be lent; zero if they can be lent at `now`.
    pub(super) fn wait(self, words: &[u32], now: Nanos, cost: u32) -> Nanos {
        let level_of_earlier_units = u64::from(cost.saturating_sub(1)) * LEVEL_PER_UNIT;
        let level_at_last_unit = self
            .level_at(words, now)
            .saturating_add(level_of_earlier_units);
        let excess = u128::from(level_at_last_unit.saturating_sub(self.max_level));
        let span = (excess * u128::from(self.interval_nanos)).div_ceil(u128::from(LEVEL_PER_UNIT));
        Nanos(u64::try_from(span).unwrap_or(u64::MAX))
    }

    /// Counts `cost` units as lent at `now`.
    pub(super) fn add_units(self, words: &mut [u32], now: Nanos, cost: u32) {
        let now = now.max(last_unit_time(words));
        let added_level = u64::from(cost) * LEVEL_PER_UNIT;
        let new_level = self.level_at(words, now).saturating_add(added_level);
        write_u64(now.0, words);
        write_u64(new_level, &mut words[2..]);
    }
}

/// The time from which on a state is equal to a fresh one.
pub(super) fn fresh_at(limit: &RateLimit, words: &[u32]) -> Nanos {
    match last_unit_time(words) {
        Nanos::ZERO => Nanos::ZERO,
        last_time => last_time.after(forget_after(limit)),
    }
}

/// The time after the last unit from which on a state is forgotten.
fn forget_after(limit: &RateLimit) -> Nanos {
    Nanos(limit.longest_window().0 * FORGET_AFTER_WINDOWS)
}

/// The time of the last lent unit; zero in a fresh state.
fn last_unit_time(words: &[u32]) -> Nanos {
    Nanos(read_u64(words))
}

/// Reads a number of two words, the low half first.
fn read_u64(words: &[u32]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

/// Writes a number as two words, the low half first.
fn write_u64(value: u64, words: &mut [u32]) {
    words[0] = value as u32;
    words[1] = (value >> 32) as u32;
}
