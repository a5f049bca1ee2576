//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): one theoretical arrival time a
//! window. Admits a burst of B at once and one unit each T = ceil(W / N) after that; in any window
//! of length W at most B + ceil(W / T) - 1. T is rounded up, for rounding down would admit more.
//!
//! The leaky bucket is the same with a burst of one, except that what comes early is delayed until
//! its turn instead of refused.
//!
//! Words of each window: `[theoretical arrival time in ns, low half, high half]`.

use super::interval::Interval;
use crate::base::clock::Nanos;

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
