//! The record as a source of samples.
//!
//! A sample stands at the end of its second, or of its bucket where steps are longer. A counter's is the sum of all that
//! was recorded until then, so it never begins anew; a gauge's is its mean in the bucket. A second that was not recorded
//! has none. A series that has a name has been there from the beginning, with zeros: its first increase is seen too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::catalog::Exposed;
use crate::promql::labels::{Matcher, fits};
use crate::promql::{Error, Found, Sample, Series, Source};
use crate::record::{Found as Read, Grid, Kind, Record};

/// Fewest buckets of a series: with less, curves would say nothing.
const FEWEST: usize = 250;
/// Series that are read at a time, to hold their columns no longer than they are needed.
const AT_A_TIME: usize = 64;

/// See the module.
pub struct Recorded<'a> {
    /// What is read.
    pub record: &'a Record,
    /// Its series.
    pub exposed: &'a [Exposed],
    /// The second that goes on, since 1970: nothing is read of it or behind it.
    pub now: u64,
}

impl Source for Recorded<'_> {
    fn select(
        &self,
        matchers: &[Matcher],
        (from, to): (i64, i64),
        most: usize,
    ) -> Result<Found, Error> {
        let fitting = self
            .exposed
            .iter()
            .filter(|one| fits(matchers, &one.labels));
        let fitting: Vec<&Exposed> = fitting.collect();
        let each = most / fitting.len().max(1);
        if each < FEWEST {
            let (asked, most) = (fitting.len(), most / FEWEST);
            let why = format!("a selector has {asked} series, of {most} at most: name more labels");
            return Err(Error::Execution(why));
        }
        // The sample at the end of a second is that of the second before.
        let second = |ms: i64| u64::try_from(ms.div_euclid(1_000)).unwrap_or(0);
        let (from_second, to_second) = (second(from - 1), second(to).min(self.now));
        if fitting.is_empty() || from_second >= to_second {
            return Ok(Found::default());
        }
        let grid = self.record.grid(from_second, to_second, each)?;
        let mut series = Vec::with_capacity(fitting.len());
        for some in fitting.chunks(AT_A_TIME) {
            series.extend(self.read(&grid, some)?);
        }
        for (_, samples) in &mut series {
            samples.retain(|(at, _)| (from..=to).contains(at));
        }
        Ok(Found {
            series,
            step: milliseconds(grid.step),
        })
    }
}

impl Recorded<'_> {
    fn read(&self, grid: &Grid, some: &[&Exposed]) -> io::Result<Vec<Series>> {
        let parts = |one: &&Exposed| one.parts.iter().map(|part| part.0).collect::<Vec<_>>();
        let numbers: BTreeSet<u32> = some.iter().flat_map(parts).collect();
        let numbers: Vec<u32> = numbers.into_iter().collect();
        let read = self.record.read(grid, &numbers)?;
        let totals = self.record.total(grid.from, &numbers)?;
        let series = some
            .iter()
            .map(|one| (one.labels.clone(), samples(one, grid, &read, &totals)));
        Ok(series.collect())
    }
}

fn samples(one: &Exposed, grid: &Grid, read: &Read, totals: &BTreeMap<u32, u64>) -> Vec<Sample> {
    let parts = one.parts.iter().map(|(number, unit)| {
        let sums = read.columns.get(number).map(|column| &*column.sums);
        let total = totals.get(number).copied().unwrap_or(0);
        (total, sums.unwrap_or(&[]), *unit)
    });
    let mut parts: Vec<_> = parts.collect();
    let mut samples = Vec::new();
    for (bucket, covered) in read.covered.iter().enumerate() {
        let mut value = 0.0;
        for (total, sums, unit) in &mut parts {
            let sum = sums.get(bucket).copied().unwrap_or(0);
            *total = total.saturating_add(sum);
            value += match one.kind {
                Kind::Counter => *total as f64 / *unit,
                Kind::Gauge => sum as f64 / f64::from(*covered) / *unit,
            };
        }
        if *covered > 0 {
            let end = grid.from + (bucket as u64 + 1) * grid.step;
            samples.push((milliseconds(end), value));
        }
    }
    samples
}

fn milliseconds(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
