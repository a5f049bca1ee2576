//! The state that a store keeps for one key under one limit: plain words, so that a store can put
//! them where it likes, and pure functions over them.
//!
//! A state of all zeros is a fresh one. A limit whose state fits two words ([`Limit::inline`]) may be
//! kept inside a table entry; the others grow with use, up to [`Limit::max_words`].

use super::{Fingerprint, Limit, Reading};
use crate::clock::Nanos;

/// What must be equal for two limits to share states: algorithm, window lengths, reservation. Quotas,
/// throttles and plans may differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(pub(super) Vec<u64>);

/// One key's state: a view on the words that a store keeps.
#[derive(Debug)]
pub struct Cell<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// Whose it is; gives fixed windows their phase.
    pub key: Fingerprint,
    /// The words.
    pub words: &'a mut [u32],
}

impl Limit {
    /// See [`Shape`].
    pub fn shape(&self) -> Shape {
        unimplemented!()
    }

    /// Whether the state always fits two words.
    pub fn inline(&self) -> bool {
        unimplemented!()
    }

    /// Words that a fresh state needs before `cost` units can be applied.
    pub fn min_words(&self, _cost: u32) -> usize {
        unimplemented!()
    }

    /// Most words a state can need.
    pub fn max_words(&self) -> usize {
        unimplemented!()
    }
}

impl Cell<'_> {
    /// What the limit says to `cost` units at `now`, leaving the state as it is.
    pub fn eval(&self, _now: Nanos, _cost: u32, _multiply: u32) -> Reading {
        unimplemented!()
    }

    /// Words needed before `cost` more units can be applied at `now`; more than there are means that
    /// the store must move the state to a larger place with [`Cell::move_to`] first.
    pub fn needs_words(&self, _now: Nanos, _cost: u32) -> usize {
        unimplemented!()
    }

    /// Copies the state to a larger or smaller place (at least [`Cell::needs_words`]), dropping what
    /// has left all windows.
    pub fn move_to(&self, _now: Nanos, _words: &mut [u32]) {
        unimplemented!()
    }

    /// Counts `cost` units at `now` (as pending when the limit reserves). Only after
    /// [`Cell::eval`] admitted them and with words enough.
    pub fn apply(&mut self, _now: Nanos, _cost: u32) {
        unimplemented!()
    }

    /// Ends a reservation: `reserved` units are no longer pending, `used` units count from `now`.
    /// Needs room for `used` units, as [`Cell::apply`] does.
    pub fn settle(&mut self, _now: Nanos, _reserved: u32, _used: u32) {
        unimplemented!()
    }

    /// From when on the state is equal to a fresh one if nothing more happens; the end of time while
    /// something is pending.
    pub fn fresh_at(&self) -> Nanos {
        unimplemented!()
    }

    /// Units that count at `now` in the window at `index`, pending ones included.
    pub fn used(&self, _now: Nanos, _index: usize) -> u32 {
        unimplemented!()
    }

    /// Fills this fresh state with what `old`, a state of another shape, counts: never less in any
    /// window than `old` would have counted there, so that a changed limit forgives nothing.
    pub fn convert_from(&mut self, _old: &Cell<'_>, _now: Nanos) {
        unimplemented!()
    }
}
