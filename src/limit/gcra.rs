//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): one theoretical arrival time a
//! window. Admits a burst of B at once and one unit each T = ceil(W / N) after that; in any window
//! of length W at most B + ceil(W / T) - 1. T is rounded up, for rounding down would admit more.
//!
//! The leaky bucket is the same with a burst of one, except that what comes early is delayed until
//! its turn instead of refused.
//!
//! Words of each window: `[theoretical arrival time in ns, low half, high half]`.

use super::rate::Interval;
use super::{Reading, Standing};
use crate::clock::Nanos;

/// Words of each window.
pub(super) const WORDS: usize = 2;

/// `burst`, as far as it comes back within 2^62 ns, 146 years. With more, arrival times would pass the
/// end of time and forget.
pub(super) fn bounded(burst: u32, interval: Interval) -> u32 {
    const MOST: u64 = 1 << 62;
    match u64::from(burst).checked_mul(interval.nanos()) {
        Some(span) if span <= MOST => burst,
        _ => u32::try_from(MOST / interval.nanos()).unwrap_or(u32::MAX),
    }
}

/// The theoretical arrival time.
pub(super) fn arrival(words: &[u32]) -> Nanos {
    Nanos(u64::from(words[1]) << 32 | u64::from(words[0]))
}

/// Units of a burst that are not available at `now`.
pub(super) fn used(words: &[u32], now: Nanos, interval: Interval) -> u32 {
    u32::try_from(interval.count(arrival(words).since(now))).unwrap_or(u32::MAX)
}

/// Until `units` more are available.
pub(super) fn wait(words: &[u32], now: Nanos, interval: Interval, units: u32) -> Nanos {
    let left = u64::from(used(words, now, interval).saturating_sub(units));
    arrival(words).since(now.after(Nanos(left.saturating_mul(interval.nanos()))))
}

/// Counts `cost` units at `now`.
pub(super) fn apply(words: &mut [u32], now: Nanos, interval: Interval, cost: u32) {
    let span = interval.nanos().saturating_mul(u64::from(cost));
    let next = arrival(words).max(now).after(Nanos(span)).0;
    words[0] = next as u32;
    words[1] = (next >> 32) as u32;
}

/// What a limit of one window admits to one request, worked out before its state is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub(super) quota: u32,
    /// Units that may be used within the rate, and with what the throttle lends.
    pub(super) base: u32,
    pub(super) ceiling: u32,
    pub(super) interval: Interval,
}

impl Terms {
    /// Decides about `cost` units, and takes them when they are admitted and `consume` is set. `words`
    /// is the state.
    #[inline]
    pub fn decide(&self, words: &mut [u32], now: Nanos, cost: u32, consume: bool) -> Reading {
        let mut early = arrival(words).since(now);
        let mut used = u32::try_from(self.interval.count(early)).unwrap_or(u32::MAX);
        let total = u64::from(used) + u64::from(cost);
        let mut wait = Nanos::ZERO;
        let standing = if cost > self.ceiling {
            Standing::Unsatisfiable
        } else if total > u64::from(self.ceiling) {
            wait = self.until(self.ceiling - cost, early);
            Standing::Refused
        } else {
            if consume && cost > 0 {
                apply(words, now, self.interval, cost);
                used += cost;
                early = arrival(words).since(now);
            }
            if total > u64::from(self.base) {
                Standing::Over
            } else {
                Standing::Within
            }
        };
        Reading {
            standing,
            window: 0,
            quota: self.quota,
            remaining: self.base.saturating_sub(used),
            wait,
            reset: self.until(self.base.min(used).saturating_sub(1), early),
            delay: Nanos::ZERO,
            sketched: false,
        }
    }

    /// Until no more than `units` are used.
    fn until(&self, units: u32, early: Nanos) -> Nanos {
        early.since(Nanos(
            self.interval.nanos().saturating_mul(u64::from(units)),
        ))
    }
}
