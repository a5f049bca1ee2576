//! What the overflow sketch adds to a decision: units it may hold for a key count as if the cell had
//! them, in every window.

use super::cells::Cells;
use super::decide::{Net, Part};
use super::sketch::{Estimate, Open, shared};
use super::table::Held;
use crate::clock::Nanos;
use crate::limit::{Algorithm, Limit, Rate, Reading, Standing};
use crate::store::Item;

/// Time between two units of a steady flow.
fn interval(rate: &Rate, multiply: u32) -> u64 {
    let quota = u64::from(rate.quota().saturating_mul(multiply).max(1));
    rate.window().0.div_ceil(quota).max(1)
}

/// Units that a fresh cell admits at once: within the rate, and with what the throttle lends.
fn bounds(limit: &Limit, rate: &Rate, multiply: u32) -> (u32, u32) {
    let quota = rate.quota().saturating_mul(multiply);
    let base = match limit.algorithm {
        Algorithm::Gcra { burst } => burst.map_or(quota, |burst| burst.saturating_mul(multiply)),
        Algorithm::LeakyBucket { max_delay } => {
            let waiting = max_delay.0 / interval(rate, multiply);
            u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(1)
        }
        _ => quota,
    };
    (base, limit.throttle.ceiling(base))
}

fn shapes(limit: &Limit) -> bool {
    matches!(
        limit.algorithm,
        Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. }
    )
}

/// Makes `reading` a refusal by the longest window, unless something worse refused already.
pub(super) fn refuse(reading: &mut Reading, item: &Item<'_>, remaining: u32, wait: Nanos) {
    if reading.standing == Standing::Unsatisfiable {
        return;
    }
    if reading.standing.admits() || wait > reading.wait {
        let last = item.limit.windows.len().saturating_sub(1);
        reading.window = last as u8;
        let quota = item.limit.windows.get(last).map_or(0, |rate| rate.quota());
        reading.quota = quota.saturating_mul(item.multiply);
        reading.remaining = remaining.min(reading.remaining);
        reading.reset = wait;
    }
    reading.standing = Standing::Refused;
    reading.wait = reading.wait.max(wait);
    reading.delay = Nanos::ZERO;
}

/// When `others` and `cost` units fit under `ceiling` at the latest: epochs leave as a whole.
fn wait(estimate: &Estimate, others: u32, cost: u32, ceiling: u32) -> Nanos {
    let then = estimate.current.saturating_add(others).saturating_add(cost);
    if then <= ceiling {
        estimate.left
    } else {
        estimate.left.after(estimate.length)
    }
}

/// Holds a cell's reading against the sketch.
pub(super) fn cell(
    open: &mut Open<'_>,
    cells: &Cells,
    held: &mut Held<'_>,
    part: &Part<'_>,
    now: Nanos,
    reading: &mut Reading,
) {
    let (item, limit) = (part.item, part.item.limit);
    for (index, rate) in limit.windows.iter().enumerate() {
        let estimate = open.estimate(part.owner.spot.hash, rate.window());
        if estimate.units == 0 && part.room {
            continue;
        }
        let mut used = match part.at {
            Some(at) => cells.look(held, at, &part.owner, |cell| cell.used(now, index)),
            None => 0,
        };
        if shapes(limit) {
            // The cell knows time only; in a plan's smaller intervals that is more units.
            used = used.saturating_mul(item.multiply);
        }
        let (base, ceiling) = bounds(limit, rate, item.multiply);
        let counted = used
            .saturating_add(estimate.units)
            .saturating_add(part.before);
        reading.sketched |= !part.room;
        let remaining = base.saturating_sub(counted);
        let total = counted.saturating_add(item.cost);
        if item.cost > ceiling {
            reading.standing = Standing::Unsatisfiable;
        } else if total > ceiling || counted == u32::MAX {
            let others = used.saturating_add(part.before);
            refuse(
                reading,
                item,
                remaining,
                wait(&estimate, others, item.cost, ceiling),
            );
            reading.window = index as u8;
            reading.quota = rate.quota().saturating_mul(item.multiply);
        } else if reading.standing.admits() {
            if total > base {
                reading.standing = Standing::Over;
            }
            if remaining < reading.remaining {
                reading.remaining = remaining;
                reading.window = index as u8;
                reading.quota = rate.quota().saturating_mul(item.multiply);
            }
            if matches!(limit.algorithm, Algorithm::LeakyBucket { .. }) {
                let queue = interval(rate, item.multiply).saturating_mul(u64::from(counted));
                reading.delay = reading.delay.max(Nanos(queue));
            }
        }
    }
}

/// Holds a network's room against the sketch.
pub(super) fn network(
    open: &mut Open<'_>,
    net: &Net,
    arrival: u64,
    item: &Item<'_>,
    now: Nanos,
    reading: &mut Reading,
) {
    let estimate = open.estimate(net.spot.hash, item.limit.longest());
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

/// Counts `cost` units in every window; windows of one rung share the charge.
pub(super) fn charge(open: &mut Open<'_>, limit: &Limit, hash: u64, cost: u32) {
    let mut last: Option<Nanos> = None;
    for rate in &limit.windows {
        if last.is_none_or(|before| !shared(before, rate.window())) {
            open.charge(hash, rate.window(), cost);
        }
        last = Some(rate.window());
    }
}
