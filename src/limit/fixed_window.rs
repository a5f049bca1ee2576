//! Windows that stand still. Each key has its own phase, so that the clients that were refused in
//! one window do not all come back in the same instant.
//!
//! Words of each window: `[number of the window, units]`.

use super::Fingerprint;
use crate::clock::Nanos;

/// Words of each window.
pub(super) const WORDS: usize = 2;

fn phase(key: Fingerprint, window: Nanos) -> u64 {
    (key.0 >> 64) as u64 % window.0
}

fn number(key: Fingerprint, window: Nanos, now: Nanos) -> u64 {
    now.0.saturating_add(phase(key, window)) / window.0
}

/// Units in the window of `now`.
pub(super) fn used(words: &[u32], key: Fingerprint, now: Nanos, window: Nanos) -> u32 {
    if words[0] == number(key, window, now) as u32 {
        words[1]
    } else {
        0
    }
}

/// Until the next window begins.
pub(super) fn wait(key: Fingerprint, now: Nanos, window: Nanos) -> Nanos {
    let next = (number(key, window, now) + 1).saturating_mul(window.0);
    Nanos(next - phase(key, window)).since(now)
}

/// Counts `cost` units at `now`.
pub(super) fn apply(words: &mut [u32], key: Fingerprint, now: Nanos, window: Nanos, cost: u32) {
    let before = used(words, key, now, window);
    words[0] = number(key, window, now) as u32;
    words[1] = before.saturating_add(cost);
}

/// When the window that counts is over.
pub(super) fn fresh_at(words: &[u32], key: Fingerprint, window: Nanos) -> Nanos {
    if words[1] == 0 {
        return Nanos::ZERO;
    }
    let next = (u64::from(words[0]) + 1).saturating_mul(window.0);
    Nanos(next.saturating_sub(phase(key, window)))
}
