//! Builds everything in order, and starts the workers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc::unbounded_channel;

use super::error::Error;
use super::figures::Figures;
use super::gateway::App;
use super::listeners::{self, listeners};
use super::pushing;
use super::recording::MetricsRecorder;
use super::servers::servers;
use super::snapshots::RestoredState;
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::net::Address;
use crate::net::tls::acme::CertificateManager;
use crate::net::tls::config;
use crate::policy::{self, Diagnostic, LoadedConfig};
use crate::serve::access::LogWriter;
use crate::serve::worker::generation::RunningConfig;
use crate::serve::worker::listen;
use crate::serve::worker::listen::{InheritedSockets, Placement};
use crate::serve::worker::occupancy::Occupancy;
use crate::serve::worker::run;
use crate::store::Shared;
use crate::store::{self, Memory};
use crate::throttle::admission::Admission;

impl App {
    /// Loads the configuration and starts the workers.
    pub fn start(config: &Path, clock: Clock) -> Result<(App, Vec<Diagnostic>), Error> {
        let loaded = policy::load(config).map_err(Error::Policy)?;
        App::start_on(config, loaded, clock, &mut InheritedSockets::default())
    }

    /// As [`App::start`], with a configuration that is already loaded from `config`, on inherited sockets where they fit.
    pub fn start_on(
        config: &Path,
        loaded: LoadedConfig,
        clock: Clock,
        inherited: &mut InheritedSockets,
    ) -> Result<(App, Vec<Diagnostic>), Error> {
        let fingerprint = loaded.fingerprint;
        let process = loaded.process;
        let registry = Registry::default();
        let restored = RestoredState::find(&process, clock)?;
        let (clock, keyer) = (restored.clock.clone(), restored.keyer.clone());
        let store = Arc::new(Memory::new(store::Settings {
            budget: process.store_budget,
        })?);
        let ruleset = Arc::new(loaded.ruleset);
        let shared = process.shared.clone().map(|settings| {
            Shared::new(settings, store.clone(), process.workers, clock.clone()).map(Arc::new)
        });
        let shared = shared.transpose()?;
        let rules = &ruleset.rules;
        let admission = match &shared {
            Some(shared) => Admission::shared(rules, shared.clone(), clock.clone())?,
            None => Admission::new(rules, store.clone(), clock.clone())?,
        };
        let shared = match shared {
            Some(shared) => {
                let keeper = shared.start().map_err(Error::Thread)?;
                Some((shared, Mutex::new(Some(keeper))))
            }
            None => None,
        };
        restored.restore_counts(&store);
        let tickets = config::tickets()?;
        let acme = CertificateManager::new(clock.clone(), registry.clone(), keyer.seed());
        let running = RunningConfig {
            listeners: listeners(&process, &ruleset, &tickets, &acme, &[])?,
            tokens: acme.tokens(),
            insight: process.record.is_some().then(Arc::default),
            upstreams: servers(&ruleset, &[], &clock),
            ruleset,
            admission,
            own_keyer: keyer.clone(),
        };
        let running = Arc::new(RwLock::new(running));
        let figures = Arc::new(Figures {
            registry: registry.clone(),
            running: running.clone(),
            store: store.clone(),
            shared: shared.as_ref().map(|(shared, _)| shared.clone()),
            clock: clock.clone(),
            reading: Mutex::new(()),
        });
        let recorder = match &process.record {
            Some(settings) => Some(MetricsRecorder::start(settings, figures.clone())?),
            None => None,
        };
        let push = pushing::start(&process, recorder.as_ref(), &figures, keyer.seed())?;
        let mut app = App {
            config: config.to_owned(),
            fingerprint,
            process,
            keyer,
            tickets,
            acme,
            store,
            shared,
            snapshots: Mutex::new(None),
            started: clock.wall().as_secs(),
            clock,
            registry,
            running,
            figures,
            recorder: Mutex::new(recorder),
            push: Mutex::new(push),
            reloading: Mutex::new(()),
            workers: Mutex::new(Vec::new()),
            log: Mutex::new(None),
            addresses: Vec::new(),
            sockets: Mutex::new(Vec::new()),
            socket_files: Mutex::new(Vec::new()),
            loaded_fingerprint: AtomicU64::new(fingerprint),
            end_announced: AtomicBool::new(false),
        };
        let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
        app.record_event("started", version, Vec::new());
        app.start_snapshots()?;
        app.spawn_workers(inherited)?;
        listeners::follow(&app.acme, &app.running().listeners).map_err(Error::Thread)?;
        Ok((app, loaded.notes))
    }

    fn spawn_workers(&mut self, inherited: &mut InheritedSockets) -> Result<(), Error> {
        let count = self.process.workers;
        let mut sockets: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (listener, listen) in self.process.listen.iter().enumerate() {
            let failed = |cause| Error::Listen {
                address: listen.address.clone(),
                cause,
            };
            let bound = listen::bind(listen, count, inherited).map_err(failed)?;
            self.socket_files.lock().extend(bound.file);
            let address = bound.sockets[0].local_addr().map_err(failed)?;
            let address = Address::of(&address).unwrap_or_else(|| listen.address.clone());
            self.addresses.push(address);
            for (place, socket) in bound.sockets.into_iter().enumerate() {
                let own = socket.try_clone().map_err(failed)?;
                self.sockets.lock().push(own);
                sockets[place % count].push((socket, listener));
            }
        }
        self.set_unacked_timeout(self.running.read().ruleset.timeouts.send);
        let writer = LogWriter::start(&self.process.access_log, &self.registry);
        let (writer, written) = writer.map_err(Error::AccessLog)?;
        self.log = Mutex::new(Some((writer.clone(), written)));
        let loads: Arc<[AtomicUsize]> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| unbounded_channel()).unzip();
        let senders: Arc<[_]> = senders.into();
        let occupancy = Arc::new(Occupancy::default());
        let default_max_connections = listen::raise_connection_limit();
        let each = sockets.into_iter().zip(receivers).enumerate();
        for (number, (sockets, handed)) in each {
            let start = run::WorkerStart {
                number,
                sockets,
                running: self.running.read().clone(),
                handed,
                placement: Placement::new(loads.clone(), senders.clone(), number),
                occupancy: occupancy.clone(),
                default_max_connections,
                writer: writer.clone(),
                registry: self.registry.clone(),
                clock: self.clock.clone(),
            };
            self.workers
                .lock()
                .push(run::spawn_worker(start).map_err(Error::Thread)?);
        }
        Ok(())
    }
}
