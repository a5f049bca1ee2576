//! Settles reservations: charges the units used in place of the units reserved, in the key's cell or in the sketch. The
//! cell may have another shape by then. The networks around the key are charged the units used.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bucket_table::LockedBuckets;
use super::cells::{CellOwner, Cells};
use super::decide;
use super::networks::NetworkBudget;
use super::sketch::Sketch;
use super::sketched_units::{self, MAX_RESERVATION_TIME};
use crate::base::clock::Nanos;
use crate::limit::RateLimit;
use crate::store::{LimitItem, LimitSlot};

/// Settles the reservation of an item, as [`super::MemoryStore::settle`] describes.
pub(super) fn settle_reservation(
    cells: &Cells,
    sketch: &Sketch,
    item: &LimitItem<'_>,
    is_sketched: bool,
    used_units: u32,
    now: Nanos,
) {
    let LimitItem { limit, slot, .. } = *item;
    let Some(info) = cells.slots.get(slot) else {
        return;
    };
    let owner_of = |key, is_network| CellOwner {
        key_buckets: cells.table.key_buckets(info.seed(), key, is_network),
        slot,
        info,
        limit,
    };
    let owner = owner_of(item.key, false);
    let parents = if used_units > 0 { item.parents } else { &[] };
    let networks = parents.iter().map(|parent| owner_of(parent.key, true));
    let networks: SmallVec<[CellOwner<'_>; 3]> = networks.collect();
    let network_buckets = networks.iter().map(|network| network.key_buckets);
    let mut locked = decide::lock_buckets(
        cells,
        std::iter::once(owner.key_buckets).chain(network_buckets),
    );
    let sketch_units = if is_sketched {
        units_to_recount(sketch, &owner, item.cost, used_units, now)
    } else {
        settle_in_cell(cells, &mut locked, &owner, item, used_units, now)
    };
    sketched_units::charge_windows(
        sketch,
        limit,
        now,
        owner.key_buckets.sketch_hash,
        sketch_units,
    );
    for (network, parent) in networks.iter().zip(parents) {
        let Some(rate) = limit.windows.last() else {
            return;
        };
        let entry = cells.find_entry(&mut locked, network);
        match cells.make_network_room(&mut locked, entry, &network.key_buckets, slot, now) {
            Some(position) => {
                let budget = NetworkBudget::new(limit, rate, item.scale.plan_factor, parent.factor);
                let tat = budget.charged_tat(locked.state(position), now, used_units);
                locked.set_state(position, tat);
            }
            None => {
                let window = sketched_units::longest_sketch_window(limit);
                sketch.charge(now, network.key_buckets.sketch_hash, window, used_units);
            }
        }
    }
}

/// Settles a reservation in its cell. Returns the units without room there.
fn settle_in_cell(
    cells: &Cells,
    locked: &mut LockedBuckets<'_>,
    owner: &CellOwner<'_>,
    item: &LimitItem<'_>,
    used_units: u32,
    now: Nanos,
) -> u32 {
    let position = cells.find_entry(locked, owner);
    if position.is_none() && used_units == 0 {
        return 0;
    }
    // The limit may have been edited since. Its cell has the new shape already, or gets it with the next use.
    let slot = position
        .and_then(|position| locked.mark(position))
        .map_or(owner.slot, |mark| LimitSlot(mark.slot()));
    let Some(info) = cells.slots.get(slot) else {
        return used_units;
    };
    let edited_limit: Arc<RateLimit>;
    let limit = if slot == owner.slot {
        owner.limit
    } else {
        edited_limit = info.limit();
        &edited_limit
    };
    let owner = CellOwner {
        slot,
        info,
        limit,
        ..*owner
    };
    let plan_factor = item.scale.plan_factor.min(limit.max_plan_factor.max(1));
    let position_with_room = cells.make_room(locked, position, &owner, now, used_units);
    let (cell_units, without_room) = match position_with_room.is_some() {
        true => (used_units, 0),
        false => (0, used_units),
    };
    if let Some(position) = position_with_room.or(position) {
        cells.change_cell(locked, position, &owner, |cell| {
            cell.settle(now, item.cost, cell_units, plan_factor);
        });
    }
    without_room
}

/// The units to count again for a reservation in the sketch, from which no units can be taken. Units that count from `now`
/// must outlive the reservation's epoch, so all are counted again where that may be the previous epoch.
fn units_to_recount(
    sketch: &Sketch,
    owner: &CellOwner<'_>,
    reserved_units: u32,
    used_units: u32,
    now: Nanos,
) -> u32 {
    let may_be_previous_epoch = |window| sketch.has_young_epoch(now, window, MAX_RESERVATION_TIME);
    if sketched_units::sketch_windows(owner.limit).any(may_be_previous_epoch) {
        used_units
    } else {
        used_units.saturating_sub(reserved_units)
    }
}
