//! [`GiveBacks`]: units to give back once the store decides again. The store granted them to abandoned calls, or they were
//! reserved and not used while it was away. They wait until all gateways have reported their ungranted units, because
//! units that came back earlier would admit too much.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::call::CounterName;
use super::pending_call::PendingCall;
use crate::base::clock::Nanos;

/// [`GiveBacks::push`] drops a give-back if this many wait. The store then counts its units until they leave their window.
const MAX_WAITING_CALLS: usize = 8_192;
/// The most applied give-backs that are kept.
const MAX_APPLIED_CALLS: usize = 2_048;
/// How long applied give-backs are kept: longer than a former master goes on after another server has replaced it.
const APPLIED_CALL_LIFE: Nanos = Nanos::from_secs(60);

/// The give-backs that wait, at most as many as [`MAX_WAITING_CALLS`] and [`MAX_APPLIED_CALLS`] add up to. Beside them, at
/// most [`MAX_APPLIED_CALLS`] applied ones are kept.
#[derive(Debug, Default)]
pub struct GiveBacks {
    /// Give-backs that are not sent yet.
    waiting: Mutex<Vec<PendingCall>>,
    /// Give-backs that the store has applied in the last minute, and when, oldest first. A replica that takes over may not
    /// have copied them.
    applied: Mutex<VecDeque<(Nanos, PendingCall)>>,
    /// See [`GiveBacks::store_epoch`]. It changes under the lock of `waiting`.
    store_epoch: AtomicU32,
}

impl GiveBacks {
    /// A number that changes when the store loses its data or its master. Units that were granted before must not be given
    /// back after the change.
    pub(super) fn store_epoch(&self) -> u32 {
        self.store_epoch.load(Relaxed)
    }

    /// Adds a give-back of units that were granted in `store_epoch`. Drops it if the epoch has changed since, or if
    /// [`MAX_WAITING_CALLS`] wait already.
    pub(super) fn push(&self, give_back: PendingCall, store_epoch: u32) {
        let mut waiting = self.waiting.lock();
        if store_epoch == self.store_epoch() && waiting.len() < MAX_WAITING_CALLS {
            waiting.push(give_back);
        }
    }

    /// Adds again a give-back that was removed in `store_epoch`. Drops it if the epoch has changed since, or if the list is
    /// full with [`MAX_APPLIED_CALLS`] more than [`MAX_WAITING_CALLS`].
    pub(super) fn put_back(&self, give_back: PendingCall, store_epoch: u32) {
        let mut waiting = self.waiting.lock();
        // Applied give-backs that come back must not take the room of those that were never sent.
        if store_epoch == self.store_epoch()
            && waiting.len() < MAX_WAITING_CALLS + MAX_APPLIED_CALLS
        {
            waiting.push(give_back);
        }
    }

    /// Takes out the give-backs of counters for which `is_ready` returns `true`, with their numbers. Each gets the
    /// present epoch.
    pub(super) fn take_ready(&self, is_ready: impl Fn(&CounterName) -> bool) -> Vec<PendingCall> {
        // The lock is released first: a thread in `push` may hold a lock that `is_ready` needs.
        let (waiting, store_epoch) = {
            let mut waiting = self.waiting.lock();
            (std::mem::take(&mut *waiting), self.store_epoch())
        };
        let is_ready = |give_back: &PendingCall| {
            let part = give_back.call.parts.first();
            part.is_none_or(|part| is_ready(&part.name))
        };
        let (mut ready, not_ready): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        for give_back in not_ready {
            self.put_back(give_back, store_epoch);
        }
        // Those that were sent before have lower numbers than new ones get. Numbers that have wrapped around may be in another
        // order, which only matters where more than 52 wait for one key.
        ready.sort_by_key(|ready| {
            let part = ready.call.parts.first();
            let number = part.and_then(|part| part.give_back).map(|it| it.number);
            number.filter(|number| *number > 0).unwrap_or(u32::MAX)
        });
        let numbered = ready.into_iter().map(|ready| PendingCall {
            store_epoch,
            ..ready.numbered()
        });
        numbered.collect()
    }

    /// Keeps a give-back that the store has applied, for [`GiveBacks::take_for_new_master`]. Drops the oldest one if
    /// [`MAX_APPLIED_CALLS`] are kept.
    pub(super) fn record_applied(&self, give_back: &PendingCall, now: Nanos) {
        // A give-back without a total cannot be compared with what a new master has copied.
        if give_back
            .call
            .parts
            .first()
            .is_none_or(|part| part.gateway_total == 0)
        {
            return;
        }
        let mut applied = self.applied.lock();
        if applied.len() == MAX_APPLIED_CALLS {
            applied.pop_front();
        }
        applied.push_back((now, give_back.clone()));
        remove_expired(&mut applied, now);
    }

    /// Takes out all give-backs, because another server is the master, and begins a new store epoch. Those that the former
    /// master has applied in the last minute come first. The caller compares all with the units that the new master had
    /// copied, because the new master lacks the later grants.
    pub(super) fn take_for_new_master(&self, now: Nanos) -> Vec<PendingCall> {
        let mut applied = std::mem::take(&mut *self.applied.lock());
        remove_expired(&mut applied, now);
        let mut waiting = self.waiting.lock();
        self.store_epoch.fetch_add(1, Relaxed);
        let applied = applied.into_iter().map(|(_, give_back)| give_back);
        applied.chain(waiting.drain(..)).collect()
    }

    /// Drops all give-backs and begins a new store epoch, because the store has lost its data.
    pub(super) fn clear(&self) {
        self.applied.lock().clear();
        let mut waiting = self.waiting.lock();
        self.store_epoch.fetch_add(1, Relaxed);
        waiting.clear();
    }
}

/// Removes applied give-backs that are older than [`APPLIED_CALL_LIFE`].
fn remove_expired(applied: &mut VecDeque<(Nanos, PendingCall)>, now: Nanos) {
    while applied
        .front()
        .is_some_and(|(applied_at, _)| now.since(*applied_at) > APPLIED_CALL_LIFE)
    {
        applied.pop_front();
    }
}
