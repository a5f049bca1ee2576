//! Chooses the next batch for a destination: the oldest seconds that it does not have, in steps. `sender.rs` sends it.
//!
//! **No count is lost or sent twice.** The value of a counter's sample is everything counted so far: the base count in
//! the cursor, and the record's sums since the end of the base. The record no longer changes the seconds before that
//! end. Samples may be lost or repeated, and events may be added to a second after it was sent. Still the next sample
//! has each event once.
//!
//! **A batch without a response.** The values of a batch are saved before it is sent ([`Cursor::attempted_until`]). A
//! new process may find such a batch and cannot know whether it arrived. If the record still gives the same values, the
//! process sends those seconds again, and no later ones with them. If the destination refuses them as duplicates, they
//! count as delivered. If events were added meanwhile, the process skips those seconds. Otherwise an engine would have
//! two values for one second, and could take the difference for a reset of the counter. If the skipped batch never
//! arrived, its samples are lost, but no counts.

use std::collections::{BTreeSet, HashMap};
use std::io;

use super::batch::{
    Batch, BatchSteps, CounterTotals, CounterValues, MAX_BATCH_SAMPLES, series_numbers,
};
use super::cursor::Cursor;
use super::row::find_histograms;
use crate::record::{Grid, RangeResult, Record, Series, SeriesKind, Tier};

/// The most seconds of a batch that is read from seconds, unless one step is longer. It bounds the time of one read.
const MAX_BATCH_SECONDS: u64 = 900;
/// The most seconds of a batch that is read from longer buckets, unless one step is longer.
const MAX_COARSE_BATCH_SECONDS: u64 = 86_400;
/// A record on the disk is sent from its first second if it is at most this old. Of an older one, a new destination
/// gets no history.
const NEW_RECORD_MAX_SECONDS: u64 = 60;
/// The most hours of one search for the end of a gap: a year. A longer gap takes several batches.
const MAX_GAP_HOURS: u64 = 24 * 366;

/// The seconds of an hour.
const HOUR_SECONDS: u64 = Tier::Hour.step_seconds();
/// The seconds of a day.
const DAY_SECONDS: u64 = Tier::Day.step_seconds();

/// The progress of a destination: its cursor, and what need not be read again for the next batch.
#[derive(Debug)]
pub struct Progress {
    /// The part of the progress that is saved.
    pub cursor: Cursor,
    /// The counts at the cursor, so that the next batch need not read them; `None` if they must be read again.
    totals: Option<CounterTotals>,
    /// Whether a counter that was never delivered may get a sample at the cursor, from which engines compute its first
    /// growth. It must not get one if another process may have sent that second.
    may_begin_series: bool,
}

/// Lists the series that are pushed, with their numbers. Those whose names have a colon are left out: they are sums of
/// other series, which engines can compute.
fn pushed_series(record: &Record) -> Vec<(Series, u32)> {
    let mut series_list = record.series();
    series_list.retain(|(series, _)| !series.name.contains(':'));
    series_list
}

impl Progress {
    /// Starts with a new destination at `now`, in seconds since 1970. The first samples include everything that was
    /// counted before. Fails if the record cannot be read.
    pub fn start(record: &Record, now: u64, step_seconds: u64) -> io::Result<Progress> {
        let oldest_second = record.oldest_second()?.unwrap_or(now);
        let is_on_disk = record.folder().is_some();
        let first_second = match is_on_disk {
            // A record that has just begun is sent as a whole.
            true if oldest_second + NEW_RECORD_MAX_SECONDS >= now => oldest_second.min(now),
            true => now,
            // An earlier process may have sent the second in which it ended.
            false => now + 1,
        };
        let first_step = first_second - first_second % step_seconds;
        let cursor = Cursor {
            delivered_until: first_step,
            counted_since: oldest_second.min(first_step),
            ..Cursor::default()
        };
        let mut progress = Progress {
            cursor,
            totals: None,
            may_begin_series: is_on_disk,
        };
        progress.update_base(record)?;
        Ok(progress)
    }

    /// Resumes at the cursor that another process saved. An attempted batch counts as delivered if its values have
    /// changed since it was saved. Fails if the record cannot be read.
    pub fn resume(cursor: Cursor, record: &Record) -> io::Result<Progress> {
        let mut progress = Progress {
            cursor,
            totals: None,
            may_begin_series: true,
        };
        let cursor = &progress.cursor;
        if cursor.attempted_until > cursor.delivered_until {
            let series_list = pushed_series(record);
            let counters: Vec<_> = series_list
                .iter()
                .filter(|(series, _)| series.kind == SeriesKind::Counter)
                .map(|(series, number)| (series, *number))
                .collect();
            let tier = finest_tier(record, cursor.attempted_until)?;
            let counts = progress.counts_before(record, cursor.attempted_until, tier, &counters)?;
            let are_values_unchanged = cursor.counters.iter().all(|(number, counter)| {
                let count = counts.get(number).copied().unwrap_or(0);
                let current_value = count.max(counter.delivered_value);
                counter
                    .attempted_value
                    .is_none_or(|attempted_value| attempted_value == current_value)
            });
            if !are_values_unchanged {
                progress.mark_delivered(cursor.attempted_until);
            }
        }
        Ok(progress)
    }

    /// Marks a batch as sent without a response yet. The caller saves the cursor before it sends.
    pub fn mark_attempted(&mut self, batch: &Batch) {
        self.cursor.attempted_until = batch.to;
        for (number, value) in &batch.last_values {
            let counter = self.cursor.counters.entry(*number).or_default();
            counter.attempted_value = Some(*value);
        }
    }

    /// Marks the attempted batch as delivered up to the second `until`.
    fn mark_delivered(&mut self, until: u64) {
        self.cursor.delivered_until = self.cursor.delivered_until.max(until);
        for counter in self.cursor.counters.values_mut() {
            if let Some(attempted_value) = counter.attempted_value.take() {
                counter.delivered_value = attempted_value.max(counter.delivered_value);
                counter.was_delivered = true;
            }
        }
    }

    /// Builds the next batch from the seconds before `until`. Returns `None` if the cursor is there already. A batch
    /// over a gap without recorded seconds has no samples. Fails if the record cannot be read.
    ///
    /// Series in `live_series` get samples in every step. Others get them only in batches in which they have new events
    /// or values above zero. A counter also gets them with another bucket of its histogram.
    pub fn next_batch(
        &self,
        record: &Record,
        step_seconds: u64,
        until: u64,
        live_series: &BTreeSet<Series>,
    ) -> io::Result<Option<Batch>> {
        if until <= self.cursor.delivered_until {
            return Ok(None);
        }
        let late_addition_count = record.late_addition_count();
        let series_list = pushed_series(record);
        let (steps, changed_numbers) =
            self.plan_steps(record, &series_list, step_seconds, until, live_series.len())?;
        let BatchSteps { grid, tier, .. } = steps;
        let from = grid.from;
        let (counters, gauges): (Vec<_>, Vec<_>) = series_list
            .iter()
            .map(|(series, number)| (series, *number))
            .partition(|(series, _)| series.kind == SeriesKind::Counter);
        let valid_totals = self.totals.as_ref().filter(|totals| {
            totals.late_addition_count == late_addition_count && self.cursor.delivered_until == from
        });
        let counts_read;
        let counts_at_start = match valid_totals {
            Some(totals) => &totals.counts,
            None => {
                counts_read = self.counts_before(record, from, tier, &counters)?;
                &counts_read
            }
        };
        let changed_counters: Vec<_> = counters
            .iter()
            .filter(|(_, number)| changed_numbers.contains(number))
            .copied()
            .collect();
        let growth = record.read(&grid, &series_numbers(&changed_counters))?;
        if growth.covered_seconds.iter().all(|seconds| *seconds == 0) {
            return self.skip_gap(record, &steps).map(Some);
        }
        let (counter_values, counts_at_end) =
            self.counter_values(&counters, counts_at_start, &growth, live_series);
        let mut batch = Batch {
            rows: steps.gauge_rows(record, &gauges, &changed_numbers, live_series)?,
            from,
            to: steps.end(),
            last_values: Vec::new(),
            // After coarse buckets, or a step that is not over, the counts are read again.
            totals: (tier == Tier::Second && grid.end() <= until).then_some(CounterTotals {
                late_addition_count,
                counts: counts_at_end,
            }),
        };
        batch.add_counters(
            counter_values,
            &growth.covered_seconds,
            &steps,
            self.may_begin_series,
        );
        Ok(Some(batch))
    }

    /// Plans the steps of the next batch. Also returns the numbers of series with events or values above zero, in these
    /// steps or soon after them.
    ///
    /// The more of these series, or the more live ones, the fewer steps the batch has. All series of the record would
    /// be too many to plan for, and most get no samples.
    fn plan_steps(
        &self,
        record: &Record,
        series_list: &[(Series, u32)],
        step_seconds: u64,
        until: u64,
        live_count: usize,
    ) -> io::Result<(BatchSteps, BTreeSet<u32>)> {
        let from = self.cursor.delivered_until - self.cursor.delivered_until % step_seconds;
        let tier = finest_tier(record, from)?;
        let max_seconds = match tier {
            Tier::Second => MAX_BATCH_SECONDS,
            _ => MAX_COARSE_BATCH_SECONDS,
        };
        let max_steps =
            |series_count: usize| (MAX_BATCH_SAMPLES / series_count.max(1)).max(1) as u64;
        let searched_steps = max_steps(live_count)
            .min((max_seconds / step_seconds).max(1))
            .min((until - from).div_ceil(step_seconds));
        let numbers: Vec<u32> = series_list.iter().map(|(_, number)| *number).collect();
        // The search covers as many steps as the batch may have; the batch may then get fewer.
        let searched_grid = Grid::from_parts(from, step_seconds * searched_steps, 1, tier);
        let searched_columns = record.read(&searched_grid, &numbers)?.columns;
        let changed_numbers: BTreeSet<u32> = searched_columns.into_keys().collect();
        let step_count = searched_steps.min(max_steps(changed_numbers.len())) as usize;
        let grid = Grid::from_parts(from, step_seconds, step_count, tier);
        Ok((BatchSteps { grid, tier, until }, changed_numbers))
    }

    /// Returns everything that was counted before the second `until`, by the numbers of the series. Series without
    /// events may be missing. In the hour of `until`, buckets of `tier` are read. Fails if the record cannot be read.
    fn counts_before(
        &self,
        record: &Record,
        until: u64,
        tier: Tier,
        counters: &[(&Series, u32)],
    ) -> io::Result<HashMap<u32, u64>> {
        let base_until = self.cursor.base_until.min(until);
        let hour_start = (until - until % HOUR_SECONDS).max(base_until);
        let counter_cursors = self.cursor.counters.iter();
        let mut counts: HashMap<u32, u64> = counter_cursors
            .map(|(number, counter)| (*number, counter.base_count))
            .collect();
        let numbers = series_numbers(counters);
        let base_tier = finest_tier(record, base_until)?;
        for (from, to, tier) in [
            (base_until, hour_start, base_tier),
            (hour_start, until, tier),
        ] {
            for (number, sum) in read_sums(record, from, to, tier, &numbers)? {
                *counts.entry(number).or_default() += sum;
            }
        }
        Ok(counts)
    }

    /// Returns the cumulative values of the counters to send, and what all counters have counted at the end of the
    /// batch.
    fn counter_values<'a>(
        &self,
        counters: &[(&'a Series, u32)],
        counts_at_start: &HashMap<u32, u64>,
        growth: &RangeResult,
        live_series: &BTreeSet<Series>,
    ) -> (Vec<CounterValues<'a>>, HashMap<u32, u64>) {
        let mut counts_at_end = counts_at_start.clone();
        for (number, column) in &growth.columns {
            *counts_at_end.entry(*number).or_default() += column.sums.iter().sum::<u64>();
        }
        let count_at_start = |number: &u32| counts_at_start.get(number).copied().unwrap_or(0);
        let counter_cursor = |number: &u32| {
            self.cursor
                .counters
                .get(number)
                .copied()
                .unwrap_or_default()
        };
        let mut is_in_batch: Vec<bool> = counters
            .iter()
            .map(|(series, number)| {
                let counter_cursor = counter_cursor(number);
                // Here events were added to a second after its sample had been delivered.
                let has_late_events = counter_cursor.was_delivered
                    && count_at_start(number) > counter_cursor.delivered_value;
                growth.columns.contains_key(number)
                    || has_late_events
                    || live_series.contains(*series)
            })
            .collect();
        // A histogram is useless to an engine that lacks some of its buckets.
        for buckets in find_histograms(counters.iter().map(|(series, _)| *series)) {
            if buckets
                .iter()
                .any(|bucket| is_in_batch[bucket.series_index])
            {
                for bucket in &buckets {
                    is_in_batch[bucket.series_index] = true;
                }
            }
        }
        let batch_counters = counters.iter().zip(is_in_batch);
        let counter_values =
            batch_counters
                .filter(|(_, is_in_batch)| *is_in_batch)
                .map(|((series, number), _)| {
                    let counter_cursor = counter_cursor(number);
                    let mut count = count_at_start(number);
                    // A value below the last delivered one would look like a reset of the counter.
                    let mut values = vec![count.max(counter_cursor.delivered_value)];
                    let column = growth.columns.get(number);
                    for step in 0..growth.covered_seconds.len() {
                        count += column.map_or(0, |column| column.sums[step]);
                        values.push(count.max(counter_cursor.delivered_value));
                    }
                    CounterValues {
                        number: *number,
                        series,
                        was_delivered: counter_cursor.was_delivered,
                        values,
                    }
                });
        (counter_values.collect(), counts_at_end)
    }

    /// Builds an empty batch that moves the cursor over a gap, to the next recorded hour or to the end of the seconds
    /// to send. It moves the cursor at least over `steps`, and by about [`MAX_GAP_HOURS`] at most. Fails if the record
    /// cannot be read.
    fn skip_gap(&self, record: &Record, steps: &BatchSteps) -> io::Result<Batch> {
        let end = steps.end();
        let hour_start = end - end % HOUR_SECONDS;
        let hour_count = steps
            .until
            .saturating_sub(hour_start)
            .div_ceil(HOUR_SECONDS);
        let hour_count = hour_count.min(MAX_GAP_HOURS);
        let grid = Grid::from_parts(hour_start, HOUR_SECONDS, hour_count as usize, Tier::Hour);
        let covered_seconds = record.read(&grid, &[])?.covered_seconds;
        let recorded_hour = covered_seconds.iter().position(|seconds| *seconds > 0);
        let skipped_hours = recorded_hour.map_or(hour_count, |index| index as u64);
        let gap_end = hour_start + HOUR_SECONDS * skipped_hours;
        let next_step = (gap_end - gap_end % steps.grid.step_seconds).min(steps.until);
        Ok(Batch {
            rows: Vec::new(),
            from: end,
            to: end.max(next_step),
            last_values: Vec::new(),
            totals: None,
        })
    }

    /// Moves the cursor to the end of a batch that was delivered. An error means that the base could not be read,
    /// though the cursor has moved.
    pub fn advance(&mut self, batch: Batch, record: &Record) -> io::Result<()> {
        self.mark_attempted(&batch);
        self.mark_delivered(batch.to);
        self.totals = batch.totals;
        self.may_begin_series = true;
        self.update_base(record)
    }

    /// Moves the cursor to the end of the hour that a record in memory is about to drop, and keeps the counts of that
    /// hour. Returns whether the cursor moved. An error means that it has moved, though the base could not be read.
    pub fn skip_dropped_hour(&mut self, record: &Record) -> io::Result<bool> {
        match record.next_dropped_until() {
            Some(hour_end) if self.cursor.delivered_until < hour_end => {
                self.cursor.delivered_until = hour_end;
                self.totals = None;
                self.update_base(record).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Adds to the base the delivered hours that the record does not change any more, so that they need not be read
    /// again. Fails if the record cannot be read; the base then stays.
    fn update_base(&mut self, record: &Record) -> io::Result<()> {
        let delivered_hour =
            self.cursor.delivered_until - self.cursor.delivered_until % HOUR_SECONDS;
        let final_until = record.final_until().min(delivered_hour);
        let base_until = self.cursor.base_until;
        if final_until <= base_until {
            return Ok(());
        }
        let series_list = pushed_series(record);
        let numbers: Vec<u32> = series_list
            .iter()
            .filter(|(series, _)| series.kind == SeriesKind::Counter)
            .map(|(_, number)| *number)
            .collect();
        // Days are kept for longer than hours, so whole days are read as days.
        let days_until = match base_until % DAY_SECONDS {
            0 => final_until - final_until % DAY_SECONDS,
            _ => base_until,
        };
        let mut sums = read_sums(record, base_until, days_until, Tier::Day, &numbers)?;
        sums.extend(read_sums(
            record,
            days_until,
            final_until,
            Tier::Hour,
            &numbers,
        )?);
        for (number, sum) in sums {
            self.cursor.counters.entry(number).or_default().base_count += sum;
        }
        self.cursor.base_until = final_until;
        Ok(())
    }
}

/// Returns the finest tier that reaches back to the second `from`, but none that is coarser than hours.
fn finest_tier(record: &Record, from: u64) -> io::Result<Tier> {
    Ok(record.finest_tier(from)?.min(Tier::Hour))
}

/// Sums each series over the seconds in `from..to`, from buckets of `tier` where it reaches. Returns the number of each
/// series and its sum; series without events are missing.
fn read_sums(
    record: &Record,
    from: u64,
    to: u64,
    tier: Tier,
    numbers: &[u32],
) -> io::Result<Vec<(u32, u64)>> {
    if from >= to {
        return Ok(Vec::new());
    }
    let result = record.read(&Grid::from_parts(from, to - from, 1, tier), numbers)?;
    let columns = result.columns.into_iter();
    let sums = columns.map(|(number, column)| (number, column.sums.iter().sum()));
    Ok(sums.collect())
}
