//! `histogram_quantile`: quantiles of counts in buckets.

use std::collections::HashMap;

use super::labels::{Labels, NAME};
use super::number;
use super::value::Point;

/// The label with the upper bound of a bucket.
pub const BOUND: &str = "le";

/// An upper bound, and the count of observations up to it.
type BoundAndCount = (f64, f64);

/// The quantile of each histogram among these series of buckets.
pub fn quantiles(share: f64, series: &[Point]) -> Vec<Point> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut histograms: Vec<(Labels, Vec<BoundAndCount>)> = Vec::new();
    for point in series {
        let Some(bound) = number::float(point.labels.get(BOUND)) else {
            continue;
        };
        let labels = point.labels.filtered(|name| name != NAME && name != BOUND);
        let next = histograms.len();
        let place = *places.entry(labels.clone()).or_insert(next);
        if place == next {
            histograms.push((labels, Vec::new()));
        }
        histograms[place].1.push((bound, point.value));
    }
    let quantile = |(labels, buckets)| Point {
        labels,
        value: quantile(share, buckets),
    };
    histograms.into_iter().map(quantile).collect()
}

fn quantile(share: f64, mut buckets: Vec<BoundAndCount>) -> f64 {
    if share.is_nan() {
        return f64::NAN;
    }
    if share < 0.0 {
        return f64::NEG_INFINITY;
    }
    if share > 1.0 {
        return f64::INFINITY;
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Series whose bounds are the same number in two spellings are one bucket.
    buckets.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0.0 };
        same
    });
    let mut most = f64::NEG_INFINITY;
    for (_, count) in &mut buckets {
        most = if *count > most { *count } else { most };
        *count = most;
    }
    let [.., (below, _), (f64::INFINITY, all)] = buckets[..] else {
        return f64::NAN;
    };
    if all == 0.0 {
        return f64::NAN;
    }
    let rank = share * all;
    let place = buckets.partition_point(|(_, count)| *count < rank);
    if place >= buckets.len() - 1 {
        return below;
    }
    let (end, count) = buckets[place];
    match place.checked_sub(1).map(|before| buckets[before]) {
        None if end <= 0.0 => end,
        None => end * (rank / count),
        Some((begin, before)) => begin + (end - begin) * ((rank - before) / (count - before)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_bounds() {
        let check = |share, buckets: &[BoundAndCount], expected: f64| {
            let found = quantile(share, buckets.to_vec());
            assert!(
                found == expected || found.is_nan() && expected.is_nan(),
                "{share}: {found}"
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
