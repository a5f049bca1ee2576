//! The thread that sends spans to the collector, in batches.
//!
//! A batch that the collector may take later is sent again, at most [`MAX_ATTEMPTS`] times in all. Meanwhile the queue
//! fills, and what it has no room for is lost. So a collector that is away costs memory and work within bounds.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http::StatusCode;
use metrics::Counter;
use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::settings::Settings;
use super::span::encode_spans;
use super::span_queue::{SpanBatch, SpanQueue};
use crate::base::clock::Clock;
use crate::base::otlp::{HEADER_FIELDS, rejected_items};
use crate::base::random::Jitter;
use crate::base::telemetry::{Label, Metric, OutageLog, Registry};
use crate::net::Roots;
use crate::net::export::{describe_causes, first_line, parse_retry_after, post};

/// The longest time that a span waits for others before it is sent.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time for connecting, sending a batch and reading the response, together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is sent at most.
const MAX_ATTEMPTS: u32 = 3;
/// The mean time before a batch is sent a second time. It doubles for the third.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest delay that the collector may ask for. Spans are lost meanwhile.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The longest time that a stopping process sends the last spans.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// What the thread needs of the process.
pub struct ExporterContext {
    /// The collector.
    pub settings: Settings,
    /// The metrics of the process, in which spans are counted.
    pub registry: Registry,
    /// The clock by which outages are logged, and dates in `Retry-After` are understood.
    pub clock: Clock,
    /// The seed that spreads the retries of several gateways over time.
    pub seed: u64,
}

/// A handle to the thread.
pub struct Exporter {
    /// Where workers put spans.
    queue: Arc<SpanQueue>,
    settings: Arc<Mutex<Settings>>,
    /// Sending `true` stops the thread.
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the thread. If its runtime cannot be built, that is logged, and all spans are lost.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn start(context: ExporterContext) -> io::Result<Exporter> {
        let count = |result| {
            let labels = [(Label::Result, result)];
            context.registry.counter(Metric::Spans, &labels)
        };
        let queue = Arc::new(SpanQueue::new(count("lost")));
        let settings = Arc::new(Mutex::new(context.settings));
        let (stop, stopped) = watch::channel(false);
        let mut sender = SpanSender {
            queue: queue.clone(),
            settings: settings.clone(),
            clock: context.clock,
            jitter: Jitter::new(context.seed),
            system_roots: OnceCell::new(),
            outage_log: OutageLog::default(),
            current_batch: None,
            sent_spans: count("sent"),
            refused_spans: count("refused"),
            lost_spans: count("lost"),
        };
        let build_runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let thread =
            thread::Builder::new()
                .name("traces".into())
                .spawn(move || match build_runtime() {
                    Ok(runtime) => {
                        runtime.block_on(sender.run_until_stopped(stopped));
                        // A DNS lookup that still runs must not delay the end of the process.
                        runtime.shutdown_background();
                    }
                    Err(error) => tracing::error!(%error, "no traces can be sent"),
                })?;
        Ok(Exporter {
            queue,
            settings,
            stop,
            thread,
        })
    }

    /// The queue, for a worker.
    pub fn queue(&self) -> Arc<SpanQueue> {
        self.queue.clone()
    }

    /// Takes over the token and the roots from reloaded settings, unless they are of another collector.
    pub fn update_settings(&self, reloaded: &Settings) {
        let mut settings = self.settings.lock();
        if settings.is_same_destination(reloaded) {
            settings.clone_from(reloaded);
        }
    }

    /// Stops the thread, and waits until it has ended. Before that it sends the spans that wait, for at most
    /// [`FINISH_TIMEOUT`].
    pub fn finish(self) {
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread that sends traces panicked");
        }
    }
}

/// What became of a batch that was sent.
enum ExportOutcome {
    /// The collector has all spans but `refused_count`.
    Accepted { refused_count: u64, reason: String },
    /// The collector will never take the batch.
    Refused(String),
    /// The collector may take the batch later.
    Retry {
        reason: String,
        /// The delay that the collector asks for, at most [`MAX_RETRY_AFTER`]; `None` if it asks for none.
        requested_delay: Option<Duration>,
    },
}

/// What the thread works with.
struct SpanSender {
    queue: Arc<SpanQueue>,
    settings: Arc<Mutex<Settings>>,
    clock: Clock,
    jitter: Jitter,
    /// The certificates that the system trusts, once a request has needed them.
    system_roots: OnceCell<Roots>,
    outage_log: OutageLog,
    /// The batch that is being sent; `None` between two batches.
    current_batch: Option<SpanBatch>,
    sent_spans: Counter,
    refused_spans: Counter,
    lost_spans: Counter,
}

impl SpanSender {
    /// Sends batches until the thread is to stop, and then the spans that are left.
    async fn run_until_stopped(&mut self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            () = self.send_forever() => {}
            _ = stopped.changed() => {}
        }
        let _ = tokio::time::timeout(FINISH_TIMEOUT, self.send_rest()).await;
        let left = std::iter::from_fn(|| {
            self.current_batch
                .take()
                .or_else(|| self.queue.take_batch())
        });
        self.lost_spans
            .increment(left.map(|batch| batch.span_count).sum());
    }

    /// Sends what waits, each [`EXPORT_INTERVAL`] and whenever a batch is full.
    async fn send_forever(&mut self) {
        loop {
            // Those that come meanwhile wait for others, or each request would open a connection for a few spans.
            let due_count = tokio::select! {
                () = tokio::time::sleep(EXPORT_INTERVAL) => self.queue.batch_count(),
                () = self.queue.has_full_batch.notified() => {
                    self.queue.batch_count().saturating_sub(1)
                }
            };
            for _ in 0..due_count {
                self.current_batch = self.queue.take_batch();
                self.send_current(MAX_ATTEMPTS).await;
            }
        }
    }

    /// Sends the batches that wait, each once.
    async fn send_rest(&mut self) {
        loop {
            if self.current_batch.is_none() {
                self.current_batch = self.queue.take_batch();
            }
            if self.current_batch.is_none() {
                return;
            }
            self.send_current(1).await;
        }
    }

    /// Sends the current batch at most `max_attempts` times, and counts what became of it.
    async fn send_current(&mut self, max_attempts: u32) {
        for attempt in 1.. {
            let Some(batch) = &self.current_batch else {
                return;
            };
            let span_count = batch.span_count;
            let reason = match self.export(batch).await {
                ExportOutcome::Accepted {
                    refused_count,
                    reason,
                } => {
                    let refused_count = refused_count.min(span_count);
                    self.sent_spans.increment(span_count - refused_count);
                    self.refused_spans.increment(refused_count);
                    if refused_count == 0 && self.outage_log.record_success() {
                        tracing::info!(to = self.display_url(), "traces are sent again");
                    }
                    (refused_count > 0).then_some(reason)
                }
                ExportOutcome::Refused(reason) => {
                    self.refused_spans.increment(span_count);
                    Some(reason)
                }
                ExportOutcome::Retry {
                    requested_delay, ..
                } if attempt < max_attempts => {
                    let delay = self.jitter.around(RETRY_DELAY * attempt);
                    tokio::time::sleep(requested_delay.unwrap_or(delay)).await;
                    continue;
                }
                ExportOutcome::Retry { reason, .. } => {
                    self.lost_spans.increment(span_count);
                    Some(reason)
                }
            };
            self.current_batch = None;
            if let Some(reason) = reason {
                self.log_failure(&reason);
            }
        }
    }

    /// Sends a batch once.
    async fn export(&self, batch: &SpanBatch) -> ExportOutcome {
        let settings = self.settings.lock().clone();
        let body = encode_spans(&batch.encoded_spans, &settings.service);
        let credentials = (settings.token.as_deref(), settings.roots.as_ref());
        let sending = post(
            &settings.url,
            credentials,
            &self.system_roots,
            &HEADER_FIELDS,
            body,
        );
        let retry = |reason| ExportOutcome::Retry {
            reason,
            requested_delay: None,
        };
        let response = match tokio::time::timeout(REQUEST_TIMEOUT, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return retry(describe_causes(&*error)),
            Err(_) => return retry("no answer in time".into()),
        };
        let status = response.status();
        if status.is_success() {
            let (refused_count, reason) = rejected_items(response.body()).unwrap_or_default();
            return ExportOutcome::Accepted {
                refused_count,
                reason: match first_line(reason.as_bytes()) {
                    empty if empty.is_empty() => "it rejects spans".into(),
                    line => line,
                },
            };
        }
        let reason = format!("it answers {}", status.as_u16());
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => ExportOutcome::Retry {
                reason,
                requested_delay: parse_retry_after(
                    response.headers(),
                    self.clock.wall(),
                    MAX_RETRY_AFTER,
                ),
            },
            _ => ExportOutcome::Refused(reason),
        }
    }

    fn display_url(&self) -> String {
        self.settings.lock().display_url.clone()
    }

    /// Logs that spans are lost or refused, not for each batch.
    fn log_failure(&mut self, reason: &str) {
        if self.outage_log.record_failure(reason, self.clock.now()) {
            tracing::warn!(to = self.display_url(), reason, "traces are lost");
        }
    }
}
