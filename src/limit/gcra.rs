//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): one theoretical arrival time for each window.
//! It admits a burst of B at once and then one unit each T = ceil(W / N). In any window of length W that is at most B
//! + ceil(W / T) - 1. T is rounded up, because rounding down would admit more.
//!
//! The leaky bucket is the same with a burst of one, except that early requests are delayed until their turn instead of
//! refused.
//!
//! Words of each window: `[theoretical arrival time in ns, low half, high half]`.

use super::interval::Interval;
use crate::base::clock::Nanos;

/// Words of each window.
pub(super) const WORDS: usize = 2;

/// `burst`, cut to the units that come back within 2^62 ns, 146 years. More would overflow arrival times.
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

/// Units of the burst that are not available at `now`.
pub(super) fn used(words: &[u32], now: Nanos, interval: Interval) -> u32 {
    u32::try_from(interval.count(arrival(words).since(now))).unwrap_or(u32::MAX)
}

/// Time until `units` more are available.
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
