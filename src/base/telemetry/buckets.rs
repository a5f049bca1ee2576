//! The buckets of all histograms of durations, and estimates of quantiles from their counts.
//!
//! The bounds reach from 100 microseconds to a minute, six to a decade (the E6 series). Each is at most 1.5 times the
//! one before it, the last 1.8 times. A quantile and its estimate lie in the same bucket, unless the quantile is above
//! all bounds. Counts of buckets can be summed over routes and hours; quantiles cannot.

/// Upper bounds of the buckets: in microseconds, and in seconds as labels write them.
pub const BUCKET_BOUNDS: [(u64, &str); 35] = [
    (100, "0.0001"),
    (150, "0.00015"),
    (220, "0.00022"),
    (330, "0.00033"),
    (470, "0.00047"),
    (680, "0.00068"),
    (1_000, "0.001"),
    (1_500, "0.0015"),
    (2_200, "0.0022"),
    (3_300, "0.0033"),
    (4_700, "0.0047"),
    (6_800, "0.0068"),
    (10_000, "0.01"),
    (15_000, "0.015"),
    (22_000, "0.022"),
    (33_000, "0.033"),
    (47_000, "0.047"),
    (68_000, "0.068"),
    (100_000, "0.1"),
    (150_000, "0.15"),
    (220_000, "0.22"),
    (330_000, "0.33"),
    (470_000, "0.47"),
    (680_000, "0.68"),
    (1_000_000, "1"),
    (1_500_000, "1.5"),
    (2_200_000, "2.2"),
    (3_300_000, "3.3"),
    (4_700_000, "4.7"),
    (6_800_000, "6.8"),
    (10_000_000, "10"),
    (15_000_000, "15"),
    (22_000_000, "22"),
    (33_000_000, "33"),
    (60_000_000, "60"),
];

/// The number of buckets. The last one has the durations above all bounds.
pub const BUCKET_COUNT: usize = BUCKET_BOUNDS.len() + 1;

/// The text that labels write as the bound of the last bucket, which has the durations above all bounds.
pub const INFINITE_BOUND: &str = "+Inf";

/// Estimates the duration, in seconds, that the share `quantile` of all durations does not exceed. `quantile` must be
/// from 0 to 1. Returns `None` if all counts are zero.
///
/// `buckets` has the upper bound of each bucket in seconds and its count, in any order, and is sorted in place. Each
/// bound must be one of [`BUCKET_BOUNDS`] or infinite. The estimate assumes that the durations of a bucket are spread
/// evenly, and that those above all bounds equal the last bound.
pub fn estimate_quantile(quantile: f64, buckets: &mut [(f64, u64)]) -> Option<f64> {
    buckets.sort_by(|(bound, _), (other_bound, _)| bound.total_cmp(other_bound));
    let total_count: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = quantile * total_count as f64;
    let mut count_below = 0;
    for (bound, count) in buckets.iter().filter(|(_, count)| *count > 0) {
        if (count_below + count) as f64 >= rank {
            let bounds = BUCKET_BOUNDS.iter().map(|(micros, _)| *micros as f64 / 1e6);
            let lower_bound = bounds.rev().find(|lower| lower < bound).unwrap_or(0.0);
            let upper_bound = if bound.is_finite() {
                *bound
            } else {
                lower_bound
            };
            let fraction = (rank - count_below as f64) / *count as f64;
            return Some(lower_bound + (upper_bound - lower_bound) * fraction);
        }
        count_below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_what_their_labels_say() {
        for (micros, text) in BUCKET_BOUNDS {
            assert_eq!(text.parse(), Ok(micros as f64 / 1e6));
        }
        assert!(BUCKET_BOUNDS.is_sorted());
    }

    #[test]
    fn quantiles() {
        #[track_caller]
        fn check(quantile: f64, buckets: &[(f64, u64)], expected: Option<f64>) {
            let estimate = estimate_quantile(quantile, &mut buckets.to_vec());
            let near = |(one, other): (f64, f64)| (one - other).abs() < 1e-12;
            assert_eq!(estimate.is_some(), expected.is_some(), "{buckets:?}");
            assert!(
                estimate.zip(expected).is_none_or(near),
                "{buckets:?}: {estimate:?}"
            );
        }
        check(0.5, &[], None);
        check(0.5, &[(0.01, 0)], None);
        check(0.5, &[(0.01, 10)], Some(0.0084));
        check(1.0, &[(0.0001, 4), (0.01, 10)], Some(0.01));
        check(0.25, &[(0.01, 10), (0.0001, 10)], Some(0.00005));
        check(0.99, &[(f64::INFINITY, 1)], Some(60.0));
    }
}
