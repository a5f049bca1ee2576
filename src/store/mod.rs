//! Where counts live. A store makes the arithmetic of [`crate::limit`] atomic: all limits of one
//! request are checked, then all are taken, or none.

pub mod memcached;
mod memory;
pub mod permits;
pub mod redis;
pub mod shared;

use std::sync::Arc;

use crate::limit::{Fingerprint, Limit, Scale};

pub use memory::{Error, Memory, Place, Places, Settings, Usage, snapshot};
pub use permits::Permits;
pub use shared::Shared;

/// The number a store gives to a limit that was registered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// A limit that was registered. Its slot is not given to another limit before all clones are dropped
/// and no count is left.
#[derive(Clone, Debug)]
pub struct Registered {
    slot: Slot,
    _held: Arc<()>,
}

impl Registered {
    /// Its number.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// One limit's part of one request.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The arithmetic.
    pub limit: &'a Limit,
    /// Where the store keeps this limit.
    pub slot: Slot,
    /// Who is counted.
    pub key: Fingerprint,
    /// Units asked for; with [`Limit::reserves`] the units reserved.
    pub cost: u32,
    /// How much of it the request gets; with a multiplier of at most [`Limit::max_multiply`].
    pub scale: Scale,
    /// Decides for itself and changes nothing for the others.
    pub shadow: bool,
    /// Wider networks that must have room too (IPv6 keys), nearest first. With [`Limit::reserves`]
    /// they are charged at settlement only, what was used.
    pub parents: &'a [Parent],
}

/// A network around an address, with a budget that is a multiple of the key's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The network's own key.
    pub key: Fingerprint,
    /// How many times the limit's quota the network gets.
    pub factor: u32,
}
