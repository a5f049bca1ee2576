//! What is sent: series, and what they were at some seconds.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Kind, Series};

/// A series and its samples, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The series that the samples are of.
    pub series: Series,
    /// What it was.
    pub samples: Vec<TimedValue>,
}

/// What a series was at a second. A counter is all that was counted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedValue {
    /// Seconds since 1970.
    pub at: u64,
    /// Some last digits of it are behind the point, as the series says.
    pub value: u64,
}

/// Some samples of some series.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The series.
    pub rows: &'a [Row],
    /// The first second.
    pub from: u64,
    /// The last second.
    pub to: u64,
}

impl<'a> Part<'a> {
    /// The series with their samples; those without any are left out.
    pub fn rows(self) -> impl Iterator<Item = (&'a Series, &'a [TimedValue])> {
        self.rows.iter().filter_map(move |row| {
            let first = row.samples.partition_point(|sample| sample.at < self.from);
            let behind = row.samples.partition_point(|sample| sample.at <= self.to);
            let samples = row.samples.get(first..behind)?;
            (!samples.is_empty()).then_some((&row.series, samples))
        })
    }

    /// How many samples.
    pub fn count(self) -> usize {
        self.rows().map(|(_, samples)| samples.len()).sum()
    }

    /// The last second of an earlier half, if there are two seconds at all.
    pub fn middle(self) -> Option<u64> {
        let samples = self.rows().flat_map(|(_, samples)| samples);
        let times: BTreeSet<u64> = samples.map(|sample| sample.at).collect();
        let half = (times.len() / 2).checked_sub(1)?;
        times.into_iter().nth(half)
    }
}

/// The value as engines know numbers.
pub fn float(series: &Series, sample: &TimedValue) -> f64 {
    // Exact up to 2^53.
    sample.value as f64 / 10_f64.powi(i32::from(series.decimals))
}

/// A histogram: its name, and its labels but `le`.
type FamilyKey<'a> = (&'a str, Vec<&'a (String, String)>);

/// The bounds and the members of a histogram, whose buckets are series.
type Family = Vec<(f64, usize)>;

/// The histograms among these series: a metric that ends in `_bucket`, split by `le`.
pub fn families<'a>(all: impl Iterator<Item = &'a Series>) -> Vec<Family> {
    let mut families: BTreeMap<FamilyKey<'_>, Family> = BTreeMap::new();
    for (place, series) in all.enumerate() {
        let bound = series.labels.iter().find(|(label, _)| label == "le");
        let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
        let counts = series.kind == Kind::Counter && series.name.ends_with("_bucket");
        if let Some(bound) = bound.filter(|_| counts) {
            let others = series.labels.iter().filter(|(label, _)| label != "le");
            let family = (series.name.as_str(), others.collect());
            families.entry(family).or_default().push((bound, place));
        }
    }
    for family in families.values_mut() {
        family.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    families.into_values().collect()
}

/// Adds to each bucket those with lower bounds, as all engines have buckets; in the record each has its own counts only.
pub fn stack(family: &[(f64, usize)], values: &mut [Vec<u64>]) {
    for pair in family.windows(2) {
        let below = values[pair[0].1].clone();
        for (value, below) in values[pair[1].1].iter_mut().zip(below) {
            *value = value.saturating_add(below);
        }
    }
}
