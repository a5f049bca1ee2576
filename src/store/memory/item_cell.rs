//! [`ItemCell`] and [`NetworkCell`]: the intermediate results of a [full decision](super::decide) about an item's cell, and
//! about the entries of the networks around its key. They hold positions; the counts stay in the entries.
//!
//! A decision has rounds: one for all items but shadows, then one for each shadow.

use std::ops::Range;

use super::bucket_table::{EntryPosition, KeyBuckets};
use super::cells::CellOwner;
use super::networks::NetworkBudget;
use crate::store::LimitItem;

/// One item of a request, and the cell of its key.
pub(super) struct ItemCell<'a> {
    pub(super) item: &'a LimitItem<'a>,
    /// The key's buckets and the item's limit, by which the cell is found and read.
    pub(super) owner: CellOwner<'a>,
    /// The cell's position; `None` while the key has no cell.
    pub(super) position: Option<EntryPosition>,
    /// Whether the cell has another shape than the limit, and there was no memory to convert it. The item then refuses.
    pub(super) is_stuck: bool,
    /// Whether this decision has created the cell.
    pub(super) is_created: bool,
    /// Units that earlier items of the same round ask for from the same cell.
    pub(super) earlier_units: u32,
    /// Whether the cell has room for the units; in a round that takes none, whether there is a cell. Units without room
    /// are counted in the sketch.
    pub(super) has_room: bool,
    /// The networks that must have room, as a range of indices of the decision's networks.
    pub(super) networks: Range<usize>,
}

impl ItemCell<'_> {
    /// The networks that are charged now. Where the limit reserves, networks are charged only at settlement. Until then
    /// they may admit too much, by at most the reserved units.
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
    /// The buckets of the network's own key.
    pub(super) key_buckets: KeyBuckets,
    /// The network's budget in the longest window of the item's limit.
    pub(super) budget: NetworkBudget,
    /// The entry's position; `None` while there is no entry.
    pub(super) position: Option<EntryPosition>,
    /// Whether this decision has created the entry.
    pub(super) is_created: bool,
    /// Units that earlier items of the same round ask for from the same network.
    pub(super) earlier_units: u32,
    /// Whether there is an entry. Units of a network without one are counted in the sketch.
    pub(super) has_entry: bool,
}
