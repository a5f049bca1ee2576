//! Starts a gateway: builds its parts in order, then starts the workers. A start that fails ends the threads that it
//! has started. The thread that watches a shared store may go on, because the process is expected to end then.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc::unbounded_channel;

use super::config_publisher::ConfigPublisher;
use super::error::Error;
use super::gateway::Gateway;
use super::key_set_fetchers::KeySetFetchers;
use super::listeners::{build_listeners, renew_certificates_of};
use super::live_metrics::LiveMetrics;
use super::metrics_recorder::MetricsRecorder;
use super::order_keeper::{OrderKeeper, OrderUpdater};
use super::passed_key_sets::PassedKeySets;
use super::pusher::start_pusher;
use super::servers::build_servers;
use super::snapshots::{RestoredState, log_uncounted_accounts};
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::net::Address;
use crate::net::quic::QuicSockets;
use crate::net::tls::acme::CertificateRenewer;
use crate::net::tls::listener_tls;
use crate::operator::{ApiKeyRegistry, BanRegistry, EntryRegistry, GrantRegistry};
use crate::policy::{self, Diagnostic, LoadedConfig, ProcessSettings, Ruleset};
use crate::serve::access::LogWriter;
use crate::serve::worker::generation::RunningConfig;
use crate::serve::worker::inherited_sockets::InheritedSockets;
use crate::serve::worker::listen;
use crate::serve::worker::occupancy::Occupancy;
use crate::serve::worker::pending_tickets::PendingTickets;
use crate::serve::worker::placement::Placement;
use crate::serve::worker::run;
use crate::store::SharedStore;
use crate::store::shared::StoreKeeper;
use crate::store::{self, MemoryStore};
use crate::throttle::admission::Admission;
use crate::trace::{Exporter, ExporterContext};

impl Gateway {
    /// Loads the configuration and starts a gateway. Returns the warnings about the configuration too.
    ///
    /// # Errors
    ///
    /// The configuration has mistakes, or [`Gateway::start_on`] fails.
    pub fn start(config_path: &Path, clock: Clock) -> Result<(Gateway, Vec<Diagnostic>), Error> {
        let loaded = policy::load(config_path).map_err(Error::Policy)?;
        let inherited = (&mut InheritedSockets::default(), PassedKeySets::default());
        Gateway::start_on(config_path, loaded, clock, inherited)
    }

    /// Starts a gateway with a configuration that was loaded from `config_path`. It listens on those inherited sockets
    /// whose address the configuration has, and takes them out of `inherited`. Inherited key sets are in use until they
    /// can be fetched. For the first fetch of other sets the start waits a few seconds.
    ///
    /// # Errors
    ///
    /// A part cannot be built: see the variants of [`Error`].
    pub fn start_on(
        config_path: &Path,
        mut loaded: LoadedConfig,
        clock: Clock,
        (inherited, key_sets): (&mut InheritedSockets, PassedKeySets),
    ) -> Result<(Gateway, Vec<Diagnostic>), Error> {
        let fingerprint = loaded.fingerprint;
        let process = loaded.process;
        let registry = Registry::default();
        // Prometheus sees no increase in a series whose first sample is 1, so the first refusal would ring no alert.
        for outcome in ["ok", "refused"] {
            let _ = registry.counter(Metric::Reloads, &[(Label::Outcome, outcome)]);
        }
        // Nothing has read the clock before this, because the snapshot may move it.
        let restored_state = RestoredState::read_newest(&process, clock)?;
        let clock = restored_state.clock.clone();
        let keyer = restored_state.keyer.clone();
        let store = Arc::new(MemoryStore::new(store::Settings {
            budget_bytes: process.store_budget,
        })?);
        let key_set_fetchers = KeySetFetchers::new(registry.clone(), clock.clone());
        let identity = &mut loaded.ruleset.identity;
        key_set_fetchers
            .use_keys_of_and_wait(identity, &key_sets)
            .map_err(Error::Thread)?;
        let ruleset = Arc::new(loaded.ruleset);
        let (admission, shared) = start_admission(&process, &ruleset, &store, &clock)?;
        // The admission has registered the limits, which the counts need.
        let has_counts = restored_state.restore_counts(&store);
        let ticket_keys = listener_tls::new_ticket_keys()?;
        let certificate_renewer =
            CertificateRenewer::new(clock.clone(), registry.clone(), keyer.seed());
        let listeners =
            build_listeners(&process, &ruleset, &ticket_keys, &certificate_renewer, &[])?;
        let order_file = process.operator.file.as_deref();
        let keeps_secret = process.snapshots.is_some() || shared.is_some();
        let entries = EntryRegistry::open(order_file, keeps_secret, clock.clone());
        let entries = Arc::new(entries.map_err(Error::Orders)?);
        if let Some((shared, _)) = &shared {
            let _ = shared.entries.set(entries.clone());
            // What was ordered at other gateways holds from the first request on.
            shared.wait_for_entries();
        }
        let running = RunningConfig {
            bans: Arc::new(BanRegistry::new(entries.clone())),
            grants: Arc::new(GrantRegistry::new(entries.clone())),
            api_keys: Arc::new(ApiKeyRegistry::new(entries.clone())),
            entries,
            listeners,
            challenge_tokens: certificate_renewer.challenge_tokens(),
            insight: process.record.is_some().then(Arc::default),
            upstreams: build_servers(&ruleset, &[], &clock),
            loaded: ruleset.clone(),
            ruleset,
            admission,
            process_keyer: keyer.clone(),
        };
        if process.snapshots.is_some() && shared.is_none() && !has_counts {
            log_uncounted_accounts(&running.ruleset, &running.grants);
        }
        let running = Arc::new(RwLock::new(running));
        let publisher = ConfigPublisher::new(running.clone());
        let live_metrics = Arc::new(LiveMetrics {
            registry: registry.clone(),
            running: running.clone(),
            memory_store: store.clone(),
            shared_store: shared.as_ref().map(|(shared, _)| shared.clone()),
            clock: clock.clone(),
            refresh_lock: Mutex::new(()),
        });
        let recorder = match &process.record {
            Some(settings) => Some(MetricsRecorder::start(settings, live_metrics.clone())?),
            None => None,
        };
        let pusher = start_pusher(&process, recorder.as_ref(), &live_metrics, keyer.seed())?;
        let exporter = match &process.traces {
            Some(settings) => {
                let context = ExporterContext {
                    settings: settings.clone(),
                    registry: registry.clone(),
                    clock: clock.clone(),
                    seed: keyer.seed(),
                };
                Some(Exporter::start(context).map_err(Error::Thread)?)
            }
            None => None,
        };
        let order_updater = OrderUpdater {
            publisher: publisher.clone(),
            events: recorder.as_ref().map(MetricsRecorder::event_queue),
            clock: clock.clone(),
            offender_reports: Arc::default(),
            published_at: Arc::default(),
            failed_at: Arc::default(),
        };
        let order_keeper = OrderKeeper::start(order_updater).map_err(Error::Thread)?;
        let mut gateway = Gateway {
            config_path: config_path.to_owned(),
            fingerprint,
            process_settings: process,
            keyer,
            ticket_keys,
            certificate_renewer,
            key_set_fetchers,
            memory_store: store,
            shared_store: shared,
            snapshot_writer: Mutex::new(None),
            started_at: clock.wall().as_secs(),
            clock,
            registry,
            running,
            publisher,
            live_metrics,
            recorder: Mutex::new(recorder),
            pusher: Mutex::new(pusher),
            exporter: Mutex::new(exporter),
            order_keeper: Mutex::new(Some(order_keeper)),
            access_log: Mutex::new(None),
            addresses: Vec::new(),
            listening_sockets: Mutex::new(Vec::new()),
            socket_files: Mutex::new(Vec::new()),
            loaded_fingerprint: AtomicU64::new(fingerprint),
            is_end_announced: Arc::default(),
        };
        let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
        gateway.record_event("started", version, Vec::new());
        gateway.start_snapshots()?;
        gateway.spawn_workers(inherited)?;
        // The directory connects to the listeners to verify names, so orders begin once workers accept.
        renew_certificates_of(&gateway.running().listeners, &gateway.certificate_renewer)
            .map_err(Error::Thread)?;
        Ok((gateway, loaded.warnings))
    }

    /// Binds the listeners, opens the access log, and starts a thread for each worker.
    fn spawn_workers(&mut self, inherited: &mut InheritedSockets) -> Result<(), Error> {
        let worker_count = self.process_settings.workers;
        let (sockets_by_worker, quic_listeners) = self.bind_listeners(inherited)?;
        self.set_unacked_timeout(self.running.read().ruleset.timeouts.send);
        let started_writer = LogWriter::start(&self.process_settings.access_log, &self.registry);
        let (log_writer, writer_end) = started_writer.map_err(Error::AccessLog)?;
        self.access_log = Mutex::new(Some((log_writer.clone(), writer_end)));
        let connection_counts: Arc<[AtomicUsize]> =
            (0..worker_count).map(|_| AtomicUsize::new(0)).collect();
        let (connection_senders, connection_receivers): (Vec<_>, Vec<_>) =
            (0..worker_count).map(|_| unbounded_channel()).unzip();
        let connection_senders: Arc<[_]> = connection_senders.into();
        let span_queue = self.exporter.lock().as_ref().map(Exporter::queue);
        let occupancy = Arc::new(Occupancy::default());
        let pending_tickets = Arc::new(PendingTickets::default());
        let default_max_connections = listen::raise_connection_limit();
        let workers = sockets_by_worker
            .into_iter()
            .zip(connection_receivers)
            .enumerate();
        // No change of the configuration may come between a worker's copy of it and its place among the workers.
        let publisher = self.publisher.clone();
        let _guard = publisher.lock.lock();
        for (number, (sockets, handed_connections)) in workers {
            let start = run::WorkerStart {
                number,
                sockets,
                quic_listeners: quic_listeners.clone(),
                running_config: self.running.read().clone(),
                handed_connections,
                placement: Placement::new(
                    connection_counts.clone(),
                    connection_senders.clone(),
                    number,
                ),
                occupancy: occupancy.clone(),
                pending_tickets: pending_tickets.clone(),
                is_end_announced: self.is_end_announced.clone(),
                default_max_connections,
                log_writer: log_writer.clone(),
                span_queue: span_queue.clone(),
                registry: self.registry.clone(),
                clock: self.clock.clone(),
            };
            self.publisher
                .workers
                .lock()
                .push(run::spawn_worker(start).map_err(Error::Thread)?);
        }
        Ok(())
    }

    /// Binds all listeners, and distributes their sockets among the workers. Returns the sockets of each worker, and those
    /// of QUIC for all workers.
    fn bind_listeners(
        &mut self,
        inherited: &mut InheritedSockets,
    ) -> Result<BoundListeners, Error> {
        let worker_count = self.process_settings.workers;
        let mut quic_listeners = Vec::new();
        let mut sockets_by_worker: Vec<Vec<_>> = (0..worker_count).map(|_| Vec::new()).collect();
        for (listener_index, listen) in self.process_settings.listen.iter().enumerate() {
            let listen_error = |cause| Error::Listen {
                address: listen.address.clone(),
                cause,
            };
            let is_inherited = inherited.has_socket_for(&listen.address);
            let bound = listen::bind(listen, worker_count, inherited).map_err(listen_error)?;
            self.socket_files.lock().extend(bound.file);
            let address = bound.sockets[0].local_addr().map_err(listen_error)?;
            let address = Address::from_socket(&address).unwrap_or_else(|| listen.address.clone());
            if let Some(address) = address.tcp().filter(|_| listen.http3) {
                let sockets = Arc::new(QuicSockets::new(address, worker_count));
                match sockets.bind() {
                    Err(error) if is_inherited && error.kind() == io::ErrorKind::AddrInUse => {
                        tracing::info!(%address, "HTTP/3 begins when the old process has ended");
                    }
                    result => result.map_err(|error| {
                        let message = format!("{error} (UDP, for HTTP/3)");
                        listen_error(io::Error::new(error.kind(), message))
                    })?,
                }
                quic_listeners.push((listener_index, sockets));
            }
            self.addresses.push(address);
            for (socket_index, socket) in bound.sockets.into_iter().enumerate() {
                let socket_copy = socket.try_clone().map_err(listen_error)?;
                self.listening_sockets.lock().push(socket_copy);
                let socket = run::WorkerSocket {
                    socket,
                    listener_index,
                };
                sockets_by_worker[socket_index % worker_count].push(socket);
            }
        }
        Ok((sockets_by_worker, quic_listeners))
    }
}

/// The TCP and Unix sockets of each worker; and the QUIC sockets of all workers, with the indexes of their listeners.
type BoundListeners = (Vec<Vec<run::WorkerSocket>>, Vec<(usize, Arc<QuicSockets>)>);

/// The shared store, and the handle of the thread that watches it.
type StartedStore = (Arc<SharedStore>, Mutex<Option<StoreKeeper>>);

/// Builds the admission. If the configuration has a shared store, the admission uses it, a thread is started that
/// watches it, and both are returned.
fn start_admission(
    process: &ProcessSettings,
    ruleset: &Ruleset,
    store: &Arc<MemoryStore>,
    clock: &Clock,
) -> Result<(Admission, Option<StartedStore>), Error> {
    let rules = &ruleset.rules;
    let Some(settings) = process.shared.clone() else {
        let admission = Admission::new(rules, store.clone(), clock.clone())?;
        return Ok((admission, None));
    };
    let shared = SharedStore::new(settings, store.clone(), process.workers, clock.clone())?;
    let shared = Arc::new(shared);
    let admission = Admission::shared(rules, shared.clone(), clock.clone())?;
    let keeper = shared.start().map_err(Error::Thread)?;
    Ok((admission, Some((shared, Mutex::new(Some(keeper))))))
}
