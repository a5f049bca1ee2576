//! The thread that writes the access log.
//!
//! Bounds: [`QUEUE`] pieces waiting for it, which it looks for again after [`PACE`], and [`LAST`] for all of them when
//! the gateway ends.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use metrics::Counter;

use super::file::LogFile;
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Metric, Registry};
use crate::policy::{
    AccessLog,
    settings::{LogTo, Logged},
};

/// Pieces that may wait for the writer.
pub const QUEUE: usize = 128;

/// How long the writer leaves pieces waiting once it has written all there were: to be woken for each costs as much as
/// to write it.
pub const PACE: Duration = Duration::from_millis(10);

/// Longest wait for what is still to be written at the end.
pub const LAST: Duration = Duration::from_secs(2);

/// Between two reports of lines that could not be written.
pub const PAUSE: Nanos = Nanos::from_secs(60);

/// The thread that writes; shared by all workers.
#[derive(Clone)]
pub struct LogWriter {
    /// Which requests are logged.
    pub requests: Logged,
    pieces: SyncSender<Vec<u8>>,
    dropped: Counter,
}

/// Tells when the thread that writes has ended.
#[derive(Debug)]
pub struct LogWriterEnd(Receiver<()>);

impl LogWriterEnd {
    /// Waits until everything is written, at most [`LAST`]; false when that was not enough. Comes to
    /// an end only once every [`LogWriter`] is gone.
    pub fn wait(self) -> bool {
        self.0.recv_timeout(LAST) == Err(RecvTimeoutError::Disconnected)
    }
}

impl LogWriter {
    /// Opens the file and starts the thread.
    pub fn start(
        settings: &AccessLog,
        registry: &Registry,
    ) -> io::Result<(LogWriter, LogWriterEnd)> {
        let (mut out, mut losses) = match &settings.to {
            LogTo::File { path, rotate } => (
                Out::File(LogFile::open(path, *rotate)?),
                Losses::new(&path.display().to_string()),
            ),
            LogTo::Stdout => (Out::Stdout(io::stdout()), Losses::new("standard output")),
            LogTo::Stderr => (Out::Stderr(io::stderr()), Losses::new("standard error")),
        };
        let (pieces, waiting): (_, Receiver<Vec<u8>>) = sync_channel(QUEUE);
        let dropped = registry.counter(Metric::LogDropped, &[]);
        let lost = dropped.clone();
        let (end, written) = sync_channel(0);
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                let _end: SyncSender<()> = end;
                while let Ok(first) = waiting.recv() {
                    for piece in std::iter::once(first).chain(waiting.try_iter()) {
                        if let Err(error) = out.write(&piece) {
                            lost.increment(lines(&piece));
                            losses.add(lines(&piece), &error);
                        }
                        losses.report_if_due();
                    }
                    thread::sleep(PACE);
                }
                losses.report();
            })?;
        let writer = LogWriter {
            requests: settings.requests,
            pieces,
            dropped,
        };
        Ok((writer, LogWriterEnd(written)))
    }

    /// Reopens the file if its path leads elsewhere by now.
    pub fn reopen(&self) {
        // Looked at before each piece, so also where there is no room for this one.
        self.hand_over(Vec::new());
    }

    /// Hands lines over. Counts those for which there is no room.
    pub fn hand_over(&self, piece: Vec<u8>) {
        if let Err(refused) = self.pieces.try_send(piece) {
            let (TrySendError::Full(piece) | TrySendError::Disconnected(piece)) = refused;
            self.dropped.increment(lines(&piece));
        }
    }
}

/// Where lines go.
enum Out {
    File(LogFile),
    Stdout(io::Stdout),
    Stderr(io::Stderr),
}

impl Out {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Out::File(file) => {
                file.follow(piece.len() as u64);
                file.write_all(piece)
            }
            Out::Stdout(out) => out.write_all(piece).and_then(|()| out.flush()),
            Out::Stderr(out) => out.write_all(piece),
        }
    }
}

/// Lines that could not be written and are not reported yet.
struct Losses {
    file: String,
    clock: Clock,
    reported: Option<Nanos>,
    lines: u64,
    cause: String,
}

impl Losses {
    fn new(file: &str) -> Losses {
        Losses {
            file: file.to_owned(),
            clock: Clock::system(),
            reported: None,
            lines: 0,
            cause: String::new(),
        }
    }

    fn add(&mut self, lines: u64, error: &io::Error) {
        self.lines += lines;
        self.cause = error.to_string();
    }

    /// The first time at once, then once in [`PAUSE`].
    fn report_if_due(&mut self) {
        let now = self.clock.now();
        if self.lines > 0
            && self
                .reported
                .is_none_or(|reported| now.since(reported) >= PAUSE)
        {
            self.reported = Some(now);
            self.report();
        }
    }

    fn report(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines > 0 {
            let (file, cause) = (&self.file, &self.cause);
            tracing::error!(file, cause, lines, "access log lines are lost");
        }
    }
}

/// Whether a log can be written to this path, as far as can be seen without making it.
///
/// # Errors
///
/// It is a folder, its own folder is missing, or the system refuses to open it.
pub fn usable(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => Err("it is a folder".into()),
        Ok(kind) if kind.is_file() => match OpenOptions::new().append(true).open(path) {
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

fn lines(piece: &[u8]) -> u64 {
    piece.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pieces_are_written_in_order_and_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let settings = AccessLog {
            requests: Logged::All,
            to: LogTo::File {
                path: file.clone(),
                rotate: None,
            },
        };
        let (writer, written) = LogWriter::start(&settings, &Registry::default()).unwrap();
        let pieces = (0..3 * QUEUE).map(|number| format!("{number}\n"));
        for piece in pieces.clone() {
            writer.pieces.send(piece.into()).unwrap();
        }
        drop(writer);
        assert!(written.wait());
        assert_eq!(
            fs::read_to_string(file).unwrap(),
            pieces.collect::<String>()
        );
    }
}
