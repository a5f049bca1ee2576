//! The registry behind `/metrics`. Each worker holds cells of its own, so that counting never waits
//! for another worker; a scrape adds them up.
//!
//! Bounds: one cell of 8 bytes for each worker, metric and label set; label sets come from the
//! configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, CounterFn, Gauge, GaugeFn};
use parking_lot::Mutex;

use super::names::{Kind, Label, Metric};

type Labels = Vec<(Label, String)>;
type Series = BTreeMap<(Metric, Labels), Vec<Arc<Cell>>>;

/// All series of the process.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    series: Arc<Mutex<Series>>,
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
        let labels: Labels = labels.iter().map(|(l, v)| (*l, (*v).to_owned())).collect();
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
        let labels: Labels = labels.iter().map(|(l, v)| (*l, (*v).to_owned())).collect();
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
                Kind::Counter => {
                    let sum = bits.fold(0, u64::wrapping_add);
                    // Nanoseconds of many requests are soon too many for a long step.
                    if metric == &Metric::RequestSeconds {
                        sum / 1_000
                    } else {
                        sum
                    }
                }
                Kind::Gauge => {
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
        let mut last = None;
        for ((metric, labels), cells) in self.series.lock().iter() {
            if last != Some(*metric) {
                let kind = if metric.kind() == Kind::Gauge {
                    "gauge"
                } else {
                    "counter"
                };
                let name = metric.name();
                let _ = writeln!(
                    text,
                    "# HELP {name} {}\n# TYPE {name} {kind}",
                    metric.help()
                );
                last = Some(*metric);
            }
            text.push_str(metric.name());
            for (place, (label, value)) in labels.iter().enumerate() {
                let open = if place == 0 { '{' } else { ',' };
                let _ = write!(text, "{open}{}=\"{}\"", label.as_str(), escaped(value));
            }
            if !labels.is_empty() {
                text.push('}');
            }
            let bits = cells.iter().map(|cell| cell.bits.load(Ordering::Relaxed));
            let _ = match metric.kind() {
                Kind::Gauge => writeln!(text, " {}", bits.map(f64::from_bits).sum::<f64>()),
                // Kept as whole nanoseconds so that a worker can add without floating point.
                Kind::Counter if *metric == Metric::RequestSeconds => {
                    writeln!(text, " {}", bits.sum::<u64>() as f64 / 1e9)
                }
                Kind::Counter => writeln!(text, " {}", bits.sum::<u64>()),
            };
        }
        text
    }
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
