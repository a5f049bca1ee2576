//! The fast path of decisions. It serves limits with one window that neither reserve nor lend, by the algorithms that
//! most limits have. Figures that do not depend on the state are computed before the state is read. What
//! [`FastPath::assess`] reads from the state is used again.
//!
//! Findings and states are always equal to those of [`KeyState::assess`](super::KeyState::assess),
//! [`KeyState::take_units`](super::KeyState::take_units) and
//! [`KeyState::complete_finding`](super::KeyState::complete_finding).

use super::interval::Interval;
use super::sliding_window::{BUCKETS, ring};
use super::{Algorithm, LimitFinding, LimitStanding, RateLimit, gcra, sliding_log};
use crate::base::clock::Nanos;

/// What a limit with one window admits for one plan multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPath {
    /// The quota in units, with the plan's multiplier.
    quota: u32,
    /// The units that are admitted within the rate: the quota, or the burst.
    base: u32,
    /// The units that are admitted with what a soft limit adds.
    ceiling: u32,
    layout: StateLayout,
}

/// How the words of the state are laid out, and the figure that is needed to read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateLayout {
    /// A theoretical arrival time, with the interval between two units.
    ArrivalTime(Interval),
    /// A ring, with the length of its buckets. Their number is a constant, which divides faster.
    Ring(Interval),
    /// A log, with the length of its window.
    Log(Nanos),
}

/// What the state says about a request. An assessment stays valid until the state changes.
#[derive(Clone, Copy, Debug)]
pub struct Assessment {
    /// Whether the limit admits the request.
    pub standing: LimitStanding,
    /// The units that count in the window before this request.
    used: u32,
}

impl RateLimit {
    /// The fast path for one plan multiplier; `None` if the limit needs [`KeyState`](super::KeyState): with several
    /// windows, with reservations or lending, and with the algorithms that [`FastPath`] has no layout for.
    pub fn fast_path(&self, plan_factor: u32) -> Option<FastPath> {
        let ([rate], 0) = (&self.windows[..], self.head_words()) else {
            return None;
        };
        let layout = match self.algorithm {
            Algorithm::Gcra { .. } => StateLayout::ArrivalTime(rate.interval(plan_factor)),
            Algorithm::SlidingWindow => StateLayout::Ring(rate.bucket_length()),
            Algorithm::SlidingLog => StateLayout::Log(rate.window()),
            _ => return None,
        };
        let (base, ceiling) = self.unit_bounds(rate, plan_factor);
        Some(FastPath {
            quota: rate.quota_times(plan_factor),
            base,
            ceiling,
            layout,
        })
    }
}

impl FastPath {
    /// Decides whether `cost` units are admitted, and changes nothing. Empty `words` stand for a fresh state.
    #[inline(always)]
    pub fn assess(&self, words: &[u32], now: Nanos, cost: u32) -> Assessment {
        let used = if words.is_empty() {
            0
        } else {
            match self.layout {
                StateLayout::ArrivalTime(interval) => gcra::used(words, now, interval),
                StateLayout::Ring(bucket_length) => ring(bucket_length).used(words, now, BUCKETS),
                StateLayout::Log(window) => sliding_log::used(window, words, now, window),
            }
        };
        let total_units = u64::from(used) + u64::from(cost);
        let standing = if cost > self.ceiling {
            LimitStanding::Unsatisfiable
        } else if total_units > u64::from(self.ceiling) {
            LimitStanding::Refused
        } else if total_units > u64::from(self.base) {
            LimitStanding::Over
        } else {
            LimitStanding::Within
        };
        Assessment { standing, used }
    }

    /// Whether `words` have room for `cost` more units.
    #[inline(always)]
    pub fn has_room(&self, words: &[u32], cost: u32, assessment: Assessment) -> bool {
        match self.layout {
            StateLayout::Log(_) => {
                // Stamps that have left the window make room.
                let units = u64::from(assessment.used) + u64::from(cost);
                units <= sliding_log::capacity(words) as u64
            }
            StateLayout::ArrivalTime(_) | StateLayout::Ring(_) => true,
        }
    }

    /// Counts `cost` units that [`FastPath::assess`] has admitted; `words` must have room for them. Returns the finding,
    /// and the time from which on the state is equal to a fresh one. That time is `None` if it has not changed, or if it is
    /// what the words hold.
    #[inline(always)]
    pub fn take_units(
        &self,
        words: &mut [u32],
        now: Nanos,
        cost: u32,
        assessment: Assessment,
    ) -> (LimitFinding, Option<Nanos>) {
        let fresh_at = match self.layout {
            _ if cost == 0 => None,
            StateLayout::ArrivalTime(interval) => {
                gcra::add_units(words, now, interval, cost);
                None
            }
            StateLayout::Ring(bucket_length) => {
                let ring = ring(bucket_length);
                ring.add_units(words, now, cost)
                    .then(|| ring.fresh_at(words))
            }
            StateLayout::Log(window) => {
                sliding_log::add_units(window, words, now, cost);
                Some(sliding_log::fresh_at(window, words))
            }
        };
        let used = assessment.used.saturating_add(cost);
        let finding = self.build_finding(words, now, Assessment { used, ..assessment }, None);
        (finding, fresh_at)
    }

    /// The finding of a request that takes nothing: this limit refuses it, or another one does. `words` are as in
    /// [`FastPath::assess`].
    #[inline(always)]
    pub fn untaken_finding(
        &self,
        words: &[u32],
        now: Nanos,
        cost: u32,
        assessment: Assessment,
    ) -> LimitFinding {
        let refusal = (assessment.standing == LimitStanding::Refused).then(|| {
            let allowed_units = self.ceiling - cost;
            (
                allowed_units,
                self.time_until(words, now, assessment.used, allowed_units),
            )
        });
        self.build_finding(words, now, assessment, refusal)
    }

    /// Builds the finding. `refusal` has the units that may still count when a refused request would pass, and the time
    /// until then.
    #[inline(always)]
    fn build_finding(
        &self,
        words: &[u32],
        now: Nanos,
        assessment: Assessment,
        refusal: Option<(u32, Nanos)>,
    ) -> LimitFinding {
        let Assessment { standing, used } = assessment;
        let units_at_reset = self.base.min(used).saturating_sub(1);
        let reset = match refusal {
            _ if used == 0 => Nanos::ZERO,
            Some((allowed_units, wait)) if allowed_units == units_at_reset => wait,
            _ => self.time_until(words, now, used, units_at_reset),
        };
        LimitFinding {
            standing,
            window: 0,
            quota: self.quota,
            remaining: self.base.saturating_sub(used),
            wait: refusal.map_or(Nanos::ZERO, |(_, wait)| wait),
            reset,
            delay: Nanos::ZERO,
            calendar_window: None,
            sketched: false,
        }
    }

    /// The time until no more than `units` of the `used` ones count.
    #[inline(always)]
    fn time_until(&self, words: &[u32], now: Nanos, used: u32, units: u32) -> Nanos {
        match self.layout {
            StateLayout::ArrivalTime(interval) => {
                let time_ahead = gcra::theoretical_arrival_time(words).since(now);
                time_ahead.since(Nanos(interval.nanos().saturating_mul(u64::from(units))))
            }
            StateLayout::Ring(bucket_length) => ring(bucket_length).wait_with_used(
                words,
                now,
                BUCKETS,
                used,
                used.saturating_sub(units),
            ),
            StateLayout::Log(window) => {
                sliding_log::wait(window, words, now, window, used, used.saturating_sub(units))
            }
        }
    }
}
