//! Quantiles of lists of values, and the order, minimum and maximum of values that may be NaN. Quantiles of histograms
//! are in `histogram.rs`.

/// Returns the `q`-quantile of values that are sorted by [`compare_values`], interpolated between neighbours.
///
/// The result is NaN for no values or a `q` of NaN. It is negative infinity for a `q` below 0 and infinity above 1, as
/// in Prometheus.
pub fn quantile(q: f64, sorted: &[f64]) -> f64 {
    let Some(last_index) = sorted.len().checked_sub(1).filter(|_| !q.is_nan()) else {
        return f64::NAN;
    };
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let rank = q * last_index as f64;
    let lower_index = (rank.floor() as usize).min(last_index);
    let upper_index = (lower_index + 1).min(last_index);
    let weight = rank - rank.floor();
    sorted[lower_index] * (1.0 - weight) + sorted[upper_index] * weight
}

/// Orders values ascending, with NaN first.
pub fn compare_values(a: &f64, b: &f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal),
        (is_a_nan, is_b_nan) => is_b_nan.cmp(&is_a_nan),
    }
}

/// The lesser of two numbers; NaN if either is NaN, unlike [`f64::min`].
pub fn min_or_nan(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false => a.min(b),
    }
}

/// The greater of two numbers; NaN if either is NaN, unlike [`f64::max`].
pub fn max_or_nan(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false => a.max(b),
    }
}
