//! Aggregations: groups of series, and the value of each.

use std::collections::HashMap;

use super::error::Error;
use super::labels::{Labels, NAME};
use super::number;
use super::quantile::{by_value, quantile};
use super::syntax::{Aggregate, Aggregator};
use super::value::Point;
use super::window::Variance;

/// Applies an aggregation; groups stay in the order of their first series.
pub fn apply(
    aggregate: &Aggregate,
    parameter: f64,
    series: Vec<Point>,
) -> Result<Vec<Point>, Error> {
    let selects = matches!(aggregate.by, Aggregator::Top | Aggregator::Bottom);
    if selects && !(i64::MIN as f64..=i64::MAX as f64).contains(&parameter) {
        let value = number::plain(parameter);
        return Err(Error::execution(format!(
            "Scalar value {value} overflows int64"
        )));
    }
    if selects && parameter < 1.0 {
        return Ok(Vec::new());
    }
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Vec<Point>)> = Vec::new();
    for point in series {
        let group = group(aggregate, &point.labels);
        let next = groups.len();
        let place = *places.entry(group.clone()).or_insert(next);
        if place == next {
            groups.push((group, Vec::new()));
        }
        groups[place].1.push(point);
    }
    let mut found = Vec::new();
    for (labels, points) in groups {
        if selects {
            found.extend(selected(aggregate.by, parameter as usize, points));
        } else {
            let value = value(aggregate.by, parameter, &points);
            found.push(Point { labels, value });
        }
    }
    Ok(found)
}

/// The labels of the group that a series is part of.
fn group(aggregate: &Aggregate, labels: &Labels) -> Labels {
    let named = |name: &str| aggregate.labels.iter().any(|label| &**label == name);
    match aggregate.without {
        true => labels.filtered(|name| name != NAME && !named(name)),
        false => labels.filtered(named),
    }
}

fn value(by: Aggregator, parameter: f64, points: &[Point]) -> f64 {
    let values = || points.iter().map(|point| point.value);
    let better = |better: fn(&f64, &f64) -> bool| {
        let choose = |best: f64, value: f64| match better(&value, &best) || best.is_nan() {
            true => value,
            false => best,
        };
        values().reduce(choose).unwrap_or(f64::NAN)
    };
    let variance = || {
        let mut spread = Variance::default();
        values().for_each(|value| spread.add(value));
        spread.variance()
    };
    match by {
        Aggregator::Sum => values().sum(),
        Aggregator::Average => mean(values()),
        Aggregator::Least => better(f64::lt),
        Aggregator::Most => better(f64::gt),
        Aggregator::Count => points.len() as f64,
        Aggregator::Group => 1.0,
        Aggregator::Variance => variance(),
        Aggregator::Deviation => variance().sqrt(),
        Aggregator::Quantile => {
            let mut sorted: Vec<f64> = values().collect();
            sorted.sort_by(by_value);
            quantile(parameter, &sorted)
        }
        // These select series and are not values.
        Aggregator::Top | Aggregator::Bottom => f64::NAN,
    }
}

/// A mean that is finite where all values are, however large.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut mean = 0.0_f64;
    for (before, value) in values.enumerate() {
        let count = before as f64 + 1.0;
        let same = value.is_infinite() && value.signum() == mean.signum();
        if mean.is_infinite() && (same || value.is_finite()) {
            continue;
        }
        mean += value / count - mean / count;
    }
    mean
}

/// The `count` series with the highest or lowest values, best first. Prometheus keeps them in a heap, whose order decides
/// which of several equal values are returned. `tests/grafana/` compares that too, so the heap is the same here.
fn selected(by: Aggregator, count: usize, points: Vec<Point>) -> Vec<Point> {
    let worse = |a: f64, b: f64| match by {
        Aggregator::Top => a < b,
        _ => a > b,
    };
    let under = |a: &Point, b: &Point| a.value.is_nan() || worse(a.value, b.value);
    let mut heap: Vec<Point> = Vec::with_capacity(count.min(points.len()));
    for point in points {
        if heap.len() == count {
            if !worse(heap[0].value, point.value) && !heap[0].value.is_nan() {
                continue;
            }
            // The root is removed, and the last element takes its place.
            heap.swap_remove(0);
            sink(&mut heap, under);
        }
        heap.push(point);
        rise(&mut heap, under);
    }
    heap.sort_by(|a, b| {
        let order = match by {
            Aggregator::Top => by_value(&b.value, &a.value),
            _ => by_value(&a.value, &b.value),
        };
        // NaN comes last in either order.
        a.value.is_nan().cmp(&b.value.is_nan()).then(order)
    });
    heap
}

/// Moves the last element of a heap up to its place.
fn rise(heap: &mut [Point], under: impl Fn(&Point, &Point) -> bool) {
    let mut at = heap.len() - 1;
    while at > 0 {
        let above = (at - 1) / 2;
        if !under(&heap[at], &heap[above]) {
            break;
        }
        heap.swap(at, above);
        at = above;
    }
}

/// Moves the root of a heap down to its place.
fn sink(heap: &mut [Point], under: impl Fn(&Point, &Point) -> bool) {
    let mut at = 0;
    while let Some(left) = Some(2 * at + 1).filter(|left| *left < heap.len()) {
        let right = left + 1;
        let right_goes = right < heap.len() && under(&heap[right], &heap[left]);
        let least = if right_goes { right } else { left };
        if !under(&heap[least], &heap[at]) {
            break;
        }
        heap.swap(at, least);
        at = least;
    }
}
