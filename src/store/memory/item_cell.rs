//! The cells that one item of a request needs while it is decided about: its key's own, and those of the networks around the
//! key. They hold positions and intermediate results, never counts.

use std::ops::Range;

use super::cells::CellOwner;
use super::networks::NetworkBudget;
use super::table::{EntryAt, Spot};
use crate::store::Item;

/// One item, and its cell.
pub(super) struct ItemCell<'a> {
    pub(super) item: &'a Item<'a>,
    pub(super) owner: CellOwner<'a>,
    /// The cell's position; `None` while there is no cell.
    pub(super) at: Option<EntryAt>,
    /// Whether the cell has an older shape that cannot be converted.
    pub(super) is_stuck: bool,
    /// Whether this decision has created the cell.
    pub(super) is_created: bool,
    /// Units of the same cell that earlier items of this round ask for.
    pub(super) earlier_units: u32,
    /// Whether the cell has room for the units; if not, the sketch counts them.
    pub(super) has_room: bool,
    /// The networks that must have room, as a range of the decision's networks.
    pub(super) networks: Range<usize>,
}

impl ItemCell<'_> {
    /// The networks that are charged now. Where the limit reserves, they are charged at settlement, and may until then
    /// admit as many units too many as are reserved.
    pub(super) fn charged_networks(&self) -> Range<usize> {
        if self.item.limit.reserves {
            0..0
        } else {
            self.networks.clone()
        }
    }
}

/// A network around an item's key, and its entry.
pub(super) struct NetworkCell {
    pub(super) spot: Spot,
    pub(super) budget: NetworkBudget,
    /// The entry's position; `None` while there is no entry.
    pub(super) at: Option<EntryAt>,
    /// Whether this decision has created the entry.
    pub(super) is_created: bool,
    /// Units of the same network that earlier items of this round ask for.
    pub(super) earlier_units: u32,
    /// Whether there is an entry for the units; if not, the sketch counts them.
    pub(super) has_entry: bool,
}
