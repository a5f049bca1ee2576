//! A batch: the samples of some successive steps, built from the record and sent together.
//!
//! `progress.rs` decides which steps and series a batch has. Here their values become rows. Nothing is sent here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::row::{Row, TimedValue, accumulate_buckets, find_histograms};
use crate::record::{Grid, Record, Series, Tier};

/// The most samples of a request, and of a batch. A batch of a single step may have more.
pub const MAX_BATCH_SAMPLES: usize = 5_000;
/// The most buckets of gauges that are read from the record at once. A single gauge may have more. It bounds memory.
const MAX_GAUGE_BUCKETS: usize = 1 << 17;

/// The counts of all counters at the end of a batch, which the next batch need not read again.
#[derive(Debug)]
pub(super) struct CounterTotals {
    /// [`Record::late_addition_count`] when the counts were read. A different number makes them invalid.
    pub(super) late_addition_count: u64,
    /// The counts, by the numbers of the series.
    pub(super) counts: HashMap<u32, u64>,
}

/// Samples that are sent together, and what the cursor becomes once they are delivered.
#[derive(Debug)]
pub struct Batch {
    /// The samples; empty if nothing was recorded.
    pub rows: Vec<Row>,
    /// The first second of a sample.
    pub from: u64,
    /// The last second of a sample, at which the cursor stands afterwards.
    pub to: u64,
    /// The last value of each counter, by the numbers of the series.
    pub(super) last_values: Vec<(u32, u64)>,
    /// The counts of all counters at `to`; `None` if they are to be read again.
    pub(super) totals: Option<CounterTotals>,
}

/// A counter of a batch.
pub(super) struct CounterValues<'a> {
    /// The number of the series in the record.
    pub(super) number: u32,
    pub(super) series: &'a Series,
    /// Whether the destination has a sample of this counter already.
    pub(super) was_delivered: bool,
    /// The cumulative value at the beginning of the batch and at the end of each step.
    pub(super) values: Vec<u64>,
}

impl Batch {
    /// Adds counters: a sample at the end of each step that has recorded seconds.
    ///
    /// A counter that the destination does not have yet gets a sample at the beginning too. Without it, engines could
    /// not compute the growth in its first step.
    pub(super) fn add_counters(
        &mut self,
        mut counters: Vec<CounterValues<'_>>,
        covered_seconds: &[u32],
        steps: &BatchSteps,
        may_begin_series: bool,
    ) {
        let last_values = counters
            .iter()
            .filter_map(|counter| Some((counter.number, *counter.values.last()?)));
        self.last_values = last_values.collect();
        let values = counters.iter_mut();
        let mut values: Vec<Vec<u64>> = values
            .map(|counter| std::mem::take(&mut counter.values))
            .collect();
        for buckets in find_histograms(counters.iter().map(|counter| counter.series)) {
            accumulate_buckets(&buckets, &mut values);
        }
        for (counter, values) in counters.iter().zip(values) {
            let value = |index: usize| values.get(index).copied().unwrap_or(0);
            let first_sample = (may_begin_series && !counter.was_delivered).then(|| TimedValue {
                at: steps.grid.from,
                value: value(0),
            });
            let recorded_steps = covered_seconds
                .iter()
                .enumerate()
                .filter(|(_, seconds)| **seconds > 0);
            let samples = recorded_steps.map(|(step, _)| TimedValue {
                at: steps.sample_time(step),
                value: value(step + 1),
            });
            self.rows.push(Row {
                series: counter.series.clone(),
                samples: first_sample.into_iter().chain(samples).collect(),
            });
        }
        self.rows.sort_by(|a, b| a.series.cmp(&b.series));
    }
}

/// The steps of a batch, each with one sample of each series.
pub(super) struct BatchSteps {
    /// One bucket per step.
    pub(super) grid: Grid,
    /// The finest tier of the record that reaches back to these steps.
    pub(super) tier: Tier,
    /// The end of the seconds to send; the last step may reach beyond it.
    pub(super) until: u64,
}

impl BatchSteps {
    /// Returns the time of a step's sample: the end of the step, or of the seconds to send if that is earlier.
    pub(super) fn sample_time(&self, step: usize) -> u64 {
        (self.grid.from + self.grid.step_seconds * (step as u64 + 1)).min(self.until)
    }

    /// Returns the end of the last step.
    pub(super) fn end(&self) -> u64 {
        self.sample_time(self.grid.bucket_count - 1)
    }

    /// Reads the gauges of the batch: those in `changed_numbers`, by number, and those in `live_series`.
    ///
    /// The value of a step is that of its last recorded second. If the record has only longer buckets, the value is the
    /// average of the last recorded one.
    pub(super) fn gauge_rows(
        &self,
        record: &Record,
        gauges: &[(&Series, u32)],
        changed_numbers: &BTreeSet<u32>,
        live_series: &BTreeSet<Series>,
    ) -> io::Result<Vec<Row>> {
        let Grid {
            from,
            step_seconds,
            bucket_count,
            ..
        } = self.grid;
        let (grid, buckets_per_step) = match self.tier {
            Tier::Second => (
                Grid::from_parts(from, 1, bucket_count * step_seconds as usize, Tier::Second),
                step_seconds as usize,
            ),
            _ => (self.grid, 1),
        };
        let covered_seconds = record.read(&grid, &[])?.covered_seconds;
        let last_buckets: BTreeMap<usize, usize> = (0..bucket_count)
            .filter_map(|step| {
                let mut fine_buckets =
                    (step * buckets_per_step..(step + 1) * buckets_per_step).rev();
                Some((
                    step,
                    fine_buckets.find(|bucket| covered_seconds[*bucket] > 0)?,
                ))
            })
            .collect();
        let is_in_batch = |(series, number): &(&Series, u32)| {
            changed_numbers.contains(number) || live_series.contains(*series)
        };
        let batch_gauges: Vec<_> = gauges.iter().copied().filter(is_in_batch).collect();
        let mut rows = Vec::new();
        for gauges in batch_gauges.chunks((MAX_GAUGE_BUCKETS / grid.bucket_count).max(1)) {
            let columns = record.read(&grid, &series_numbers(gauges))?.columns;
            for (series, number) in gauges {
                let column = columns.get(number);
                let samples = last_buckets.iter().map(|(step, bucket)| TimedValue {
                    at: self.sample_time(*step),
                    value: column.map_or(0, |column| column.sums[*bucket])
                        / u64::from(covered_seconds[*bucket].max(1)),
                });
                rows.push(Row {
                    series: (*series).clone(),
                    samples: samples.collect(),
                });
            }
        }
        Ok(rows)
    }
}

/// Returns the numbers of these series.
pub(super) fn series_numbers(series: &[(&Series, u32)]) -> Vec<u32> {
    series.iter().map(|(_, number)| *number).collect()
}
