//! The registry of all metrics, which `/metrics` renders. Each worker counts in cells of its own, so that counting
//! never waits for another worker. A scrape adds the cells up.
//!
//! There is one cell per writer, metric and label set. Counting in a cell takes no lock; finding or creating one does.
//! Label values come from the configuration and from closed lists. Exceptions are the statuses of a route and the
//! values of identities, which `bounded_counters.rs` bounds. So clients cannot make the registry grow without end.
//! Series of a former configuration stay until the process ends, unless [`Registry::remove_series`] removes them.

mod bounded_counters;
mod exposition;
mod identity_series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, CounterFn, Gauge, GaugeFn};
use parking_lot::Mutex;

use super::exemplar::BucketExemplars;
use super::names::{Label, Metric, MetricKind};
use identity_series::IdentitySeries;
pub use identity_series::MAX_VALUES_PER_IDENTITY;

/// The labels of a series, in the order in which `/metrics` shows them.
type MetricLabels = Vec<(Label, String)>;
/// The cells of each series, one per writer.
type SeriesCells = BTreeMap<(Metric, MetricLabels), Vec<Arc<Cell>>>;

/// The exemplars of each histogram, with the number of the worker that keeps them. The key has no bound of a bucket.
type Exemplars = BTreeMap<(Metric, MetricLabels), Vec<(usize, Arc<BucketExemplars>)>>;

/// All series of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    series: Arc<Mutex<SeriesCells>>,
    /// The bounds of the series with values of identities, and what is used of them. Locked before `series`.
    identity_series: Arc<Mutex<IdentitySeries>>,
    /// The exemplars; empty without traces.
    exemplars: Arc<Mutex<Exemplars>>,
}

/// One writer's part of one series.
///
/// Cells are read and written with relaxed ordering, because no other data depends on them.
#[derive(Debug)]
struct Cell {
    /// A count, or the bits of an `f64` for a gauge.
    bits: AtomicU64,
    writer: CellWriter,
}

/// A counter that one worker alone adds to. Counting is a few instructions, without the indirect call of
/// [`Counter`]. The default is a counter that no series shows.
#[derive(Clone, Debug)]
pub struct WorkerCounter(Arc<Cell>);

impl WorkerCounter {
    /// Adds to the counter. Only its worker may do so: what another thread adds at the same time can be lost.
    #[inline]
    pub fn increment(&self, value: u64) {
        self.0.add_alone(value);
    }
}

impl Default for WorkerCounter {
    fn default() -> WorkerCounter {
        WorkerCounter(Arc::new(Cell {
            bits: AtomicU64::new(0),
            writer: CellWriter::Process,
        }))
    }
}

/// The threads that may write to a cell.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum CellWriter {
    /// Only the worker with this number writes.
    Worker(usize),
    /// Any thread may write.
    Process,
}

impl Cell {
    /// Adds to a count that no other thread writes, which needs no atomic addition.
    #[inline]
    fn add_alone(&self, value: u64) {
        let sum = self.bits.load(Ordering::Relaxed).wrapping_add(value);
        self.bits.store(sum, Ordering::Relaxed);
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.bits.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.bits.store(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        let add_value = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add_value);
    }

    fn decrement(&self, value: f64) {
        GaugeFn::increment(self, -value);
    }

    fn set(&self, value: f64) {
        self.bits.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Registry {
    /// Returns the cell of this writer, which is created if there is none. Locks the registry, so callers keep the
    /// cell.
    fn find_or_add_cell(
        &self,
        writer: CellWriter,
        metric: Metric,
        labels: &[(Label, &str)],
    ) -> Arc<Cell> {
        let mut series = self.series.lock();
        let cells = series.entry((metric, owned_labels(labels))).or_default();
        if let Some(cell) = cells.iter().find(|cell| cell.writer == writer) {
            return cell.clone();
        }
        let cell = Arc::new(Cell {
            bits: AtomicU64::new(0),
            writer,
        });
        cells.push(cell.clone());
        cell
    }

    /// A counter that only the worker with this number may add to.
    pub fn worker_counter(
        &self,
        worker_number: usize,
        metric: Metric,
        labels: &[(Label, &str)],
    ) -> WorkerCounter {
        WorkerCounter(self.find_or_add_cell(CellWriter::Worker(worker_number), metric, labels))
    }

    /// A counter that any thread may add to.
    pub fn counter(&self, metric: Metric, labels: &[(Label, &str)]) -> Counter {
        Counter::from_arc(self.find_or_add_cell(CellWriter::Process, metric, labels))
    }

    /// The exemplars that the worker with this number keeps of a histogram. Locks the registry, so callers keep them.
    pub fn bucket_exemplars(
        &self,
        worker_number: usize,
        metric: Metric,
        labels: &[(Label, &str)],
    ) -> Arc<BucketExemplars> {
        let mut exemplars = self.exemplars.lock();
        let of_workers = exemplars.entry((metric, owned_labels(labels))).or_default();
        let own = of_workers
            .iter()
            .find(|(number, _)| *number == worker_number);
        if let Some((_, own)) = own {
            return own.clone();
        }
        let own = Arc::<BucketExemplars>::default();
        of_workers.push((worker_number, own.clone()));
        own
    }

    /// A gauge that any thread may set.
    pub fn gauge(&self, metric: Metric, labels: &[(Label, &str)]) -> Gauge {
        Gauge::from_arc(self.find_or_add_cell(CellWriter::Process, metric, labels))
    }

    /// Sets a gauge for each of these values of a label, and the gauges of all other values to zero. No series of
    /// `metric` may have another label.
    pub fn set_gauges(&self, metric: Metric, label: Label, values: &BTreeMap<&str, u64>) {
        let mut series = self.series.lock();
        for ((series_metric, _), cells) in series.iter() {
            if *series_metric == metric {
                cells.iter().for_each(|cell| GaugeFn::set(&**cell, 0.0));
            }
        }
        for (name, value) in values {
            let cells = series.entry((metric, vec![(label, (*name).to_owned())]));
            let cells = cells.or_default();
            if cells.is_empty() {
                cells.push(Arc::new(Cell {
                    bits: AtomicU64::new(0),
                    writer: CellWriter::Process,
                }));
            }
            GaugeFn::set(&*cells[0], *value as f64);
        }
    }

    /// Removes all series of one metric, because what they measure may not exist any more. Earlier handles still work,
    /// but their values are not shown any more.
    pub fn remove_series(&self, metric: Metric) {
        self.series
            .lock()
            .retain(|(series_metric, _), _| *series_metric != metric);
    }

    /// The sum of all cells of one counter, whose labels must be in their order; zero if there is none.
    pub fn total(&self, metric: Metric, labels: &[(Label, &str)]) -> u64 {
        let series = self.series.lock();
        let cells = series.get(&(metric, owned_labels(labels)));
        cells.map_or(0, |cells| sum_of_counter(cells))
    }

    /// Calls `on_series` with the value of every series, ordered by metric and labels. A value is a whole number, whose
    /// last [`Metric::decimal_places`] digits stand behind the decimal point. The registry is locked meanwhile, so
    /// `on_series` must not use it.
    pub fn visit(&self, mut on_series: impl FnMut(Metric, &[(Label, String)], u64)) {
        for ((metric, labels), cells) in self.series.lock().iter() {
            let bits = cells.iter().map(|cell| cell.bits.load(Ordering::Relaxed));
            let value = match metric.kind() {
                MetricKind::Counter | MetricKind::Histogram => bits.fold(0, u64::wrapping_add),
                // In microseconds: nanoseconds of many requests would overflow when the record adds up a long step.
                MetricKind::Sum => bits.fold(0, u64::wrapping_add) / 1_000,
                MetricKind::Gauge => {
                    let level = bits.map(f64::from_bits).sum::<f64>();
                    (level * 10_f64.powi(metric.decimal_places().into())).round() as u64
                }
            };
            on_series(*metric, labels, value);
        }
    }
}

/// Copies labels, so that they can be kept as the key of a series.
fn owned_labels(labels: &[(Label, &str)]) -> MetricLabels {
    labels
        .iter()
        .map(|(label, value)| (*label, (*value).to_owned()))
        .collect()
}

/// The sum of the cells of a counter, in the unit in which it counts.
fn sum_of_counter(cells: &[Arc<Cell>]) -> u64 {
    cells
        .iter()
        .map(|cell| cell.bits.load(Ordering::Relaxed))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::metrics_format::MetricsFormat;
    use super::*;

    #[test]
    fn workers_add_up() {
        let registry = Registry::default();
        let labels = [(Label::Route, "a\"b"), (Label::Outcome, "admitted")];
        registry
            .worker_counter(0, Metric::Requests, &labels)
            .increment(2);
        registry
            .worker_counter(1, Metric::Requests, &labels)
            .increment(3);
        registry.gauge(Metric::StoreKeys, &[]).set(7.0);
        let text = registry.render(MetricsFormat::Text);
        let line = "tollgate_requests_total{route=\"a\\\"b\",outcome=\"admitted\"} 5\n";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("# TYPE tollgate_store_keys gauge\ntollgate_store_keys 7\n"),
            "{text}"
        );
        assert_eq!(registry.total(Metric::Requests, &labels), 5);
    }

    #[test]
    fn a_gauge_of_a_name_that_is_gone_is_zero() {
        let registry = Registry::default();
        let set = |names: &[(&str, u64)]| {
            let values = names.iter().copied().collect();
            registry.set_gauges(Metric::PermitsOpen, Label::Limit, &values);
            let text = registry.render(MetricsFormat::Text);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |name: &str, value| format!("tollgate_permits_open{{limit=\"{name}\"}} {value}");
        assert_eq!(set(&[("a", 2), ("b", 3)]), [line("a", 2), line("b", 3)]);
        assert_eq!(set(&[("b", 4)]), [line("a", 0), line("b", 4)]);
    }

    #[test]
    fn histograms_are_cumulative_and_whole() {
        let registry = Registry::default();
        for (route, worker, micros) in [("a", 0, 90), ("a", 1, 1_200), ("b", 0, 90_000_000)] {
            let metrics = (Metric::RequestDuration, Metric::RequestDurationSum);
            let label = (Label::Route, route);
            let histogram = super::super::Histogram::new(&registry, worker, metrics, label);
            histogram.observe(crate::base::clock::Nanos(micros * 1_000));
        }
        let text = registry.render(MetricsFormat::Text);
        let name = "tollgate_request_duration_seconds";
        assert!(
            text.contains(&format!("# TYPE {name} histogram\n{name}_bucket{{")),
            "{text}"
        );
        for line in [
            "_bucket{route=\"a\",le=\"0.0001\"} 1",
            "_bucket{route=\"a\",le=\"0.001\"} 1",
            "_bucket{route=\"a\",le=\"0.0015\"} 2",
            "_bucket{route=\"a\",le=\"+Inf\"} 2",
            "_count{route=\"a\"} 2",
            "_sum{route=\"a\"} 0.00129",
            "_bucket{route=\"b\",le=\"60\"} 0",
            "_bucket{route=\"b\",le=\"+Inf\"} 1",
        ] {
            let lines = text.lines().filter(|have| *have == format!("{name}{line}"));
            assert_eq!(lines.count(), 1, "{line} in {text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 1, "{text}");
    }

    #[test]
    fn asking_twice_gives_the_same_cell() {
        let registry = Registry::default();
        registry
            .worker_counter(0, Metric::Connections, &[])
            .increment(1);
        registry
            .worker_counter(0, Metric::Connections, &[])
            .increment(1);
        assert_eq!(registry.total(Metric::Connections, &[]), 2);
    }
}
