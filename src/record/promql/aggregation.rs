//! Applies aggregations such as `sum by (a) (b)`: groups series by their labels, and computes the value of each group.

use std::collections::HashMap;

use super::error::Error;
use super::labels::{Labels, METRIC_NAME_LABEL};
use super::number;
use super::quantile::{compare_values, quantile};
use super::syntax::{Aggregation, Aggregator, Grouping};
use super::value::VectorElement;
use super::window::VarianceAccumulator;

/// Applies an aggregation. Groups stay in the order of their first series. `parameter` is ignored by aggregators
/// without one. `topk` and `bottomk` select nothing if it is below 1.
///
/// # Errors
///
/// Fails if the parameter of `topk` or `bottomk` is NaN or not in the range of 64-bit integers.
pub fn apply_aggregation(
    aggregation: &Aggregation,
    parameter: f64,
    elements: Vec<VectorElement>,
) -> Result<Vec<VectorElement>, Error> {
    let selects_series = matches!(aggregation.aggregator, Aggregator::Top | Aggregator::Bottom);
    if selects_series && !(i64::MIN as f64..=i64::MAX as f64).contains(&parameter) {
        let value = number::format_plain(parameter);
        return Err(Error::execution(format!(
            "Scalar value {value} overflows int64"
        )));
    }
    if selects_series && parameter < 1.0 {
        return Ok(Vec::new());
    }
    let mut group_indexes: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Vec<VectorElement>)> = Vec::new();
    for element in elements {
        let labels = group_labels(&aggregation.grouping, &element.labels);
        let new_index = groups.len();
        let index = *group_indexes.entry(labels.clone()).or_insert(new_index);
        if index == new_index {
            groups.push((labels, Vec::new()));
        }
        let (_, group_elements) = &mut groups[index];
        group_elements.push(element);
    }
    let mut results = Vec::new();
    for (labels, group_elements) in groups {
        if selects_series {
            let count = parameter as usize;
            results.extend(select_series(aggregation.aggregator, count, group_elements));
        } else {
            let value = aggregate_values(aggregation.aggregator, parameter, &group_elements);
            results.push(VectorElement { labels, value });
        }
    }
    Ok(results)
}

/// Returns the labels of the group to which a series belongs.
fn group_labels(grouping: &Grouping, labels: &Labels) -> Labels {
    let is_listed = |name: &str| grouping.labels().iter().any(|label| &**label == name);
    match grouping {
        Grouping::By(_) => labels.filtered(is_listed),
        Grouping::Without(_) => {
            labels.filtered(|name| name != METRIC_NAME_LABEL && !is_listed(name))
        }
    }
}

/// Computes the value of a group. `parameter` is the `q` of `quantile`, and otherwise ignored.
fn aggregate_values(aggregator: Aggregator, parameter: f64, elements: &[VectorElement]) -> f64 {
    let values = || elements.iter().map(|element| element.value);
    let extreme = |is_better: fn(&f64, &f64) -> bool| {
        let better_value = |best: f64, value: f64| match is_better(&value, &best) || best.is_nan() {
            true => value,
            false => best,
        };
        values().reduce(better_value).unwrap_or(f64::NAN)
    };
    let variance = || {
        let mut accumulator = VarianceAccumulator::default();
        values().for_each(|value| accumulator.add(value));
        accumulator.variance()
    };
    match aggregator {
        Aggregator::Sum => values().sum(),
        Aggregator::Average => mean(values()),
        Aggregator::Minimum => extreme(f64::lt),
        Aggregator::Maximum => extreme(f64::gt),
        Aggregator::Count => elements.len() as f64,
        Aggregator::Group => 1.0,
        Aggregator::Variance => variance(),
        Aggregator::Deviation => variance().sqrt(),
        Aggregator::Quantile => {
            let mut sorted: Vec<f64> = values().collect();
            sorted.sort_by(compare_values);
            quantile(parameter, &sorted)
        }
        // These select series instead, in `select_series`.
        Aggregator::Top | Aggregator::Bottom => f64::NAN,
    }
}

/// Computes a mean that is finite if all values are, however large their sum is.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut mean = 0.0_f64;
    for (index, value) in values.enumerate() {
        let count = index as f64 + 1.0;
        let is_same_infinity = value.is_infinite() && value.signum() == mean.signum();
        // An infinite mean stays, unless the opposite infinity or NaN makes it NaN.
        if mean.is_infinite() && (is_same_infinity || value.is_finite()) {
            continue;
        }
        mean += value / count - mean / count;
    }
    mean
}

/// Selects the `count` series with the highest or lowest values, the best first.
///
/// Prometheus keeps them in a heap, whose order decides which of several equal values are returned. `tests/grafana/`
/// compares that too, so the heap is the same here.
fn select_series(
    aggregator: Aggregator,
    count: usize,
    elements: Vec<VectorElement>,
) -> Vec<VectorElement> {
    let is_worse = |a: f64, b: f64| match aggregator {
        Aggregator::Top => a < b,
        _ => a > b,
    };
    // The worst of the selected values is the root of the heap. NaN is worse than any number.
    let is_above =
        |a: &VectorElement, b: &VectorElement| a.value.is_nan() || is_worse(a.value, b.value);
    let mut heap: Vec<VectorElement> = Vec::with_capacity(count.min(elements.len()));
    for element in elements {
        if heap.len() == count {
            if !is_worse(heap[0].value, element.value) && !heap[0].value.is_nan() {
                continue;
            }
            // The root is removed, and the last element becomes the root.
            heap.swap_remove(0);
            sift_down(&mut heap, is_above);
        }
        heap.push(element);
        sift_up(&mut heap, is_above);
    }
    heap.sort_by(|a, b| {
        let order = match aggregator {
            Aggregator::Top => compare_values(&b.value, &a.value),
            _ => compare_values(&a.value, &b.value),
        };
        // NaN comes last in either order.
        a.value.is_nan().cmp(&b.value.is_nan()).then(order)
    });
    heap
}

/// Moves the last element of a heap up until the element above it belongs there.
fn sift_up(heap: &mut [VectorElement], is_above: impl Fn(&VectorElement, &VectorElement) -> bool) {
    let mut index = heap.len() - 1;
    while index > 0 {
        let parent = (index - 1) / 2;
        if !is_above(&heap[index], &heap[parent]) {
            break;
        }
        heap.swap(index, parent);
        index = parent;
    }
}

/// Moves the root of a heap down until no element below it belongs above it.
fn sift_down(
    heap: &mut [VectorElement],
    is_above: impl Fn(&VectorElement, &VectorElement) -> bool,
) {
    let mut index = 0;
    while let Some(left) = Some(2 * index + 1).filter(|left| *left < heap.len()) {
        let right = left + 1;
        let is_right_first = right < heap.len() && is_above(&heap[right], &heap[left]);
        let child = if is_right_first { right } else { left };
        if !is_above(&heap[child], &heap[index]) {
            break;
        }
        heap.swap(index, child);
        index = child;
    }
}
