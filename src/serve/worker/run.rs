//! The thread of one worker: accepts connections, follows the main thread's orders, does periodic work and drains.
//!
//! Everything runs on a single-threaded runtime, so the tasks of a worker share its state without locks. The thread never
//! reads the configuration itself: a reload comes as a [`WorkerOrder`].

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quinn::VarInt;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::asked_tickets::AskedTickets;
use super::connection;
use super::date_line::DateLine;
use super::deadlines::{DeadlineClock, TICK, TICKS_PER_SECOND};
use super::generation::{Generation, RunningConfig};
use super::load_meter::LoadMeter;
use super::occupancy::Occupancy;
use super::placement::{HandedConnection, LocalConnection, Placement};
use super::worker_state::{ConnectionCount, WorkerState};
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::http::http3::Code;
use crate::limit::pressure::StepContext;
use crate::net::quic::QuicSockets;
use crate::net::stream::Listener;
use crate::net::{FlushQueue, Stream};
use crate::record::insight::RecentCounts;
use crate::serve::access::{LogWriter, WorkerLog};
use crate::serve::http3;
use crate::serve::stack::detached::DetachedRequests;
use crate::serve::stack::layers;
use crate::serve::stack::layers::Stack;
use crate::trace::{SpanQueue, Tracer};
use crate::upstream::ServerWatch;

/// Number of buckets of the store from which fresh cells are evicted each second: cells that equal those of keys without
/// requests. Evicting from more at once would delay requests.
const BUCKETS_SWEPT_PER_SECOND: usize = 8_192;

/// How often a draining worker checks whether its last connection has closed.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How long the last packets of connections over QUIC may take to be sent, and again if they were lost.
const LAST_PACKET_TIMEOUT: Duration = Duration::from_millis(50);

/// The number of turns of tasks after which the runtime asks the kernel for events. It is twice the default of tokio,
/// because a request takes two turns; see `Wire::poll_head`.
const EVENT_INTERVAL: u32 = 122;

/// An order of the main thread to a worker.
pub enum WorkerOrder {
    /// Serve new requests by this configuration. The worker sends `()` once it does so.
    Run(Box<RunningConfig>, oneshot::Sender<()>),
    /// Accept nothing new, finish open requests within this time, then end.
    Drain(Duration),
}

/// A listening socket of one worker.
pub struct WorkerSocket {
    /// The bound socket.
    pub socket: socket2::Socket,
    /// The index of the socket's listener in [`RunningConfig::listeners`].
    pub listener_index: usize,
}

/// What a worker needs to start.
pub struct WorkerStart {
    /// The worker's number, from 0. Worker 0 does the work that is needed once for each process.
    pub number: usize,
    /// The worker's listening sockets.
    pub sockets: Vec<WorkerSocket>,
    /// The listeners that serve HTTP/3 too: the index of each, and its sockets of QUIC.
    pub quic_listeners: Vec<(usize, Arc<QuicSockets>)>,
    /// The configuration that the worker begins with.
    pub running_config: RunningConfig,
    /// Connections that other workers hand over.
    pub handed_connections: UnboundedReceiver<HandedConnection>,
    /// Decides which worker serves a connection.
    pub placement: Placement,
    /// The open connections of all workers.
    pub occupancy: Arc<Occupancy>,
    /// Tickets of requests that other proxies serve.
    pub asked_tickets: Arc<AskedTickets>,
    /// Whether the end of the process was announced.
    pub is_end_announced: Arc<AtomicBool>,
    /// Maximum number of connections of all workers, unless the gateway file sets one.
    pub default_max_connections: usize,
    /// Writes the access log.
    pub log_writer: LogWriter,
    /// Takes the spans of traced requests; `None` without traces.
    pub span_queue: Option<Arc<SpanQueue>>,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
}

/// A worker, as other threads see it.
pub struct WorkerHandle {
    /// Sends orders to the worker.
    pub orders: UnboundedSender<WorkerOrder>,
    /// Ends when the worker has drained, or when its runtime cannot be built.
    pub thread: JoinHandle<()>,
}

/// Starts the thread of a worker. If the thread cannot build its runtime, it logs that and ends.
///
/// # Errors
///
/// The system cannot start another thread.
pub fn spawn_worker(start: WorkerStart) -> io::Result<WorkerHandle> {
    let (order_sender, orders) = tokio::sync::mpsc::unbounded_channel();
    let build_runtime = move || {
        Builder::new_current_thread()
            .enable_all()
            .event_interval(EVENT_INTERVAL)
            .build_local(LocalOptions::default())
    };
    let thread = thread::Builder::new()
        .name(format!("worker-{}", start.number))
        .spawn(move || match build_runtime() {
            Ok(runtime) => {
                runtime.block_on(run_worker(start, orders));
                // A name lookup that still runs must not delay the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "cannot start a worker"),
        })?;
    Ok(WorkerHandle {
        orders: order_sender,
        thread,
    })
}

/// Serves connections until the worker is ordered to drain, then drains it.
async fn run_worker(start: WorkerStart, mut orders: UnboundedReceiver<WorkerOrder>) {
    let worker = Rc::new(build_worker(&start));
    let WorkerStart {
        number,
        sockets,
        quic_listeners,
        running_config,
        mut handed_connections,
        log_writer,
        clock,
        ..
    } = start;
    // One worker checks the servers for all.
    let mut server_watch = (number == 0).then(ServerWatch::default);
    if let Some(watch) = &mut server_watch {
        watch.follow(&running_config.upstreams, &clock);
    }
    let log = Rc::new(WorkerLog::new(log_writer, &clock));
    if let Some(shared) = worker.generation().admission.shared_store() {
        shared.wait_until_connected(number).await;
    }
    let stack = layers::build_stack(log.clone());
    let mut accept_tasks: Vec<_> = sockets
        .into_iter()
        .map(|socket| accept_connections(socket, worker.clone(), stack.clone()))
        .map(tokio::task::spawn_local)
        .collect();
    accept_tasks.extend(quic_listeners.into_iter().map(|(index, sockets)| {
        let accepting = http3::accept_connections(sockets, index, worker.clone(), stack.clone());
        tokio::task::spawn_local(accepting)
    }));
    let flush_queue = worker.flush_queue.clone();
    let flush_task = tokio::task::spawn_local(async move { flush_queue.run().await });
    let periodic_work = run_periodic_work(worker.clone(), log.clone(), clock.clone());
    let periodic_task = tokio::task::spawn_local(periodic_work);
    let drain_timeout = loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(WorkerOrder::Run(new_config, done_sender)) => {
                    worker.start_generation(&new_config, &clock);
                    if let Some(watch) = &mut server_watch {
                        watch.follow(&new_config.upstreams, &clock);
                    }
                    let _ = done_sender.send(());
                }
                Some(WorkerOrder::Drain(drain_timeout)) => break drain_timeout,
                // The main thread has dropped the handle.
                None => break Duration::ZERO,
            },
            Some(connection) = handed_connections.recv() => {
                serve_handed_connection(connection, &worker, &stack);
            }
        }
    };
    for task in &accept_tasks {
        task.abort();
    }
    // From now on the other workers keep the connections that they accept. Those handed over before are served.
    handed_connections.close();
    while let Some(connection) = handed_connections.recv().await {
        serve_handed_connection(connection, &worker, &stack);
    }
    drain(&worker, drain_timeout).await;
    periodic_task.abort();
    flush_task.abort();
    log.flush();
}

/// The state of a worker that has no connections yet, with its metrics registered.
fn build_worker(start: &WorkerStart) -> WorkerState {
    let number = start.number;
    let registry = &start.registry;
    let clock = &start.clock;
    let flush_queue = Rc::new(FlushQueue::default());
    let config = &start.running_config;
    let generation = Generation::new(config, None, number, registry, clock, &flush_queue);
    let deadline_clock = DeadlineClock::new(clock.clone());
    WorkerState {
        number,
        detached_requests: DetachedRequests::new(deadline_clock.clone()),
        deadline_clock,
        message_memory: Rc::default(),
        flush_queue,
        recent_keys: RecentCounts::default(),
        generation: RefCell::new(Rc::new(generation)),
        is_draining: Cell::new(false),
        date: RefCell::new(Rc::new(DateLine::new(clock.wall()))),
        placement: start.placement.clone(),
        open_connections: Cell::new(0),
        accepted_connections: registry.worker_counter(number, Metric::Connections, &[]),
        open_connections_gauge: registry.gauge(Metric::ConnectionsOpen, &[]),
        handshakes: ["failed", "ok"].map(|outcome| {
            let labels = [(Label::Outcome, outcome)];
            registry.worker_counter(number, Metric::Handshakes, &labels)
        }),
        acme_proofs: registry.worker_counter(number, Metric::AcmeProofs, &[]),
        floods: registry.worker_counter(number, Metric::Http2Floods, &[]),
        refused_connections: ["per_ip", "proxy_header"].map(|reason| {
            let labels = [(Label::Reason, reason)];
            registry.worker_counter(number, Metric::ConnectionsRefused, &labels)
        }),
        occupancy: start.occupancy.clone(),
        asked_tickets: start.asked_tickets.clone(),
        is_end_announced: start.is_end_announced.clone(),
        extra_discarded_bytes: Rc::default(),
        unproven_handshakes: Cell::new(0),
        quic_endpoints: RefCell::default(),
        default_max_connections: start.default_max_connections,
        tracer: start.span_queue.clone().and_then(Tracer::new),
        registry: registry.clone(),
    }
}

/// Lets every connection close after its current request, and waits until all have closed or `drain_timeout` is over. Then
/// no more requests are detached.
async fn drain(worker: &WorkerState, drain_timeout: Duration) {
    worker.is_draining.set(true);
    for endpoint in &*worker.quic_endpoints.borrow() {
        // Clients that come now use TCP, or another process.
        endpoint.set_server_config(None);
    }
    worker.deadline_clock.wake_connections();
    let all_closed = async {
        while worker.open_connections.get() > 0 {
            tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
        }
    };
    let result = tokio::time::timeout(drain_timeout, all_closed).await;
    if result.is_err() {
        tracing::warn!(
            worker = worker.number,
            open = worker.open_connections.get(),
            "drain deadline passed; open connections are closed"
        );
    }
    for endpoint in worker.quic_endpoints.take() {
        endpoint.close(VarInt::from_u32(Code::NO_ERROR.0), b"");
        // Clients of QUIC would wait for a connection that ends without a word.
        let _ = tokio::time::timeout(LAST_PACKET_TIMEOUT, endpoint.wait_idle()).await;
    }
    worker.detached_requests.close();
}

/// Accepts connections until the task is aborted. No error of accepting ends it, but a socket that the runtime cannot use
/// does.
async fn accept_connections(
    WorkerSocket {
        socket,
        listener_index,
    }: WorkerSocket,
    worker: Rc<WorkerState>,
    stack: Stack,
) {
    let listener = match Listener::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, client_address)) => {
                worker.count_accepted_connection();
                let max_connections = || worker.max_connections();
                let counted_connection = worker.occupancy.admit_connection(max_connections).await;
                let connection = LocalConnection {
                    stream,
                    listener_index,
                    client_address,
                    counted_connection,
                };
                if let Some(connection) = worker.placement.place_connection(connection) {
                    spawn_connection(connection, worker.clone(), stack.clone());
                }
            }
            Err(error) if is_harmless(&error) => {}
            Err(error) => {
                // The process is out of descriptors or memory: some must be freed first.
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

/// Whether the client ended its connection before it was accepted, or a signal interrupted the call.
fn is_harmless(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Serves a connection that another worker has handed over. The other worker has counted it for this one already.
fn serve_handed_connection(connection: HandedConnection, worker: &Rc<WorkerState>, stack: &Stack) {
    match connection.map_stream(Stream::from_socket) {
        Ok(connection) => spawn_connection(connection, worker.clone(), stack.clone()),
        Err(_) => worker.placement.count_closed_connection(),
    }
}

/// Starts the task that serves a connection, and counts the connection as open until the task ends.
fn spawn_connection(connection: LocalConnection, worker: Rc<WorkerState>, stack: Stack) {
    let open_connection = ConnectionCount::new(worker.clone());
    tokio::task::spawn_local(async move {
        let _open_connection = open_connection;
        connection::serve(connection, worker, stack).await;
    });
}

/// Does the periodic work of a worker until the task is aborted: some in each [`TICK`], some once a second.
async fn run_periodic_work(worker: Rc<WorkerState>, log: Rc<WorkerLog>, clock: Clock) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut load_meter = LoadMeter::new(&clock, worker.placement.worker_count());
    for tick_number in 0_u64.. {
        interval.tick().await;
        worker.deadline_clock.tick();
        worker.detached_requests.return_due_permits();
        log.flush_and_update_time(&clock);
        worker.recent_keys.flush();
        worker.maintain_shared_store(&clock);
        for pool in &worker.generation().pools {
            pool.update_endpoints();
        }
        if worker.number == 0 {
            worker
                .generation()
                .admission
                .store()
                .set_wall(clock.wall_offset());
            worker.asked_tickets.end_overdue(clock.now());
            step_pressure(&worker, &mut load_meter, &clock);
        }
        if tick_number.is_multiple_of(TICKS_PER_SECOND) {
            run_work_of_each_second(&worker, &clock);
        }
    }
}

/// Steps the controllers of all upstreams, which adjust elastic limits to the load of the servers and of the gateway
/// itself. Only worker 0 does so.
fn step_pressure(worker: &WorkerState, load_meter: &mut LoadMeter, clock: &Clock) {
    let generation = worker.generation();
    let gateway_count = match generation.admission.shared_store() {
        Some(shared) => shared.decider.breaker.gateway_count(),
        None => 1,
    };
    let context = StepContext {
        wall: clock.wall().into(),
        gateways: gateway_count,
        gateway_load: load_meter.measure(&worker.occupancy, worker.max_connections()),
    };
    for pool in &generation.pools {
        pool.servers().step_pressure(clock.now(), &context);
    }
}

/// Renews the `Date` field and closes idle upstream connections. Worker 0 also evicts fresh cells from the store.
fn run_work_of_each_second(worker: &WorkerState, clock: &Clock) {
    worker.date.replace(Rc::new(DateLine::new(clock.wall())));
    let generation = worker.generation();
    for pool in &generation.pools {
        pool.close_idle();
    }
    if worker.number == 0 {
        let store = generation.admission.store();
        store.evict_fresh_cells(clock.now(), BUCKETS_SWEPT_PER_SECOND);
    }
}
