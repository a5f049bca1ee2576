//! The composition root: builds everything in order, changes what runs, and stops it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use socket2::Socket;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::identity::Keyer;
use crate::net::Address;
use crate::net::socket::set_unacked_timeout;
use crate::net::tls::acme::Acme;
use crate::net::tls::config;
use crate::net::tls::config::Tickets;
use crate::net::unix::SocketFile;
use crate::policy::{self, Diagnostic, Loaded, Process, Ruleset};
use crate::record;
use crate::record::insight::Change;
use crate::record::push;
use crate::record::push::Push;
use crate::serve::access::{Writer, Written};
use crate::serve::worker::generation::Running;
use crate::serve::worker::listen;
use crate::serve::worker::listen::{Inherited, Share};
use crate::serve::worker::occupancy::Occupancy;
use crate::serve::worker::run;
use crate::serve::worker::run::{Handle, Order};
use crate::store::Shared;
use crate::store::shared::Keeper;
use crate::store::{self, Memory};
use crate::throttle::admission::Admission;
use crate::upstream::Servers;

mod anew;
mod changes;
mod control;
mod counts;
mod entrances;
mod events;
mod figures;
mod pushing;
mod recording;
mod shutdown;
mod witness;

pub use changes::Changes;
use counts::Before;
use entrances::entrances;
use figures::Figures;
use recording::Recorder;

/// Why the gateway could not start or take new policies.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has mistakes.
    #[error("{0}")]
    Policy(policy::Report),
    /// The store has no room for the limits.
    #[error("the store cannot hold these limits: {0}")]
    Store(#[from] store::Error),
    /// Snapshots of counts cannot be kept.
    #[error("{0}")]
    Snapshots(#[from] store::snapshot::Unusable),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Which.
        address: Address,
        /// Why.
        cause: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The store that gateways share cannot be used.
    #[error("{0}")]
    Shared(#[from] store::memcached::Error),
    /// What happens cannot be recorded.
    #[error("{0}")]
    Record(#[from] record::Unusable),
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}

/// What a reload has to say.
#[derive(Debug)]
pub struct Reloaded {
    /// Warnings about the new configuration.
    pub notes: Vec<Diagnostic>,
    /// Settings that changed and take effect at the next start only.
    pub restart: Vec<&'static str>,
    /// What is not as it was.
    pub changes: Changes,
}

/// A running gateway.
pub struct App {
    config: PathBuf,
    fingerprint: u64,
    process: Process,
    keyer: Keyer,
    tickets: Tickets,
    acme: Acme,
    store: Arc<Memory>,
    /// The store that gateways share, and the thread that keeps it in sight.
    shared: Option<(Arc<Shared>, Mutex<Option<Keeper>>)>,
    /// Who writes snapshots of it.
    snapshots: Mutex<Option<store::snapshot::Writer>>,
    clock: Clock,
    /// In seconds since 1970.
    started: u64,
    registry: Registry,
    running: Arc<RwLock<Running>>,
    figures: Arc<Figures>,
    /// What records them in each second.
    recorder: Mutex<Option<Recorder>>,
    /// What sends them to other engines.
    push: Mutex<Option<Push>>,
    /// One reload at a time.
    reloading: Mutex<()>,
    workers: Mutex<Vec<Handle>>,
    /// What writes the access log, and its end.
    log: Mutex<Option<(Writer, Written)>>,
    addresses: Vec<Address>,
    /// All that listen, to be passed on.
    sockets: Mutex<Vec<Socket>>,
    /// The files of Unix sockets that are to be removed at the end.
    socket_files: Mutex<Vec<SocketFile>>,
    /// What the configuration's files were when they were last taken.
    taken: AtomicU64,
    /// That it is about to end was announced.
    withdrawn: AtomicBool,
}

impl App {
    /// Loads the configuration and starts the workers.
    pub fn start(config: &Path, clock: Clock) -> Result<(App, Vec<Diagnostic>), Error> {
        let loaded = policy::load(config).map_err(Error::Policy)?;
        App::start_on(config, loaded, clock, &mut Inherited::default())
    }

    /// The same by what has been loaded from `config`, on sockets that there may be already.
    pub fn start_on(
        config: &Path,
        loaded: Loaded,
        clock: Clock,
        inherited: &mut Inherited,
    ) -> Result<(App, Vec<Diagnostic>), Error> {
        let fingerprint = loaded.fingerprint;
        let process = loaded.process;
        let registry = Registry::default();
        let before = Before::find(&process, clock)?;
        let (clock, keyer) = (before.clock.clone(), before.keyer.clone());
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
        before.restore(&store);
        let tickets = config::tickets()?;
        let acme = Acme::new(clock.clone(), registry.clone(), keyer.seed());
        let running = Running {
            entrances: entrances(&process, &ruleset, &tickets, &acme, &[])?,
            tokens: acme.tokens(),
            facts: process.record.is_some().then(Arc::default),
            upstreams: upstreams(&ruleset, &[], &clock),
            ruleset,
            admission,
            own: keyer.clone(),
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
            Some(settings) => Some(Recorder::start(settings, figures.clone())?),
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
            taken: AtomicU64::new(fingerprint),
            withdrawn: AtomicBool::new(false),
        };
        let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
        app.tell("started", version, Vec::new());
        app.start_snapshots()?;
        app.spawn_workers(inherited)?;
        entrances::follow(&app.acme, &app.running().entrances).map_err(Error::Thread)?;
        Ok((app, loaded.notes))
    }

    fn spawn_workers(&mut self, inherited: &mut Inherited) -> Result<(), Error> {
        let count = self.process.workers;
        let mut sockets: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (entrance, listen) in self.process.listen.iter().enumerate() {
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
                sockets[place % count].push((socket, entrance));
            }
        }
        self.set_unacked_timeout(self.running.read().ruleset.timeouts.send);
        let writer = Writer::start(&self.process.access_log, &self.registry);
        let (writer, written) = writer.map_err(Error::AccessLog)?;
        self.log = Mutex::new(Some((writer.clone(), written)));
        let loads: Arc<[AtomicUsize]> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| unbounded_channel()).unzip();
        let senders: Arc<[_]> = senders.into();
        let occupancy = Arc::new(Occupancy::default());
        let room = listen::room();
        let each = sockets.into_iter().zip(receivers).enumerate();
        for (number, (listeners, handed)) in each {
            let start = run::Start {
                number,
                listeners,
                running: self.running.read().clone(),
                handed,
                share: Share::new(loads.clone(), senders.clone(), number),
                occupancy: occupancy.clone(),
                room,
                writer: writer.clone(),
                registry: self.registry.clone(),
                clock: self.clock.clone(),
            };
            self.workers
                .lock()
                .push(run::spawn(start).map_err(Error::Thread)?);
        }
        Ok(())
    }

    /// Opens the access log anew, where its file was moved away.
    pub fn reopen_log(&self) {
        if let Some((writer, _)) = &*self.log.lock() {
            writer.reopen();
        }
    }

    /// Reads the configuration again and runs by it; with a mistake in it everything stays as it
    /// is, but for the access log, which is opened anew. Counters, connections and requests under way go on. Returns once all workers run by it.
    pub async fn reload(&self) -> Result<Reloaded, Error> {
        self.reopen_log();
        let result = self.swap().await;
        let outcome = if result.is_ok() { "ok" } else { "refused" };
        if let Err(error) = &result {
            // What the first mistake is; the operator was told all of them.
            let detail = error.to_string();
            let detail = detail.lines().next().unwrap_or_default();
            self.tell("reload_failed", detail, Vec::new());
        }
        self.registry
            .counter(Metric::Reloads, &[(Label::Outcome, outcome)])
            .increment(1);
        result
    }

    async fn swap(&self) -> Result<Reloaded, Error> {
        let (reloaded, acknowledged) = {
            let _one = self.reloading.lock();
            let loaded = policy::load(&self.config).map_err(Error::Policy)?;
            let ruleset = Arc::new(loaded.ruleset);
            let before = self.running();
            let admission = before.admission.with_rules(&ruleset.rules)?;
            let running = Running {
                entrances: entrances(
                    &self.process,
                    &ruleset,
                    &self.tickets,
                    &self.acme,
                    &before.entrances,
                )?,
                tokens: self.acme.tokens(),
                facts: before.facts.clone(),
                upstreams: upstreams(&ruleset, &before.upstreams, &self.clock),
                ruleset,
                admission,
                own: self.keyer.clone(),
            };
            entrances::follow(&self.acme, &running.entrances).map_err(Error::Thread)?;
            self.set_unacked_timeout(running.ruleset.timeouts.send);
            *self.running.write() = running.clone();
            let mut acknowledged = Vec::new();
            for worker in &*self.workers.lock() {
                let (done, receiver) = oneshot::channel();
                if worker
                    .orders
                    .send(Order::Run(Box::new(running.clone()), done))
                    .is_ok()
                {
                    acknowledged.push(receiver);
                }
            }
            if let Some(push) = &*self.push.lock() {
                push.renew(&loaded.process.push);
            }
            let restart = self.process.differences(&loaded.process);
            let changes = events::changes(&before.ruleset, &running.ruleset);
            let mut notes = loaded.notes;
            notes.extend(anew::notes(
                (&before.ruleset, &before.admission),
                (&running.ruleset, &running.admission),
            ));
            let same = self.taken.swap(loaded.fingerprint, Ordering::Relaxed) == loaded.fingerprint;
            let reloaded = Reloaded {
                notes,
                restart,
                changes: Changes::between(&before.ruleset, &running.ruleset, changes.clone(), same),
            };
            self.tell("reloaded", "the policies were read again", changes);
            (reloaded, acknowledged)
        };
        for worker in acknowledged {
            let _ = worker.await;
        }
        Ok(reloaded)
    }

    fn set_unacked_timeout(&self, send: Duration) {
        for socket in &*self.sockets.lock() {
            if let Err(error) = set_unacked_timeout(socket, send) {
                tracing::warn!(%error, "cannot set TCP_USER_TIMEOUT; vanished clients are noticed after 15 minutes");
            }
        }
    }

    fn tell(&self, what: &str, detail: &str, changes: Vec<Change>) {
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

/// What is known of each upstream's servers, those of `before` that stay included.
fn upstreams(ruleset: &Ruleset, before: &[Arc<Servers>], clock: &Clock) -> Vec<Arc<Servers>> {
    let settings = ruleset.upstreams.iter();
    let servers = settings.map(|settings| {
        let same = |other: &&Arc<Servers>| other.settings.name == settings.name;
        let before = before.iter().find(same);
        Servers::new(settings.clone(), before, clock.now())
    });
    servers.collect()
}

impl Drop for App {
    fn drop(&mut self) {
        self.shut_down_within(Duration::ZERO);
    }
}
