//! How the units in the overflow sketch change a decision, and in which windows the sketch counts for a limit. Units that
//! the sketch may hold for a key count as if the key's cell had them, in every window. So a decision with the sketch may
//! refuse too much, and never admits too much.

use super::bucket_table::LockedBuckets;
use super::cells::Cells;
use super::item_cell::{ItemCell, NetworkCell};
use super::sketch::{Estimate, Sketch, share_rung};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, LimitFinding, LimitStanding, RateLimit};
use crate::store::LimitItem;

/// Reservations in the sketch are assumed to be settled after this time. Few responses take longer, and a longer time would
/// make the sketch refuse more.
pub(super) const MAX_RESERVATION_TIME: Nanos = Nanos::from_secs(60);

/// Makes `finding` a refusal by the longest window, with `remaining` units at most. A finding that refuses with a longer
/// wait already keeps its window and its wait. One that can never be satisfied stays as it is.
pub(super) fn refuse(
    finding: &mut LimitFinding,
    item: &LimitItem<'_>,
    remaining: u32,
    wait: Nanos,
) {
    if finding.standing == LimitStanding::Unsatisfiable {
        return;
    }
    if finding.standing.admits() || wait > finding.wait {
        let last_index = item.limit.windows.len().saturating_sub(1);
        finding.window = last_index as u8;
        let rate = item.limit.windows.get(last_index);
        finding.quota = rate.map_or(0, |rate| rate.quota_times(item.scale.plan_factor));
        finding.remaining = remaining.min(finding.remaining);
        finding.reset = wait;
    }
    finding.standing = LimitStanding::Refused;
    finding.wait = finding.wait.max(wait);
    finding.delay = Nanos::ZERO;
}

/// The longest wait until `cost` units fit under `ceiling`, beside `staying_units` that are not in the sketch. All units of
/// an epoch leave the sketch at once.
fn max_wait(estimate: &Estimate, staying_units: u32, cost: u32, ceiling: u32) -> Nanos {
    let current_units = estimate.current_units;
    let units_at_epoch_end = current_units
        .saturating_add(staying_units)
        .saturating_add(cost);
    if units_at_epoch_end <= ceiling {
        estimate.epoch_remaining
    } else {
        estimate.epoch_remaining.after(estimate.epoch_length)
    }
}

/// Adds the sketch's units to a cell's finding, and marks it as sketched if the cell has no room.
pub(super) fn add_cell_units(
    sketch: &Sketch,
    cells: &Cells,
    locked: &mut LockedBuckets<'_>,
    item_cell: &ItemCell<'_>,
    now: Nanos,
    finding: &mut LimitFinding,
) {
    let (item, limit) = (item_cell.item, item_cell.item.limit);
    if item_cell.has_room && limit.is_lent(finding) {
        // A loan has units of its own, which the cell counts and the sketch does not.
        return;
    }
    if limit.is_credits() {
        // The sketch never counts them, and its guesses would refuse what was paid for.
        return;
    }
    for (index, rate) in limit.windows.iter().enumerate() {
        let window = sketch_window(limit, rate.window());
        let estimate = sketch.estimate(now, item_cell.owner.key_buckets.sketch_hash, window);
        if estimate.units == 0 && item_cell.has_room {
            continue;
        }
        let mut used_units = match item_cell.position {
            Some(position) => cells.read_cell(locked, position, &item_cell.owner, |cell| {
                cell.used(now, index)
            }),
            None => 0,
        };
        if limit.algorithm.is_gcra() {
            // The cell's state is a time. In the shorter intervals of a plan it is worth more units.
            used_units = used_units.saturating_mul(item.scale.plan_factor);
        }
        let (base, ceiling) = limit.unit_bounds(rate, item.scale.plan_factor);
        let counted_units = used_units
            .saturating_add(estimate.units)
            .saturating_add(item_cell.earlier_units);
        finding.sketched |= !item_cell.has_room;
        let remaining = base.saturating_sub(counted_units);
        let total_units = counted_units.saturating_add(item.cost);
        if item.cost > ceiling {
            finding.standing = LimitStanding::Unsatisfiable;
        } else if total_units > ceiling || counted_units == u32::MAX {
            let cell_units = used_units.saturating_add(item_cell.earlier_units);
            let wait = max_wait(&estimate, cell_units, item.cost, ceiling);
            refuse(finding, item, remaining, wait);
            finding.window = index as u8;
            finding.quota = rate.quota_times(item.scale.plan_factor);
        } else if finding.standing.admits() {
            if total_units > base {
                finding.standing = LimitStanding::Over;
            }
            if remaining < finding.remaining {
                finding.remaining = remaining;
                finding.window = index as u8;
                finding.quota = rate.quota_times(item.scale.plan_factor);
            }
            if matches!(limit.algorithm, Algorithm::LeakyBucket { .. }) {
                let queue_nanos = rate
                    .interval(item.scale.plan_factor)
                    .nanos()
                    .saturating_mul(u64::from(counted_units));
                finding.delay = finding.delay.max(Nanos(queue_nanos));
            }
        }
    }
}

/// Adds the sketch's units of a network to a finding: refuses if the network's budget has no room for them and for the
/// item. `tat` is the network's theoretical arrival time, in nanoseconds.
pub(super) fn add_network_units(
    sketch: &Sketch,
    network: &NetworkCell,
    tat: u64,
    item: &LimitItem<'_>,
    now: Nanos,
    finding: &mut LimitFinding,
) {
    let estimate = sketch.estimate(
        now,
        network.key_buckets.sketch_hash,
        longest_sketch_window(item.limit),
    );
    if estimate.units == 0 {
        return;
    }
    let free_units = network.budget.remaining_units(tat, now);
    let requested_units = network.earlier_units.saturating_add(item.cost);
    if estimate.units == u32::MAX || free_units < requested_units.saturating_add(estimate.units) {
        let wait = max_wait(&estimate, requested_units, 0, free_units);
        refuse(
            finding,
            item,
            free_units.saturating_sub(estimate.units),
            wait,
        );
    }
}

/// Counts `cost` units in every window of a limit; windows of the same rung are charged once.
pub(super) fn charge_windows(
    sketch: &Sketch,
    limit: &RateLimit,
    now: Nanos,
    sketch_hash: u64,
    cost: u32,
) {
    let mut previous_window: Option<Nanos> = None;
    for window in sketch_windows(limit) {
        if previous_window.is_none_or(|previous| !share_rung(previous, window)) {
            sketch.charge(now, sketch_hash, window, cost);
        }
        previous_window = Some(window);
    }
}

/// The windows in which the sketch counts for a limit.
pub(super) fn sketch_windows(limit: &RateLimit) -> impl Iterator<Item = Nanos> {
    limit
        .windows
        .iter()
        .map(|rate| sketch_window(limit, rate.window()))
}

/// The longest of [`sketch_windows`], in which networks are counted.
pub(super) fn longest_sketch_window(limit: &RateLimit) -> Nanos {
    sketch_window(limit, limit.longest_window())
}

/// The window in which the sketch counts for a window of a limit. A reservation counts while it is open, however short the
/// limit's window is.
fn sketch_window(limit: &RateLimit, window: Nanos) -> Nanos {
    if limit.reserves {
        window.max(MAX_RESERVATION_TIME)
    } else {
        window
    }
}
