//! The thread of one worker: accepts connections, follows the main thread's orders, does periodic work and drains.
//!
//! Everything runs on a single-threaded runtime, so the tasks of a worker share its state without locks. The thread never
//! reads the configuration itself: a reload comes as a [`WorkerOrder`].

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::connection;
use super::deadlines::{DeadlineClock, TICK};
use super::generation::{Generation, RunningConfig};
use super::listen::{HandedConnection, LocalConnection, Placement};
use super::load_meter::LoadMeter;
use super::occupancy::Occupancy;
use super::state::Worker;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::limit::pressure::StepContext;
use crate::net::stream::Listener;
use crate::net::{FlushQueue, Stream};
use crate::record::insight::RecentCounts;
use crate::serve::access::{LogWriter, WorkerLog};
use crate::serve::stack::detached::DetachedRequests;
use crate::serve::stack::gateway;
use crate::serve::stack::gateway::Stack;
use crate::upstream::ServerWatch;

/// Buckets of the store that are swept for expired counts each second. A larger sweep would delay requests.
const SWEPT_BUCKETS: usize = 8_192;

/// How often a draining worker checks whether its last connection has closed.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// An order of the main thread to a worker.
pub enum WorkerOrder {
    /// Serve new requests by this configuration. The sender is notified when that is so.
    Run(Box<RunningConfig>, oneshot::Sender<()>),
    /// Accept nothing new, finish open requests within this time, then end.
    Drain(Duration),
}

/// What a worker needs to start.
pub struct WorkerStart {
    /// Its number, from 0. Worker 0 does the work that is needed once for each process.
    pub number: usize,
    /// Its listening sockets, each with the index of its listener.
    pub sockets: Vec<(socket2::Socket, usize)>,
    /// The configuration that it begins with.
    pub running: RunningConfig,
    /// Connections that other workers hand over.
    pub handed: UnboundedReceiver<HandedConnection>,
    /// How many connections each worker has.
    pub placement: Placement,
    /// The open connections of all workers.
    pub occupancy: Arc<Occupancy>,
    /// Maximum number of connections of all workers, unless a policy sets one.
    pub default_max_connections: usize,
    /// Where requests are logged.
    pub writer: LogWriter,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
}

/// A worker, as other threads see it.
pub struct WorkerHandle {
    /// Takes orders.
    pub orders: UnboundedSender<WorkerOrder>,
    /// Ends when the worker has drained.
    pub thread: JoinHandle<()>,
}

/// Starts the thread of a worker.
///
/// # Errors
///
/// The system cannot start another thread.
pub fn spawn_worker(start: WorkerStart) -> io::Result<WorkerHandle> {
    let (sender, orders) = tokio::sync::mpsc::unbounded_channel();
    let runtime = move || {
        Builder::new_current_thread()
            .enable_all()
            // Twice the default, because a request takes two turns; see `Wire::poll_head`.
            .event_interval(122)
            .build_local(LocalOptions::default())
    };
    let name = format!("worker-{}", start.number);
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || match runtime() {
            Ok(runtime) => {
                runtime.block_on(run_worker(start, orders));
                // A name lookup that still runs must not delay the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "cannot start a worker"),
        })?;
    Ok(WorkerHandle {
        orders: sender,
        thread,
    })
}

/// Serves connections until the worker is ordered to drain, then drains it.
async fn run_worker(start: WorkerStart, mut orders: UnboundedReceiver<WorkerOrder>) {
    let worker = Rc::new(build_worker(&start));
    let WorkerStart {
        number,
        sockets,
        running,
        mut handed,
        writer,
        clock,
        ..
    } = start;
    // One worker checks the servers for all.
    let mut server_watch = (number == 0).then(ServerWatch::default);
    if let Some(watch) = &mut server_watch {
        watch.follow(&running.upstreams, &clock);
    }
    let log = Rc::new(WorkerLog::new(writer, &clock));
    if let Some(shared) = worker.generation().admission.shared_store() {
        shared.wait_until_connected(number).await;
    }
    let stack = gateway::stack(log.clone());
    let accepting: Vec<_> = sockets
        .into_iter()
        .map(|(socket, listener)| {
            accept_connections(socket, listener, worker.clone(), stack.clone())
        })
        .map(tokio::task::spawn_local)
        .collect();
    let flushes = worker.flushes.clone();
    let flusher = tokio::task::spawn_local(async move { flushes.run().await });
    let ticker = tokio::task::spawn_local(tick(worker.clone(), log.clone(), clock.clone()));
    let drain_time = loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(WorkerOrder::Run(running, done)) => {
                    worker.start_generation(&running, &clock);
                    if let Some(watch) = &mut server_watch {
                        watch.follow(&running.upstreams, &clock);
                    }
                    let _ = done.send(());
                }
                Some(WorkerOrder::Drain(drain_time)) => break drain_time,
                None => break Duration::ZERO,
            },
            Some(connection) = handed.recv() => serve_handed(connection, &worker, &stack),
        }
    };
    for task in &accepting {
        task.abort();
    }
    // From now on the other workers keep the connections that they accept. Those handed over before are served.
    handed.close();
    while let Some(connection) = handed.recv().await {
        serve_handed(connection, &worker, &stack);
    }
    drain(&worker, drain_time).await;
    ticker.abort();
    flusher.abort();
    log.flush();
}

/// The state of a worker that has no connections yet, with its metrics registered.
fn build_worker(start: &WorkerStart) -> Worker {
    let (number, registry, clock) = (start.number, &start.registry, &start.clock);
    let flushes = Rc::new(FlushQueue::default());
    let generation = Generation::new(&start.running, None, number, registry, clock, &flushes);
    let deadline_clock = DeadlineClock::new(clock.clone());
    Worker {
        number,
        detached: DetachedRequests::new(deadline_clock.clone()),
        deadline_clock,
        flushes,
        recent: RecentCounts::default(),
        generation: RefCell::new(Rc::new(generation)),
        draining: Cell::new(false),
        date: RefCell::new(format_date(clock)),
        placement: start.placement.clone(),
        connections: Cell::new(0),
        accepted: registry.worker_counter(number, Metric::Connections, &[]),
        open: registry.gauge(Metric::ConnectionsOpen, &[]),
        handshakes: ["failed", "ok"].map(|outcome| {
            let labels = [(Label::Outcome, outcome)];
            registry.worker_counter(number, Metric::Handshakes, &labels)
        }),
        acme_proofs: registry.worker_counter(number, Metric::AcmeProofs, &[]),
        floods: registry.worker_counter(number, Metric::Http2Floods, &[]),
        refused: ["per_ip", "proxy_header"].map(|reason| {
            let labels = [(Label::Reason, reason)];
            registry.worker_counter(number, Metric::ConnectionsRefused, &labels)
        }),
        occupancy: start.occupancy.clone(),
        default_max_connections: start.default_max_connections,
        registry: registry.clone(),
    }
}

/// Tells every connection to close after its current request, and waits for that for at most `drain_time`.
async fn drain(worker: &Worker, drain_time: Duration) {
    worker.draining.set(true);
    worker.deadline_clock.wake_connections();
    let all_closed = async {
        while worker.connections.get() > 0 {
            tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(drain_time, all_closed).await.is_err() {
        tracing::warn!(
            worker = worker.number,
            open = worker.connections.get(),
            "drain deadline passed; open connections are closed"
        );
    }
    worker.detached.close();
}

/// Accepts connections until the task is aborted. No error of accepting ends it.
async fn accept_connections(
    socket: socket2::Socket,
    listener_index: usize,
    worker: Rc<Worker>,
    stack: Stack,
) {
    let listener = match Listener::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                worker.accepted.increment(1);
                let counted = worker.occupancy.admit(|| worker.max_connections()).await;
                let connection = LocalConnection {
                    stream,
                    listener: listener_index,
                    from,
                    counted,
                };
                if let Some(connection) = worker.placement.place(connection) {
                    spawn_connection(connection, worker.clone(), stack.clone());
                }
            }
            Err(error) if is_caused_by_client(&error) => {}
            Err(error) => {
                // The process is out of descriptors or memory: some must be freed first.
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

fn is_caused_by_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Serves a connection that another worker has handed over. That worker has counted it for this one already.
fn serve_handed(connection: HandedConnection, worker: &Rc<Worker>, stack: &Stack) {
    match connection.map_stream(Stream::from_socket) {
        Ok(connection) => spawn_connection(connection, worker.clone(), stack.clone()),
        Err(_) => worker.placement.connection_closed(),
    }
}

fn spawn_connection(connection: LocalConnection, worker: Rc<Worker>, stack: Stack) {
    worker.connections.update(|open| open + 1);
    worker.open.increment(1.0);
    let open = OpenCount(worker.clone());
    tokio::task::spawn_local(async move {
        let _open = open;
        connection::serve(connection, worker, stack).await;
    });
}

/// Counts a connection as closed, however it ends.
struct OpenCount(Rc<Worker>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.connections.update(|open| open - 1);
        self.0.open.decrement(1.0);
        self.0.placement.connection_closed();
    }
}

/// Does the periodic work of a worker: some of it ten times a second, some once a second.
async fn tick(worker: Rc<Worker>, log: Rc<WorkerLog>, clock: Clock) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut load_meter = LoadMeter::new(&clock, worker.placement.workers());
    for ticks in 0_u64.. {
        interval.tick().await;
        worker.deadline_clock.tick();
        worker.detached.tick();
        log.tick(&clock);
        worker.recent.flush();
        worker.maintain_shared_store(&clock);
        for pool in &worker.generation().pools {
            pool.update_endpoints();
        }
        if worker.number == 0 {
            steer_upstreams(&worker, &mut load_meter, &clock);
        }
        if ticks.is_multiple_of(10) {
            tick_second(&worker, &clock);
        }
    }
}

/// Adjusts the elastic limits of all upstreams to their servers and to the gateway's own load.
fn steer_upstreams(worker: &Worker, load_meter: &mut LoadMeter, clock: &Clock) {
    let generation = worker.generation();
    let gateways = match generation.admission.shared_store() {
        Some(shared) => shared.decider.breaker.gateway_count(),
        None => 1,
    };
    let context = StepContext {
        wall: clock.wall().into(),
        gateways,
        gateway_load: load_meter.measure(&worker.occupancy, worker.max_connections()),
    };
    for pool in &generation.pools {
        pool.servers().step_pressure(clock.now(), &context);
    }
}

/// Renews the `Date` field, closes idle upstream connections and sweeps the store.
fn tick_second(worker: &Worker, clock: &Clock) {
    worker.date.replace(format_date(clock));
    let generation = worker.generation();
    for pool in &generation.pools {
        pool.close_idle();
    }
    if worker.number == 0 {
        let store = generation.admission.store();
        store.evict_fresh_cells(clock.now(), SWEPT_BUCKETS);
    }
}

/// The time in the format of the `Date` field (RFC 9110 section 5.6.7).
fn format_date(clock: &Clock) -> Rc<str> {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + clock.wall()).into()
}
