//! The table of all series that this process has recorded. It works out what has changed in a second, and adds up sums.
//! `metrics_recorder.rs` calls it every second. Nothing is written here. Also lists the current series for the pusher.
//!
//! Bound: [`MAX_SERIES`] series, and the sums of [`SUM_SERIES`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use smallvec::SmallVec;

use super::live_metrics::LiveMetrics;
use crate::base::telemetry::{Label, Metric, Registry, names};
use crate::record::{Record, Second, Series, SeriesKind};

/// Series that are sums of others: the metric, the name of the sum, and the labels that the sum keeps. Sums are
/// recorded because the peak second of a sum cannot be computed from the peaks of its parts. Their names follow the
/// recording rules of Prometheus.
const SUM_SERIES: [(Metric, &str, &[Label]); 5] = [
    (Metric::Requests, "all:tollgate_requests_total", &[]),
    (
        Metric::Requests,
        "outcome:tollgate_requests_total",
        &[Label::Outcome],
    ),
    (
        Metric::LimitDecisions,
        "outcome:tollgate_limit_decisions_total",
        &[Label::Outcome],
    ),
    (
        Metric::Responses,
        "status:tollgate_responses_total",
        &[Label::Status, Label::Origin],
    ),
    (Metric::RequestsOpen, "all:tollgate_requests_open", &[]),
];

/// The largest number of series of a process, without sums. It bounds the memory, and what a process adds to the
/// record.
const MAX_SERIES: usize = 8_192;

/// All series that this process has recorded, by their indexes.
#[derive(Default)]
pub(super) struct SeriesTable {
    /// The index of each series in `series`, by its name and its labels.
    indexes: HashMap<&'static str, HashMap<LabelValues, usize>>,
    /// All series and sums, in the order in which they were added.
    series: Vec<TrackedSeries>,
    /// The number of sums among `series`.
    sum_count: usize,
    /// Whether a series was left out, so that this is logged once.
    is_full: bool,
}

/// Labels with their values, in the order of the registry.
type LabelValues = Vec<(Label, String)>;

/// A series or a sum of this process, and its state at the last second.
struct TrackedSeries {
    /// The series, as the record names it.
    series: Series,
    /// The number of the series in the record; `None` until the record gives it one.
    number: Option<u32>,
    /// The last value of a counter; 0 for a gauge. For a sum of counters, the last total of the series that are
    /// recorded only in sums.
    last_value: u64,
    /// The indexes of the sums that include this series.
    sum_indexes: SumIndexes,
}

/// The indexes of sums in [`SeriesTable::series`].
type SumIndexes = SmallVec<[usize; 2]>;

impl SeriesTable {
    /// Returns the index of a series. A new series is added, with the sums that include it.
    ///
    /// # Errors
    ///
    /// The table is full. The error has the indexes of the sums that include the series.
    fn find_or_add(
        &mut self,
        metric: Metric,
        labels: &[(Label, String)],
    ) -> Result<usize, SumIndexes> {
        let indexes = self.indexes.get(metric.name());
        if let Some(index) = indexes.and_then(|indexes| indexes.get(labels)) {
            return Ok(*index);
        }
        let mut sum_indexes = SumIndexes::new();
        let sums = SUM_SERIES
            .iter()
            .filter(|(summed_metric, ..)| *summed_metric == metric);
        for (_, name, label_names) in sums {
            let sum_labels = labels
                .iter()
                .filter(|(label, _)| label_names.contains(label));
            let count_before = self.series.len();
            sum_indexes.push(self.add_if_missing(
                metric,
                name,
                sum_labels.cloned().collect(),
                SumIndexes::new(),
            ));
            self.sum_count += self.series.len() - count_before;
        }
        if self.series.len() - self.sum_count < MAX_SERIES {
            return Ok(self.add_if_missing(metric, metric.name(), labels.to_vec(), sum_indexes));
        }
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::error!(
                most = MAX_SERIES,
                "too many series; new ones are recorded in sums only"
            );
        }
        Err(sum_indexes)
    }

    /// Adds a series unless it is there, and returns its index.
    fn add_if_missing(
        &mut self,
        metric: Metric,
        name: &'static str,
        labels: LabelValues,
        sum_indexes: SumIndexes,
    ) -> usize {
        let indexes = self.indexes.entry(name).or_default();
        if let Some(index) = indexes.get(&labels) {
            return *index;
        }
        let index = self.series.len();
        self.series.push(TrackedSeries {
            series: record_series(metric, name, &labels),
            number: None,
            last_value: 0,
            sum_indexes,
        });
        indexes.insert(labels, index);
        index
    }

    /// Returns the series and sums to record, by their indexes: counters that grew since the last call, with their
    /// increase, and gauges above zero, with their value. Series that have no number in the record yet are returned
    /// too.
    pub(super) fn take_changes(&mut self, registry: &Registry) -> Vec<(usize, u64)> {
        let mut changes = Vec::new();
        let mut sum_changes = BTreeMap::new();
        // The totals of the series that are only in sums, by the index of the sum.
        let mut untracked_totals = BTreeMap::new();
        let add_to_sums = |totals: &mut BTreeMap<usize, u64>, sum_indexes: &SumIndexes, value| {
            for sum_index in sum_indexes {
                *totals.entry(*sum_index).or_default() += value;
            }
        };
        registry.visit(
            |metric, labels, value| match self.find_or_add(metric, labels) {
                Ok(index) => {
                    let tracked = &mut self.series[index];
                    let change = tracked.take_change(value);
                    add_to_sums(&mut sum_changes, &tracked.sum_indexes, change);
                    // A series is recorded once even if it has never changed, so that the record has its name.
                    if change > 0 || tracked.number.is_none() {
                        changes.push((index, change));
                    }
                }
                Err(sum_indexes) => add_to_sums(&mut untracked_totals, &sum_indexes, value),
            },
        );
        for (sum_index, total) in untracked_totals {
            let change = self.series[sum_index].take_change(total);
            *sum_changes.entry(sum_index).or_default() += change;
        }
        let must_be_recorded =
            |(index, change): &(usize, u64)| *change > 0 || self.series[*index].number.is_none();
        changes.extend(sum_changes.into_iter().filter(must_be_recorded));
        changes
    }

    /// The number of series, with sums.
    pub(super) fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Converts the changes of a second to a second of the record, with the numbers that the record gives to series.
    ///
    /// Gauges of seconds before `recorded_until` are dropped: another process has recorded them, and the record would
    /// add both values. Series to which the record gives no number, because the record is full, are dropped too.
    pub(super) fn numbered_second(
        &mut self,
        record: &Record,
        at: u64,
        changes: Vec<(usize, u64)>,
        recorded_until: u64,
    ) -> Second {
        let numbered_value = |(index, value): (usize, u64)| {
            let tracked = &mut self.series[index];
            let is_recorded = at < recorded_until && tracked.series.kind == SeriesKind::Gauge;
            tracked.number = tracked.number.or_else(|| record.number_of(&tracked.series));
            tracked
                .number
                .filter(|_| !is_recorded)
                .map(|number| (number, value))
        };
        let mut values: Vec<_> = changes.into_iter().filter_map(numbered_value).collect();
        values.sort_unstable();
        Second { at, values }
    }
}

impl TrackedSeries {
    /// Returns the value of a gauge, or the increase of a counter since the last call.
    fn take_change(&mut self, value: u64) -> u64 {
        match self.series.kind {
            SeriesKind::Gauge => value,
            SeriesKind::Counter => {
                value.saturating_sub(std::mem::replace(&mut self.last_value, value))
            }
        }
    }
}

/// Converts a series of the registry to a series of the record. `name` is the name of the metric, or of a sum.
fn record_series(metric: Metric, name: &str, labels: &[(Label, String)]) -> Series {
    let to_text = |(label, value): &(Label, String)| (label.as_str().to_owned(), value.clone());
    Series {
        name: name.to_owned(),
        labels: labels.iter().map(to_text).collect(),
        kind: match metric.kind() {
            names::MetricKind::Counter | names::MetricKind::Histogram | names::MetricKind::Sum => {
                SeriesKind::Counter
            }
            names::MetricKind::Gauge => SeriesKind::Gauge,
        },
        decimals: metric.decimal_places(),
    }
}

/// Lists all series that the registry has now, without sums. Refreshes the metrics first.
pub fn current_series(live_metrics: &LiveMetrics) -> BTreeSet<Series> {
    let mut all_series = BTreeSet::new();
    live_metrics.read(|registry| {
        registry.visit(|metric, labels, _| {
            all_series.insert(record_series(metric, metric.name(), labels));
        });
    });
    all_series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_include_series_that_are_recorded_only_in_sums() {
        let registry = Registry::default();
        let routes: Vec<String> = (0..MAX_SERIES + 100)
            .map(|route| format!("r{route:05}"))
            .collect();
        let counter = |route: &String| {
            let labels = [(Label::Route, &**route), (Label::Outcome, "refused")];
            registry.worker_counter(0, Metric::Requests, &labels)
        };
        let counters: Vec<_> = routes.iter().map(counter).collect();
        let mut table = SeriesTable::default();
        let mut increment_all = |amount: u64| {
            counters
                .iter()
                .for_each(|counter| counter.increment(amount));
            let changes = table.take_changes(&registry);
            let sum_of = |name: &str| {
                let mut tracked_changes = changes
                    .iter()
                    .map(|(index, change)| (&table.series[*index], change));
                tracked_changes
                    .find(|(tracked, _)| tracked.series.name == name)
                    .map(|(_, change)| *change)
            };
            let sums =
                ["all", "outcome"].map(|sum| sum_of(&format!("{sum}:tollgate_requests_total")));
            (table.series.len(), sums)
        };
        let expected_sums = |amount: u64| [Some(amount * (MAX_SERIES as u64 + 100)); 2];
        assert_eq!(increment_all(1), (MAX_SERIES + 2, expected_sums(1)));
        assert_eq!(increment_all(3), (MAX_SERIES + 2, expected_sums(3)));
    }
}
