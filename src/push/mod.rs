//! Pushing: what the record knows, sent to engines that keep and draw it for many gateways.
//!
//! The record is the queue. For each destination there is a [`cursor`] that says which seconds it has, and what is behind is
//! sent in the order of time, in [batches](batch), by one of three protocols: [`remote_write`], [`graphite`], [`otlp`]. All
//! of it happens on one thread, which nothing waits for. See `batch.rs` for why nothing is lost or counted twice.
//!
//! Bounds: [`MOST`] destinations; for each one batch of at most some 5,000 samples in memory, and two numbers for each series.

pub mod batch;
pub mod cursor;
mod deliver;
pub mod graphite;
pub mod otlp;
mod proto;
pub mod remote_write;
pub mod row;
mod sender;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use self::sender::Sender;
use crate::clock::Clock;
use crate::net::Roots;
use crate::record::{Record, Series};
use crate::telemetry::Registry;

/// Most destinations.
pub const MOST: usize = 16;

/// How long a process that ends goes on sending.
const LAST: Duration = Duration::from_secs(2);
/// How often is looked whether another process has ended.
const LOOK: Duration = Duration::from_millis(500);

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Prometheus remote write, which VictoriaMetrics and others take too.
    Prometheus,
    /// Graphite's line protocol.
    Graphite,
    /// OTLP over HTTP.
    Otlp,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::Prometheus, Engine::Graphite, Engine::Otlp];

    /// As files write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Engine::Prometheus => "prometheus",
            Engine::Graphite => "graphite",
            Engine::Otlp => "otlp",
        }
    }

    /// How its URLs begin.
    pub const fn schemes(self) -> &'static [&'static str] {
        match self {
            Engine::Prometheus | Engine::Otlp => &["http", "https"],
            Engine::Graphite => &["tcp"],
        }
    }

    /// A right URL.
    pub const fn example(self) -> &'static str {
        match self {
            Engine::Prometheus => "http://prom:9090/api/v1/write",
            Engine::Graphite => "tcp://carbon:2003",
            Engine::Otlp => "http://collector:4318/v1/metrics",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A destination.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its name: of its cursor, in metrics, in the log.
    pub name: String,
    /// What it speaks.
    pub engine: Engine,
    /// Where it is; has a host, and for Graphite a port.
    pub url: Uri,
    /// Seconds of a step: a sample of each series is sent for each of them.
    pub every: u64,
    /// What is sent as a bearer token.
    pub token: Option<String>,
    /// Who vouches for its certificate; else those whom the system trusts.
    pub roots: Option<Roots>,
    /// What every series is labelled with, to tell gateways apart.
    pub labels: Vec<(String, String)>,
}

impl Settings {
    /// Shortest step, in seconds.
    pub const SHORTEST: u64 = 1;
    /// Longest step.
    pub const LONGEST: u64 = 3_600;
    /// Where nobody says how long.
    pub const USUAL: u64 = 15;
}

// The token is nobody's business.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} at {}", self.name, self.engine, self.url)
    }
}

/// How a destination does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// What it speaks.
    pub engine: Engine,
    /// Where it is.
    pub url: String,
    /// Seconds that it does not have yet.
    pub behind_seconds: u64,
    /// Samples that it has taken.
    pub sent: u64,
    /// Samples that it has refused.
    pub refused: u64,
    /// Why it gets nothing now; nothing when it does.
    pub trouble: String,
}

/// The series that there are now, which are sent even while nothing happens in them.
pub type Living = Arc<dyn Fn() -> BTreeSet<Series> + Send + Sync>;

/// What pushing needs.
pub struct Start {
    /// The destinations.
    pub settings: Vec<Settings>,
    /// The record, once this process has it.
    pub record: Arc<OnceLock<Record>>,
    /// The record's folder; without one, cursors are forgotten with the process.
    pub folder: Option<PathBuf>,
    /// The series that there are.
    pub living: Living,
    /// Time.
    pub clock: Clock,
    /// Where it is counted.
    pub registry: Registry,
    /// Spreads what several gateways do over time.
    pub seed: u64,
}

/// See the module.
pub struct Push {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    status: Vec<Arc<Mutex<Status>>>,
}

impl Push {
    /// Starts its thread.
    pub fn start(start: Start) -> io::Result<Push> {
        let (stop, stopped) = watch::channel(false);
        let folder = start.folder.as_ref().map(|folder| folder.join("push"));
        let destinations = start.settings.iter().enumerate();
        let senders: Vec<Sender> = destinations
            .map(|(place, settings)| {
                Sender::new(&start, settings, folder.clone(), start.seed ^ place as u64)
            })
            .collect();
        let status = senders.iter().map(Sender::status).collect();
        let record = start.record;
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let work = move || match runtime() {
            Ok(runtime) => {
                runtime.block_on(run(folder.as_deref(), &record, senders, stopped));
                // A name that is being looked up must not hold the end up.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "nothing can be pushed"),
        };
        let thread = thread::Builder::new().name("push".into()).spawn(work)?;
        Ok(Push {
            stop,
            thread,
            status,
        })
    }

    /// How each destination does.
    pub fn status(&self) -> Vec<Status> {
        let status = self.status.iter();
        status.map(|status| status.lock().clone()).collect()
    }

    /// Sends what has been recorded until now, if that takes no longer than two seconds.
    pub fn finish(self) {
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread that pushes panicked");
        }
    }
}

async fn run(
    folder: Option<&Path>,
    record: &OnceLock<Record>,
    senders: Vec<Sender>,
    mut stopped: watch::Receiver<bool>,
) {
    // One process at a time: of two that push the same seconds, each takes the other's for its own.
    let mut trouble = String::new();
    let _lock = loop {
        if record.get().is_some() {
            match folder.map(lock).transpose() {
                Ok(None) => break None,
                Ok(Some(Some(lock))) => break Some(lock),
                Ok(Some(None)) => {}
                Err(error) if error.to_string() == trouble => {}
                Err(error) => {
                    trouble = error.to_string();
                    tracing::error!(trouble, "nothing is pushed: cursors cannot be kept");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopped.changed() => return,
        }
    };
    let tasks = senders.into_iter().map(|mut sender| {
        let mut stopped = stopped.clone();
        tokio::task::spawn_local(async move {
            tokio::select! {
                () = sender.run() => {}
                _ = stopped.changed() => {}
            }
            // What is left is sent by the next process, where there is a folder.
            let _ = tokio::time::timeout(LAST, sender.finish()).await;
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        if task.await.is_err() {
            tracing::error!("what pushes to a destination panicked");
        }
    }
}

/// Locks the cursors; nothing while another process has them.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join(".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
