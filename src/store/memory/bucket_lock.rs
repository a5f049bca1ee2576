//! The spin lock in a bucket's first word. The rest of the word is the bucket's version, which counts changes. Whoever holds
//! the lock must count each change of the bucket.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bit of the lock.
const LOCKED_BIT: u64 = 1;
/// One step of the version.
const VERSION_STEP: u64 = 2;
/// Looks at a lock before the thread gives up its processor.
const MAX_SPINS: u32 = 128;

/// Waits until the bucket with this first word is unlocked, and locks it.
#[inline]
pub(super) fn lock(lock: &AtomicU64) {
    while lock.fetch_or(LOCKED_BIT, Ordering::Acquire) & LOCKED_BIT != 0 {
        wait_until_unlocked(lock);
    }
}

/// Unlocks a bucket that the caller has locked.
#[inline]
pub(super) fn unlock(lock: &AtomicU64) {
    lock.store(
        lock.load(Ordering::Relaxed) & !LOCKED_BIT,
        Ordering::Release,
    );
}

/// Locks a bucket; `false` where it is locked already.
pub(super) fn try_lock(lock: &AtomicU64) -> bool {
    lock.fetch_or(LOCKED_BIT, Ordering::Acquire) & LOCKED_BIT == 0
}

/// A number that changes with every change of the bucket; `None` while it is locked.
#[inline]
pub(super) fn version(lock: &AtomicU64) -> Option<u64> {
    let word = lock.load(Ordering::Acquire);
    (word & LOCKED_BIT == 0).then_some(word)
}

/// Counts a change of a bucket that the caller has locked.
#[inline]
pub(super) fn count_change(lock: &AtomicU64) {
    lock.store(
        lock.load(Ordering::Relaxed) + VERSION_STEP,
        Ordering::Relaxed,
    );
}

#[cold]
fn wait_until_unlocked(lock: &AtomicU64) {
    let mut spins = 0;
    while lock.load(Ordering::Relaxed) & LOCKED_BIT != 0 {
        spins += 1;
        if spins < MAX_SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
