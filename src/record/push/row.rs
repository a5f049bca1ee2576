//! The samples of a batch by series, and the view of some of them that an encoder gets. What all engines expect of
//! values and of histograms is computed here. Nothing here reads the record.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Series, SeriesKind};

/// A series and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The series that the samples belong to.
    pub series: Series,
    /// The samples, in the order of time.
    pub samples: Vec<TimedValue>,
}

/// The value of a series at a second. The value of a counter is cumulative: everything counted before that second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedValue {
    /// The time of the value, in seconds since 1970.
    pub second: u64,
    /// The value times 10 to the power of [`Series::decimals`].
    pub value: u64,
}

/// A view of some rows, limited to some seconds. Each request carries the samples of one view.
#[derive(Clone, Copy, Debug)]
pub struct RowSlice<'a> {
    /// The rows of a batch, or some of them.
    pub rows: &'a [Row],
    /// Samples before this second are left out.
    pub from: u64,
    /// Samples after this second are left out.
    pub to: u64,
}

impl<'a> RowSlice<'a> {
    /// Iterates over the series that have samples in these seconds, with those samples.
    pub fn rows(self) -> impl Iterator<Item = (&'a Series, &'a [TimedValue])> {
        self.rows.iter().filter_map(move |row| {
            let start = row
                .samples
                .partition_point(|sample| sample.second < self.from);
            let end = row
                .samples
                .partition_point(|sample| sample.second <= self.to);
            let samples = row.samples.get(start..end)?;
            (!samples.is_empty()).then_some((&row.series, samples))
        })
    }

    /// Counts the samples of all series in the view.
    pub fn sample_count(self) -> usize {
        self.rows().map(|(_, samples)| samples.len()).sum()
    }

    /// Returns the second after which a refused request is split in two: the last one of the earlier half. `None` if
    /// all samples are of one second, or if there are none.
    pub fn middle_second(self) -> Option<u64> {
        let samples = self.rows().flat_map(|(_, samples)| samples);
        let seconds: BTreeSet<u64> = samples.map(|sample| sample.second).collect();
        let middle_index = (seconds.len() / 2).checked_sub(1)?;
        seconds.into_iter().nth(middle_index)
    }
}

/// Converts a value to a float. Integers up to 2^53 are exact; greater ones and most decimal fractions are rounded.
pub fn to_f64(series: &Series, sample: &TimedValue) -> f64 {
    sample.value as f64 / 10_f64.powi(i32::from(series.decimals))
}

/// The common part of the buckets of a histogram: the name, and the labels without `le`.
type HistogramKey<'a> = (&'a str, Vec<&'a (String, String)>);

/// The series of a bucket of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct BucketSeries {
    /// The upper bound: the value of the label `le`, in the unit of the metric.
    bound: f64,
    /// The index of the series among those that were searched.
    pub series_index: usize,
}

/// Finds the histograms among some series: counters whose names end in `_bucket` and that differ only in the label
/// `le`. Returns the buckets of each histogram, by ascending bounds. A bucket whose `le` is no number is left out.
pub fn find_histograms<'a>(
    series_list: impl Iterator<Item = &'a Series>,
) -> Vec<Vec<BucketSeries>> {
    let mut histograms: BTreeMap<HistogramKey<'_>, Vec<BucketSeries>> = BTreeMap::new();
    for (series_index, series) in series_list.enumerate() {
        let bound_label = series.labels.iter().find(|(label, _)| label == "le");
        let bound = bound_label.and_then(|(_, bound)| bound.parse::<f64>().ok());
        let is_bucket = series.kind == SeriesKind::Counter && series.name.ends_with("_bucket");
        if let Some(bound) = bound.filter(|_| is_bucket) {
            let other_labels = series.labels.iter().filter(|(label, _)| label != "le");
            let key = (series.name.as_str(), other_labels.collect());
            let buckets = histograms.entry(key).or_default();
            buckets.push(BucketSeries {
                bound,
                series_index,
            });
        }
    }
    for buckets in histograms.values_mut() {
        buckets.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    }
    histograms.into_values().collect()
}

/// Makes the buckets of a histogram cumulative, as engines expect. They must be in the order of their bounds. In the
/// record each bucket has only its own count. `values_by_series` has the values of each series by its index.
pub fn accumulate_buckets(buckets: &[BucketSeries], values_by_series: &mut [Vec<u64>]) {
    for pair in buckets.windows(2) {
        let [lower, upper] = [pair[0], pair[1]];
        let lower_values = values_by_series[lower.series_index].clone();
        let upper_values = &mut values_by_series[upper.series_index];
        for (value, lower_value) in upper_values.iter_mut().zip(lower_values) {
            *value = value.saturating_add(lower_value);
        }
    }
}
