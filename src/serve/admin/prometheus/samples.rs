//! Reads samples of the record for PromQL queries.
//!
//! A sample has the time of the end of its second, or of its bucket where steps are longer. The value of a counter is the
//! sum of everything that was recorded until then, so it never resets. The value of a gauge is its mean in the bucket. A
//! second that was not recorded has no sample. Every series starts with zeros, so that queries see its first increase.
//!
//! Bounds: the most samples that the query allows, and columns of [`MAX_BUCKETS`] buckets while they are read, however
//! many series are added up.

use std::collections::BTreeMap;

use super::catalog::{ExposedSeries, SeriesPart};
use crate::record::promql::labels::{Matcher, match_all};
use crate::record::promql::{Error, Sample, SampleSource, SelectedSeries};
use crate::record::{Grid, Record, SeriesKind};

/// Minimum number of buckets into which each series can be divided. A chart with fewer would hide peaks, so a selector
/// of too many series is refused.
const MIN_BUCKETS: usize = 250;

/// Maximum number of buckets in memory at a time, and so of one series. Each bucket takes 24 bytes.
const MAX_BUCKETS: usize = 1 << 19;

/// The record as [`promql`](crate::record::promql) reads it.
pub struct RecordSamples<'a> {
    /// The record from which samples are read.
    pub record: &'a Record,
    /// The series of the record, in the form of Prometheus.
    pub exposed: &'a [ExposedSeries],
    /// The current second, in seconds since 1970. Nothing of this second or later is read.
    pub now: u64,
    /// Whether a client still waits for the result, and the query has not timed out.
    pub is_wanted: &'a dyn Fn() -> bool,
}

impl SampleSource for RecordSamples<'_> {
    fn select(
        &self,
        matchers: &[Matcher],
        (from_ms, to_ms): (i64, i64),
        max_samples: usize,
    ) -> Result<SelectedSeries, Error> {
        let matching = self.matching_series(matchers)?;
        let max_buckets = (max_samples / matching.len().max(1)).min(MAX_BUCKETS);
        if max_buckets < MIN_BUCKETS {
            let series_count = matching.len();
            let max_series = max_samples / MIN_BUCKETS;
            let why = format!(
                "a selector has {series_count} series, of {max_series} at most: name more labels"
            );
            return Err(Error::Execution(why));
        }
        // The sample of second 7 has the time 8,000 ms, so the time of a sample is the number of the second after it.
        let second_before = |time_ms: i64| u64::try_from(time_ms.div_euclid(1_000)).unwrap_or(0);
        let first_second = second_before(from_ms - 1);
        let end_second = second_before(to_ms).min(self.now);
        if matching.is_empty() || first_second >= end_second {
            return Ok(SelectedSeries::default());
        }
        let grid = self
            .record
            .finest_grid(first_second, end_second, max_buckets)?;
        let samples = self.read_samples(&grid, (from_ms, to_ms), &matching)?;
        let labels = matching.iter().map(|series| series.labels.clone());
        Ok(SelectedSeries {
            series: labels.zip(samples).collect(),
            step_ms: to_millis(grid.step_seconds),
        })
    }

    fn check_deadline(&self) -> Result<(), Error> {
        (self.is_wanted)().then_some(()).ok_or(Error::TimedOut)
    }
}

impl RecordSamples<'_> {
    /// The series whose labels match. The only error is [`Error::TimedOut`].
    pub fn matching_series(&self, matchers: &[Matcher]) -> Result<Vec<&ExposedSeries>, Error> {
        let mut matching = Vec::new();
        for series in self.exposed {
            self.check_deadline()?;
            matching.extend(match_all(matchers, &series.labels).then_some(series));
        }
        Ok(matching)
    }

    /// The samples of each of the `matching` series, in the same order.
    ///
    /// A part that several series share is read once, and dropped when it is added up. A histogram's series have as many
    /// parts as the histogram has buckets.
    fn read_samples(
        &self,
        grid: &Grid,
        range_ms: (i64, i64),
        matching: &[&ExposedSeries],
    ) -> Result<Vec<Vec<Sample>>, Error> {
        // By the number of a recorded series: the indices of the matching series that it is a part of, and its unit.
        let mut part_uses: BTreeMap<u32, Vec<(usize, f64)>> = BTreeMap::new();
        for (index, series) in matching.iter().enumerate() {
            for SeriesPart { number, unit } in &series.parts {
                part_uses.entry(*number).or_default().push((index, *unit));
            }
        }
        let covered_seconds = self.record.read(grid, &[])?.covered_seconds;
        let zeros = zero_samples(grid, range_ms, &covered_seconds);
        let mut samples = vec![zeros; matching.len()];
        let numbers: Vec<u32> = part_uses.keys().copied().collect();
        for chunk in numbers.chunks((MAX_BUCKETS / grid.bucket_count).max(1)) {
            self.check_deadline()?;
            let range = self.record.read(grid, chunk)?;
            let totals = self.record.totals_before(grid.from, chunk)?;
            for number in chunk {
                let column = ColumnSums {
                    grid,
                    covered_seconds: &covered_seconds,
                    total_before: totals.get(number).copied().unwrap_or(0),
                    sums: range.columns.get(number).map_or(&[], |column| &column.sums),
                };
                for (index, unit) in &part_uses[number] {
                    column.add_to(&mut samples[*index], matching[*index].kind, *unit);
                }
            }
        }
        Ok(samples)
    }
}

/// A zero sample for each recorded bucket that ends in `from_ms..=to_ms`, in milliseconds since 1970.
fn zero_samples(grid: &Grid, (from_ms, to_ms): (i64, i64), covered_seconds: &[u32]) -> Vec<Sample> {
    let buckets = (0..).zip(covered_seconds);
    let recorded_buckets = buckets.filter(|(_, seconds)| **seconds > 0);
    let ends_ms = recorded_buckets.map(|(bucket_index, _)| bucket_end_ms(grid, bucket_index));
    let ends_in_range = ends_ms.filter(|end_ms| (from_ms..=to_ms).contains(end_ms));
    ends_in_range.map(|end_ms| (end_ms, 0.0)).collect()
}

/// When a bucket ends, in milliseconds since 1970.
fn bucket_end_ms(grid: &Grid, bucket_index: u64) -> i64 {
    to_millis(grid.from + (bucket_index + 1) * grid.step_seconds)
}

/// The sums of one series of the record in each bucket.
struct ColumnSums<'a> {
    grid: &'a Grid,
    /// The number of recorded seconds in each bucket.
    covered_seconds: &'a [u32],
    /// The total before the first bucket.
    total_before: u64,
    /// The sum of each bucket; 0 past the end.
    sums: &'a [u64],
}

impl ColumnSums<'_> {
    /// Adds the values to those of `samples`, which are in order of time. The recorded integer `unit` stands for 1.
    fn add_to(&self, samples: &mut [Sample], kind: SeriesKind, unit: f64) {
        let mut total = self.total_before;
        let mut samples = samples.iter_mut().peekable();
        for (bucket_index, covered_seconds) in (0..).zip(self.covered_seconds) {
            let sum = self.sums.get(bucket_index as usize).copied().unwrap_or(0);
            total = total.saturating_add(sum);
            let end_ms = bucket_end_ms(self.grid, bucket_index);
            if let Some((_, value)) = samples.next_if(|(sample_ms, _)| *sample_ms == end_ms) {
                *value += match kind {
                    SeriesKind::Counter => total as f64 / unit,
                    SeriesKind::Gauge => sum as f64 / f64::from(*covered_seconds) / unit,
                };
            }
        }
    }
}

/// Seconds as milliseconds, at most the largest number.
fn to_millis(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
