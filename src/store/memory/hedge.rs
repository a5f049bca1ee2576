//! What the overflow sketch adds to a decision: units that it may hold for a key count as if the cell had them, in every
//! window.

use super::cells::Cells;
use super::item_cell::{ItemCell, NetworkCell};
use super::sketch::{Estimate, Sketch, shared};
use super::table::LockedBuckets;
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Limit, LimitReading, LimitStanding};
use crate::store::Item;

/// Reservations in the sketch count as settled after this time.
pub(super) const RESERVED_AT_MOST: Nanos = Nanos::from_secs(60);

/// Makes `reading` a refusal by the longest window, unless something worse refused already.
pub(super) fn refuse(reading: &mut LimitReading, item: &Item<'_>, remaining: u32, wait: Nanos) {
    if reading.standing == LimitStanding::Unsatisfiable {
        return;
    }
    if reading.standing.admits() || wait > reading.wait {
        let last = item.limit.windows.len().saturating_sub(1);
        reading.window = last as u8;
        let rate = item.limit.windows.get(last);
        reading.quota = rate.map_or(0, |rate| rate.times(item.scale.multiply));
        reading.remaining = remaining.min(reading.remaining);
        reading.reset = wait;
    }
    reading.standing = LimitStanding::Refused;
    reading.wait = reading.wait.max(wait);
    reading.delay = Nanos::ZERO;
}

/// The longest wait until `others` and `cost` units fit under `ceiling`; an epoch's units leave all at once.
fn wait(estimate: &Estimate, others: u32, cost: u32, ceiling: u32) -> Nanos {
    let then = estimate.current.saturating_add(others).saturating_add(cost);
    if then <= ceiling {
        estimate.left
    } else {
        estimate.left.after(estimate.length)
    }
}

/// Adds the sketch's units to a cell's reading.
pub(super) fn cell(
    sketch: &Sketch,
    cells: &Cells,
    held: &mut LockedBuckets<'_>,
    part: &ItemCell<'_>,
    now: Nanos,
    reading: &mut LimitReading,
) {
    let (item, limit) = (part.item, part.item.limit);
    if part.room && limit.is_lent(reading) {
        // The sketch holds no lent units.
        return;
    }
    for (index, rate) in limit.windows.iter().enumerate() {
        let window = remembered(limit, rate.window());
        let estimate = sketch.estimate(now, part.owner.spot.hash, window);
        if estimate.units == 0 && part.room {
            continue;
        }
        let mut used = match part.at {
            Some(at) => cells.look(held, at, &part.owner, |cell| cell.used(now, index)),
            None => 0,
        };
        if limit.algorithm.is_gcra() {
            // The cell knows time only; in a plan's smaller intervals that is more units.
            used = used.saturating_mul(item.scale.multiply);
        }
        let (base, ceiling) = limit.unit_bounds(rate, item.scale.multiply);
        let counted = used
            .saturating_add(estimate.units)
            .saturating_add(part.before);
        reading.sketched |= !part.room;
        let remaining = base.saturating_sub(counted);
        let total = counted.saturating_add(item.cost);
        if item.cost > ceiling {
            reading.standing = LimitStanding::Unsatisfiable;
        } else if total > ceiling || counted == u32::MAX {
            let others = used.saturating_add(part.before);
            refuse(
                reading,
                item,
                remaining,
                wait(&estimate, others, item.cost, ceiling),
            );
            reading.window = index as u8;
            reading.quota = rate.times(item.scale.multiply);
        } else if reading.standing.admits() {
            if total > base {
                reading.standing = LimitStanding::Over;
            }
            if remaining < reading.remaining {
                reading.remaining = remaining;
                reading.window = index as u8;
                reading.quota = rate.times(item.scale.multiply);
            }
            if matches!(limit.algorithm, Algorithm::LeakyBucket { .. }) {
                let queue = rate
                    .interval(item.scale.multiply)
                    .nanos()
                    .saturating_mul(u64::from(counted));
                reading.delay = reading.delay.max(Nanos(queue));
            }
        }
    }
}

/// Adds the sketch's units to a network's.
pub(super) fn network(
    sketch: &Sketch,
    net: &NetworkCell,
    arrival: u64,
    item: &Item<'_>,
    now: Nanos,
    reading: &mut LimitReading,
) {
    let estimate = sketch.estimate(now, net.spot.hash, longest(item.limit));
    if estimate.units == 0 {
        return;
    }
    let free = net.budget.remaining(arrival, now);
    let others = net.before.saturating_add(item.cost);
    if estimate.units == u32::MAX || free < others.saturating_add(estimate.units) {
        let wait = wait(&estimate, others, 0, free);
        refuse(reading, item, free.saturating_sub(estimate.units), wait);
    }
}

/// Counts `cost` units in every window; windows of the same rung are charged once.
pub(super) fn charge(sketch: &Sketch, limit: &Limit, now: Nanos, hash: u64, cost: u32) {
    let mut last: Option<Nanos> = None;
    for window in windows(limit) {
        if last.is_none_or(|before| !shared(before, window)) {
            sketch.charge(now, hash, window, cost);
        }
        last = Some(window);
    }
}

/// The windows in which the sketch counts for a limit.
pub(super) fn windows(limit: &Limit) -> impl Iterator<Item = Nanos> {
    limit
        .windows
        .iter()
        .map(|rate| remembered(limit, rate.window()))
}

/// The longest of [`windows`], in which networks are counted.
pub(super) fn longest(limit: &Limit) -> Nanos {
    remembered(limit, limit.longest_window())
}

/// A reservation counts while it is open, however short the window.
fn remembered(limit: &Limit, window: Nanos) -> Nanos {
    if limit.reserves {
        window.max(RESERVED_AT_MOST)
    } else {
        window
    }
}
