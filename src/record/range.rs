//! Reads series over a time range, in buckets of one step, from segments and from the hours in memory.
//!
//! Coarse tiers are read as far as they reach, and finer ones from there on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::column::Column;
use super::folder::{Folder, SegmentError, retry_without_damaged};
use super::hour::Hour;
use super::tier::Tier;

/// Steps of grids in seconds: round numbers that people expect on the axis of a plot.
const STEPS: [u64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 604_800, 2_592_000,
];

/// A time range, divided into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first second.
    pub from: u64,
    /// Seconds of a bucket.
    pub step: u64,
    /// The number of buckets.
    pub buckets: usize,
    /// The coarsest tier to read. Where it ends, finer ones are read.
    tier: Tier,
}

impl Grid {
    /// Makes the finest grid from `from` to `to` that has at most `max_buckets` and that tiers for which `reaches_back`
    /// holds can fill. Buckets begin at multiples of their step, so that a plot that is scrolled keeps them.
    pub fn new(
        from: u64,
        to: u64,
        max_buckets: usize,
        reaches_back: impl Fn(Tier) -> bool,
    ) -> Grid {
        let to = to.max(from + 1);
        let buckets = |step: u64| to.div_ceil(step) - from / step;
        let fits = |step: &u64| buckets(*step) <= max_buckets.max(2) as u64;
        let longest = STEPS[STEPS.len() - 1];
        let longer = (2..).map(|times| times * longest);
        let mut step = STEPS
            .into_iter()
            .chain(longer)
            .find(fits)
            .unwrap_or(longest);
        let mut tiers = Tier::ALL.into_iter();
        while let Some(finer) = tiers.clone().next().filter(|tier| !reaches_back(*tier)) {
            tiers.next();
            step = step.next_multiple_of(tiers.clone().next().unwrap_or(finer).step());
        }
        let divides = |tier: &Tier| step % tier.step() == 0;
        let tier = tiers.rev().find(divides).unwrap_or(Tier::Day);
        Grid {
            from: from - from % step,
            step,
            buckets: buckets(step) as usize,
            tier,
        }
    }

    /// Makes a grid of these buckets, whichever tiers reach back. Where `step` is shorter than that of `tier`, a coarse
    /// bucket counts as a whole in the step in which it begins.
    pub fn of(from: u64, step: u64, buckets: usize, tier: Tier) -> Grid {
        Grid {
            from,
            step: step.max(1),
            buckets,
            tier,
        }
    }

    /// The second after the last bucket.
    pub fn to(&self) -> u64 {
        self.from + self.buckets as u64 * self.step
    }
}

/// Sums each series over all seconds before `until`. Where only coarse tiers are left, `until` must be a multiple of
/// their step.
pub fn totals_before(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    until: u64,
    series: &[u32],
) -> io::Result<BTreeMap<u32, u64>> {
    let (mut from, mut totals) = (0, BTreeMap::new());
    // Each tier is read up to its last whole bucket, and the next finer one from there.
    for tier in Tier::ALL.into_iter().rev() {
        let to = until - until % tier.step();
        if to <= from {
            continue;
        }
        let whole = Grid {
            from,
            step: to - from,
            buckets: 1,
            tier,
        };
        for (number, column) in read(folder, hours, &whole, series)?.columns {
            let total: &mut u64 = totals.entry(number).or_default();
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
    pub covered: Vec<u32>,
    /// The columns by the numbers of their series. Series whose values are all zero are missing.
    pub columns: BTreeMap<u32, Column>,
}

impl RangeResult {
    fn add_coverage(&mut self, grid: &Grid, slice: SourceSlice, covered: &[u32]) {
        for (at, bucket) in slice.buckets(grid, covered.len()) {
            self.covered[bucket] += covered[at];
        }
    }

    /// Adds a column of a source; no column stands for zeros.
    fn add_column(
        &mut self,
        grid: &Grid,
        slice: SourceSlice,
        covered: &[u32],
        series: u32,
        column: Option<&Column>,
    ) {
        let Some(to) = self.columns.get_mut(&series) else {
            return;
        };
        for (at, bucket) in slice.buckets(grid, covered.len()) {
            if covered[at] == 0 {
                continue;
            }
            match column {
                Some(column) => {
                    to.sums[bucket] = to.sums[bucket].saturating_add(column.sums[at]);
                    to.minima[bucket] = to.minima[bucket].min(column.minima[at]);
                    to.maxima[bucket] = to.maxima[bucket].max(column.maxima[at]);
                }
                None => to.minima[bucket] = 0,
            }
        }
    }

    /// Drops columns of zeros, and sets the minima of buckets without recorded seconds to zero.
    fn finish(mut self) -> RangeResult {
        self.columns.retain(|_, column| !column.is_zero());
        for column in self.columns.values_mut() {
            for (minimum, covered) in column.minima.iter_mut().zip(&self.covered) {
                *minimum = if *covered == 0 { 0 } else { *minimum };
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
    step: u64,
    /// The first second of the part.
    from: u64,
    /// The second after the part.
    to: u64,
}

impl SourceSlice {
    /// Iterates over the indices of the source's buckets, each with that of the grid's bucket to which it belongs.
    fn buckets(self, grid: &Grid, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let grid = *grid;
        let index = move |second: u64| {
            (second.saturating_sub(self.start).div_ceil(self.step) as usize).min(count)
        };
        (index(self.from)..index(self.to)).map(move |at| {
            let second = self.start + at as u64 * self.step;
            (at, ((second - grid.from) / grid.step) as usize)
        })
    }
}

/// Reads series on a grid from a folder, and from the hours in memory, which must be in order.
///
/// # Errors
///
/// Fails if the disk cannot be read. A damaged segment is set aside, and its seconds come from another tier or are
/// missing.
pub fn read(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series: &[u32],
) -> io::Result<RangeResult> {
    retry_without_damaged(|| try_read(folder, hours, grid, series))
}

fn try_read(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series: &[u32],
) -> Result<RangeResult, SegmentError> {
    let empty = || Column {
        sums: vec![0; grid.buckets],
        minima: vec![u64::MAX; grid.buckets],
        maxima: vec![0; grid.buckets],
    };
    let mut result = RangeResult {
        covered: vec![0; grid.buckets],
        columns: series.iter().map(|series| (*series, empty())).collect(),
    };
    let memory_start = hours.first().map_or(u64::MAX, |hour| hour.start());
    let read_until = match folder {
        Some(folder) => read_segments(folder, memory_start, grid, series, &mut result)?,
        None => grid.from,
    };
    for hour in hours {
        let slice = SourceSlice {
            start: hour.start(),
            step: 1,
            from: read_until.max(hour.start()),
            to: hour.end().min(grid.to()),
        };
        result.add_coverage(grid, slice, hour.covered());
        for series in series {
            let column = hour.column(*series);
            result.add_column(grid, slice, hour.covered(), *series, column.as_ref());
        }
    }
    Ok(result.finish())
}

/// Adds what segments have before the hours in memory. Returns the second up to which that is.
fn read_segments(
    folder: &Folder,
    memory_start: u64,
    grid: &Grid,
    series: &[u32],
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
        // The bucket in which memory begins is read from finer tiers, or its seconds in memory would count twice.
        let to = end
            .min(memory_start - memory_start % tier.step())
            .min(grid.to());
        for start in folder.segment_starts(tier)? {
            if start + tier.file_span() <= read_until || start >= to {
                continue;
            }
            let Some(segment) = folder.open_segment(tier, start)? else {
                continue;
            };
            let slice = SourceSlice {
                start,
                step: tier.step(),
                from: read_until.max(start),
                to: to.min(segment.end()),
            };
            result.add_coverage(grid, slice, segment.covered());
            for series in series {
                let column = folder.read_column(&segment, *series)?;
                result.add_column(grid, slice, segment.covered(), *series, column.as_ref());
            }
        }
        read_until = read_until.max(to);
    }
    Ok(read_until)
}
