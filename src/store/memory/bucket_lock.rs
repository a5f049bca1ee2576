//! The spin lock in a bucket's first word. The lowest bit is the lock, and the other bits are the bucket's version, which
//! counts changes. The holder of the lock must count each change of the bucket.
//!
//! Locking is an acquire and unlocking a release, so the lock orders all accesses to the bucket and to its blocks. While
//! the bit is set, other threads only set it again, which changes nothing. So the holder changes the word by a load and a
//! store.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bit that is set while the bucket is locked.
const LOCKED_BIT: u64 = 1;
/// What one change of the bucket adds to the word, above the bit of the lock.
const VERSION_STEP: u64 = 2;
/// How often a thread reads a lock before it yields its processor with each further read. A holder unlocks within a few
/// microseconds, unless the system has suspended it.
const MAX_SPINS: u32 = 128;

/// Waits until the bucket with this first word is unlocked, and locks it.
#[inline]
pub(super) fn lock(lock_word: &AtomicU64) {
    while lock_word.fetch_or(LOCKED_BIT, Ordering::Acquire) & LOCKED_BIT != 0 {
        wait_until_unlocked(lock_word);
    }
}

/// Unlocks a bucket that the caller has locked.
#[inline]
pub(super) fn unlock(lock_word: &AtomicU64) {
    lock_word.store(
        lock_word.load(Ordering::Relaxed) & !LOCKED_BIT,
        Ordering::Release,
    );
}

/// Locks a bucket; `false` where it is locked already.
pub(super) fn try_lock(lock_word: &AtomicU64) -> bool {
    lock_word.fetch_or(LOCKED_BIT, Ordering::Acquire) & LOCKED_BIT == 0
}

/// A number that changes with every change of the bucket; `None` while it is locked.
#[inline]
pub(super) fn version(lock_word: &AtomicU64) -> Option<u64> {
    let word = lock_word.load(Ordering::Acquire);
    (word & LOCKED_BIT == 0).then_some(word)
}

/// Counts a change of a bucket that the caller has locked.
#[inline]
pub(super) fn count_change(lock_word: &AtomicU64) {
    lock_word.store(
        lock_word.load(Ordering::Relaxed) + VERSION_STEP,
        Ordering::Relaxed,
    );
}

#[cold]
fn wait_until_unlocked(lock_word: &AtomicU64) {
    let mut spins = 0;
    while lock_word.load(Ordering::Relaxed) & LOCKED_BIT != 0 {
        spins += 1;
        if spins < MAX_SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
