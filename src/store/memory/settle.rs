//! Settles reservations: charges the units used in place of the units reserved, in the key's cell or in the sketch. The
//! cell may have another shape by then. The networks around the key are charged the units used. Units that another
//! decision admitted are settled as a reservation of zero.

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

/// Settles the reservation of an item, as [`super::MemoryStore::settle`] describes. Does nothing if the item's slot was
/// never registered.
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
        key_buckets: cells.table.key_buckets(info.scope_hash(), key, is_network),
        slot,
        info,
        limit,
    };
    let owner = owner_of(item.key, false);
    let parents = if used_units > 0 { item.parents } else { &[] };
    let networks = parents.iter().map(|parent| owner_of(parent.key, true));
    let networks: SmallVec<[CellOwner<'_>; 3]> = networks.collect();
    let network_buckets = networks.iter().map(|network| network.key_buckets);
    let all_key_buckets = std::iter::once(owner.key_buckets).chain(network_buckets);
    let mut locked = decide::lock_buckets(cells, all_key_buckets);
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

/// Settles a reservation in its cell. Returns the units that the sketch must count, because the cell has no room for them.
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
    // The limit may have been edited since. The cell stays in its present shape, and is converted with its next use.
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
    // The limit of the cell's shape may have smaller multipliers than that of the reservation.
    let plan_factor = item.scale.plan_factor.min(limit.max_plan_factor.max(1));
    let position_with_room = cells.make_room(locked, position, &owner, now, used_units);
    let (cell_units, sketch_units) = match position_with_room.is_some() {
        true => (used_units, 0),
        false => (0, used_units),
    };
    // A cell without room for the units used gives back the reserved ones all the same.
    if let Some(position) = position_with_room.or(position) {
        cells.change_cell(locked, position, &owner, |cell| {
            cell.settle(now, item.cost, cell_units, plan_factor);
        });
    }
    sketch_units
}

/// The units that the sketch must count in addition to a reservation, because no units can be taken out of the sketch. The
/// used units count from `now`, so they must be in the current epoch. Where the reservation may be in the previous epoch,
/// all used units are counted; otherwise only those beyond the reserved ones.
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
