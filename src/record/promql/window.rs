//! Functions on the samples of one series in a range, such as `rate` and `max_over_time`, computed as Prometheus does.
//! Aggregations share [`VarianceAccumulator`].

use super::quantile::{compare_values, quantile};

/// A time in milliseconds since 1970, and a value.
pub type Sample = (i64, f64);

/// A gap between an edge of a range and the nearest sample is extrapolated as a whole if it is shorter than this. The
/// unit is the average interval between samples, and the factor is that of Prometheus.
const MAX_GAP_INTERVALS: f64 = 1.1;

/// The samples of one series in a range: at least one, in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct RangeWindow<'a> {
    /// All samples in `from_ms..=to_ms`.
    pub samples: &'a [Sample],
    /// The start of the range, in milliseconds since 1970.
    pub from_ms: i64,
    /// The end of the range, in milliseconds since 1970.
    pub to_ms: i64,
}

/// The kind of a series. It decides what a fall of the value means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    /// A fall means that the counter was reset to zero.
    Counter,
    /// A fall is a change like any other.
    Gauge,
}

impl RangeWindow<'_> {
    /// Iterates over the values, without their times.
    fn values(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().map(|(_, value)| *value)
    }

    /// The growth of the value, extrapolated from the samples to the whole range and divided by `divisor`: the seconds
    /// of the range for a rate, and 1 for the growth itself. `None` without two samples.
    fn extrapolated_growth(&self, kind: ValueKind, divisor: f64) -> Option<f64> {
        let [(first_ms, first_value), .., (last_ms, last_value)] = *self.samples else {
            return None;
        };
        let mut growth = last_value - first_value;
        if kind == ValueKind::Counter {
            // After a reset the counter starts at zero again, so the value before the reset is added.
            growth += self
                .value_pairs()
                .filter(|(previous, value)| value < previous)
                .map(|(previous, _)| previous)
                .sum::<f64>();
        }
        let seconds_between = |from_ms: i64, to_ms: i64| (to_ms - from_ms) as f64 / 1_000.0;
        let sampled_seconds = seconds_between(first_ms, last_ms);
        let interval_seconds = sampled_seconds / (self.samples.len() - 1) as f64;
        let mut gap_before = seconds_between(self.from_ms, first_ms);
        let gap_after = seconds_between(last_ms, self.to_ms);
        if kind == ValueKind::Counter && growth > 0.0 && first_value >= 0.0 {
            // A counter cannot have been negative. So its line is extended back at most to the time when it was zero.
            gap_before = gap_before.min(sampled_seconds * (first_value / growth));
        }
        // At a longer gap, the series probably begins or ends within the range. Then half an interval is added.
        let extension_seconds = |gap_seconds: f64| {
            if gap_seconds < interval_seconds * MAX_GAP_INTERVALS {
                gap_seconds
            } else {
                interval_seconds / 2.0
            }
        };
        let extended_seconds =
            sampled_seconds + extension_seconds(gap_before) + extension_seconds(gap_after);
        let factor = extended_seconds / sampled_seconds;
        Some(growth * (factor / divisor))
    }

    /// The growth from the last sample but one to the last, and the seconds between them. `None` without two samples,
    /// or if the last two have the same time.
    fn last_growth(&self, kind: ValueKind) -> Option<(f64, f64)> {
        let [.., (previous_ms, previous), (time_ms, value)] = *self.samples else {
            return None;
        };
        let growth = if kind == ValueKind::Counter && value < previous {
            value
        } else {
            value - previous
        };
        (time_ms > previous_ms).then(|| (growth, (time_ms - previous_ms) as f64 / 1_000.0))
    }

    /// Iterates over the pairs of successive values.
    fn value_pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        let pairs = self.samples.windows(2);
        pairs.map(|pair| (pair[0].1, pair[1].1))
    }

    /// Counts the pairs of successive values that meet a condition.
    fn count_pairs(&self, condition: impl Fn(f64, f64) -> bool) -> f64 {
        let pairs = self.value_pairs();
        pairs
            .filter(|(previous, value)| condition(*previous, *value))
            .count() as f64
    }
}

/// `rate`: the growth per second of a counter. `None` without two samples.
pub fn rate(window: &RangeWindow) -> Option<f64> {
    let seconds = (window.to_ms - window.from_ms) as f64 / 1_000.0;
    window.extrapolated_growth(ValueKind::Counter, seconds)
}

/// `increase`: the growth of a counter in the whole range. `None` without two samples.
pub fn increase(window: &RangeWindow) -> Option<f64> {
    window.extrapolated_growth(ValueKind::Counter, 1.0)
}

/// `delta`: the growth of a gauge in the whole range. `None` without two samples.
pub fn delta(window: &RangeWindow) -> Option<f64> {
    window.extrapolated_growth(ValueKind::Gauge, 1.0)
}

/// `irate`: the growth per second of a counter between the last two samples. `None` without two samples, or if the last
/// two have the same time.
pub fn last_rate(window: &RangeWindow) -> Option<f64> {
    let (growth, seconds) = window.last_growth(ValueKind::Counter)?;
    Some(growth / seconds)
}

/// `idelta`: the growth of a gauge between the last two samples. `None` without two samples, or if the last two have the
/// same time.
pub fn last_delta(window: &RangeWindow) -> Option<f64> {
    Some(window.last_growth(ValueKind::Gauge)?.0)
}

/// `sum_over_time`. Like the functions after it, it never returns `None`, because a window has a sample.
pub fn sum(window: &RangeWindow) -> Option<f64> {
    Some(compensated_sum(window.values()))
}

/// `avg_over_time`, also for most values whose sum overflows.
pub fn average(window: &RangeWindow) -> Option<f64> {
    let count = window.samples.len() as f64;
    let average = compensated_sum(window.values()) / count;
    if average.is_finite() {
        return Some(average);
    }
    // Each value is divided first, so that their sum does not overflow. Rounding may still exceed the greatest float.
    Some(window.values().map(|value| value / count).sum())
}

/// `min_over_time`; NaN only if all values are.
pub fn minimum(window: &RangeWindow) -> Option<f64> {
    window.values().reduce(|minimum, value| {
        if value < minimum || minimum.is_nan() {
            value
        } else {
            minimum
        }
    })
}

/// `max_over_time`; NaN only if all values are.
pub fn maximum(window: &RangeWindow) -> Option<f64> {
    window.values().reduce(|maximum, value| {
        if value > maximum || maximum.is_nan() {
            value
        } else {
            maximum
        }
    })
}

/// `count_over_time`: the number of samples.
pub fn count(window: &RangeWindow) -> Option<f64> {
    Some(window.samples.len() as f64)
}

/// `last_over_time`: the newest value.
pub fn last(window: &RangeWindow) -> Option<f64> {
    window.samples.last().map(|(_, value)| *value)
}

/// `present_over_time`: 1 for every series with a sample.
pub fn present(_: &RangeWindow) -> Option<f64> {
    Some(1.0)
}

/// `changes`: how often a value differs from the one before. NaN counts as equal to NaN.
pub fn changes(window: &RangeWindow) -> Option<f64> {
    Some(
        window.count_pairs(|previous, value| {
            previous != value && !(previous.is_nan() && value.is_nan())
        }),
    )
}

/// `resets`: how often a value is below the one before.
pub fn resets(window: &RangeWindow) -> Option<f64> {
    Some(window.count_pairs(|previous, value| value < previous))
}

/// `stdvar_over_time`: the population variance.
pub fn variance(window: &RangeWindow) -> Option<f64> {
    let mut accumulator = VarianceAccumulator::default();
    window.values().for_each(|value| accumulator.add(value));
    Some(accumulator.variance())
}

/// `stddev_over_time`: the population standard deviation.
pub fn standard_deviation(window: &RangeWindow) -> Option<f64> {
    variance(window).map(f64::sqrt)
}

/// `quantile_over_time`: see [`quantile`] for a `q` outside of 0 to 1.
pub fn quantile_over_time(q: f64, window: &RangeWindow) -> f64 {
    let mut values: Vec<f64> = window.values().collect();
    values.sort_by(compare_values);
    quantile(q, &values)
}

/// The variance of values, computed in one pass. Source: B. P. Welford, "Note on a Method for Calculating Corrected
/// Sums of Squares and Products", Technometrics 4, 1962.
#[derive(Clone, Copy, Debug, Default)]
pub struct VarianceAccumulator {
    count: f64,
    mean: f64,
    /// The sum of the squares of the distances of all values from their mean.
    squared_distances: f64,
}

impl VarianceAccumulator {
    /// Adds a value to those whose variance is computed.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squared_distances += distance * (value - self.mean);
    }

    /// The mean square of the distance from the mean; NaN for no values.
    pub fn variance(&self) -> f64 {
        self.squared_distances / self.count
    }
}

/// Adds values, and compensates for the rounding of each addition. Source: A. Neumaier, "Rundungsfehleranalyse einiger
/// Verfahren zur Summation endlicher Summen", ZAMM 54, 1974.
fn compensated_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut compensation) = (0.0_f64, 0.0_f64);
    for value in values {
        let next_sum = sum + value;
        compensation += match sum.abs() >= value.abs() {
            // The rounding of an infinite sum would be NaN.
            _ if next_sum.is_infinite() => 0.0,
            true => (sum - next_sum) + value,
            false => (value - next_sum) + sum,
        };
        sum = next_sum;
    }
    if sum.is_infinite() {
        sum
    } else {
        sum + compensation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions() {
        let check = |function: fn(&RangeWindow) -> Option<f64>, values: &[f64], expected| {
            let times = (0_i64..).map(|index| index * 10_000 + 5_000);
            let samples: Vec<_> = times.zip(values.iter().copied()).collect();
            let window = RangeWindow {
                samples: &samples,
                from_ms: 0,
                to_ms: 40_000,
            };
            assert_eq!(function(&window), expected, "{values:?}");
        };
        // Half an interval beyond each end belongs to the same line.
        check(increase, &[10.0, 20.0, 30.0, 40.0], Some(40.0));
        check(rate, &[10.0, 20.0, 30.0, 40.0], Some(1.0));
        // The counter began anew after 20.
        check(
            increase,
            &[10.0, 20.0, 0.0, 10.0],
            Some(20.0 * (40.0 / 30.0)),
        );
        check(delta, &[10.0, 20.0, 0.0, 10.0], Some(0.0));
        // It cannot have been negative five seconds before.
        check(
            increase,
            &[0.0, 30.0, 60.0, 90.0],
            Some(90.0 * (35.0 / 30.0)),
        );
        // It ends far from the edge.
        check(increase, &[100.0, 110.0], Some(10.0 * 20.0 / 10.0));
        check(increase, &[100.0], None);
        check(last_rate, &[1.0, 2.0, 7.0], Some(0.5));
        check(last_rate, &[1.0, 9.0, 7.0], Some(0.7));
        check(last_delta, &[1.0, 9.0, 7.0], Some(-2.0));
        check(last_delta, &[1.0], None);
        check(sum, &[1e100, 1.0, -1e100], Some(1.0));
        check(average, &[1.0, 2.0, 6.0], Some(3.0));
        check(average, &[f64::MAX, f64::MAX], Some(f64::MAX));
        check(minimum, &[f64::NAN, 2.0, 6.0], Some(2.0));
        check(maximum, &[2.0, f64::NAN, 6.0], Some(6.0));
        check(count, &[2.0, 6.0], Some(2.0));
        check(changes, &[2.0, 6.0, 6.0, 1.0], Some(2.0));
        check(resets, &[2.0, 6.0, 6.0, 1.0], Some(1.0));
        check(variance, &[2.0, 4.0], Some(1.0));
        let samples = [1.0, 2.0, 4.0].map(|value| (0, value));
        let window = RangeWindow {
            samples: &samples,
            from_ms: 0,
            to_ms: 1,
        };
        assert_eq!(quantile_over_time(0.75, &window), 3.0);
        assert_eq!(quantile_over_time(2.0, &window), f64::INFINITY);
    }
}
