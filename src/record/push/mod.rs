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
mod piece;
mod proto;
pub mod remote_write;
pub mod row;
mod sender;
mod told;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use self::cursor::Cursor;
use self::sender::Sender;
use self::told::Told;
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::net::Roots;
use crate::record::{Record, Series};

/// Most destinations.
pub const MOST: usize = 16;

/// How long a process that ends goes on sending.
const LAST: Duration = Duration::from_secs(2);
/// How often is looked whether another process has ended.
const LOOK: Duration = Duration::from_millis(500);
/// How long a destination waits whose task panicked.
const ANEW: Duration = Duration::from_secs(1);

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
    /// The URL as people may see it: without what was filled in.
    pub shown: String,
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

    /// Whether they differ in nothing but what a reload can change: the token and who vouches for the other side.
    pub fn same(&self, other: &Settings) -> bool {
        let (token, roots) = (other.token.clone(), other.roots.clone());
        *other
            == Settings {
                token,
                roots,
                ..self.clone()
            }
    }
}

// The token is nobody's business.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} at {}", self.name, self.engine, self.shown)
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

impl Start {
    /// Where cursors are kept.
    fn cursors(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join("push"))
    }
}

/// What the thread and others know of a destination.
struct Destination {
    settings: Mutex<Settings>,
    status: Mutex<Status>,
    /// Its cursor, where there is no folder.
    kept: Mutex<Option<Cursor>>,
}

impl Destination {
    fn new(settings: Settings) -> Arc<Destination> {
        let status = Status {
            name: settings.name.clone(),
            engine: settings.engine,
            url: settings.shown.clone(),
            behind_seconds: 0,
            sent: 0,
            refused: 0,
            trouble: String::new(),
        };
        Arc::new(Destination {
            settings: Mutex::new(settings),
            status: Mutex::new(status),
            kept: Mutex::default(),
        })
    }
}

/// See the module.
pub struct Push {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    destinations: Vec<Arc<Destination>>,
}

impl Push {
    /// Starts its thread.
    pub fn start(start: Start) -> io::Result<Push> {
        let (stop, stopped) = watch::channel(false);
        let settings = start.settings.iter().cloned();
        let destinations: Vec<_> = settings.map(Destination::new).collect();
        let all = destinations.clone();
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let work = move || match runtime() {
            Ok(runtime) => {
                runtime.block_on(run(Rc::new(start), all, stopped));
                // A name that is being looked up must not hold the end up.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "nothing can be pushed"),
        };
        let thread = thread::Builder::new().name("push".into()).spawn(work)?;
        Ok(Push {
            stop,
            thread,
            destinations,
        })
    }

    /// Goes on with the tokens and the roots of these, where they are destinations that there are.
    pub fn renew(&self, settings: &[Settings]) {
        for destination in &self.destinations {
            let mut own = destination.settings.lock();
            if let Some(renewed) = settings.iter().find(|settings| settings.same(&own)) {
                own.clone_from(renewed);
            }
        }
    }

    /// How each destination does.
    pub fn status(&self) -> Vec<Status> {
        let all = self.destinations.iter();
        all.map(|one| one.status.lock().clone()).collect()
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
    start: Rc<Start>,
    destinations: Vec<Arc<Destination>>,
    mut stopped: watch::Receiver<bool>,
) {
    // One process at a time: of two that push the same seconds, each takes the other's for its own.
    let mut trouble = String::new();
    let _lock = loop {
        if start.record.get().is_some() {
            match start.cursors().as_deref().map(lock).transpose() {
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
    let tasks = destinations.into_iter().zip(0..).map(|(one, place)| {
        let seed = start.seed ^ place;
        tokio::task::spawn_local(look_after(start.clone(), one, seed, stopped.clone()))
    });
    for task in tasks.collect::<Vec<_>>() {
        let _ = task.await;
    }
}

/// Sends to a destination until the end. What panics has said so, and goes on from where the cursor is.
async fn look_after(
    start: Rc<Start>,
    destination: Arc<Destination>,
    seed: u64,
    mut stopped: watch::Receiver<bool>,
) {
    let mut panics = Told::default();
    loop {
        let mut sender = Sender::new(&start, destination.clone(), seed);
        let mut ended = stopped.clone();
        let task = tokio::task::spawn_local(async move {
            tokio::select! {
                () = sender.run() => {}
                _ = ended.changed() => {}
            }
            // What is left is sent by the next process, where there is a folder.
            let _ = tokio::time::timeout(LAST, sender.finish()).await;
        });
        if task.await.is_ok() {
            return;
        }
        let name = destination.settings.lock().name.clone();
        if panics.fails("it panicked", start.clock.now()) {
            tracing::error!(
                name,
                "what pushes to a destination panicked; it is begun again"
            );
        }
        destination.status.lock().trouble = "it panicked, and is begun again".to_owned();
        tokio::select! {
            () = tokio::time::sleep(ANEW) => {}
            _ = stopped.changed() => return,
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
