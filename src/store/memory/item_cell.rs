//! [`ItemCell`] and [`NetworkCell`]: what a full decision knows of the cell of an item's key, and of the entries of the
//! networks around the key. They hold positions and intermediate results, never counts.

use std::ops::Range;

use super::bucket_table::{EntryPosition, KeyBuckets};
use super::cells::CellOwner;
use super::networks::NetworkBudget;
use crate::store::LimitItem;

/// One item of a request, and the cell of its key.
pub(super) struct ItemCell<'a> {
    pub(super) item: &'a LimitItem<'a>,
    pub(super) owner: CellOwner<'a>,
    /// The cell's position; `None` while the key has no cell.
    pub(super) position: Option<EntryPosition>,
    /// Whether the cell has an older shape that cannot be converted.
    pub(super) is_stuck: bool,
    /// Whether this decision has created the cell.
    pub(super) is_created: bool,
    /// Units of the same cell that earlier items of this round ask for.
    pub(super) earlier_units: u32,
    /// Whether the cell has room for the units. If not, the sketch counts them.
    pub(super) has_room: bool,
    /// The networks that must have room, as a range of the decision's networks.
    pub(super) networks: Range<usize>,
}

impl ItemCell<'_> {
    /// The networks that are charged now. Where the limit reserves, networks are charged at settlement, and may until then
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
    pub(super) key_buckets: KeyBuckets,
    pub(super) budget: NetworkBudget,
    /// The entry's position; `None` while there is no entry.
    pub(super) position: Option<EntryPosition>,
    /// Whether this decision has created the entry.
    pub(super) is_created: bool,
    /// Units of the same network that earlier items of this round ask for.
    pub(super) earlier_units: u32,
    /// Whether there is an entry for the units. If not, the sketch counts them.
    pub(super) has_entry: bool,
}
