//! What an elastic limit lends: units that the rate does not admit, one by one at a pace. Lent units are counted apart,
//! so they never take from the units that are guaranteed. A rate of N per window W lends, at the elastic factor m, one
//! unit each W / (N (m - 1)). In no window does it lend more than `at_most` is above the rate.
//!
//! The state is a leaky bucket as a meter: each unit fills it by one, and it leaks at the current pace. Its level is
//! kept, not the time when it will be empty as in [the generic cell rate algorithm](super::gcra), because that time
//! changes with m. With a level of at most L before each unit and a pace of r, a window sees at most ceil(L + r W)
//! units. Paces below one unit in four windows lend nothing, so a state can be forgotten after a while.
//!
//! Words: `[ns of the last unit, low half, high half, level after it in 2^-20 units, low half, high half]`.

use super::{Limit, Rate, Scale};
use crate::base::clock::Nanos;

/// Words of a state.
pub(super) const WORDS: usize = 4;

/// Units that were not taken in time and are still lent later.
const ROOM: u64 = 3;
/// Where the pace is fast, the units of this time are still lent later, if they are more than [`ROOM`].
const LATE: Nanos = Nanos::from_millis(100);
/// [`ROOM`] is at most this part of the units that a window may lend.
const PART_OF_MOST: u64 = 4;
/// [`LATE`] is at most this part of the shortest window.
const PART_OF_WINDOW: u64 = 16;
/// The slowest pace is one unit in this many windows. After twice as many, the state is forgotten.
const WINDOWS: u64 = 4;

const UNIT: u64 = 1 << 20;

/// The pace of lending at one moment, in microseconds and units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Time between two units; zero if nothing is lent.
    pub interval: f64,
    /// The highest level at which one more unit is lent.
    pub room: f64,
    /// Time after the last unit until the state is forgotten.
    pub forgotten: f64,
}

/// The pace of lending at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending {
    /// Nanoseconds between two units.
    interval: u64,
    /// The highest level at which one more unit is lent, in units of 1 / [`UNIT`].
    room: u64,
    /// Time after the last unit until the state is forgotten.
    forgotten: Nanos,
}

impl Lending {
    /// The pace at which `limit` lends, if it lends anything.
    pub(super) fn new(limit: &Limit, scale: Scale) -> Option<Lending> {
        if !limit.throttle.lends() {
            return None;
        }
        let shortest = limit.windows.first().filter(|_| scale.lent > 0)?.window();
        let late = LATE.min(Nanos(shortest.0 / PART_OF_WINDOW)).0;
        let lends_at_most = |rate: &Rate| {
            let quota = rate.times(scale.multiply);
            u64::from(limit.throttle.lends_at_most(quota))
        };
        let least = limit.windows.iter().map(lends_at_most).min()?;
        let room = ROOM.min(least.checked_sub(1)? / PART_OF_MOST);
        let mut interval = 1;
        for rate in &limit.windows {
            let (quota, window) = (rate.times(scale.multiply), rate.window().0);
            let thousandths = (u64::from(quota) * u64::from(scale.lent)).max(1);
            let pace = (u128::from(window) * 1000).div_ceil(u128::from(thousandths));
            // The room and the units of a window together do not exceed `at_most`.
            let most = lends_at_most(rate);
            interval = interval
                .max(window.div_ceil(most - room))
                .max(late.saturating_add(window).div_ceil(most))
                .max(u64::try_from(pace).unwrap_or(u64::MAX));
        }
        let longest = limit.longest();
        (interval <= longest.0 * WINDOWS).then(|| Lending {
            interval,
            room: (late * UNIT / interval).max(room * UNIT),
            forgotten: forgotten(limit),
        })
    }

    /// The pace in microseconds and units.
    pub(super) fn pace(self) -> Pace {
        Pace {
            interval: self.interval as f64 / 1e3,
            room: self.room as f64 / UNIT as f64,
            forgotten: self.forgotten.0 as f64 / 1e3,
        }
    }

    fn level(self, words: &[u32], now: Nanos) -> u64 {
        let since = now.since(last(words));
        if since >= self.forgotten {
            return 0;
        }
        let leaked = u128::from(since.0) * u128::from(UNIT) / u128::from(self.interval);
        let leaked = u64::try_from(leaked).unwrap_or(u64::MAX);
        join(&words[2..]).saturating_sub(leaked)
    }

    /// Time until `cost` units are lent; zero if they are at `now`.
    pub(super) fn wait(self, words: &[u32], now: Nanos, cost: u32) -> Nanos {
        let others = u64::from(cost.saturating_sub(1)) * UNIT;
        let level = self.level(words, now).saturating_add(others);
        let above = u128::from(level.saturating_sub(self.room));
        let span = (above * u128::from(self.interval)).div_ceil(u128::from(UNIT));
        Nanos(u64::try_from(span).unwrap_or(u64::MAX))
    }

    /// Lends `cost` units at `now`.
    pub(super) fn apply(self, words: &mut [u32], now: Nanos, cost: u32) {
        let now = now.max(last(words));
        let level = self.level(words, now);
        let level = level.saturating_add(u64::from(cost) * UNIT);
        split(now.0, words);
        split(level, &mut words[2..]);
    }
}

/// The time from which on a state is equal to a fresh one.
pub(super) fn fresh_at(limit: &Limit, words: &[u32]) -> Nanos {
    match last(words) {
        Nanos::ZERO => Nanos::ZERO,
        last => last.after(forgotten(limit)),
    }
}

fn forgotten(limit: &Limit) -> Nanos {
    Nanos(limit.longest().0 * 2 * WINDOWS)
}

fn last(words: &[u32]) -> Nanos {
    Nanos(join(words))
}

fn join(words: &[u32]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

fn split(value: u64, words: &mut [u32]) {
    words[0] = value as u32;
    words[1] = (value >> 32) as u32;
}
