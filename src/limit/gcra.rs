//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): one theoretical arrival time for each window.
//! A rate of `quota` units per `window` admits a burst at once, and then one unit each interval of
//! ceil(window / quota). So any time of one window sees at most burst + ceil(window / interval) - 1 units. The interval
//! is rounded up, because rounding down would admit more.
//!
//! The leaky bucket uses the same arithmetic. Its burst is one unit plus the most units that may be delayed at once.
//! Early requests are delayed until their turn instead of sent at once.
//!
//! Words of each window: `[theoretical arrival time in ns, low half, high half]`.

use super::interval::Interval;
use crate::base::clock::Nanos;

/// The number of words of each window.
pub(super) const WORDS_PER_WINDOW: usize = 2;

/// The longest time in which a burst may come back, in nanoseconds: 146 years. More would overflow arrival times.
const MAX_BURST_NANOS: u64 = 1 << 62;

/// `burst`, cut to the units that come back within [`MAX_BURST_NANOS`].
pub(super) fn bounded_burst(burst: u32, interval: Interval) -> u32 {
    match u64::from(burst).checked_mul(interval.nanos()) {
        Some(span) if span <= MAX_BURST_NANOS => burst,
        _ => u32::try_from(MAX_BURST_NANOS / interval.nanos()).unwrap_or(u32::MAX),
    }
}

/// The theoretical arrival time: at this time the whole burst is available again.
pub(super) fn theoretical_arrival_time(words: &[u32]) -> Nanos {
    Nanos(u64::from(words[1]) << 32 | u64::from(words[0]))
}

/// The units of the burst that are not available at `now`.
pub(super) fn used(words: &[u32], now: Nanos, interval: Interval) -> u32 {
    u32::try_from(interval.div_ceil(theoretical_arrival_time(words).since(now))).unwrap_or(u32::MAX)
}

/// The time until `units` of the used units are available again, or all of them if fewer are used.
pub(super) fn wait(words: &[u32], now: Nanos, interval: Interval, units: u32) -> Nanos {
    let excess = u64::from(used(words, now, interval).saturating_sub(units));
    let excess_nanos = excess.saturating_mul(interval.nanos());
    theoretical_arrival_time(words).since(now.after(Nanos(excess_nanos)))
}

/// Counts `cost` units at `now`, whether the burst has room for them or not.
pub(super) fn add_units(words: &mut [u32], now: Nanos, interval: Interval, cost: u32) {
    let span = interval.nanos().saturating_mul(u64::from(cost));
    let new_time = theoretical_arrival_time(words)
        .max(now)
        .after(Nanos(span))
        .0;
    words[0] = new_time as u32;
    words[1] = (new_time >> 32) as u32;
}
