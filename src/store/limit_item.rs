//! [`LimitItem`]: one limit's part of one request, as stores count it. [`LimitSlot`]: the number that names the limit
//! there. These are plain values; nothing here counts.

use std::sync::Arc;

use crate::limit::{Fingerprint, RateLimit, Scale};

/// The number that a store gives to a registered limit. It names the limit in all later calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitSlot(pub u16);

/// A limit that is registered with a store. No limit of another scope or shape gets its slot before all clones are dropped
/// and no count remains.
#[derive(Clone, Debug)]
pub struct RegisteredLimit {
    pub(super) slot: LimitSlot,
    /// Counts the clones, so that the store knows whether the slot is held.
    pub(super) _held: Arc<()>,
}

impl RegisteredLimit {
    /// The slot under which the store keeps the limit's counts.
    pub fn slot(&self) -> LimitSlot {
        self.slot
    }
}

/// One limit's part of one request: what it takes of the limit, and for which key.
#[derive(Clone, Copy, Debug)]
pub struct LimitItem<'a> {
    /// The limit whose arithmetic counts.
    pub limit: &'a RateLimit,
    /// The slot under which the store keeps the limit's counts.
    pub slot: LimitSlot,
    /// The key that is counted.
    pub key: Fingerprint,
    /// Units that the request asks for; with [`RateLimit::reserves`] the units that it reserves.
    pub cost: u32,
    /// The multiplier of the key's plan, at most [`RateLimit::max_plan_factor`], and what an elastic limit lends.
    pub scale: Scale,
    /// A shadow decides by itself and changes nothing for the other items.
    pub is_shadow: bool,
    /// Networks around an IPv6 key that must have room too, nearest first. With [`RateLimit::reserves`] networks are
    /// charged only at settlement, with the units used.
    pub parents: &'a [ParentNetwork],
}

/// A network around an address, with a budget that is a multiple of the key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentNetwork {
    /// The network's own key.
    pub key: Fingerprint,
    /// How many times the limit's quota the network gets.
    pub factor: u32,
}

/// Which items of a request take the units that a decision admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// No item takes units.
    Nothing,
    /// Every item takes the units that it asks for, if all items but shadows admit. A shadow takes them if it admits
    /// itself, even if the request is refused.
    All,
    /// Only shadows that admit take units, because something else refuses the request.
    Shadows,
}
