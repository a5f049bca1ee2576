//! Settles reservations: charges the units used in place of the units reserved. It does so in the key's cell, whatever shape
//! that has by then, or in the sketch. The networks around the key are charged the units used.

use std::sync::Arc;

use smallvec::SmallVec;

use super::cells::{CellOwner, Cells};
use super::decide;
use super::hedge::{self, MAX_RESERVATION_TIME};
use super::networks::NetworkBudget;
use super::sketch::Sketch;
use super::table::LockedBuckets;
use crate::base::clock::Nanos;
use crate::limit::Limit;
use crate::store::{Item, Slot};

/// Settles the reservation of an item, as [`super::Memory::settle`] describes.
pub(super) fn settle_reservation(
    cells: &Cells,
    sketch: &Sketch,
    item: &Item<'_>,
    sketched: bool,
    used: u32,
    now: Nanos,
) {
    let Item { limit, slot, .. } = *item;
    let Some(info) = cells.slots.get(slot) else {
        return;
    };
    let owner_of = |key, is_network| CellOwner {
        spot: cells.table.spot(info.seed(), key, is_network),
        slot,
        info,
        limit,
    };
    let owner = owner_of(item.key, false);
    let parents = if used > 0 { item.parents } else { &[] };
    let networks = parents.iter().map(|parent| owner_of(parent.key, true));
    let networks: SmallVec<[CellOwner<'_>; 3]> = networks.collect();
    let spots = networks.iter().map(|network| network.spot);
    let mut locked = decide::lock_buckets(cells, std::iter::once(owner.spot).chain(spots));
    let sketch_units = if sketched {
        units_to_recount(sketch, &owner, item.cost, used, now)
    } else {
        settle_in_cell(cells, &mut locked, &owner, item, used, now)
    };
    hedge::charge_windows(sketch, limit, now, owner.spot.hash, sketch_units);
    for (network, parent) in networks.iter().zip(parents) {
        let Some(rate) = limit.windows.last() else {
            return;
        };
        let entry = cells.find(&mut locked, network);
        match cells.make_network_room(&mut locked, entry, &network.spot, slot, now) {
            Some(at) => {
                let budget = NetworkBudget::new(limit, rate, item.scale.multiply, parent.factor);
                let arrival = budget.charged_arrival(locked.state(at), now, used);
                locked.set_state(at, arrival);
            }
            None => {
                let window = hedge::longest_sketch_window(limit);
                sketch.charge(now, network.spot.hash, window, used);
            }
        }
    }
}

/// Settles a reservation in its cell. Returns the units without room there.
fn settle_in_cell(
    cells: &Cells,
    locked: &mut LockedBuckets<'_>,
    owner: &CellOwner<'_>,
    item: &Item<'_>,
    used: u32,
    now: Nanos,
) -> u32 {
    let at = cells.find(locked, owner);
    if at.is_none() && used == 0 {
        return 0;
    }
    // The limit may have been edited since. Its cells have their new shape already, or get it with their next use.
    let slot = at
        .and_then(|at| locked.mark(at))
        .map_or(owner.slot, |mark| Slot(mark.slot()));
    let Some(info) = cells.slots.get(slot) else {
        return used;
    };
    let current: Arc<Limit>;
    let limit = if slot == owner.slot {
        owner.limit
    } else {
        current = info.limit();
        &current
    };
    let owner = CellOwner {
        slot,
        info,
        limit,
        ..*owner
    };
    let multiply = item.scale.multiply.min(limit.max_multiply.max(1));
    let room = cells.make_room(locked, at, &owner, now, used);
    let (counted, without_room) = if room.is_some() { (used, 0) } else { (0, used) };
    if let Some(at) = room.or(at) {
        cells.change_cell(locked, at, &owner, |cell| {
            cell.settle(now, item.cost, counted, multiply);
        });
    }
    without_room
}

/// The units to count again for a reservation in the sketch, from which no units can be taken. Units that count from `now`
/// must outlive the reservation's epoch, so all are counted again where that may be the previous epoch.
fn units_to_recount(
    sketch: &Sketch,
    owner: &CellOwner<'_>,
    reserved: u32,
    used: u32,
    now: Nanos,
) -> u32 {
    let may_be_previous = |window| sketch.has_young_epoch(now, window, MAX_RESERVATION_TIME);
    if hedge::sketch_windows(owner.limit).any(may_be_previous) {
        used
    } else {
        used.saturating_sub(reserved)
    }
}
