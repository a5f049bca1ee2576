//! Units to give back once the store is shared: what it granted to calls that this gateway had given up, and what
//! was reserved in it and not used while it was away. Until all gateways have told what they admitted meanwhile,
//! units that came back early would admit too much.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::call::{self, CounterName};
use super::pending::PendingCall;

/// Most give-backs that wait. What is beyond counts until it leaves its window.
const MOST: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub struct GiveBacks {
    waiting: Mutex<Vec<PendingCall>>,
    life: AtomicU32,
}

impl GiveBacks {
    /// Which of the store's lives it is, as this gateway counts them. What another one granted is gone with it.
    pub(super) fn life(&self) -> u32 {
        self.life.load(Relaxed)
    }

    /// Adds a give-back of what was granted in `life`.
    pub(super) fn push(&self, back: PendingCall, life: u32) {
        let mut waiting = self.waiting.lock();
        if life == self.life() && waiting.len() < MOST {
            waiting.push(back);
        }
    }

    /// Takes out those of keys that are `ready`. They are numbered now, for the store takes them in the order of their
    /// numbers.
    pub(super) fn take(&self, ready: impl Fn(&CounterName) -> bool) -> Vec<PendingCall> {
        // Who pushes may hold a lock that `ready` needs.
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let is_ready = |back: &PendingCall| {
            let part = back.call.parts.first();
            part.is_none_or(|part| ready(&part.name))
        };
        let life = self.life();
        let (mut backs, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        later.into_iter().for_each(|back| self.push(back, life));
        for part in backs.iter_mut().flat_map(|back| &mut back.call.parts) {
            if let Some(back) = &mut part.back {
                back.number = call::next_number();
            }
        }
        backs
    }

    /// Another server leads, with what it had copied of the former one: what waits is compared with that. What the former
    /// one grants from now on is not there.
    pub(super) fn moved(&self) -> Vec<PendingCall> {
        let mut waiting = self.waiting.lock();
        self.life.fetch_add(1, Relaxed);
        std::mem::take(&mut *waiting)
    }

    /// The store has another life.
    pub(super) fn renewed(&self) {
        let mut waiting = self.waiting.lock();
        self.life.fetch_add(1, Relaxed);
        waiting.clear();
    }
}
