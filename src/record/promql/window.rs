//! Functions of the samples of one series in a range, computed as Prometheus does.

use super::quantile::{by_value, quantile};

/// A time in milliseconds since 1970, and a value.
pub type Sample = (i64, f64);

/// The samples of a range: at least one, in order.
#[derive(Clone, Copy, Debug)]
pub struct RangeWindow<'a> {
    /// All samples in `from..=to`.
    pub samples: &'a [Sample],
    /// Milliseconds since 1970.
    pub from: i64,
    /// Milliseconds since 1970.
    pub to: i64,
}

impl RangeWindow<'_> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().map(|(_, value)| *value)
    }

    /// The growth of a value in the whole range, extrapolated from the samples, divided by `shares`.
    fn grown(&self, counter: bool, shares: f64) -> Option<f64> {
        let [(first_at, first), .., (last_at, last)] = *self.samples else {
            return None;
        };
        let mut grown = last - first;
        if counter {
            // The values before resets of the counter.
            let steps = self.samples.windows(2);
            grown += steps
                .filter(|pair| pair[1].1 < pair[0].1)
                .map(|pair| pair[0].1)
                .sum::<f64>();
        }
        let seconds = |from: i64, to: i64| (to - from) as f64 / 1_000.0;
        let sampled = seconds(first_at, last_at);
        let between = sampled / (self.samples.len() - 1) as f64;
        let mut before = seconds(self.from, first_at);
        let behind = seconds(last_at, self.to);
        if counter && grown > 0.0 && first >= 0.0 {
            // A counter cannot have been negative.
            before = before.min(sampled * (first / grown));
        }
        // A series that ends far from the edge probably begins or ends there.
        let beyond = |gap: f64| {
            if gap < between * 1.1 {
                gap
            } else {
                between / 2.0
            }
        };
        let factor = (sampled + beyond(before) + beyond(behind)) / sampled;
        Some(grown * (factor / shares))
    }

    /// The difference of the last two samples, and the seconds between them.
    fn last_two(&self, counter: bool) -> Option<(f64, f64)> {
        let [.., (before_at, before), (at, value)] = *self.samples else {
            return None;
        };
        let grown = if counter && value < before {
            value
        } else {
            value - before
        };
        (at > before_at).then(|| (grown, (at - before_at) as f64 / 1_000.0))
    }

    /// How many pairs of neighbours meet a condition.
    fn pairs(&self, such: impl Fn(f64, f64) -> bool) -> f64 {
        let pairs = self.samples.windows(2);
        pairs.filter(|pair| such(pair[0].1, pair[1].1)).count() as f64
    }
}

/// `rate`
pub fn rate(window: &RangeWindow) -> Option<f64> {
    let seconds = (window.to - window.from) as f64 / 1_000.0;
    window.grown(true, seconds)
}

/// `increase`
pub fn increase(window: &RangeWindow) -> Option<f64> {
    window.grown(true, 1.0)
}

/// `delta`
pub fn delta(window: &RangeWindow) -> Option<f64> {
    window.grown(false, 1.0)
}

/// `irate`
pub fn last_rate(window: &RangeWindow) -> Option<f64> {
    let (grown, seconds) = window.last_two(true)?;
    Some(grown / seconds)
}

/// `idelta`
pub fn last_delta(window: &RangeWindow) -> Option<f64> {
    Some(window.last_two(false)?.0)
}

/// `sum_over_time`
pub fn sum(window: &RangeWindow) -> Option<f64> {
    Some(total(window.values()))
}

/// `avg_over_time`
pub fn average(window: &RangeWindow) -> Option<f64> {
    let count = window.samples.len() as f64;
    let whole = total(window.values()) / count;
    if whole.is_finite() {
        return Some(whole);
    }
    // Values whose sum overflows may still have an average.
    Some(window.values().map(|value| value / count).sum())
}

/// `min_over_time`
pub fn least(window: &RangeWindow) -> Option<f64> {
    window.values().reduce(|least, value| {
        if value < least || least.is_nan() {
            value
        } else {
            least
        }
    })
}

/// `max_over_time`
pub fn most(window: &RangeWindow) -> Option<f64> {
    window.values().reduce(|most, value| {
        if value > most || most.is_nan() {
            value
        } else {
            most
        }
    })
}

/// `count_over_time`
pub fn count(window: &RangeWindow) -> Option<f64> {
    Some(window.samples.len() as f64)
}

/// `last_over_time`
pub fn last(window: &RangeWindow) -> Option<f64> {
    window.samples.last().map(|(_, value)| *value)
}

/// `present_over_time`
pub fn present(_: &RangeWindow) -> Option<f64> {
    Some(1.0)
}

/// `changes`
pub fn changes(window: &RangeWindow) -> Option<f64> {
    Some(window.pairs(|a, b| a != b && !(a.is_nan() && b.is_nan())))
}

/// `resets`
pub fn resets(window: &RangeWindow) -> Option<f64> {
    Some(window.pairs(|a, b| b < a))
}

/// `stdvar_over_time`
pub fn variance(window: &RangeWindow) -> Option<f64> {
    let mut spread = Variance::default();
    window.values().for_each(|value| spread.add(value));
    Some(spread.variance())
}

/// `stddev_over_time`
pub fn deviation(window: &RangeWindow) -> Option<f64> {
    variance(window).map(f64::sqrt)
}

/// `quantile_over_time`
pub fn quantile_of(share: f64, window: &RangeWindow) -> f64 {
    let mut values: Vec<f64> = window.values().collect();
    values.sort_by(by_value);
    quantile(share, &values)
}

/// The variance of values, computed in one pass (Welford).
#[derive(Clone, Copy, Debug, Default)]
pub struct Variance {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Variance {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        let away = value - self.mean;
        self.mean += away / self.count;
        self.squares += away * (value - self.mean);
    }

    /// The mean square of the distance from the mean.
    pub fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

/// A sum that compensates for the rounding of each addition (Neumaier).
fn total(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        lost += match sum.abs() >= value.abs() {
            _ if next.is_infinite() => 0.0,
            true => (sum - next) + value,
            false => (value - next) + sum,
        };
        sum = next;
    }
    if sum.is_infinite() { sum } else { sum + lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions() {
        let check = |of: fn(&RangeWindow) -> Option<f64>, values: &[f64], expected: Option<f64>| {
            let times = (0_i64..).map(|at| at * 10_000 + 5_000);
            let samples: Vec<_> = times.zip(values.iter().copied()).collect();
            let window = RangeWindow {
                samples: &samples,
                from: 0,
                to: 40_000,
            };
            assert_eq!(of(&window), expected, "{values:?}");
        };
        // Half a gap beyond each end is still the same curve.
        check(increase, &[10.0, 20.0, 30.0, 40.0], Some(40.0));
        check(rate, &[10.0, 20.0, 30.0, 40.0], Some(1.0));
        // The counter began anew after 20.
        check(
            increase,
            &[10.0, 20.0, 0.0, 10.0],
            Some(20.0 * (40.0 / 30.0)),
        );
        check(delta, &[10.0, 20.0, 0.0, 10.0], Some(0.0));
        // It cannot have been less than nothing five seconds before.
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
        check(least, &[f64::NAN, 2.0, 6.0], Some(2.0));
        check(most, &[2.0, f64::NAN, 6.0], Some(6.0));
        check(count, &[2.0, 6.0], Some(2.0));
        check(changes, &[2.0, 6.0, 6.0, 1.0], Some(2.0));
        check(resets, &[2.0, 6.0, 6.0, 1.0], Some(1.0));
        check(variance, &[2.0, 4.0], Some(1.0));
        let three = [1.0, 2.0, 4.0].map(|value| (0, value));
        let window = RangeWindow {
            samples: &three,
            from: 0,
            to: 1,
        };
        assert_eq!(quantile_of(0.75, &window), 3.0);
        assert_eq!(quantile_of(2.0, &window), f64::INFINITY);
    }
}
