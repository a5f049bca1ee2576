//! The thread that writes the access log: takes batches of lines from the workers and writes them to a file or a standard
//! stream.
//!
//! Lines that cannot be written, or for which the queue has no room, are counted and never written later. If a write
//! fails midway, all lines of its batch count. Failed writes are reported in the gateway's own log too. Bounds: at most
//! [`MAX_QUEUED_BATCHES`] batches wait for the thread. When the gateway ends, the thread has [`SHUTDOWN_TIMEOUT`] to
//! write them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use metrics::Counter;

use super::log_file::LogFile;
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Metric, Registry};
use crate::policy::{
    AccessLogSettings,
    settings::{LogDestination, LogFormat, LoggedField, LoggedRequests},
};

/// Maximum number of batches that wait for the thread. Further batches are dropped.
pub const MAX_QUEUED_BATCHES: usize = 128;

/// How long the thread sleeps once no batch waits. Waking it for each batch would cost as much as writing the batch.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(10);

/// How far the thread stands back behind the workers, which would wait for it where they share its core: 0 to 19, see
/// setpriority(2). With 10 it gets a tenth of a core that a worker fills, and writes ten times what such a worker logs.
const NICENESS: i32 = 10;

/// Longest wait for the last batches to be written when the gateway ends.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Shortest time between two reports of failed writes, except for the last report when the gateway ends.
pub const LOSS_REPORT_INTERVAL: Nanos = Nanos::from_secs(60);

/// Hands lines to the thread that writes. Each worker has a clone.
#[derive(Clone)]
pub struct LogWriter {
    /// Which requests are logged.
    pub logged_requests: LoggedRequests,
    /// The form of a line.
    pub format: LogFormat,
    /// The members of lines that the gateway file lists: [`AccessLogSettings::fields`].
    pub fields: Arc<[LoggedField]>,
    batch_sender: SyncSender<Vec<u8>>,
    /// Counts the lines of batches for which the queue had no room. The thread counts failed writes in the same metric.
    lost_lines: Counter,
}

/// Waits for the end of the thread that writes.
#[derive(Debug)]
pub struct LogWriterEnd(Receiver<()>);

impl LogWriterEnd {
    /// Waits until everything is written, at most [`SHUTDOWN_TIMEOUT`]; false if that was not enough. The thread ends only
    /// once every [`LogWriter`] is dropped.
    pub fn wait(self) -> bool {
        self.0.recv_timeout(SHUTDOWN_TIMEOUT) == Err(RecvTimeoutError::Disconnected)
    }
}

impl LogWriter {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, its folder cannot be written though the file is to be rotated, or no thread can be
    /// started.
    pub fn start(
        settings: &AccessLogSettings,
        registry: &Registry,
    ) -> io::Result<(LogWriter, LogWriterEnd)> {
        let (output, loss_report) = match &settings.destination {
            LogDestination::File { path, rotation } => (
                LogOutput::File(LogFile::open(path, *rotation)?),
                LossReport::new(&path.display().to_string()),
            ),
            LogDestination::Stdout => (
                LogOutput::Stdout(io::stdout()),
                LossReport::new("standard output"),
            ),
            LogDestination::Stderr => (
                LogOutput::Stderr(io::stderr()),
                LossReport::new("standard error"),
            ),
        };
        let (batch_sender, batch_queue) = sync_channel(MAX_QUEUED_BATCHES);
        let lost_lines = registry.counter(Metric::LogLinesLost, &[]);
        let unwritten_lines = lost_lines.clone();
        let (end_sender, end_receiver) = sync_channel(0);
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                // Dropped when the thread ends, which `LogWriterEnd` waits for.
                let _end_sender: SyncSender<()> = end_sender;
                write_batches(&batch_queue, output, loss_report, &unwritten_lines);
            })?;
        let writer = LogWriter {
            logged_requests: settings.requests,
            format: settings.format,
            fields: settings.fields.clone(),
            batch_sender,
            lost_lines,
        };
        Ok((writer, LogWriterEnd(end_receiver)))
    }

    /// Makes the thread reopen the file if its path leads elsewhere by now.
    pub fn reopen(&self) {
        // The path is checked before each batch, so an empty batch is enough. A full queue has batches before which it is
        // checked anyway.
        self.send_batch(Vec::new());
    }

    /// Hands a batch of lines to the thread. If the queue is full, the lines of the batch are counted as lost.
    pub fn send_batch(&self, batch: Vec<u8>) {
        if let Err(error) = self.batch_sender.try_send(batch) {
            let (TrySendError::Full(batch) | TrySendError::Disconnected(batch)) = error;
            self.lost_lines.increment(count_lines(&batch));
        }
    }
}

/// Writes batches until every [`LogWriter`] is dropped.
fn write_batches(
    batch_queue: &Receiver<Vec<u8>>,
    mut output: LogOutput,
    mut loss_report: LossReport,
    lost_lines: &Counter,
) {
    // On Linux this is the thread's own. A system that refuses it has a log all the same.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    while let Ok(first_batch) = batch_queue.recv() {
        for batch in std::iter::once(first_batch).chain(batch_queue.try_iter()) {
            if let Err(error) = output.write_batch(&batch) {
                lost_lines.increment(count_lines(&batch));
                loss_report.add_lost_lines(count_lines(&batch), &error);
            }
            loss_report.log_if_due();
        }
        thread::sleep(WRITE_INTERVAL);
    }
    loss_report.log();
}

/// Where lines are written.
enum LogOutput {
    File(LogFile),
    Stdout(io::Stdout),
    Stderr(io::Stderr),
}

impl LogOutput {
    /// Writes a whole batch; a file is reopened or rotated first if that is due.
    fn write_batch(&mut self, batch: &[u8]) -> io::Result<()> {
        match self {
            LogOutput::File(file) => {
                file.reopen_or_rotate(batch.len() as u64);
                file.write_all(batch)
            }
            LogOutput::Stdout(out) => out.write_all(batch).and_then(|()| out.flush()),
            LogOutput::Stderr(out) => out.write_all(batch),
        }
    }
}

/// The number of lines that could not be written and have not been reported in the gateway's own log yet.
struct LossReport {
    /// The path or the name of the log, for the message.
    destination: String,
    clock: Clock,
    /// When a report was logged last; `None` before the first one.
    last_logged_at: Option<Nanos>,
    line_count: u64,
    /// The error of the last batch that could not be written.
    cause: String,
}

impl LossReport {
    fn new(destination: &str) -> LossReport {
        LossReport {
            destination: destination.to_owned(),
            clock: Clock::system(),
            last_logged_at: None,
            line_count: 0,
            cause: String::new(),
        }
    }

    fn add_lost_lines(&mut self, line_count: u64, error: &io::Error) {
        self.line_count += line_count;
        self.cause = error.to_string();
    }

    /// Logs the first loss at once, and further losses at most once in each [`LOSS_REPORT_INTERVAL`].
    fn log_if_due(&mut self) {
        let now = self.clock.now();
        let is_due = self
            .last_logged_at
            .is_none_or(|last_logged_at| now.since(last_logged_at) >= LOSS_REPORT_INTERVAL);
        if self.line_count > 0 && is_due {
            self.last_logged_at = Some(now);
            self.log();
        }
    }

    fn log(&mut self) {
        let lines = std::mem::take(&mut self.line_count);
        if lines > 0 {
            let (file, cause) = (&self.destination, &self.cause);
            tracing::error!(file, cause, lines, "access log lines are lost");
        }
    }
}

/// Checks that a log can be written to this path, as far as that is possible without creating the file.
///
/// # Errors
///
/// The path is a folder, its parent folder is missing, or the system refuses to look at the path or to open the file.
pub fn check_log_path(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("it is a folder".into()),
        Ok(metadata) if metadata.is_file() => match OpenOptions::new().append(true).open(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        // Opening a pipe would wait for its other end.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            if folder.is_none_or(Path::is_dir) {
                Ok(())
            } else {
                Err("its folder does not exist".into())
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

fn count_lines(batch: &[u8]) -> u64 {
    batch.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_batches_are_written_in_order_and_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let settings = AccessLogSettings {
            requests: LoggedRequests::All,
            destination: LogDestination::File {
                path: file.clone(),
                rotation: None,
            },
            format: LogFormat::Json,
            fields: Arc::default(),
        };
        let (writer, end) = LogWriter::start(&settings, &Registry::default()).unwrap();
        let batches = (0..3 * MAX_QUEUED_BATCHES).map(|number| format!("{number}\n"));
        for batch in batches.clone() {
            writer.batch_sender.send(batch.into()).unwrap();
        }
        drop(writer);
        assert!(end.wait());
        assert_eq!(
            fs::read_to_string(file).unwrap(),
            batches.collect::<String>()
        );
    }
}
