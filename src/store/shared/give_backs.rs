//! [`GiveBacks`]: units to give back once the store decides again. The store granted them to abandoned calls, or they were
//! reserved and not used while it was away. They wait until all gateways have reported their ungranted units, because
//! units that came back earlier would admit too much.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::call::{self, CounterName};
use super::pending_call::PendingCall;

/// [`GiveBacks::push`] drops a give-back if this many wait. The store then counts its units until they leave their window.
const MAX_WAITING_CALLS: usize = 8_192;

/// The give-backs that wait, at most as many as [`MAX_WAITING_CALLS`] and [`MAX_APPLIED_CALLS`] add up to. Beside them, at
/// most [`MAX_APPLIED_CALLS`] applied ones are kept.
#[derive(Debug, Default)]
pub struct GiveBacks {
    /// Give-backs that are not sent yet.
    waiting: Mutex<Vec<PendingCall>>,
    /// See [`GiveBacks::store_epoch`]. It changes under the lock of `waiting`.
    store_epoch: AtomicU32,
}

impl GiveBacks {
    /// A number that changes when the store loses its data or its master. Units that were granted before must not be given
    /// back after the change.
    pub(super) fn store_epoch(&self) -> u32 {
        self.store_epoch.load(Relaxed)
    }

    /// Adds a give-back of units that were granted in `store_epoch`. Drops it if that is an earlier life.
    pub(super) fn push(&self, give_back: PendingCall, store_epoch: u32) {
        let mut waiting = self.waiting.lock();
        if store_epoch == self.store_epoch() && waiting.len() < MAX_WAITING_CALLS {
            waiting.push(give_back);
        }
    }

    /// Takes out the give-backs of counters for which `is_ready` returns `true`. They get their numbers here, because the
    /// store expects them roughly in the order of their numbers.
    pub(super) fn take_ready(&self, is_ready: impl Fn(&CounterName) -> bool) -> Vec<PendingCall> {
        // The lock is released first: a thread in `push` may hold a lock that `is_ready` needs.
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let is_ready = |give_back: &PendingCall| {
            let part = give_back.call.parts.first();
            part.is_none_or(|part| is_ready(&part.name))
        };
        let store_epoch = self.store_epoch();
        let (mut ready, not_ready): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        for give_back in not_ready {
            self.push(give_back, store_epoch);
        }
        for part in ready.iter_mut().flat_map(|ready| &mut ready.call.parts) {
            if let Some(give_back) = &mut part.give_back {
                give_back.number = call::next_give_back_number();
            }
        }
        ready
    }

    /// Takes out all give-backs, because another server is the master. The caller compares them with the units that the new
    /// master had copied, because it lacks the former master's later grants.
    pub(super) fn take_for_new_master(&self) -> Vec<PendingCall> {
        let mut waiting = self.waiting.lock();
        self.store_epoch.fetch_add(1, Relaxed);
        std::mem::take(&mut *waiting)
    }

    /// Drops all give-backs and begins a new store epoch, because the store has lost its data.
    pub(super) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        self.store_epoch.fetch_add(1, Relaxed);
        waiting.clear();
    }
}
