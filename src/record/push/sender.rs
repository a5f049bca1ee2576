//! Sends batches to one destination, oldest first, each until the destination has accepted or refused it. Saves the
//! cursor before and after each batch, waits after failures, and counts what was sent. `pusher.rs` runs a sender for
//! each destination.
//!
//! [`Progress`] chooses the samples, and [`deliver`] speaks the protocols.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use metrics::{Counter, Gauge};

use super::batch::Batch;
use super::cursor::Cursor;
use super::deliver::{DeliveryOutcome, deliver};
use super::destination::{Destination, LiveSeries, PushContext};
use super::progress::Progress;
use super::request_range::{RequestRange, split_into_requests};
use super::row::RowSlice;
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Jitter;
use crate::base::telemetry::{Label, Metric, OutageLog};
use crate::net::Roots;
use crate::record::{Record, Series};

/// The time between two checks whether there is something to send. The record grows once a second.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The least delay after a failure. It doubles with each further failure.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest delay after failures, unless the destination asks for more.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Seconds that a cursor may be ahead of the clock, for clocks that are set back a little. Further ahead, nothing is
/// sent until the clock catches up.
const MAX_CURSOR_LEAD_SECONDS: u64 = 120;

/// Sends batches to one destination.
pub struct DestinationSender {
    settings: Settings,
    destination: Arc<Destination>,
    record: Arc<OnceLock<Record>>,
    /// The folder of the cursors; `None` for a record in memory.
    cursor_folder: Option<PathBuf>,
    live_series: LiveSeries,
    clock: Clock,
    jitter: Jitter,
    /// Samples that the destination has accepted, as a metric.
    sent_samples: Counter,
    /// Samples that the destination has refused for good, as a metric.
    refused_samples: Counter,
    /// [`DestinationStatus::behind_seconds`](super::DestinationStatus), as a metric.
    behind_seconds: Gauge,
    /// `None` until the record is open and the cursor is read.
    progress: Option<Progress>,
    /// The certificates that the system trusts, read when a request first needs them and again after a failure.
    system_roots: OnceCell<Roots>,
    /// The batch that is being sent, if there is one.
    pending: Option<OutgoingBatch>,
    /// The end of a batch that an earlier process may have sent without a response. It is not after the cursor if there
    /// is no such batch.
    attempted_until: u64,
    /// Failures since the last success.
    failure_count: u32,
    /// Limits log lines about failed requests.
    failure_log: OutageLog,
    /// Limits log lines about refused samples.
    refusal_log: OutageLog,
    /// Limits log lines about cursors that cannot be saved.
    cursor_log: OutageLog,
}

/// The batch that is being sent.
struct OutgoingBatch {
    batch: Batch,
    /// The requests that remain. The last of the list is sent next.
    requests: Vec<RequestRange>,
    /// Whether the destination has refused any sample for good.
    was_refused: bool,
}

/// The samples of a request that the destination has refused for good.
struct SampleRefusal {
    /// The number of the samples.
    count: u64,
    /// The reason that operators see.
    reason: String,
}

/// The second at which sending stops until more is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchEnd {
    /// The end of the last whole step, as long as the process runs.
    WholeStep,
    /// [`Record::durable_until`], when the process stops.
    LastSecond,
}

impl DestinationSender {
    /// Makes a sender for a destination. `seed` spreads the retries of several senders.
    pub fn new(
        context: &PushContext,
        destination: Arc<Destination>,
        seed: u64,
    ) -> DestinationSender {
        let settings = destination.settings.lock().clone();
        let destination_label = (Label::Destination, settings.name.as_str());
        let sample_counter = |result| {
            let labels = [destination_label, (Label::Result, result)];
            context.registry.counter(Metric::PushSamples, &labels)
        };
        DestinationSender {
            sent_samples: sample_counter("sent"),
            refused_samples: sample_counter("refused"),
            behind_seconds: context
                .registry
                .gauge(Metric::PushLag, &[destination_label]),
            settings,
            destination,
            record: context.record.clone(),
            cursor_folder: context.cursor_folder(),
            live_series: context.live_series.clone(),
            clock: context.clock.clone(),
            jitter: Jitter::new(seed),
            progress: None,
            system_roots: OnceCell::new(),
            pending: None,
            attempted_until: 0,
            failure_count: 0,
            failure_log: OutageLog::default(),
            refusal_log: OutageLog::default(),
            cursor_log: OutageLog::default(),
        }
    }

    /// Sends new seconds as they are recorded. Never returns; the caller drops the future to stop.
    pub async fn run(&mut self) {
        let mut retry_at = Nanos::ZERO;
        loop {
            if self.clock.now() >= retry_at {
                let delay = self.send_batches(BatchEnd::WholeStep).await.err();
                retry_at = delay.map_or(Nanos::ZERO, |delay| self.clock.now().after(delay.into()));
            }
            self.update_lag();
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Sends everything up to [`Record::durable_until`]. Gives up at the first failure. Sends nothing if the record is
    /// not open.
    pub async fn finish(&mut self) {
        let _ = self.send_batches(BatchEnd::LastSecond).await;
    }

    /// Publishes how far behind the destination is. Before that, moves the cursor past the hour that a record in memory
    /// is about to drop. If the cursor moves, drops the pending batch. Does nothing before the cursor is read.
    fn update_lag(&mut self) {
        let (Some(record), Some(progress)) = (self.record.get(), &mut self.progress) else {
            return;
        };
        if progress.skip_dropped_hour(record).unwrap_or(false) {
            self.pending = None;
        }
        let wall_seconds = self.clock.wall().as_secs();
        let behind_seconds = wall_seconds.saturating_sub(progress.cursor.delivered_until);
        self.behind_seconds.set(behind_seconds as f64);
        self.destination.status.lock().behind_seconds = behind_seconds;
    }

    /// Sends batches until none is left, or nothing before the record is open. An error is the delay before the next
    /// attempt; the failure is logged here.
    async fn send_batches(&mut self, end: BatchEnd) -> Result<(), Duration> {
        let record = self.record.clone();
        let Some(record) = record.get() else {
            return Ok(());
        };
        if self.progress.is_none() {
            let progress = self.load_progress(record);
            self.progress = Some(progress.map_err(|reason| self.record_failure(&reason, None))?);
        }
        loop {
            self.update_lag();
            if self.pending.is_none() {
                let batch = self.prepare_batch(record, end);
                self.pending = batch.map_err(|reason| self.record_failure(&reason, None))?;
            }
            if self.pending.is_none() {
                return Ok(());
            }
            while self.send_next_request().await? {}
            self.finish_batch(record);
        }
    }

    /// Sends the next request of the pending batch. Returns whether there was one; an error is the delay before the
    /// next attempt. A request that is refused because of its size, or of some of its seconds, is replaced by its
    /// halves.
    async fn send_next_request(&mut self) -> Result<bool, Duration> {
        let (Some(pending), Some(progress)) = (&mut self.pending, &self.progress) else {
            return Ok(false);
        };
        let Some(next_request) = pending.requests.last_mut() else {
            return Ok(false);
        };
        let request = next_request.clone();
        // This future may be dropped before the response; the request then stays and counts as attempted.
        next_request.was_attempted = true;
        let slice = request.slice(&pending.batch.rows);
        let counted_since = progress.cursor.counted_since;
        let now = self.clock.wall();
        // A reload may have brought another token.
        self.settings.clone_from(&self.destination.settings.lock());
        let roots = &self.system_roots;
        let outcome = deliver(&self.settings, roots, slice, counted_since, now).await;
        let sample_count = slice.sample_count() as u64;
        let all_accepted = (sample_count, None);
        let all_refused = |reason| {
            let count = sample_count;
            (0, Some(SampleRefusal { count, reason }))
        };
        let (halves, (accepted_count, refusal)) = match outcome {
            DeliveryOutcome::Accepted => (None, all_accepted),
            DeliveryOutcome::PartlyAccepted {
                refused_count,
                reason,
            } => {
                let count = refused_count.min(sample_count);
                let refusal = SampleRefusal { count, reason };
                (None, (sample_count - count, Some(refusal)))
            }
            // The destination has the samples from the earlier attempt.
            DeliveryOutcome::Duplicate(_) if request.was_attempted => {
                (request.split_by_time(slice), all_accepted)
            }
            DeliveryOutcome::Duplicate(reason) | DeliveryOutcome::TooOld(reason) => {
                (request.split_by_time(slice), all_refused(reason))
            }
            DeliveryOutcome::Refused(reason) => (None, all_refused(reason)),
            DeliveryOutcome::TooLarge(reason) => match request.split(slice) {
                // A single sample is never too large, so the destination or a proxy is misconfigured.
                None => return Err(self.record_failure(&reason, None)),
                halves => (halves, all_refused(reason)),
            },
            DeliveryOutcome::Retry {
                reason,
                requested_delay,
            } => return Err(self.record_failure(&reason, requested_delay)),
        };
        pending.requests.pop();
        match halves {
            Some((first_half, second_half)) => pending.requests.extend([second_half, first_half]),
            None => self.count_samples(accepted_count, refusal),
        }
        Ok(true)
    }

    /// Counts the accepted and the refused samples of a request, and logs a refusal.
    fn count_samples(&mut self, accepted_count: u64, refusal: Option<SampleRefusal>) {
        self.sent_samples.increment(accepted_count);
        let mut status = self.destination.status.lock();
        status.sent_samples += accepted_count;
        if let Some(SampleRefusal { count, reason }) = refusal {
            if let Some(pending) = &mut self.pending {
                pending.was_refused = true;
            }
            status.last_error = format!("it refuses what is sent: {reason}");
            self.refused_samples.increment(count);
            status.refused_samples += count;
            if self.refusal_log.record_failure(&reason, self.clock.now()) {
                let (name, refused) = (&self.settings.name, status.refused_samples);
                tracing::error!(
                    name,
                    why = reason,
                    refused,
                    "the destination refuses what is pushed"
                );
            }
        }
    }

    /// Builds the next batch, and saves that it is attempted. Returns `None` if there is nothing to send before `end`.
    /// An error is the reason that operators see.
    fn prepare_batch(
        &mut self,
        record: &Record,
        end: BatchEnd,
    ) -> Result<Option<OutgoingBatch>, String> {
        let step_seconds = self.settings.step_seconds;
        let Some(progress) = &mut self.progress else {
            return Ok(None);
        };
        let delivered_until = progress.cursor.delivered_until;
        if delivered_until > self.clock.wall().as_secs() + MAX_CURSOR_LEAD_SECONDS {
            let time = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(delivered_until));
            return Err(format!(
                "the clock was once ahead, and all until {time} was sent: the next is sent after that"
            ));
        }
        let durable_until = record.durable_until();
        let mut until = match end {
            BatchEnd::LastSecond => durable_until,
            BatchEnd::WholeStep => durable_until - durable_until % step_seconds,
        };
        if delivered_until < self.attempted_until {
            // Seconds that the destination may have are not mixed with seconds that it cannot have.
            until = until.min(self.attempted_until);
        }
        if until <= delivered_until {
            return Ok(None);
        }
        let live_series: BTreeSet<Series> = (self.live_series)();
        let batch = progress.next_batch(record, step_seconds, until, &live_series);
        let Some(batch) = batch.map_err(unreadable_record)? else {
            return Ok(None);
        };
        progress.mark_attempted(&batch);
        let cursor = progress.cursor.clone();
        self.save_cursor(&cursor);
        let was_attempted = batch.to <= self.attempted_until;
        let whole_batch = RowSlice {
            rows: &batch.rows,
            from: batch.from,
            to: batch.to,
        };
        Ok(Some(OutgoingBatch {
            requests: split_into_requests(whole_batch, &self.settings.labels, was_attempted),
            batch,
            was_refused: false,
        }))
    }

    /// Reads the cursor that an earlier process or sender saved. Starts with a new one if there is none, or if the file
    /// is damaged, which is then renamed. An error is the reason that operators see; the next attempt loads the cursor
    /// again.
    fn load_progress(&mut self, record: &Record) -> Result<Progress, String> {
        let name = &self.settings.name;
        let load_result = match &self.cursor_folder {
            Some(folder) => Cursor::load(folder, name),
            None => Ok(self.destination.cursor.lock().clone()),
        };
        let load_result = match (load_result, &self.cursor_folder) {
            (Err(error), Some(folder)) if error.kind() == ErrorKind::InvalidData => {
                tracing::error!(name, %error, "the cursor of a destination is of no use and put aside: what it has not got until now is not sent");
                Cursor::set_aside(folder, name).map(|()| None)
            }
            (load_result, _) => load_result,
        };
        let cursor = load_result.map_err(|error| format!("its cursor cannot be read: {error}"))?;
        if let Some(cursor) = cursor {
            let progress = Progress::resume(cursor, record).map_err(unreadable_record)?;
            self.attempted_until = progress.cursor.attempted_until;
            return Ok(progress);
        }
        let now = self.clock.wall().as_secs();
        let progress =
            Progress::start(record, now, self.settings.step_seconds).map_err(unreadable_record)?;
        // A destination that cannot be reached at first then gets everything since this moment.
        self.save_cursor(&progress.cursor);
        Ok(progress)
    }

    /// Saves the cursor to its file, or in memory if there is no folder. A failure is logged and not fatal: the next
    /// batch saves it again.
    fn save_cursor(&mut self, cursor: &Cursor) {
        let Some(folder) = &self.cursor_folder else {
            *self.destination.cursor.lock() = Some(cursor.clone());
            return;
        };
        let name = &self.settings.name;
        match cursor.save(folder, name) {
            Ok(()) => {
                self.cursor_log.record_success();
            }
            Err(error) => {
                let why = error.to_string();
                if self.cursor_log.record_failure(&why, self.clock.now()) {
                    tracing::error!(name, why, "how far a destination has got cannot be kept");
                }
            }
        }
    }

    /// Moves the cursor to the end of the pending batch, of which no request remains, and saves it.
    fn finish_batch(&mut self, record: &Record) {
        let (Some(pending), Some(progress)) = (self.pending.take(), &mut self.progress) else {
            return;
        };
        let advanced = progress.advance(pending.batch, record);
        let cursor = progress.cursor.clone();
        let name = &self.settings.name;
        if let Err(error) = advanced {
            // The cursor has moved; only its base has not, and the next batch updates that again.
            tracing::error!(name, %error, "the record cannot be read");
        }
        self.failure_count = 0;
        if self.failure_log.record_success() {
            tracing::info!(name, "the destination is pushed to again");
        }
        if !pending.was_refused {
            self.destination.status.lock().last_error.clear();
        }
        self.save_cursor(&cursor);
    }

    /// Records a failure, and logs it as [`OutageLog`] says. Returns the delay before the next attempt. The delay is at
    /// least the one that the destination requests.
    fn record_failure(&mut self, why: &str, requested_delay: Option<Duration>) -> Duration {
        // The roots of the system may have been renewed since they were read.
        self.system_roots.take();
        let doubled_delay =
            MIN_RETRY_DELAY.saturating_mul(2_u32.saturating_pow(self.failure_count));
        self.failure_count = self.failure_count.saturating_add(1);
        // The jitter adds at most a quarter. So four fifths of the longest delay stay within that delay.
        let delay = self
            .jitter
            .around(doubled_delay.min(MAX_RETRY_DELAY * 4 / 5));
        let mut status = self.destination.status.lock();
        why.clone_into(&mut status.last_error);
        if self.failure_log.record_failure(why, self.clock.now()) {
            let (name, behind) = (&self.settings.name, status.behind_seconds);
            tracing::warn!(
                name,
                why,
                behind,
                "nothing can be pushed; it is kept and sent later"
            );
        }
        let requested_delay = requested_delay.unwrap_or_default();
        delay.max(MIN_RETRY_DELAY).max(requested_delay)
    }
}

/// Describes a failure to read the record, as operators see it.
fn unreadable_record(error: io::Error) -> String {
    format!("the record cannot be read: {error}")
}
