//! The two threads that write the record: one reads all metrics at the end of each second, the other writes to the
//! disk. Requests never wait for them.
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
use super::live_metrics::LiveMetrics;
use super::note_writer::{NoteWriter, Rollup, minute_of};
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Label, Metric, Registry, names};
use crate::record::insight::GatewayEvent;
use crate::record::{Kind, OpenError, Record, Second, Series, Settings};

/// Series that are sums of others: the metric, the name of the sum, and the labels that it keeps. They are recorded
/// because the peak second of a sum cannot be computed from the peaks of its parts. Their names follow the recording
/// rules of Prometheus.
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

/// Maximum number of series of a process, without sums. It bounds the memory and the record's growth.
const MAX_SERIES: usize = 8_192;
/// Maximum number of seconds, and of events, that wait for the record.
const MAX_WAITING: usize = 300;

/// Maximum time that a process records while it drains requests, because another process may wait for the record.
const HANDOVER_TIME: Nanos = Nanos::from_secs(60);

/// An order to stop recording.
enum StopOrder {
    /// Stop within [`HANDOVER_TIME`], because requests are draining.
    Soon,
    /// Stop now, because all requests have ended.
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
    pub fn start(
        settings: &Settings,
        live_metrics: Arc<LiveMetrics>,
    ) -> Result<MetricsRecorder, Error> {
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
            clock: live_metrics.clock.clone(),
            record: record.clone(),
            rollup: Rollup::default(),
            logged_error: String::new(),
        };
        let disk_thread = spawn_thread("record", move || disk_thread.run(&woken))?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let insight = live_metrics
            .running
            .read()
            .insight
            .clone()
            .unwrap_or_default();
        let minute = minute_of(live_metrics.clock.wall().as_secs(), live_metrics.seed());
        let seconds_thread = SecondsThread {
            notes: NoteWriter::new(insight, events.clone(), minute),
            live_metrics,
            record: record.clone(),
            table: SeriesTable::default(),
            pending: VecDeque::new(),
            wake,
        };
        let seconds_thread = spawn_thread("seconds", move || seconds_thread.run(&stopped))?;
        Ok(MetricsRecorder {
            record,
            events,
            stop,
            seconds_thread,
            disk_thread,
        })
    }

    /// The record, which is set once this process writes it.
    pub fn record(&self) -> Arc<OnceLock<Record>> {
        self.record.clone()
    }

    /// Adds an event of the gateway. It is dropped if too many events wait for the record.
    pub fn add_event(&self, event: GatewayEvent) {
        let mut events = self.events.lock();
        if events.len() < MAX_WAITING {
            events.push(event);
        }
    }

    /// Orders the threads to stop within [`HANDOVER_TIME`]. [`MetricsRecorder::finish`] stops them earlier.
    pub fn stop_soon(&self) {
        // The send cannot fail, because the thread runs until it receives an order.
        let _ = self.stop.send(StopOrder::Soon);
    }

    /// Records the current second, stops the threads, and waits until everything is on the disk.
    pub fn finish(self) {
        let _ = self.stop.send(StopOrder::Now);
        if self.seconds_thread.join().is_err() || self.disk_thread.join().is_err() {
            tracing::error!("a thread of the record panicked");
        }
    }
}

fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(Error::Thread)
}

/// Converts a series of the registry to one of the record. `name` is that of the metric, or of a sum.
fn record_series(metric: Metric, name: &str, labels: &[(Label, String)]) -> Series {
    let to_text = |(label, value): &(Label, String)| (label.as_str().to_owned(), value.clone());
    Series {
        name: name.to_owned(),
        labels: labels.iter().map(to_text).collect(),
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
pub fn current_series(live_metrics: &LiveMetrics) -> BTreeSet<Series> {
    let mut all_series = BTreeSet::new();
    live_metrics.read(|registry| {
        registry.visit(|metric, labels, _| {
            all_series.insert(record_series(metric, metric.name(), labels));
        });
    });
    all_series
}

/// All series that this process has recorded, by their indexes.
#[derive(Default)]
struct SeriesTable {
    /// The index of each series in `series`, by its name and labels.
    indexes: HashMap<&'static str, HashMap<LabelValues, usize>>,
    series: Vec<TrackedSeries>,
    /// The number of sums among `series`.
    sum_count: usize,
    /// Whether a series was left out, so that this is logged once.
    is_full: bool,
}

type LabelValues = Vec<(Label, String)>;

struct TrackedSeries {
    series: Series,
    /// The number of the series in the record.
    number: Option<u32>,
    /// The last value of a counter. For a sum, the last total of the series that are recorded only in sums.
    last_value: u64,
    /// The indexes of the sums that include this series.
    sums: SumIndexes,
}

type SumIndexes = SmallVec<[usize; 2]>;

impl SeriesTable {
    /// The index of a series, which is added if it is new. If the table is full, returns the indexes of its sums as an
    /// error.
    fn find_or_add(
        &mut self,
        metric: Metric,
        labels: &[(Label, String)],
    ) -> Result<usize, SumIndexes> {
        let indexes = self.indexes.get(metric.name());
        if let Some(index) = indexes.and_then(|indexes| indexes.get(labels)) {
            return Ok(*index);
        }
        let mut sums = SumIndexes::new();
        for (_, name, kept_labels) in SUMS.iter().filter(|(summed, ..)| *summed == metric) {
            let kept = labels
                .iter()
                .filter(|(label, _)| kept_labels.contains(label));
            let count = self.series.len();
            sums.push(self.add(metric, name, kept.cloned().collect(), SumIndexes::new()));
            self.sum_count += self.series.len() - count;
        }
        if self.series.len() - self.sum_count < MAX_SERIES {
            return Ok(self.add(metric, metric.name(), labels.to_vec(), sums));
        }
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::error!(
                most = MAX_SERIES,
                "too many series; new ones are recorded in sums only"
            );
        }
        Err(sums)
    }

    /// Adds a series unless it is there, and returns its index.
    fn add(
        &mut self,
        metric: Metric,
        name: &'static str,
        labels: LabelValues,
        sums: SumIndexes,
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
            sums,
        });
        indexes.insert(labels, index);
        index
    }

    /// The indexes of all series that have changed since the last call, with their changes.
    fn take_changes(&mut self, registry: &Registry) -> Vec<(usize, u64)> {
        let mut changes = Vec::new();
        let (mut sum_changes, mut unlisted_totals) = (BTreeMap::new(), BTreeMap::new());
        let add_to_sums = |totals: &mut BTreeMap<usize, u64>, sums: &SumIndexes, value| {
            for sum in sums {
                *totals.entry(*sum).or_default() += value;
            }
        };
        registry.visit(
            |metric, labels, value| match self.find_or_add(metric, labels) {
                Ok(index) => {
                    let tracked = &mut self.series[index];
                    let change = tracked.take_change(value);
                    add_to_sums(&mut sum_changes, &tracked.sums, change);
                    // A series is recorded once even if it has never changed, so that its name is known.
                    if change > 0 || tracked.number.is_none() {
                        changes.push((index, change));
                    }
                }
                Err(sums) => add_to_sums(&mut unlisted_totals, &sums, value),
            },
        );
        for (sum, total) in unlisted_totals {
            *sum_changes.entry(sum).or_default() += self.series[sum].take_change(total);
        }
        let must_be_recorded =
            |(index, change): &(usize, u64)| *change > 0 || self.series[*index].number.is_none();
        changes.extend(sum_changes.into_iter().filter(must_be_recorded));
        changes
    }
}

impl TrackedSeries {
    /// The value of a gauge, or the increase of a counter since the last call.
    fn take_change(&mut self, value: u64) -> u64 {
        match self.series.kind {
            Kind::Gauge => value,
            Kind::Counter => value.saturating_sub(std::mem::replace(&mut self.last_value, value)),
        }
    }
}

/// The thread that reads the metrics every second.
struct SecondsThread {
    live_metrics: Arc<LiveMetrics>,
    record: Arc<OnceLock<Record>>,
    table: SeriesTable,
    /// Seconds that wait for the record, each with its time and its changes by index.
    pending: VecDeque<(u64, Vec<(usize, u64)>)>,
    notes: NoteWriter,
    wake: SyncSender<()>,
}

impl SecondsThread {
    fn run(mut self, stopped: &Receiver<StopOrder>) {
        let clock = self.live_metrics.clock.clone();
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
                    self.record_second(reached - 1)
                }
                // The clock went back, or a test moves it.
                Err(RecvTimeoutError::Timeout) => {}
                Ok(StopOrder::Soon) => end = Some(clock.now().after(HANDOVER_TIME)),
                Ok(StopOrder::Now) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.record_second(clock.wall().as_secs());
        self.notes.write_current_minute(self.record.get());
        let _ = self.wake.try_send(());
    }

    /// Records the changes of the second `at`, and everything that waited for the record.
    fn record_second(&mut self, at: u64) {
        let changes = self
            .live_metrics
            .read(|registry| self.table.take_changes(registry));
        let series_gauge = self.live_metrics.registry.gauge(Metric::RecordSeries, &[]);
        series_gauge.set(self.table.series.len() as f64);
        self.pending.push_back((at, changes));
        if self.pending.len() > MAX_WAITING {
            tracing::warn!(
                at,
                "a second is lost: another process still writes the record"
            );
            self.pending.pop_front();
        }
        if let Some(record) = self.record.get() {
            // Another process recorded until here while this one waited.
            let recorded_until = if self.pending.len() > 1 {
                record.end()
            } else {
                0
            };
            for (at, changes) in self.pending.drain(..) {
                let second = to_second(record, &mut self.table, at, changes, recorded_until);
                record.add(second);
            }
        }
        self.notes
            .end_second(self.record.get(), at, self.live_metrics.seed());
        // If the channel is full, the disk thread has yet to handle an earlier signal, and will write this second too.
        let _ = self.wake.try_send(());
    }
}

/// Converts the changes of a second to a second of the record, with the record's numbers of series. Gauges are dropped
/// before `recorded_until`, because another process has recorded them and the record would add both.
fn to_second(
    record: &Record,
    table: &mut SeriesTable,
    at: u64,
    changes: Vec<(usize, u64)>,
    recorded_until: u64,
) -> Second {
    let numbered_value = |(index, value): (usize, u64)| {
        let tracked = &mut table.series[index];
        let is_recorded = at < recorded_until && tracked.series.kind == Kind::Gauge;
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

/// The thread that writes to the disk.
struct DiskThread {
    settings: Settings,
    clock: Clock,
    record: Arc<OnceLock<Record>>,
    rollup: Rollup,
    /// The error that was logged last; empty while there is none.
    logged_error: String,
}

impl DiskThread {
    fn run(mut self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            let result = match self.record.get() {
                Some(record) => self
                    .rollup
                    .roll_up_complete(record, self.clock.wall().as_secs())
                    .and(record.write_pending())
                    .map_err(|error| error.to_string()),
                None => self.take_over(),
            };
            self.log_change(result.err().unwrap_or_default());
        }
        if let Some(Err(error)) = self.record.get().map(Record::close) {
            tracing::error!(%error, "writing the last seconds of the record failed");
        }
    }

    /// Logs an error, or its end, only when it differs from the last one.
    fn log_change(&mut self, error: String) {
        if error == self.logged_error {
            return;
        }
        match error.as_str() {
            "" => tracing::info!("the record is written again"),
            trouble => tracing::error!(
                trouble,
                "the record cannot be written; the last hours are kept in memory"
            ),
        }
        self.logged_error = error;
    }

    /// Opens the record, unless another process still writes it.
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
        let mut increment_all = |each: u64| {
            counters.iter().for_each(|counter| counter.increment(each));
            let changes = table.take_changes(&registry);
            let sum_of = |name: &str| {
                let mut named = changes
                    .iter()
                    .map(|(index, change)| (&table.series[*index], change));
                named
                    .find(|(tracked, _)| tracked.series.name == name)
                    .map(|(_, change)| *change)
            };
            let sums =
                ["all", "outcome"].map(|sum| sum_of(&format!("{sum}:tollgate_requests_total")));
            (table.series.len(), sums)
        };
        let all = |each: u64| [Some(each * (MAX_SERIES as u64 + 100)); 2];
        assert_eq!(increment_all(1), (MAX_SERIES + 2, all(1)));
        assert_eq!(increment_all(3), (MAX_SERIES + 2, all(3)));
    }
}
