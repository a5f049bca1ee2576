//! What a store is asked about one limit of one request.

use std::sync::Arc;

use crate::limit::{Fingerprint, Limit, Scale};

/// The number a store gives to a limit that was registered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// A limit that was registered. Its slot is not given to another limit before all clones are dropped
/// and no count is left.
#[derive(Clone, Debug)]
pub struct Registered {
    pub(super) slot: Slot,
    pub(super) _held: Arc<()>,
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

/// Which items of a request take the units that a decision admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// No item takes any: the decision only looks.
    Nothing,
    /// Every item takes what it asks for, if the request passes.
    All,
    /// Only shadows take: something else refuses the request, whatever the store says.
    Shadows,
}
