//! The two threads that write the record: one reads all metrics at the end of each second, the other writes to the
//! disk. No request waits for the disk; an order of an operator does, until its event is there.
//!
//! Bounds: those of [`SeriesTable`] and [`NoteWriter`]. While another process still writes the record,
//! [`MAX_WAITING_SECONDS`] seconds, and the events of [`WaitingEvents`].

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::error::Error;
use super::events::WaitingEvents;
use super::live_metrics::LiveMetrics;
use super::note_writer::{ListRollUp, NoteWriter, add_events, minute_of};
use super::series_table::SeriesTable;
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::Metric;
use crate::record::insight::GatewayEvent;
use crate::record::{OpenError, Record, Settings, Topic};

/// The largest number of seconds that wait for the record. A further one replaces the oldest.
const MAX_WAITING_SECONDS: usize = 300;

/// The longest time for which a process records after it has begun to drain requests, because another process may wait
/// for the record.
const HANDOVER_TIMEOUT: Nanos = Nanos::from_secs(60);

/// An order to the thread that reads the metrics, with which the other thread stops too.
enum StopOrder {
    /// Stop after [`HANDOVER_TIMEOUT`], because requests are draining.
    Soon,
    /// Stop now, because all requests have ended.
    Now,
}

/// Takes events of the gateway for the record. Its clones take them for the same record.
#[derive(Clone)]
pub struct EventQueue {
    events: Arc<Mutex<WaitingEvents>>,
    record: Arc<OnceLock<Record>>,
}

impl EventQueue {
    /// Adds an event, which is recorded at the end of the current second at the latest. See [`WaitingEvents::add`].
    pub fn add(&self, event: GatewayEvent) {
        self.events.lock().add(event);
    }

    /// Records all events now, and waits until the disk has them. While another process still writes the record, or if the
    /// disk fails, they wait in memory. Of a record that was closed they are lost. Both are logged.
    pub fn write(&self) {
        let Some(record) = self.record.get() else {
            tracing::warn!(
                "another process still writes the record; an order waits for it in memory"
            );
            return;
        };
        add_events(record, &self.events);
        if let Err(error) = record.write_notes(Topic::Event) {
            tracing::error!(%error, "an order is not in the record on the disk yet");
        }
    }
}

/// The two threads, and the ways to reach them. Dropping it stops the threads without waiting for them.
pub struct MetricsRecorder {
    /// Set once this process writes the record.
    record: Arc<OnceLock<Record>>,
    events: Arc<Mutex<WaitingEvents>>,
    stop_sender: Sender<StopOrder>,
    seconds_thread: JoinHandle<()>,
    disk_thread: JoinHandle<()>,
}

impl MetricsRecorder {
    /// Starts the threads. If another process still writes the record, this one takes over when that one stops.
    ///
    /// # Errors
    ///
    /// The record cannot be opened for another reason, or a thread cannot be started.
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
            Err(error) => return Err(error.into()),
        }
        let (stop_sender, stop_orders) = channel();
        let (disk_waker, disk_wakes) = sync_channel(1);
        let disk_thread = DiskThread {
            settings: settings.clone(),
            clock: live_metrics.clock.clone(),
            record: record.clone(),
            list_roll_up: ListRollUp::default(),
            logged_error: String::new(),
        };
        let disk_thread = spawn_thread("record", move || disk_thread.run(&disk_wakes))?;
        let events = Arc::new(Mutex::new(WaitingEvents::default()));
        let insight = live_metrics
            .running
            .read()
            .insight
            .clone()
            .unwrap_or_default();
        let minute = minute_of(live_metrics.clock.wall().as_secs(), live_metrics.seed());
        let seconds_thread = SecondsThread {
            note_writer: NoteWriter::new(insight, events.clone(), minute),
            live_metrics,
            record: record.clone(),
            series_table: SeriesTable::default(),
            waiting_seconds: VecDeque::new(),
            disk_waker,
        };
        let seconds_thread = spawn_thread("seconds", move || seconds_thread.run(&stop_orders))?;
        Ok(MetricsRecorder {
            record,
            events,
            stop_sender,
            seconds_thread,
            disk_thread,
        })
    }

    /// The record, which is set once this process writes it.
    pub fn record(&self) -> Arc<OnceLock<Record>> {
        self.record.clone()
    }

    /// Takes events for the record.
    pub fn event_queue(&self) -> EventQueue {
        EventQueue {
            events: self.events.clone(),
            record: self.record.clone(),
        }
    }

    /// Orders the threads to stop after [`HANDOVER_TIMEOUT`], unless [`MetricsRecorder::finish`] stops them earlier.
    pub fn stop_soon(&self) {
        // The send fails only if the thread has panicked, which `finish` logs.
        let _ = self.stop_sender.send(StopOrder::Soon);
    }

    /// Records the current second, stops the threads, and waits until the record is closed. An error of the disk is
    /// only logged. If another process still writes the record, what waits for it is lost.
    pub fn finish(self) {
        let _ = self.stop_sender.send(StopOrder::Now);
        if self.seconds_thread.join().is_err() || self.disk_thread.join().is_err() {
            tracing::error!("a thread of the record panicked");
        }
    }
}

fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(Error::Thread)
}

/// The thread that reads the metrics every second.
struct SecondsThread {
    live_metrics: Arc<LiveMetrics>,
    record: Arc<OnceLock<Record>>,
    series_table: SeriesTable,
    /// Seconds that wait for the record, in seconds since 1970. Each has its changes, by the indexes of the series in
    /// `series_table`.
    waiting_seconds: VecDeque<(u64, Vec<(usize, u64)>)>,
    note_writer: NoteWriter,
    /// Wakes the thread that writes to the disk.
    disk_waker: SyncSender<()>,
}

impl SecondsThread {
    fn run(mut self, stop_orders: &Receiver<StopOrder>) {
        let clock = self.live_metrics.clock.clone();
        let mut stop_at = None;
        loop {
            let now = clock.wall();
            let next_second = Duration::from_secs(now.as_secs() + 1);
            let order = stop_orders.recv_timeout(next_second.saturating_sub(now));
            let reached_second = clock.wall().as_secs();
            match order {
                Err(RecvTimeoutError::Timeout)
                    if stop_at.is_some_and(|time| clock.now() >= time) =>
                {
                    break;
                }
                // If the thread was late, one second has the changes of several.
                Err(RecvTimeoutError::Timeout) if reached_second >= next_second.as_secs() => {
                    self.record_second(reached_second - 1)
                }
                // The clock went back, or a test moves it.
                Err(RecvTimeoutError::Timeout) => {}
                Ok(StopOrder::Soon) => stop_at = Some(clock.now().after(HANDOVER_TIMEOUT)),
                Ok(StopOrder::Now) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.record_second(clock.wall().as_secs());
        self.note_writer.write_current_minute(self.record.get());
        let _ = self.disk_waker.try_send(());
    }

    /// Records the changes of the second `at`, in seconds since 1970, and everything that waited for the record.
    fn record_second(&mut self, at: u64) {
        let changes = self
            .live_metrics
            .read(|registry| self.series_table.take_changes(registry));
        let series_gauge = self.live_metrics.registry.gauge(Metric::RecordSeries, &[]);
        series_gauge.set(self.series_table.series_count() as f64);
        self.waiting_seconds.push_back((at, changes));
        if self.waiting_seconds.len() > MAX_WAITING_SECONDS {
            tracing::warn!(
                at,
                "a second is lost: another process still writes the record"
            );
            self.waiting_seconds.pop_front();
        }
        if let Some(record) = self.record.get() {
            // If seconds waited, another process recorded until the record's end.
            let recorded_until = if self.waiting_seconds.len() > 1 {
                record.end()
            } else {
                0
            };
            for (at, changes) in self.waiting_seconds.drain(..) {
                let second = self
                    .series_table
                    .numbered_second(record, at, changes, recorded_until);
                record.add(second);
            }
        }
        self.note_writer
            .end_second(self.record.get(), at, self.live_metrics.seed());
        // If the channel is full, the disk thread has yet to handle an earlier wake, and will write this second too.
        let _ = self.disk_waker.try_send(());
    }
}

/// The thread that writes to the disk.
struct DiskThread {
    settings: Settings,
    clock: Clock,
    record: Arc<OnceLock<Record>>,
    list_roll_up: ListRollUp,
    /// The error that was logged last; empty if there is none now.
    logged_error: String,
}

impl DiskThread {
    /// Writes after each wake, until the other thread has ended. Then it closes the record.
    fn run(mut self, disk_wakes: &Receiver<()>) {
        while disk_wakes.recv().is_ok() {
            let result = match self.record.get() {
                Some(record) => self
                    .list_roll_up
                    .roll_up_complete(record, self.clock.wall().as_secs())
                    // Pending seconds are written even if the roll-up has failed.
                    .and(record.write_pending())
                    .map_err(|error| error.to_string()),
                None => self.try_open_record(),
            };
            self.log_change(result.err().unwrap_or_default());
        }
        if let Some(Err(error)) = self.record.get().map(Record::close) {
            tracing::error!(%error, "writing the last seconds of the record failed");
        }
    }

    /// Logs an error if it differs from the last one, and the end of an error. `error` is empty if there is none.
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

    /// Opens the record. If another process still writes it, the record stays closed, which is no error.
    fn try_open_record(&self) -> Result<(), String> {
        match Record::open(&self.settings) {
            Ok(record) => {
                tracing::info!("this process writes the record now");
                let _ = self.record.set(record);
                Ok(())
            }
            Err(OpenError::InUse(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
