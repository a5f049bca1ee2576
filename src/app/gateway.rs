//! The type that holds all parts of a running gateway, and the accessors for its users. `start.rs`, `reload.rs`,
//! `snapshots.rs`, `shutdown.rs` and `control.rs` have its other methods.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use socket2::Socket;

use super::config_publisher::ConfigPublisher;
use super::events::new_event;
use super::key_set_fetchers::KeySetFetchers;
use super::live_metrics::LiveMetrics;
use super::metrics_recorder::MetricsRecorder;
use super::order_keeper::OrderKeeper;
use super::passed_key_sets::PassedKeySets;
use crate::base::clock::Clock;
use crate::base::telemetry::{MetricsFormat, Registry};
use crate::identity::Keyer;
use crate::net::Address;
use crate::net::socket::set_unacked_timeout;
use crate::net::tls::acme::CertificateRenewer;
use crate::net::tls::listener_tls::TicketKeys;
use crate::net::unix_socket::SocketFile;
use crate::policy::{ProcessSettings, Ruleset};
use crate::record::insight::LimitChange;
use crate::record::push;
use crate::record::push::Pusher;
use crate::serve::access::{LogWriter, LogWriterEnd};
use crate::serve::worker::generation::RunningConfig;
use crate::store;
use crate::store::shared::StoreKeeper;
use crate::store::{MemoryStore, SharedStore};
use crate::trace::Exporter;

/// A running gateway. Dropping it ends it as [`Gateway::shut_down`] does, but without waiting for open requests.
pub struct Gateway {
    /// The path of the gateway file.
    pub(super) config_path: PathBuf,
    /// A hash of everything that was read for the configuration at the start, named files included.
    pub(super) fingerprint: u64,
    /// The settings as of the start, which only a restart changes, except the tokens and roots of pushes.
    pub(super) process_settings: ProcessSettings,
    /// Hashes the keys of limits with the secret of this process.
    pub(super) keyer: Keyer,
    /// The keys that encrypt TLS session tickets, so that sessions outlive reloads.
    pub(super) ticket_keys: TicketKeys,
    /// Orders and renews the certificates that ACME directories issue.
    pub(super) certificate_renewer: CertificateRenewer,
    /// Fetches the keys that verify tokens, if the gateway file names them by URL.
    pub(super) key_set_fetchers: KeySetFetchers,
    /// The store of the counts of this gateway.
    pub(super) memory_store: Arc<MemoryStore>,
    /// The shared store and the thread that watches it until the end; `None` if this gateway counts for itself. The
    /// thread is taken out when it is stopped.
    pub(super) shared_store: Option<(Arc<SharedStore>, Mutex<Option<StoreKeeper>>)>,
    /// Writes snapshots of `memory_store`; `None` if none are configured, and once another process or the end of this
    /// one has stopped the writer.
    pub(super) snapshot_writer: Mutex<Option<store::snapshot::SnapshotWriter>>,
    /// The clock of all parts.
    pub(super) clock: Clock,
    /// The time of the start, in seconds since 1970.
    pub(super) started_at: u64,
    /// The values of all metrics. Those that `live_metrics` computes are as of its last refresh.
    pub(super) registry: Registry,
    /// The configuration that workers run. A reload replaces it as a whole.
    pub(super) running: Arc<RwLock<RunningConfig>>,
    /// Refreshes and reads `registry`, for scrapes, the record and the pusher.
    pub(super) live_metrics: Arc<LiveMetrics>,
    /// Records the metrics every second; `None` without a record and after the end.
    pub(super) recorder: Mutex<Option<MetricsRecorder>>,
    /// Sends the record to other engines; `None` if nothing is pushed, and after the end.
    pub(super) pusher: Mutex<Option<Pusher>>,
    /// Keeps what operators order up to date until the end; `None` after it.
    pub(super) order_keeper: Mutex<Option<OrderKeeper>>,
    /// Sends spans to a collector; `None` without traces, and after the end.
    pub(super) exporter: Mutex<Option<Exporter>>,
    /// Replaces `running` at all workers, whose threads it has.
    pub(super) publisher: ConfigPublisher,
    /// The writer of the access log, and the handle to wait for its end; `None` before the start and after the end.
    pub(super) access_log: Mutex<Option<(LogWriter, LogWriterEnd)>>,
    /// The addresses for clients, with the actual port in place of 0.
    pub(super) addresses: Vec<Address>,
    /// Copies of all sockets that listen for clients: for a process that takes over, and to set their options.
    pub(super) listening_sockets: Mutex<Vec<Socket>>,
    /// Files of Unix sockets that this process removes at its end.
    pub(super) socket_files: Mutex<Vec<SocketFile>>,
    /// The `fingerprint` of the configuration that runs now.
    pub(super) loaded_fingerprint: AtomicU64,
    /// Whether `/readyz` already announces the end. Workers share it.
    pub(super) is_end_announced: Arc<AtomicBool>,
}

impl Gateway {
    /// Sets by the send timeout how long sent data may stay unacknowledged, on all listening sockets and thus on new
    /// connections: see [`set_unacked_timeout`]. A failure is only logged.
    pub(super) fn set_unacked_timeout(&self, send_timeout: Duration) {
        for socket in &*self.listening_sockets.lock() {
            if let Err(error) = set_unacked_timeout(socket, send_timeout) {
                tracing::warn!(%error, "setting TCP_USER_TIMEOUT failed; vanished clients are noticed after 15 minutes");
            }
        }
    }

    /// Adds an event to the record, if there is a record.
    pub(super) fn record_event(&self, kind: &str, detail: &str, changes: Vec<LimitChange>) {
        if let Some(recorder) = &*self.recorder.lock() {
            let event = new_event(&self.clock, kind, detail, changes);
            recorder.event_queue().add(event);
        }
    }

    /// Copies of the listening sockets for clients, for a process that takes over.
    ///
    /// # Errors
    ///
    /// A socket cannot be copied, for instance because the process has no file descriptors left.
    pub fn sockets(&self) -> io::Result<Vec<Socket>> {
        let sockets = self.listening_sockets.lock();
        sockets.iter().map(Socket::try_clone).collect()
    }

    /// Files of Unix sockets that a process which takes over must remove at its end.
    pub fn socket_files(&self) -> Vec<Arc<Path>> {
        let files = self.socket_files.lock();
        files.iter().map(|file| file.path.clone()).collect()
    }

    /// The key sets in use, for a process that takes over.
    pub fn key_sets(&self) -> PassedKeySets {
        self.key_set_fetchers.sets()
    }

    /// The addresses for clients, with the actual port in place of 0.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The settings that only a restart changes, except the tokens and roots of pushes. They are those of the start.
    pub fn process_settings(&self) -> &ProcessSettings {
        &self.process_settings
    }

    /// The path of the gateway file.
    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// A hash of everything that was read for the configuration at the start, for
    /// [`policy::watch`](crate::policy::watch).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The current metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let render = |registry: &Registry| registry.render(MetricsFormat::Text);
        self.live_metrics.read(render)
    }

    /// The state of every push destination; empty if nothing is pushed.
    pub fn push_status(&self) -> Vec<push::DestinationStatus> {
        self.pusher
            .lock()
            .as_ref()
            .map_or_else(Vec::new, Pusher::statuses)
    }

    /// A copy of the running configuration, which shares its parts.
    pub fn running(&self) -> RunningConfig {
        self.running.read().clone()
    }

    /// The policies and settings of the running configuration.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.running.read().ruleset.clone()
    }

    /// The store of the counts of this gateway.
    pub fn memory_store(&self) -> &Arc<MemoryStore> {
        &self.memory_store
    }

    /// The clock of the gateway, which tests may move.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shut_down_at_once();
    }
}
