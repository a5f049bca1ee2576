//! Units to give back once the store is shared: those that it granted to abandoned calls, and those that were reserved
//! and not used while it was away. Before all gateways have reported what they admitted meanwhile, units that came
//! back would admit too much.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::call::{self, CounterName};
use super::pending::PendingCall;

/// Most give-backs that wait. The units of further ones count until they leave their window.
const MOST: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub struct GiveBacks {
    waiting: Mutex<Vec<PendingCall>>,
    life: AtomicU32,
}

impl GiveBacks {
    /// A number that changes when the store loses its data. Grants from before are gone with the data.
    pub(super) fn life(&self) -> u32 {
        self.life.load(Relaxed)
    }

    /// Adds a give-back of units that were granted in `life`.
    pub(super) fn push(&self, back: PendingCall, life: u32) {
        let mut waiting = self.waiting.lock();
        if life == self.life() && waiting.len() < MOST {
            waiting.push(back);
        }
    }

    /// Takes out the give-backs of counters that are `ready`. They get their numbers here, because the store takes them
    /// in the order of their numbers.
    pub(super) fn take(&self, ready: impl Fn(&CounterName) -> bool) -> Vec<PendingCall> {
        // Unlocked first: a thread in `push` may hold a lock that `ready` needs.
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let is_ready = |back: &PendingCall| {
            let part = back.call.parts.first();
            part.is_none_or(|part| ready(&part.name))
        };
        let life = self.life();
        let (mut backs, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        later.into_iter().for_each(|back| self.push(back, life));
        for part in backs.iter_mut().flat_map(|back| &mut back.call.parts) {
            if let Some(back) = &mut part.give_back {
                back.number = call::next_number();
            }
        }
        backs
    }

    /// Another server is the master: takes out all give-backs, to be compared with what it had copied. Later grants of
    /// the former master are not there.
    pub(super) fn moved(&self) -> Vec<PendingCall> {
        let mut waiting = self.waiting.lock();
        self.life.fetch_add(1, Relaxed);
        std::mem::take(&mut *waiting)
    }

    /// The store has lost its data: forgets all give-backs.
    pub(super) fn renewed(&self) {
        let mut waiting = self.waiting.lock();
        self.life.fetch_add(1, Relaxed);
        waiting.clear();
    }
}
