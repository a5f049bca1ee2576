//! A batch: the samples of some successive steps, built from the record. A step is the time between two samples of a
//! series.
//!
//! `progress.rs` decides which steps and series a batch has. Here their values become rows. `request_range.rs` splits
//! the rows into requests, and nothing is sent here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::row::{Row, TimedValue, accumulate_buckets, find_histograms};
use crate::record::{Grid, Record, Series, Tier};

/// The most samples of a request, unless a single series has more. A batch is planned for as many samples. It may have
/// more: one step always fits, and some series are added after the plan.
pub const MAX_BATCH_SAMPLES: usize = 5_000;
/// The most buckets of gauges that are read from the record at once: 3 MiB, for each takes 24 bytes. A single gauge may
/// have more.
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
    /// The samples, sorted by series; empty if nothing was recorded.
    pub rows: Vec<Row>,
    /// The start of the first step, in seconds since 1970. A counter that the destination does not have yet may have a
    /// sample here.
    pub from: u64,
    /// The second to which the cursor moves once the batch is delivered: the time of the last step's sample, or the end
    /// of a gap.
    pub to: u64,
    /// The number and the last value of each counter in the batch. The value of a histogram's bucket does not include
    /// the buckets below.
    pub(super) last_values: Vec<(u32, u64)>,
    /// The counts of all counters at `to`; `None` if they are to be read again.
    pub(super) totals: Option<CounterTotals>,
}

/// The values of a counter in a batch.
pub(super) struct CounterValues<'a> {
    /// The number of the series in the record.
    pub(super) number: u32,
    /// The name and the labels of the series.
    pub(super) series: &'a Series,
    /// Whether the destination has a sample of this counter already.
    pub(super) was_delivered: bool,
    /// The cumulative value at the beginning of the batch, and then that at the end of each step.
    pub(super) values: Vec<u64>,
}

impl Batch {
    /// Adds counters: a sample at the end of each step that has recorded seconds. `covered_seconds` has the number of
    /// recorded seconds of each step. Sets `last_values`, and sorts all rows.
    ///
    /// If `may_begin_series` holds, a counter that the destination does not have yet gets a sample at the beginning
    /// too. From that sample engines compute the growth in its first step.
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
        let mut values_by_counter: Vec<Vec<u64>> = counters
            .iter_mut()
            .map(|counter| std::mem::take(&mut counter.values))
            .collect();
        for buckets in find_histograms(counters.iter().map(|counter| counter.series)) {
            accumulate_buckets(&buckets, &mut values_by_counter);
        }
        for (counter, values) in counters.iter().zip(values_by_counter) {
            let value_at = |index: usize| values.get(index).copied().unwrap_or(0);
            let first_sample = (may_begin_series && !counter.was_delivered).then(|| TimedValue {
                second: steps.grid.from,
                value: value_at(0),
            });
            let recorded_steps = covered_seconds
                .iter()
                .enumerate()
                .filter(|(_, seconds)| **seconds > 0);
            let step_samples = recorded_steps.map(|(step, _)| TimedValue {
                second: steps.sample_time(step),
                value: value_at(step + 1),
            });
            self.rows.push(Row {
                series: counter.series.clone(),
                samples: first_sample.into_iter().chain(step_samples).collect(),
            });
        }
        self.rows.sort_by(|a, b| a.series.cmp(&b.series));
    }
}

/// The steps of a batch. Each series has one sample for each step that has recorded seconds.
pub(super) struct BatchSteps {
    /// One bucket per step.
    pub(super) grid: Grid,
    /// The finest tier of the record that reaches back to these steps, or hours if that tier is coarser.
    pub(super) tier: Tier,
    /// The end of the seconds to send, since 1970. The last step may reach beyond it.
    pub(super) until: u64,
}

impl BatchSteps {
    /// Returns the time of a step's sample: the end of the step, or of the seconds to send if that is earlier.
    pub(super) fn sample_time(&self, step: usize) -> u64 {
        (self.grid.from + self.grid.step_seconds * (step as u64 + 1)).min(self.until)
    }

    /// Returns the time of the last step's sample.
    pub(super) fn end(&self) -> u64 {
        self.sample_time(self.grid.bucket_count - 1)
    }

    /// Reads the gauges of the batch: those whose numbers are in `changed_numbers`, and those in `live_series`. Fails
    /// if the record cannot be read.
    ///
    /// The value of a step is that of its last recorded second. If the record has only longer buckets, the value is the
    /// average over the bucket of the step, rounded down. A step without recorded seconds has no sample.
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
        // The last recorded bucket of each step that has one.
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
                    second: self.sample_time(*step),
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
