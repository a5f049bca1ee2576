//! A running gateway: what it consists of, and what can be read of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use socket2::Socket;

use super::events;
use super::figures::Figures;
use super::recording::MetricsRecorder;
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::identity::Keyer;
use crate::net::Address;
use crate::net::socket::set_unacked_timeout;
use crate::net::tls::acme::Acme;
use crate::net::tls::config::Tickets;
use crate::net::unix::SocketFile;
use crate::policy::{Process, Ruleset};
use crate::record::insight::Change;
use crate::record::push;
use crate::record::push::Push;
use crate::serve::access::{LogWriter, LogWriterEnd};
use crate::serve::worker::generation::Running;
use crate::serve::worker::run::Handle;
use crate::store;
use crate::store::shared::Keeper;
use crate::store::{Memory, Shared};

/// A running gateway.
pub struct App {
    pub(super) config: PathBuf,
    pub(super) fingerprint: u64,
    pub(super) process: Process,
    pub(super) keyer: Keyer,
    pub(super) tickets: Tickets,
    pub(super) acme: Acme,
    pub(super) store: Arc<Memory>,
    /// The store that gateways share, and the thread that keeps it in sight.
    pub(super) shared: Option<(Arc<Shared>, Mutex<Option<Keeper>>)>,
    /// Who writes snapshots of it.
    pub(super) snapshots: Mutex<Option<store::snapshot::Writer>>,
    pub(super) clock: Clock,
    /// In seconds since 1970.
    pub(super) started: u64,
    pub(super) registry: Registry,
    pub(super) running: Arc<RwLock<Running>>,
    pub(super) figures: Arc<Figures>,
    /// What records them in each second.
    pub(super) recorder: Mutex<Option<MetricsRecorder>>,
    /// What sends them to other engines.
    pub(super) push: Mutex<Option<Push>>,
    /// One reload at a time.
    pub(super) reloading: Mutex<()>,
    pub(super) workers: Mutex<Vec<Handle>>,
    /// What writes the access log, and its end.
    pub(super) log: Mutex<Option<(LogWriter, LogWriterEnd)>>,
    pub(super) addresses: Vec<Address>,
    /// All that listen, to be passed on.
    pub(super) sockets: Mutex<Vec<Socket>>,
    /// The files of Unix sockets that are to be removed at the end.
    pub(super) socket_files: Mutex<Vec<SocketFile>>,
    /// What the configuration's files were when they were last taken.
    pub(super) loaded_fingerprint: AtomicU64,
    /// That it is about to end was announced.
    pub(super) withdrawn: AtomicBool,
}

impl App {
    pub(super) fn set_unacked_timeout(&self, send: Duration) {
        for socket in &*self.sockets.lock() {
            if let Err(error) = set_unacked_timeout(socket, send) {
                tracing::warn!(%error, "cannot set TCP_USER_TIMEOUT; vanished clients are noticed after 15 minutes");
            }
        }
    }

    pub(super) fn record_event(&self, what: &str, detail: &str, changes: Vec<Change>) {
        if let Some(recorder) = &*self.recorder.lock() {
            recorder.event(events::event(&self.clock, what, detail, changes));
        }
    }

    /// The sockets that clients connect to, for a process that takes over.
    pub fn sockets(&self) -> io::Result<Vec<Socket>> {
        let sockets = self.sockets.lock();
        sockets.iter().map(Socket::try_clone).collect()
    }

    /// The files of Unix sockets that the process which takes over is to remove at its end.
    pub fn socket_files(&self) -> Vec<Arc<Path>> {
        let files = self.socket_files.lock();
        files.iter().map(|file| file.path.clone()).collect()
    }

    /// Where clients connect, ports resolved.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What was fixed at the start.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The file that everything came from.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// What the configuration's files were at the start, for [`policy::watch`].
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// `/metrics`, as of now.
    pub fn metrics(&self) -> String {
        self.figures.read(Registry::render)
    }

    /// How each engine does to which figures are pushed.
    pub fn pushed(&self) -> Vec<push::Status> {
        self.push
            .lock()
            .as_ref()
            .map_or_else(Vec::new, Push::status)
    }

    /// What runs now.
    pub fn running(&self) -> Running {
        self.running.read().clone()
    }

    /// The policies that run now.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.running.read().ruleset.clone()
    }

    /// The counts.
    pub fn store(&self) -> &Arc<Memory> {
        &self.store
    }

    /// Time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.shut_down_within(Duration::ZERO);
    }
}
