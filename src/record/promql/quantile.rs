//! The order of values, and quantiles of them.

/// A quantile of sorted values, between neighbours in proportion.
pub fn quantile(share: f64, sorted: &[f64]) -> f64 {
    let Some(last) = sorted.len().checked_sub(1).filter(|_| !share.is_nan()) else {
        return f64::NAN;
    };
    if share < 0.0 {
        return f64::NEG_INFINITY;
    }
    if share > 1.0 {
        return f64::INFINITY;
    }
    let rank = share * last as f64;
    let lower = (rank.floor() as usize).min(last);
    let upper = (lower + 1).min(last);
    let weight = rank - rank.floor();
    sorted[lower] * (1.0 - weight) + sorted[upper] * weight
}

/// Orders values; NaN comes first.
pub fn by_value(a: &f64, b: &f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => b.cmp(&a),
    }
}
