//! Settles reservations: in the key's cell, whatever shape it has by then, or in the sketch; and in the networks around the
//! key, which are charged the units used.

use std::sync::Arc;

use smallvec::SmallVec;

use super::cells::{CellOwner, Cells};
use super::decide;
use super::hedge::{self, RESERVED_AT_MOST};
use super::networks::NetworkBudget;
use super::sketch::Sketch;
use super::table::LockedBuckets;
use crate::base::clock::Nanos;
use crate::limit::Limit;
use crate::store::{Item, Slot};

/// See [`super::Memory::settle`].
pub(super) fn settle(
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
    let at = |key, network| CellOwner {
        spot: cells.table.spot(info.seed(), key, network),
        slot,
        info,
        limit,
    };
    let owner = at(item.key, false);
    let parents = if used > 0 { item.parents } else { &[] };
    let nets: SmallVec<[CellOwner<'_>; 3]> = parents.iter().map(|net| at(net.key, true)).collect();
    let spots = nets.iter().map(|net| net.spot);
    let mut held = decide::lock_buckets(cells, std::iter::once(owner.spot).chain(spots));
    let homeless = if sketched {
        units_to_recount(sketch, &owner, item.cost, used, now)
    } else {
        cell(cells, &mut held, &owner, item, used, now)
    };
    hedge::charge(sketch, limit, now, owner.spot.hash, homeless);
    for (net, parent) in nets.iter().zip(parents) {
        let Some(rate) = limit.windows.last() else {
            return;
        };
        let found = cells.find(&mut held, net);
        match cells.network_room(&mut held, found, &net.spot, slot, now) {
            Some(at) => {
                let budget = NetworkBudget::new(limit, rate, item.scale.multiply, parent.factor);
                let arrival = budget.charge(held.state(at), now, used);
                held.set_state(at, arrival);
            }
            None => sketch.charge(now, net.spot.hash, hedge::longest(limit), used),
        }
    }
}

/// Settles a reservation in its cell. Returns the units without room there.
fn cell(
    cells: &Cells,
    held: &mut LockedBuckets<'_>,
    owner: &CellOwner<'_>,
    item: &Item<'_>,
    used: u32,
    now: Nanos,
) -> u32 {
    let at = cells.find(held, owner);
    if at.is_none() && used == 0 {
        return 0;
    }
    // The limit may have been edited since. Its cells have their new shape already, or get it when next used.
    let slot = at
        .and_then(|at| held.mark(at))
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
    let room = cells.room(held, at, &owner, now, used);
    let (counted, homeless) = if room.is_some() { (used, 0) } else { (0, used) };
    if let Some(at) = room.or(at) {
        cells.change(held, at, &owner, |cell| {
            cell.settle(now, item.cost, counted, multiply);
        });
    }
    homeless
}

/// The units to count again for a reservation in the sketch, which gives no units back. Units that count from `now` must
/// outlive the reservation's epoch, so they are counted again where that may be the epoch before.
fn units_to_recount(
    sketch: &Sketch,
    owner: &CellOwner<'_>,
    reserved: u32,
    used: u32,
    now: Nanos,
) -> u32 {
    let young = |window| sketch.younger(now, window, RESERVED_AT_MOST);
    if hedge::windows(owner.limit).any(young) {
        used
    } else {
        used.saturating_sub(reserved)
    }
}
