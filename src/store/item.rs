//! What a store is asked about one limit of one request.

use std::sync::Arc;

use crate::limit::{Fingerprint, Limit, Scale};

/// The number that a store gives to a registered limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// A registered limit. No other limit gets its slot before all clones are dropped and no count is left.
#[derive(Clone, Debug)]
pub struct Registered {
    pub(super) slot: Slot,
    pub(super) _held: Arc<()>,
}

impl Registered {
    /// The limit's slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// One limit's part of one request.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The slot under which the store keeps the limit's counts.
    pub slot: Slot,
    /// The key that is counted.
    pub key: Fingerprint,
    /// Units asked for; with [`Limit::reserves`] the units reserved.
    pub cost: u32,
    /// The multiplier of the key's plan, at most [`Limit::max_multiply`].
    pub scale: Scale,
    /// A shadow decides for itself and changes nothing for the other items.
    pub shadow: bool,
    /// Networks around an IPv6 key that must have room too, nearest first. With [`Limit::reserves`] they are charged
    /// only at settlement, with the units used.
    pub parents: &'a [Parent],
}

/// A network around an address. Its budget is a multiple of the key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The network's own key.
    pub key: Fingerprint,
    /// The multiple: how many times the limit's quota the network gets.
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
