//! The two threads of the record: one reads all metrics at the end of each second, the other writes to the disk.
//!
//! Bounds: [`MAX_SERIES`] series and their sums, and [`MAX_WAITING`] seconds while another process still writes the
//! record.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::error::Error;
use super::figures::Figures;
use super::notes::{NoteWriter, Rollup, minute_of};
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Label, Metric, Registry, names};
use crate::record::insight::GatewayEvent;
use crate::record::{Kind, OpenError, Record, Second, Series, Settings};

/// Series that are sums of others, by the labels that stay. The peak second of a sum cannot be computed from the
/// peaks of its parts. Their names follow the recording rules of Prometheus.
const SUMS: [(Metric, &str, &[Label]); 5] = [
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

/// Maximum number of series of a process, without sums.
const MAX_SERIES: usize = 8_192;
/// Maximum number of seconds that wait for the record.
const MAX_WAITING: usize = 300;

/// Longest time that a process records while it drains requests, because another may wait for the record.
const HANDOVER_TIME: Nanos = Nanos::from_secs(60);

/// When to stop recording.
enum StopOrder {
    /// Within [`HANDOVER_TIME`]: requests are draining.
    Soon,
    /// Now: all requests have ended.
    Now,
}

/// Records all metrics every second.
pub struct MetricsRecorder {
    record: Arc<OnceLock<Record>>,
    events: Arc<Mutex<Vec<GatewayEvent>>>,
    stop: Sender<StopOrder>,
    seconds_thread: JoinHandle<()>,
    disk_thread: JoinHandle<()>,
}

impl MetricsRecorder {
    /// Starts the threads. If another process still writes the record, this one takes over when that ends.
    pub fn start(settings: &Settings, figures: Arc<Figures>) -> Result<MetricsRecorder, Error> {
        let record = Arc::new(OnceLock::new());
        match Record::open(settings) {
            Ok(opened) => {
                let _ = record.set(opened);
            }
            Err(OpenError::InUse(_)) => {
                tracing::info!(
                    "another process writes the record; this one takes over when that ends"
                );
            }
            Err(unusable) => return Err(unusable.into()),
        }
        let (stop, stopped) = channel();
        let (wake, woken) = sync_channel(1);
        let disk_thread = DiskThread {
            settings: settings.clone(),
            clock: figures.clock.clone(),
            record: record.clone(),
            rollup: Rollup::default(),
            trouble: String::new(),
        };
        let disk_thread = spawn("record", move || disk_thread.run(&woken))?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let insight = figures.running.read().insight.clone().unwrap_or_default();
        let minute = minute_of(figures.clock.wall().as_secs(), figures.seed());
        let seconds_thread = SecondsThread {
            notes: NoteWriter::new(insight, events.clone(), minute),
            figures,
            record: record.clone(),
            table: SeriesTable::default(),
            pending: VecDeque::new(),
            wake,
        };
        let seconds_thread = spawn("seconds", move || seconds_thread.run(&stopped))?;
        Ok(MetricsRecorder {
            record,
            events,
            stop,
            seconds_thread,
            disk_thread,
        })
    }

    /// The record, once this process has it.
    pub fn record(&self) -> Arc<OnceLock<Record>> {
        self.record.clone()
    }

    /// Adds an event of the gateway.
    pub fn event(&self, event: GatewayEvent) {
        let mut events = self.events.lock();
        if events.len() < MAX_WAITING {
            events.push(event);
        }
    }

    /// Stops soon: within [`HANDOVER_TIME`], or at [`MetricsRecorder::finish`].
    pub fn stop_soon(&self) {
        // The thread cannot have ended before the first order.
        let _ = self.stop.send(StopOrder::Soon);
    }

    /// Records the current second, and waits until all is on the disk.
    pub fn finish(self) {
        let _ = self.stop.send(StopOrder::Now);
        if self.seconds_thread.join().is_err() || self.disk_thread.join().is_err() {
            tracing::error!("a thread of the record panicked");
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(Error::Thread)
}

/// A series as the record names it.
fn series(metric: Metric, name: &str, labels: &[(Label, String)]) -> Series {
    let label = |(label, value): &(Label, String)| (label.as_str().to_owned(), value.clone());
    Series {
        name: name.to_owned(),
        labels: labels.iter().map(label).collect(),
        kind: match metric.kind() {
            names::MetricKind::Counter | names::MetricKind::Histogram | names::MetricKind::Sum => {
                Kind::Counter
            }
            names::MetricKind::Gauge => Kind::Gauge,
        },
        decimals: metric.decimals(),
    }
}

/// All series that exist now.
pub fn current_series(figures: &Figures) -> BTreeSet<Series> {
    let mut current_series = BTreeSet::new();
    figures.read(|registry| {
        registry.visit(|metric, labels, _| {
            current_series.insert(series(metric, metric.name(), labels));
        });
    });
    current_series
}

/// All series that this process has recorded.
#[derive(Default)]
struct SeriesTable {
    places: HashMap<&'static str, HashMap<LabelValues, usize>>,
    series: Vec<TrackedSeries>,
    /// How many of `series` are sums.
    sums: usize,
    full: bool,
}

type LabelValues = Vec<(Label, String)>;

struct TrackedSeries {
    series: Series,
    /// The number of the series in the record.
    number: Option<u32>,
    /// The last value of a counter; for a sum, that of its parts that have no place of their own.
    last: u64,
    /// Places of the sums that include this series.
    totals: SumPlaces,
}

type SumPlaces = SmallVec<[usize; 2]>;

impl SeriesTable {
    /// The place of a series, or the places of its sums if the table is full.
    fn place(&mut self, metric: Metric, labels: &[(Label, String)]) -> Result<usize, SumPlaces> {
        let tracked = self.places.get(metric.name());
        if let Some(place) = tracked.and_then(|places| places.get(labels)) {
            return Ok(*place);
        }
        let mut totals = SumPlaces::new();
        for (_, name, by) in SUMS.iter().filter(|(of, ..)| *of == metric) {
            let kept = labels.iter().filter(|(label, _)| by.contains(label));
            let count = self.series.len();
            totals.push(self.place_of(metric, name, kept.cloned().collect(), SumPlaces::new()));
            self.sums += self.series.len() - count;
        }
        if self.series.len() - self.sums < MAX_SERIES {
            return Ok(self.place_of(metric, metric.name(), labels.to_vec(), totals));
        }
        if !std::mem::replace(&mut self.full, true) {
            tracing::error!(
                most = MAX_SERIES,
                "too many series; new ones are recorded in sums only"
            );
        }
        Err(totals)
    }

    fn place_of(
        &mut self,
        metric: Metric,
        name: &'static str,
        labels: LabelValues,
        totals: SumPlaces,
    ) -> usize {
        let places = self.places.entry(name).or_default();
        if let Some(place) = places.get(&labels) {
            return *place;
        }
        let place = self.series.len();
        self.series.push(TrackedSeries {
            series: series(metric, name, &labels),
            number: None,
            last: 0,
            totals,
        });
        places.insert(labels, place);
        place
    }

    /// The changes since the last call, by place.
    fn take_changes(&mut self, registry: &Registry) -> Vec<(usize, u64)> {
        let mut values = Vec::new();
        let (mut sums, mut others) = (BTreeMap::new(), BTreeMap::new());
        let add = |sums: &mut BTreeMap<usize, u64>, totals: &SumPlaces, value| {
            for total in totals {
                *sums.entry(*total).or_default() += value;
            }
        };
        registry.visit(|metric, labels, value| match self.place(metric, labels) {
            Ok(place) => {
                let tracked = &mut self.series[place];
                let value = tracked.take_change(value);
                add(&mut sums, &tracked.totals, value);
                // A series is recorded once even if it has never changed, so that its name is known.
                if value > 0 || tracked.number.is_none() {
                    values.push((place, value));
                }
            }
            Err(totals) => add(&mut others, &totals, value),
        });
        for (total, value) in others {
            *sums.entry(total).or_default() += self.series[total].take_change(value);
        }
        let must_be_recorded =
            |(place, sum): &(usize, u64)| *sum > 0 || self.series[*place].number.is_none();
        values.extend(sums.into_iter().filter(must_be_recorded));
        values
    }
}

impl TrackedSeries {
    /// The value of a gauge, or the increase of a counter since the last call.
    fn take_change(&mut self, value: u64) -> u64 {
        match self.series.kind {
            Kind::Gauge => value,
            Kind::Counter => value.saturating_sub(std::mem::replace(&mut self.last, value)),
        }
    }
}

/// The thread that reads the metrics every second.
struct SecondsThread {
    figures: Arc<Figures>,
    record: Arc<OnceLock<Record>>,
    table: SeriesTable,
    /// Seconds that wait for the record, with places instead of numbers.
    pending: VecDeque<(u64, Vec<(usize, u64)>)>,
    notes: NoteWriter,
    wake: SyncSender<()>,
}

impl SecondsThread {
    fn run(mut self, stopped: &Receiver<StopOrder>) {
        let clock = self.figures.clock.clone();
        let mut end = None;
        loop {
            let now = clock.wall();
            let next = Duration::from_secs(now.as_secs() + 1);
            let stop = stopped.recv_timeout(next.saturating_sub(now));
            let reached = clock.wall().as_secs();
            match stop {
                Err(RecvTimeoutError::Timeout) if end.is_some_and(|end| clock.now() >= end) => {
                    break;
                }
                Err(RecvTimeoutError::Timeout) if reached >= next.as_secs() => {
                    self.tick(reached - 1)
                }
                // The clock went back, or a test moves it.
                Err(RecvTimeoutError::Timeout) => {}
                Ok(StopOrder::Soon) => end = Some(clock.now().after(HANDOVER_TIME)),
                Ok(StopOrder::Now) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tick(clock.wall().as_secs());
        self.notes.end(self.record.get());
        let _ = self.wake.try_send(());
    }

    fn tick(&mut self, at: u64) {
        let values = self
            .figures
            .read(|registry| self.table.take_changes(registry));
        let series = self.figures.registry.gauge(Metric::RecordSeries, &[]);
        series.set(self.table.series.len() as f64);
        self.pending.push_back((at, values));
        if self.pending.len() > MAX_WAITING {
            tracing::warn!(
                at,
                "a second is lost: another process still writes the record"
            );
            self.pending.pop_front();
        }
        if let Some(record) = self.record.get() {
            // The end of what another process recorded while this one waited.
            let before = if self.pending.len() > 1 {
                record.end()
            } else {
                0
            };
            for (at, values) in self.pending.drain(..) {
                record.add(second(record, &mut self.table, at, values, before));
            }
        }
        self.notes.tick(self.record.get(), at, self.figures.seed());
        // If the channel is full, the thread looks again when it is done.
        let _ = self.wake.try_send(());
    }
}

/// Converts places to numbers of the record. Gauges are dropped in seconds that another process has recorded, because
/// adding them would count twice.
fn second(
    record: &Record,
    table: &mut SeriesTable,
    at: u64,
    values: Vec<(usize, u64)>,
    before: u64,
) -> Second {
    let number = |(place, value): (usize, u64)| {
        let tracked = &mut table.series[place];
        let twice = at < before && tracked.series.kind == Kind::Gauge;
        tracked.number = tracked.number.or_else(|| record.number(&tracked.series));
        tracked
            .number
            .filter(|_| !twice)
            .map(|number| (number, value))
    };
    let mut values: Vec<_> = values.into_iter().filter_map(number).collect();
    values.sort_unstable();
    Second { at, values }
}

/// The thread that writes to the disk.
struct DiskThread {
    settings: Settings,
    clock: Clock,
    record: Arc<OnceLock<Record>>,
    rollup: Rollup,
    /// The last error that was logged.
    trouble: String,
}

impl DiskThread {
    fn run(mut self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            let kept = match self.record.get() {
                Some(record) => self
                    .rollup
                    .keep(record, self.clock.wall().as_secs())
                    .and(record.keep())
                    .map_err(|error| error.to_string()),
                None => self.take_over(),
            };
            let trouble = kept.err().unwrap_or_default();
            if trouble != self.trouble {
                match trouble.as_str() {
                    "" => tracing::info!("the record is written again"),
                    trouble => tracing::error!(
                        trouble,
                        "the record cannot be written; the last hours are kept in memory"
                    ),
                }
                self.trouble = trouble;
            }
        }
        if let Some(Err(error)) = self.record.get().map(Record::leave) {
            tracing::error!(%error, "writing the last seconds of the record failed");
        }
    }

    fn take_over(&self) -> Result<(), String> {
        match Record::open(&self.settings) {
            Ok(record) => {
                tracing::info!("this process writes the record now");
                let _ = self.record.set(record);
                Ok(())
            }
            Err(OpenError::InUse(_)) => Ok(()),
            Err(unusable) => Err(unusable.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_what_has_no_series_of_its_own() {
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
        let mut asked = |each: u64| {
            counters.iter().for_each(|counter| counter.increment(each));
            let values = table.take_changes(&registry);
            let sum_of = |name: &str| {
                let mut of = values
                    .iter()
                    .map(|(place, value)| (&table.series[*place], value));
                of.find(|(tracked, _)| tracked.series.name == name)
                    .map(|(_, value)| *value)
            };
            let sums =
                ["all", "outcome"].map(|sum| sum_of(&format!("{sum}:tollgate_requests_total")));
            (table.series.len(), sums)
        };
        let all = |each: u64| [Some(each * (MAX_SERIES as u64 + 100)); 2];
        assert_eq!(asked(1), (MAX_SERIES + 2, all(1)));
        assert_eq!(asked(3), (MAX_SERIES + 2, all(3)));
    }
}
