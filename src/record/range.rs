//! What series did between two moments, in buckets of one step.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::column::Column;
use super::folder::{Folder, Trouble, anew};
use super::hour::Hour;
use super::tier::Tier;

/// Steps of plots, in seconds.
const STEPS: [u64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 604_800, 2_592_000,
];

/// A span in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Its first second, a multiple of the step.
    pub from: u64,
    /// Seconds of a bucket.
    pub step: u64,
    /// How many buckets.
    pub buckets: usize,
    /// What it is read from, and everything finer.
    tier: Tier,
}

impl Grid {
    /// The finest that has at most `most` buckets between two seconds, and of which all is kept. Buckets begin at
    /// multiples of their step, so that a plot that moves keeps them.
    pub fn new(from: u64, to: u64, most: usize, kept: impl Fn(Tier) -> bool) -> Grid {
        let to = to.max(from + 1);
        let buckets = |step: u64| to.div_ceil(step) - from / step;
        let fits = |step: &u64| buckets(*step) <= most.max(2) as u64;
        let longest = STEPS[STEPS.len() - 1];
        let longer = (2..).map(|times| times * longest);
        let mut step = STEPS
            .into_iter()
            .chain(longer)
            .find(fits)
            .unwrap_or(longest);
        let mut tiers = Tier::ALL.into_iter();
        while let Some(finer) = tiers.clone().next().filter(|tier| !kept(*tier)) {
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

    /// This one, whatever is kept: where a step is shorter than those of `tier`, all of a bucket of those is in the step in
    /// which that begins.
    pub fn of(from: u64, step: u64, buckets: usize, tier: Tier) -> Grid {
        Grid {
            from,
            step: step.max(1),
            buckets,
            tier,
        }
    }

    /// The second behind the last bucket.
    pub fn to(&self) -> u64 {
        self.from + self.buckets as u64 * self.step
    }
}

/// All that series did before a second, which is a multiple of every step that it is no longer kept without.
pub fn total(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    until: u64,
    series: &[u32],
) -> io::Result<BTreeMap<u32, u64>> {
    let (mut from, mut totals) = (0, BTreeMap::new());
    // No bucket of a tier reaches over the end of what is read from it.
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

/// What was found on a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// Seconds of each bucket that were recorded.
    pub covered: Vec<u32>,
    /// By series; one in which nothing happened is not among them.
    pub columns: BTreeMap<u32, Column>,
}

impl RangeResult {
    fn add(&mut self, grid: &Grid, piece: ColumnSlice, covered: &[u32]) {
        for (at, bucket) in piece.buckets(grid, covered.len()) {
            self.covered[bucket] += covered[at];
        }
    }

    fn add_column(
        &mut self,
        grid: &Grid,
        piece: ColumnSlice,
        covered: &[u32],
        series: u32,
        column: Option<&Column>,
    ) {
        let Some(to) = self.columns.get_mut(&series) else {
            return;
        };
        for (at, bucket) in piece.buckets(grid, covered.len()) {
            if covered[at] == 0 {
                continue;
            }
            match column {
                Some(column) => {
                    to.sums[bucket] = to.sums[bucket].saturating_add(column.sums[at]);
                    to.least[bucket] = to.least[bucket].min(column.least[at]);
                    to.most[bucket] = to.most[bucket].max(column.most[at]);
                }
                None => to.least[bucket] = 0,
            }
        }
    }

    fn finish(mut self) -> RangeResult {
        self.columns.retain(|_, column| !column.quiet());
        for column in self.columns.values_mut() {
            for (least, covered) in column.least.iter_mut().zip(&self.covered) {
                *least = if *covered == 0 { 0 } else { *least };
            }
        }
        self
    }
}

/// A part of a source on its way to a grid.
#[derive(Clone, Copy)]
struct ColumnSlice {
    start: u64,
    step: u64,
    from: u64,
    to: u64,
}

impl ColumnSlice {
    /// Buckets of the source, and those of the grid that they are part of.
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

/// Reads series from a folder, and from the hours that are still in memory, by time.
pub fn read(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series: &[u32],
) -> io::Result<RangeResult> {
    anew(|| try_read(folder, hours, grid, series))
}

fn try_read(
    folder: Option<&Folder>,
    hours: &[Arc<Hour>],
    grid: &Grid,
    series: &[u32],
) -> Result<RangeResult, Trouble> {
    let empty = || Column {
        sums: vec![0; grid.buckets],
        least: vec![u64::MAX; grid.buckets],
        most: vec![0; grid.buckets],
    };
    let mut found = RangeResult {
        covered: vec![0; grid.buckets],
        columns: series.iter().map(|series| (*series, empty())).collect(),
    };
    let memory = hours.first().map_or(u64::MAX, |hour| hour.start());
    let mut cursor = grid.from;
    let tiers = Tier::ALL
        .into_iter()
        .rev()
        .filter(|tier| *tier <= grid.tier);
    for (tier, folder) in folder
        .into_iter()
        .flat_map(|folder| tiers.clone().map(move |tier| (tier, folder)))
    {
        let Some(end) = folder.end(tier)? else {
            continue;
        };
        // A bucket that reaches into memory is made of finer ones: its hour may have been written meanwhile.
        let to = end.min(memory - memory % tier.step()).min(grid.to());
        for start in folder.starts(tier)? {
            if start + tier.span() <= cursor || start >= to {
                continue;
            }
            let Some(segment) = folder.open(tier, start)? else {
                continue;
            };
            let piece = ColumnSlice {
                start,
                step: tier.step(),
                from: cursor.max(start),
                to: to.min(segment.end()),
            };
            found.add(grid, piece, segment.covered());
            for series in series {
                let column = folder.column(&segment, *series)?;
                found.add_column(grid, piece, segment.covered(), *series, column.as_ref());
            }
        }
        cursor = cursor.max(to);
    }
    for hour in hours {
        let piece = ColumnSlice {
            start: hour.start(),
            step: 1,
            from: cursor.max(hour.start()),
            to: hour.end().min(grid.to()),
        };
        found.add(grid, piece, hour.covered());
        for series in series {
            let column = hour.column(*series);
            found.add_column(grid, piece, hour.covered(), *series, column.as_ref());
        }
    }
    Ok(found.finish())
}
