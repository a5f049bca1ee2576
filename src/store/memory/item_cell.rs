//! What a decision knows of one item: its cell, and the networks around its key.

use std::ops::Range;

use super::cells::CellOwner;
use super::networks::NetworkBudget;
use super::table::{EntryAt, Spot};
use crate::store::Item;

/// One item, and its cell.
pub(super) struct ItemCell<'a> {
    pub(super) item: &'a Item<'a>,
    pub(super) owner: CellOwner<'a>,
    pub(super) at: Option<EntryAt>,
    pub(super) stuck: bool,
    pub(super) created: bool,
    /// Units of the same cell that earlier items of this round ask for.
    pub(super) before: u32,
    /// Whether the cell has room for the units; if not, the sketch counts them.
    pub(super) room: bool,
    /// The networks that must have room, as a range of the decision's networks.
    pub(super) nets: Range<usize>,
}

impl ItemCell<'_> {
    /// The networks that are charged now. Where the limit reserves, they are charged at settlement, and may until then
    /// admit as many units too many as are reserved.
    pub(super) fn charged(&self) -> Range<usize> {
        if self.item.limit.reserves {
            0..0
        } else {
            self.nets.clone()
        }
    }
}

/// A network around an item's key, and its entry.
pub(super) struct NetworkCell {
    pub(super) spot: Spot,
    pub(super) budget: NetworkBudget,
    pub(super) at: Option<EntryAt>,
    pub(super) created: bool,
    pub(super) before: u32,
    pub(super) room: bool,
}
