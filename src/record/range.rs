//! Reads series over a time range in buckets of one length, from segments and from the hours in memory. `query.rs`
//! decides for an open record which tiers reach back far enough, and calls the functions here.
//!
//! Coarse tiers are read as far as they reach, and finer ones from there on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::column::Column;
use super::folder::{RecordFolder, SegmentError, retry_without_damaged};
use super::hour::Hour;
use super::tier::Tier;

/// The steps of grids in seconds, from 1 second to 30 days: round numbers that people expect on the axis of a plot.
const GRID_STEPS_SECONDS: [u64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 604_800, 2_592_000,
];

/// A time range, divided into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first second, since 1970.
    pub from: u64,
    /// The seconds of a bucket.
    pub step_seconds: u64,
    /// The number of buckets.
    pub bucket_count: usize,
    /// The coarsest tier to read. Where it ends, finer ones are read.
    tier: Tier,
}

impl Grid {
    /// Makes the finest grid that covers the seconds from `from` to before `to` in at most `max_buckets`, or two if
    /// that is more. It can be filled from tiers for which `reaches_back` holds.
    ///
    /// Buckets begin at multiples of the step, so a plot that is scrolled keeps them.
    pub fn new(
        from: u64,
        to: u64,
        max_buckets: usize,
        reaches_back: impl Fn(Tier) -> bool,
    ) -> Grid {
        let to = to.max(from + 1);
        let bucket_count = |step: u64| to.div_ceil(step) - from / step;
        let is_within_max = |step: &u64| bucket_count(*step) <= max_buckets.max(2) as u64;
        let longest_round_step = GRID_STEPS_SECONDS[GRID_STEPS_SECONDS.len() - 1];
        let longer_steps = (2..).map(|factor| factor * longest_round_step);
        let mut step = GRID_STEPS_SECONDS
            .into_iter()
            .chain(longer_steps)
            .find(is_within_max)
            .unwrap_or(longest_round_step);
        // Tiers that do not reach back are left out, and the step must be a multiple of the finest step that remains.
        let mut usable_tiers = Tier::ALL.into_iter();
        while let Some(unusable) = usable_tiers
            .clone()
            .next()
            .filter(|tier| !reaches_back(*tier))
        {
            usable_tiers.next();
            let finest_tier = usable_tiers.clone().next().unwrap_or(unusable);
            step = step.next_multiple_of(finest_tier.step_seconds());
        }
        let fits_step = |tier: &Tier| step % tier.step_seconds() == 0;
        let tier = usable_tiers.rev().find(fits_step).unwrap_or(Tier::Day);
        Grid {
            from: from - from % step,
            step_seconds: step,
            bucket_count: bucket_count(step) as usize,
            tier,
        }
    }

    /// Makes a grid of these buckets, whichever tiers reach back. If `step_seconds` are fewer than those of `tier`, its
    /// buckets are not divided: each counts in the bucket of the grid in which it begins.
    pub fn from_parts(from: u64, step_seconds: u64, bucket_count: usize, tier: Tier) -> Grid {
        Grid {
            from,
            step_seconds: step_seconds.max(1),
            bucket_count,
            tier,
        }
    }

    /// The second after the last bucket.
    pub fn end(&self) -> u64 {
        self.from + self.bucket_count as u64 * self.step_seconds
    }
}

/// Sums each series over all seconds before `until`, by the numbers of the series. Series whose sum is zero are
/// missing. Where only coarse tiers are left, `until` must be a multiple of their step. Fails as [`read_range`] does.
pub fn totals_before(
    folder: Option<&RecordFolder>,
    hours: &[Arc<Hour>],
    until: u64,
    series_numbers: &[u32],
) -> io::Result<BTreeMap<u32, u64>> {
    let (mut from, mut totals) = (0, BTreeMap::new());
    // Each tier is read up to its last whole bucket, and the next finer one from there.
    for tier in Tier::ALL.into_iter().rev() {
        let to = until - until % tier.step_seconds();
        if to <= from {
            continue;
        }
        let whole = Grid {
            from,
            step_seconds: to - from,
            bucket_count: 1,
            tier,
        };
        for (series_number, column) in read_range(folder, hours, &whole, series_numbers)?.columns {
            let total: &mut u64 = totals.entry(series_number).or_default();
            *total = total.saturating_add(column.sums[0]);
        }
        from = to;
    }
    Ok(totals)
}

/// The values of series on a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// The number of recorded seconds in each bucket.
    pub covered_seconds: Vec<u32>,
    /// The columns by the numbers of their series. Series whose values are all zero are missing.
    pub columns: BTreeMap<u32, Column>,
}

impl RangeResult {
    /// Adds the recorded seconds of the part of a source. `covered_seconds` are those of the whole source.
    fn add_coverage(&mut self, grid: &Grid, slice: SourceSlice, covered_seconds: &[u32]) {
        for (source_bucket, grid_bucket) in slice.buckets(grid, covered_seconds.len()) {
            self.covered_seconds[grid_bucket] += covered_seconds[source_bucket];
        }
    }

    /// Adds the values of a series in the part of a source. Without a column they are all zero. `covered_seconds` are
    /// those of the whole source.
    fn add_column(
        &mut self,
        grid: &Grid,
        slice: SourceSlice,
        covered_seconds: &[u32],
        series_number: u32,
        column: Option<&Column>,
    ) {
        let Some(target) = self.columns.get_mut(&series_number) else {
            return;
        };
        for (source_bucket, grid_bucket) in slice.buckets(grid, covered_seconds.len()) {
            if covered_seconds[source_bucket] == 0 {
                continue;
            }
            match column {
                Some(column) => {
                    let sum = &mut target.sums[grid_bucket];
                    *sum = sum.saturating_add(column.sums[source_bucket]);
                    let minimum = &mut target.minima[grid_bucket];
                    *minimum = column.minima[source_bucket].min(*minimum);
                    let maximum = &mut target.maxima[grid_bucket];
                    *maximum = column.maxima[source_bucket].max(*maximum);
                }
                None => target.minima[grid_bucket] = 0,
            }
        }
    }

    /// Drops columns of zeros, and sets the minima of buckets without recorded seconds to zero.
    fn finish(mut self) -> RangeResult {
        self.columns.retain(|_, column| !column.is_zero());
        for column in self.columns.values_mut() {
            for (minimum, seconds) in column.minima.iter_mut().zip(&self.covered_seconds) {
                *minimum = if *seconds == 0 { 0 } else { *minimum };
            }
        }
        self
    }
}

/// The part of a segment or an hour that is read for a grid.
#[derive(Clone, Copy)]
struct SourceSlice {
    /// The first second of the source.
    start: u64,
    /// The seconds of a bucket of the source.
    step_seconds: u64,
    /// The first second of the part.
    from: u64,
    /// The second after the part.
    to: u64,
}

impl SourceSlice {
    /// Iterates over the buckets that begin in the slice, by their indexes in the source. Each comes with the index of
    /// the grid's bucket to which it belongs. The source has `bucket_count` buckets.
    fn buckets(
        self,
        grid: &Grid,
        bucket_count: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let grid = *grid;
        let bucket_index = move |second: u64| {
            (second
                .saturating_sub(self.start)
                .div_ceil(self.step_seconds) as usize)
                .min(bucket_count)
        };
        (bucket_index(self.from)..bucket_index(self.to)).map(move |source_bucket| {
            let second = self.start + source_bucket as u64 * self.step_seconds;
            (
                source_bucket,
                ((second - grid.from) / grid.step_seconds) as usize,
            )
        })
    }
}

/// Reads series on a grid from a folder, and from the hours in memory, which must be in order.
///
/// # Errors
///
/// Fails if the disk does, or if a segment has the format of another version. A damaged segment is set aside, and its
/// seconds come from another tier or are missing.
pub fn read_range(
    folder: Option<&RecordFolder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series_numbers: &[u32],
) -> io::Result<RangeResult> {
    retry_without_damaged(|| read_undamaged(folder, hours, grid, series_numbers))
}

/// As [`read_range`], but fails with [`SegmentError::SetAside`] where a damaged segment was set aside, because some of
/// its values may be in the result already.
fn read_undamaged(
    folder: Option<&RecordFolder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series_numbers: &[u32],
) -> Result<RangeResult, SegmentError> {
    // The minima are lowered by what is read; `RangeResult::finish` replaces those of buckets without seconds.
    let empty_column = || Column {
        sums: vec![0; grid.bucket_count],
        minima: vec![u64::MAX; grid.bucket_count],
        maxima: vec![0; grid.bucket_count],
    };
    let mut result = RangeResult {
        covered_seconds: vec![0; grid.bucket_count],
        columns: series_numbers
            .iter()
            .map(|series_number| (*series_number, empty_column()))
            .collect(),
    };
    let memory_start = hours.first().map_or(u64::MAX, |hour| hour.start());
    let read_until = match folder {
        Some(folder) => read_segments(folder, memory_start, grid, series_numbers, &mut result)?,
        None => grid.from,
    };
    for hour in hours {
        let slice = SourceSlice {
            start: hour.start(),
            step_seconds: 1,
            from: read_until.max(hour.start()),
            to: hour.end().min(grid.end()),
        };
        result.add_coverage(grid, slice, hour.covered_seconds());
        for series_number in series_numbers {
            let column = hour.column(*series_number);
            result.add_column(
                grid,
                slice,
                hour.covered_seconds(),
                *series_number,
                column.as_ref(),
            );
        }
    }
    Ok(result.finish())
}

/// Adds what segments have before `memory_start`, the start of the hours in memory, to `result`. Returns the end of the
/// seconds that were read, at least the start of the grid.
fn read_segments(
    folder: &RecordFolder,
    memory_start: u64,
    grid: &Grid,
    series_numbers: &[u32],
    result: &mut RangeResult,
) -> Result<u64, SegmentError> {
    let mut read_until = grid.from;
    let tiers = Tier::ALL
        .into_iter()
        .rev()
        .filter(|tier| *tier <= grid.tier);
    for tier in tiers {
        let Some(end) = folder.tier_end(tier)? else {
            continue;
        };
        // The bucket in which memory begins is read from finer tiers. Otherwise its seconds in memory would count
        // twice.
        let to = end
            .min(memory_start - memory_start % tier.step_seconds())
            .min(grid.end());
        for start in folder.segment_starts(tier)? {
            if start + tier.file_seconds() <= read_until || start >= to {
                continue;
            }
            let Some(segment) = folder.open_segment(tier, start)? else {
                continue;
            };
            let slice = SourceSlice {
                start,
                step_seconds: tier.step_seconds(),
                from: read_until.max(start),
                to: to.min(segment.end()),
            };
            result.add_coverage(grid, slice, segment.covered_seconds());
            for series_number in series_numbers {
                let column = folder.read_column(&segment, *series_number)?;
                result.add_column(
                    grid,
                    slice,
                    segment.covered_seconds(),
                    *series_number,
                    column.as_ref(),
                );
            }
        }
        read_until = read_until.max(to);
    }
    Ok(read_until)
}
