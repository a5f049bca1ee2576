//! `histogram_quantile`: estimates quantiles from the counts of a histogram's buckets, as Prometheus does.

use std::collections::HashMap;

use super::labels::{Labels, METRIC_NAME_LABEL};
use super::number;
use super::value::VectorElement;

/// The label that holds the upper bound of a bucket, inclusive.
pub const BUCKET_BOUND_LABEL: &str = "le";

/// The upper bound of a bucket, and the cumulative count of observations up to and with it.
type BoundAndCount = (f64, f64);

/// Estimates the `q`-quantile of each histogram among the series of buckets, in the order of their first buckets.
/// Series whose label [`BUCKET_BOUND_LABEL`] is no number are ignored.
pub fn histogram_quantiles(q: f64, bucket_elements: &[VectorElement]) -> Vec<VectorElement> {
    let mut indexes: HashMap<Labels, usize> = HashMap::new();
    let mut histograms: Vec<(Labels, Vec<BoundAndCount>)> = Vec::new();
    for element in bucket_elements {
        let Some(bound) = number::parse_float(element.labels.get(BUCKET_BOUND_LABEL)) else {
            continue;
        };
        let labels = element
            .labels
            .filtered(|name| name != METRIC_NAME_LABEL && name != BUCKET_BOUND_LABEL);
        let new_index = histograms.len();
        let index = *indexes.entry(labels.clone()).or_insert(new_index);
        if index == new_index {
            histograms.push((labels, Vec::new()));
        }
        let (_, buckets) = &mut histograms[index];
        buckets.push((bound, element.value));
    }
    let estimate = |(labels, buckets)| VectorElement {
        labels,
        value: estimate_quantile(q, buckets),
    };
    histograms.into_iter().map(estimate).collect()
}

/// Estimates the `q`-quantile of one histogram. Observations are assumed to be spread evenly within a bucket. The
/// result is NaN for a `q` of NaN, negative infinity for a `q` below 0, and infinity above 1. Otherwise it is NaN
/// without observations, without the bucket `+Inf`, or without another bucket.
fn estimate_quantile(q: f64, mut buckets: Vec<BoundAndCount>) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    buckets.sort_by(|(a_bound, _), (b_bound, _)| a_bound.total_cmp(b_bound));
    // Bounds that are the same number in two spellings, such as `1` and `1.0`, are one bucket.
    buckets.dedup_by(|(next_bound, next_count), (bound, count)| {
        let is_same_bucket = next_bound == bound;
        *count += if is_same_bucket { *next_count } else { 0.0 };
        is_same_bucket
    });
    // Cumulative counts never fall with the bound. One that does was read earlier than its neighbour, so it is raised.
    let mut greatest_count = f64::NEG_INFINITY;
    for (_, count) in &mut buckets {
        // A comparison ignores NaN as Prometheus does.
        if *count > greatest_count {
            greatest_count = *count;
        }
        *count = greatest_count;
    }
    let [.., (last_finite_bound, _), (f64::INFINITY, total)] = buckets[..] else {
        return f64::NAN;
    };
    if total == 0.0 {
        return f64::NAN;
    }
    let rank = q * total;
    let index = buckets.partition_point(|(_, count)| *count < rank);
    // The last bucket has no upper bound.
    if index >= buckets.len() - 1 {
        return last_finite_bound;
    }
    let (upper_bound, count) = buckets[index];
    // The first bucket begins at zero, unless its bound is not above zero.
    match index.checked_sub(1).map(|previous| buckets[previous]) {
        None if upper_bound <= 0.0 => upper_bound,
        None => upper_bound * (rank / count),
        Some((lower_bound, count_below)) => {
            let share_below = (rank - count_below) / (count - count_below);
            lower_bound + (upper_bound - lower_bound) * share_below
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_bounds() {
        let check = |q, buckets: &[BoundAndCount], expected: f64| {
            let estimate = estimate_quantile(q, buckets.to_vec());
            assert!(
                estimate == expected || estimate.is_nan() && expected.is_nan(),
                "{q}: {estimate}"
            );
        };
        let whole = [(1.0, 10.0), (2.0, 30.0), (f64::INFINITY, 40.0)];
        check(0.5, &whole, 1.5);
        check(0.25, &whole, 1.0);
        check(0.1, &whole, 0.4);
        check(0.9, &whole, 2.0);
        check(-1.0, &whole, f64::NEG_INFINITY);
        check(1.5, &whole, f64::INFINITY);
        check(f64::NAN, &whole, f64::NAN);
        check(0.5, &whole[..2], f64::NAN);
        check(0.5, &whole[2..], f64::NAN);
        check(0.5, &[], f64::NAN);
        check(0.5, &[(1.0, 0.0), (f64::INFINITY, 0.0)], f64::NAN);
        check(0.5, &[(-1.0, 3.0), (f64::INFINITY, 4.0)], -1.0);
        // A count that is less than the one before it was read a moment earlier.
        check(0.5, &[(1.0, 8.0), (2.0, 7.0), (f64::INFINITY, 8.0)], 0.5);
        check(0.5, &[(f64::INFINITY, f64::NAN), (1.0, f64::NAN)], f64::NAN);
    }
}
