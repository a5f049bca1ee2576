//! What a decision knows of one item: its cell, and the networks around its key.

use std::ops::Range;

use super::cells::CellOwner;
use super::networks::NetworkBudget;
use super::table::{EntryAt, Spot};
use crate::store::Item;

/// One item and where its cell is.
pub(super) struct ItemCell<'a> {
    pub(super) item: &'a Item<'a>,
    pub(super) owner: CellOwner<'a>,
    pub(super) at: Option<EntryAt>,
    pub(super) stuck: bool,
    pub(super) created: bool,
    /// Units of the same cell that this round's earlier items want.
    pub(super) before: u32,
    /// Whether the cell takes the units; else the sketch does.
    pub(super) room: bool,
    /// Networks that must have room.
    pub(super) nets: Range<usize>,
}

impl ItemCell<'_> {
    /// Networks that are charged now. Where the key reserves they are charged what was used, when
    /// that is known, and may until then admit as much too many as is open.
    pub(super) fn charged(&self) -> Range<usize> {
        if self.item.limit.reserves {
            0..0
        } else {
            self.nets.clone()
        }
    }
}

/// A network of an item.
pub(super) struct NetworkCell {
    pub(super) spot: Spot,
    pub(super) budget: NetworkBudget,
    pub(super) at: Option<EntryAt>,
    pub(super) created: bool,
    pub(super) before: u32,
    pub(super) room: bool,
}
