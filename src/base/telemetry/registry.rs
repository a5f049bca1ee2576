//! The registry behind `/metrics`. Each worker holds cells of its own, so that counting never waits
//! for another worker; a scrape adds them up.
//!
//! Bounds: one cell of 8 bytes for each worker, metric and label set; label sets come from the
//! configuration and from closed lists, and of statuses there are 32 to a route.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, CounterFn, Gauge, GaugeFn};
use parking_lot::Mutex;

use super::buckets::{BOUNDS, REST};
use super::names::{Label, Metric, MetricKind};

/// Most statuses and origins of a route that are told apart.
const STATUSES: usize = 32;

type MetricLabels = Vec<(Label, String)>;
type SharedCells = BTreeMap<(Metric, MetricLabels), Vec<Arc<Cell>>>;

/// All series of the process.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    series: Arc<Mutex<SharedCells>>,
}

/// One worker's part of one series: the bits of an `f64` for gauges and for sums of seconds.
#[derive(Debug)]
struct Cell {
    bits: AtomicU64,
    owner: Owner,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Owner {
    /// Written by one worker at a time.
    Worker(usize),
    /// Written from anywhere.
    Process,
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        match self.owner {
            // A single writer needs no locked instruction.
            Owner::Worker(_) => {
                let sum = self.bits.load(Ordering::Relaxed).wrapping_add(value);
                self.bits.store(sum, Ordering::Relaxed);
            }
            Owner::Process => {
                self.bits.fetch_add(value, Ordering::Relaxed);
            }
        }
    }

    fn absolute(&self, value: u64) {
        self.bits.store(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        let change = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn decrement(&self, value: f64) {
        GaugeFn::increment(self, -value);
    }

    fn set(&self, value: f64) {
        self.bits.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Registry {
    fn cell(&self, owner: Owner, metric: Metric, labels: &[(Label, &str)]) -> Arc<Cell> {
        let labels: MetricLabels = labels.iter().map(|(l, v)| (*l, (*v).to_owned())).collect();
        let mut series = self.series.lock();
        let cells = series.entry((metric, labels)).or_default();
        if let Some(cell) = cells.iter().find(|cell| cell.owner == owner) {
            return cell.clone();
        }
        let cell = Arc::new(Cell {
            bits: AtomicU64::new(0),
            owner,
        });
        cells.push(cell.clone());
        cell
    }

    /// A counter that only worker number `worker` adds to.
    pub fn worker_counter(
        &self,
        worker: usize,
        metric: Metric,
        labels: &[(Label, &str)],
    ) -> Counter {
        Counter::from_arc(self.cell(Owner::Worker(worker), metric, labels))
    }

    /// A counter of a route's answers with one status. When there are too many statuses, a new one counts as
    /// another.
    pub fn response_counter(
        &self,
        worker: usize,
        route: &str,
        (status, origin): (u16, &str),
    ) -> Counter {
        let status = status.to_string();
        let labels = |status| {
            [
                (Label::Route, route),
                (Label::Status, status),
                (Label::Origin, origin),
            ]
        };
        let of_route = |((metric, labels), _): &(&(Metric, MetricLabels), &Vec<Arc<Cell>>)| {
            let named = |(label, value): &(Label, String)| *label == Label::Route && value == route;
            *metric == Metric::Responses && labels.iter().any(named)
        };
        let series = self.series.lock();
        let owned = labels(&status).map(|(label, value)| (label, value.to_owned()));
        let known = series.contains_key(&(Metric::Responses, owned.to_vec()));
        // Those that matter most are always told.
        let room = known
            || status == "429"
            || origin == "gateway"
            || series.iter().filter(of_route).count() < STATUSES;
        drop(series);
        let status = if room { &status } else { "other" };
        self.worker_counter(worker, Metric::Responses, &labels(status))
    }

    /// A counter that anyone may add to.
    pub fn counter(&self, metric: Metric, labels: &[(Label, &str)]) -> Counter {
        Counter::from_arc(self.cell(Owner::Process, metric, labels))
    }

    /// A gauge.
    pub fn gauge(&self, metric: Metric, labels: &[(Label, &str)]) -> Gauge {
        Gauge::from_arc(self.cell(Owner::Process, metric, labels))
    }

    /// Sets a gauge for each of these values of a label; one that is not among them any more is zero.
    pub fn gauges(&self, metric: Metric, label: Label, values: &BTreeMap<&str, u64>) {
        let mut series = self.series.lock();
        for ((of, _), cells) in series.iter() {
            if *of == metric {
                cells.iter().for_each(|cell| GaugeFn::set(&**cell, 0.0));
            }
        }
        for (name, value) in values {
            let cells = series.entry((metric, vec![(label, (*name).to_owned())]));
            let cells = cells.or_default();
            if cells.is_empty() {
                cells.push(Arc::new(Cell {
                    bits: AtomicU64::new(0),
                    owner: Owner::Process,
                }));
            }
            GaugeFn::set(&*cells[0], *value as f64);
        }
    }

    /// Forgets all series of one metric: what they were about may be gone.
    pub fn forget(&self, metric: Metric) {
        self.series.lock().retain(|(other, _), _| *other != metric);
    }

    /// The sum of all cells of one counter.
    pub fn total(&self, metric: Metric, labels: &[(Label, &str)]) -> u64 {
        let labels: MetricLabels = labels.iter().map(|(l, v)| (*l, (*v).to_owned())).collect();
        let series = self.series.lock();
        let cells = series.get(&(metric, labels));
        cells.map_or(0, |cells| {
            cells.iter().map(|c| c.bits.load(Ordering::Relaxed)).sum()
        })
    }

    /// Reads every series, in a fixed order. A value is a whole number, [`Metric::decimals`] digits of which are behind
    /// the point.
    pub fn visit(&self, mut see: impl FnMut(Metric, &[(Label, String)], u64)) {
        for ((metric, labels), cells) in self.series.lock().iter() {
            let bits = cells.iter().map(|cell| cell.bits.load(Ordering::Relaxed));
            let value = match metric.kind() {
                MetricKind::Counter | MetricKind::Histogram => bits.fold(0, u64::wrapping_add),
                // Nanoseconds of many requests are soon too many for a long step.
                MetricKind::Sum => bits.fold(0, u64::wrapping_add) / 1_000,
                MetricKind::Gauge => {
                    let level = bits.map(f64::from_bits).sum::<f64>();
                    (level * 10_f64.powi(metric.decimals().into())).round() as u64
                }
            };
            see(*metric, labels, value);
        }
    }

    /// The Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let series = self.series.lock();
        let mut last = None;
        let mut buckets: Option<(&[(Label, String)], Buckets)> = None;
        for ((metric, labels), cells) in series.iter() {
            let (name, kind) = (metric.name(), metric.kind());
            // It is told with its histogram.
            if kind == MetricKind::Sum {
                continue;
            }
            let cells = cells.iter().map(|cell| cell.bits.load(Ordering::Relaxed));
            let of: &[_] = match labels.split_last() {
                Some((_, of)) if kind == MetricKind::Histogram => of,
                _ => &[],
            };
            if let Some((_, whole)) =
                buckets.take_if(|(before, _)| last != Some(*metric) || *before != of)
            {
                whole.render(&mut text);
            }
            if last != Some(*metric) {
                let (family, kind) = match kind {
                    MetricKind::Gauge => (name, "gauge"),
                    MetricKind::Histogram => (name.trim_end_matches("_bucket"), "histogram"),
                    MetricKind::Counter | MetricKind::Sum => (name, "counter"),
                };
                let help = metric.help();
                let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
                last = Some(*metric);
            }
            match kind {
                MetricKind::Histogram => {
                    let sum = |metric| series.get(&(metric, of.to_vec()));
                    let begin = || (of, Buckets::new(*metric, of, metric.sum().and_then(sum)));
                    let (_, open) = buckets.get_or_insert_with(begin);
                    open.add(&labels[of.len()].1, cells.sum());
                }
                MetricKind::Gauge => line(
                    &mut text,
                    name,
                    labels,
                    None,
                    cells.map(f64::from_bits).sum::<f64>(),
                ),
                MetricKind::Counter if metric.decimals() > 0 => {
                    let value = cells.sum::<u64>() as f64 / 10_f64.powi(metric.decimals().into());
                    line(&mut text, name, labels, None, value);
                }
                MetricKind::Counter | MetricKind::Sum => {
                    line(&mut text, name, labels, None, cells.sum::<u64>())
                }
            }
        }
        if let Some((_, whole)) = buckets {
            whole.render(&mut text);
        }
        text
    }
}

/// The buckets of one label set, added up.
struct Buckets {
    name: &'static str,
    labels: MetricLabels,
    counts: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

impl Buckets {
    fn new(metric: Metric, labels: &[(Label, String)], sum: Option<&Vec<Arc<Cell>>>) -> Buckets {
        let cells = sum.into_iter().flatten();
        let nanos: u64 = cells.map(|cell| cell.bits.load(Ordering::Relaxed)).sum();
        Buckets {
            name: metric.name().trim_end_matches("_bucket"),
            labels: labels.to_vec(),
            counts: [0; BOUNDS.len() + 1],
            seconds: nanos as f64 / 1e9,
        }
    }

    fn add(&mut self, bound: &str, count: u64) {
        let known = BOUNDS.iter().position(|(_, text)| *text == bound);
        self.counts[known.unwrap_or(BOUNDS.len())] += count;
    }

    /// All of them, for one that appears later would have counted from the start.
    fn render(&self, text: &mut String) {
        let (name, mut below) = (self.name, 0);
        let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain([REST]);
        for (bound, count) in bounds.zip(self.counts) {
            below += count;
            line(
                text,
                &format!("{name}_bucket"),
                &self.labels,
                Some(bound),
                below,
            );
        }
        line(
            text,
            &format!("{name}_sum"),
            &self.labels,
            None,
            self.seconds,
        );
        line(text, &format!("{name}_count"), &self.labels, None, below);
    }
}

fn line(
    text: &mut String,
    name: &str,
    labels: &[(Label, String)],
    le: Option<&str>,
    value: impl std::fmt::Display,
) {
    text.push_str(name);
    let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
    let mut open = '{';
    for (label, value) in labels.chain(le.map(|le| (Label::Le, le))) {
        let _ = write!(text, "{open}{}=\"{}\"", label.as_str(), escaped(value));
        open = ',';
    }
    if open == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
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
        let text = registry.render();
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
            registry.gauges(Metric::PermitsOpen, Label::Limit, &values);
            let text = registry.render();
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
            let metrics = (Metric::RequestDuration, Metric::RequestSeconds);
            let label = (Label::Route, route);
            let histogram = super::super::Histogram::new(&registry, worker, metrics, label);
            histogram.observe(crate::base::clock::Nanos(micros * 1_000));
        }
        let text = registry.render();
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
