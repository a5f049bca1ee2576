//! Fixed windows: they do not slide. Each key has its own phase, so that refused clients do not all come back in the
//! same instant.
//!
//! Words of each window: `[number of the window, units]`. Numbers wrap after 2^32 windows: with windows of a second,
//! 136 years after the clock's origin.

use super::Fingerprint;
use crate::base::clock::Nanos;

/// The number of words of each window.
pub(super) const WORDS_PER_WINDOW: usize = 2;

/// The time by which a key's windows begin before multiples of the window's length.
pub(super) fn phase(key: Fingerprint, window: Nanos) -> Nanos {
    Nanos((key.0 >> 64) as u64 % window.0)
}

/// The number of the window that contains `now`. It is never before the window of the state: another thread may have
/// read the clock a moment earlier, and that must not forgive what was used since.
fn window_number(words: &[u32], key: Fingerprint, now: Nanos, window: Nanos) -> u64 {
    let number = now.after(phase(key, window)).0 / window.0;
    let windows_ahead = words[0].wrapping_sub(number as u32);
    // Numbers wrap, so a distance beyond half of their range means that the state is behind.
    let is_state_ahead = words[1] > 0 && windows_ahead <= i32::MAX as u32;
    if is_state_ahead {
        number + u64::from(windows_ahead)
    } else {
        number
    }
}

/// The units that count in the window of `now`.
pub(super) fn used(words: &[u32], key: Fingerprint, now: Nanos, window: Nanos) -> u32 {
    if words[0] == window_number(words, key, now, window) as u32 {
        words[1]
    } else {
        0
    }
}

/// The time until the next window begins.
pub(super) fn wait(words: &[u32], key: Fingerprint, now: Nanos, window: Nanos) -> Nanos {
    let next_start = (window_number(words, key, now, window) + 1).saturating_mul(window.0);
    Nanos(next_start).since(phase(key, window)).since(now)
}

/// Counts `cost` units at `now`.
pub(super) fn add_units(words: &mut [u32], key: Fingerprint, now: Nanos, window: Nanos, cost: u32) {
    let former_units = used(words, key, now, window);
    words[0] = window_number(words, key, now, window) as u32;
    words[1] = former_units.saturating_add(cost);
}

/// The time when the window of the state ends, and with it all of its units; zero if no units count.
pub(super) fn fresh_at(words: &[u32], key: Fingerprint, window: Nanos) -> Nanos {
    if words[1] == 0 {
        return Nanos::ZERO;
    }
    let next_start = (u64::from(words[0]) + 1).saturating_mul(window.0);
    Nanos(next_start).since(phase(key, window))
}
