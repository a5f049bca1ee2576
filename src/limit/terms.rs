//! Decisions for most limits: those with one window, and nothing pending or lent. What does not depend on the state is
//! computed once for a client, and what a first look at the state finds is used again. Results and the state that stays are those of
//! [`KeyState::eval`](super::KeyState::eval), [`KeyState::apply`](super::KeyState::apply) and [`KeyState::finish`](super::KeyState::finish).

use super::interval::Interval;
use super::sliding_window::{BUCKETS, ring};
use super::{Algorithm, Limit, LimitReading, LimitStanding, gcra, sliding_log};
use crate::base::clock::Nanos;

/// What such a limit admits for one plan multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    quota: u32,
    /// Units that are admitted within the rate.
    base: u32,
    /// Units that are admitted with what the throttle adds.
    ceiling: u32,
    memory: StateLayout,
}

/// How the state is laid out, and what reading it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateLayout {
    Arrival(Interval),
    /// With the length of its buckets; their number is a constant, which divides faster.
    Ring(Interval),
    /// With its window.
    Log(Nanos),
}

/// What the state says about a request.
#[derive(Clone, Copy, Debug)]
pub struct Assessment {
    /// Whether the request passes.
    pub standing: LimitStanding,
    used: u32,
}

impl Limit {
    /// The terms for one plan multiplier, unless the limit needs all of [`KeyState`](super::KeyState).
    pub fn terms(&self, multiply: u32) -> Option<Terms> {
        let ([rate], 0) = (&self.windows[..], self.head_words()) else {
            return None;
        };
        let memory = match self.algorithm {
            Algorithm::Gcra { .. } => StateLayout::Arrival(rate.interval(multiply)),
            Algorithm::SlidingWindow => StateLayout::Ring(rate.bucket()),
            Algorithm::SlidingLog => StateLayout::Log(rate.window()),
            _ => return None,
        };
        let (base, ceiling) = self.bounds(rate, multiply);
        Some(Terms {
            quota: rate.times(multiply),
            base,
            ceiling,
            memory,
        })
    }
}

impl Terms {
    /// Decides whether `cost` units are admitted. Empty `words` stand for a fresh state.
    #[inline(always)]
    pub fn assess(&self, words: &[u32], now: Nanos, cost: u32) -> Assessment {
        let used = if words.is_empty() {
            0
        } else {
            match self.memory {
                StateLayout::Arrival(interval) => gcra::used(words, now, interval),
                StateLayout::Ring(length) => ring(length).used(words, now, BUCKETS),
                StateLayout::Log(window) => sliding_log::used(window, words, now, window),
            }
        };
        let total = u64::from(used) + u64::from(cost);
        let standing = if cost > self.ceiling {
            LimitStanding::Unsatisfiable
        } else if total > u64::from(self.ceiling) {
            LimitStanding::Refused
        } else if total > u64::from(self.base) {
            LimitStanding::Over
        } else {
            LimitStanding::Within
        };
        Assessment { standing, used }
    }

    /// Whether `words` have room for `cost` more units.
    #[inline(always)]
    pub fn has_room(&self, words: &[u32], cost: u32, found: Assessment) -> bool {
        match self.memory {
            StateLayout::Log(_) => {
                // Stamps that have left the window make room.
                let units = u64::from(found.used) + u64::from(cost);
                units <= sliding_log::capacity(words) as u64
            }
            StateLayout::Arrival(_) | StateLayout::Ring(_) => true,
        }
    }

    /// Counts units that are admitted; `words` must have room for them. Also returns when the state will be equal to a
    /// fresh one, if that has changed and the state itself does not say it.
    #[inline(always)]
    pub fn take(
        &self,
        words: &mut [u32],
        now: Nanos,
        cost: u32,
        found: Assessment,
    ) -> (LimitReading, Option<Nanos>) {
        let fresh_at = match self.memory {
            _ if cost == 0 => None,
            StateLayout::Arrival(interval) => {
                gcra::apply(words, now, interval, cost);
                None
            }
            StateLayout::Ring(length) => {
                let ring = ring(length);
                ring.apply(words, now, cost).then(|| ring.fresh_at(words))
            }
            StateLayout::Log(window) => {
                sliding_log::apply(window, words, now, cost);
                Some(sliding_log::fresh_at(window, words))
            }
        };
        let used = found.used.saturating_add(cost);
        let reading = self.reading(words, now, Assessment { used, ..found }, None);
        (reading, fresh_at)
    }

    /// The reading of a request for which nothing is taken. `words` are as in [`Terms::assess`].
    #[inline(always)]
    pub fn leave(&self, words: &[u32], now: Nanos, cost: u32, found: Assessment) -> LimitReading {
        let refused = (found.standing == LimitStanding::Refused).then(|| {
            let units = self.ceiling - cost;
            (units, self.until(words, now, found.used, units))
        });
        self.reading(words, now, found, refused)
    }

    #[inline(always)]
    fn reading(
        &self,
        words: &[u32],
        now: Nanos,
        found: Assessment,
        refused: Option<(u32, Nanos)>,
    ) -> LimitReading {
        let Assessment { standing, used } = found;
        let units = self.base.min(used).saturating_sub(1);
        let reset = match refused {
            _ if used == 0 => Nanos::ZERO,
            Some((same, wait)) if same == units => wait,
            _ => self.until(words, now, used, units),
        };
        LimitReading {
            standing,
            window: 0,
            quota: self.quota,
            remaining: self.base.saturating_sub(used),
            wait: refused.map_or(Nanos::ZERO, |(_, wait)| wait),
            reset,
            delay: Nanos::ZERO,
            sketched: false,
        }
    }

    /// Time until no more than `units` of the `used` ones count.
    #[inline(always)]
    fn until(&self, words: &[u32], now: Nanos, used: u32, units: u32) -> Nanos {
        match self.memory {
            StateLayout::Arrival(interval) => {
                let early = gcra::arrival(words).since(now);
                early.since(Nanos(interval.nanos().saturating_mul(u64::from(units))))
            }
            StateLayout::Ring(length) => {
                ring(length).until(words, now, BUCKETS, used, used.saturating_sub(units))
            }
            StateLayout::Log(window) => {
                sliding_log::wait(window, words, now, window, used, used.saturating_sub(units))
            }
        }
    }
}
