//! The thread of one worker: starts it, accepts connections, takes orders, keeps house and drains.

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
use super::generation::{Generation, Running};
use super::guard::{Guards, TICK};
use super::host::HostLoad;
use super::listen::{HandedConnection, LocalConnection, Placement};
use super::occupancy::Occupancy;
use super::state::Worker;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::limit::pressure::StepContext;
use crate::net::stream::Listener;
use crate::net::{Flushes, Stream};
use crate::record::insight::RecentCounts;
use crate::serve::access::{LogWriter, WorkerLog};
use crate::serve::stack::detached::DetachedRequests;
use crate::serve::stack::gateway;
use crate::serve::stack::gateway::Stack;
use crate::upstream::ServerWatch;

/// What the main thread asks of a worker.
pub enum WorkerOrder {
    /// Serve new requests by this configuration, and say when it does.
    Run(Box<Running>, oneshot::Sender<()>),
    /// Accept nothing new, finish open requests within this time, then end.
    Drain(Duration),
}

/// What a worker needs to start.
pub struct WorkerStart {
    /// Its number, from 0.
    pub number: usize,
    /// Its listening sockets, each with the index of its entrance.
    pub listeners: Vec<(socket2::Socket, usize)>,
    /// The configuration that it begins with.
    pub running: Running,
    /// Connections that other workers hand over.
    pub handed: UnboundedReceiver<HandedConnection>,
    /// How many connections each worker has.
    pub placement: Placement,
    /// The open connections of all workers.
    pub occupancy: Arc<Occupancy>,
    /// Most open connections of all workers, where no file says.
    pub room: usize,
    /// Where requests are logged.
    pub writer: LogWriter,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    /// The clock of all decisions, replaced in tests.
    pub clock: Clock,
}

/// A worker, as other threads see it.
pub struct Handle {
    /// Takes orders.
    pub orders: UnboundedSender<WorkerOrder>,
    /// Ends when the worker has drained.
    pub thread: JoinHandle<()>,
}

/// Starts the thread.
pub fn spawn(start: WorkerStart) -> io::Result<Handle> {
    let (orders, inbox) = tokio::sync::mpsc::unbounded_channel();
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
                runtime.block_on(run(start, inbox));
                // A name lookup that still runs must not delay the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "cannot start a worker"),
        })?;
    Ok(Handle { orders, thread })
}

async fn run(start: WorkerStart, mut inbox: UnboundedReceiver<WorkerOrder>) {
    let WorkerStart {
        number,
        listeners,
        running,
        mut handed,
        placement,
        occupancy,
        room,
        writer,
        registry,
        clock,
    } = start;
    let flushes = Rc::new(Flushes::default());
    let generation = Generation::new(&running, None, number, &registry, &clock, &flushes);
    // One worker checks the servers for all.
    let mut watch = (number == 0).then(ServerWatch::default);
    if let Some(watch) = &mut watch {
        watch.follow(&running.upstreams, &clock);
    }
    let access = Rc::new(WorkerLog::new(writer, &clock));
    let guards = Guards::new(clock.clone());
    let worker = Rc::new(Worker {
        number,
        detached: DetachedRequests::new(guards.clone()),
        guards,
        flushes,
        recent: RecentCounts::default(),
        generation: RefCell::new(Rc::new(generation)),
        draining: Cell::new(false),
        date: RefCell::new(date(&clock)),
        placement,
        connections: Cell::new(0),
        accepted: registry.worker_counter(number, Metric::Connections, &[]),
        open: registry.gauge(Metric::ConnectionsOpen, &[]),
        handshakes: ["failed", "ok"].map(|outcome| {
            let labels = [(Label::Outcome, outcome)];
            registry.worker_counter(number, Metric::Handshakes, &labels)
        }),
        proofs: registry.worker_counter(number, Metric::AcmeProofs, &[]),
        floods: registry.worker_counter(number, Metric::Floods, &[]),
        refused: ["per_ip", "proxy_header"].map(|reason| {
            let labels = [(Label::Reason, reason)];
            registry.worker_counter(number, Metric::ConnectionsRefused, &labels)
        }),
        occupancy,
        room,
        registry,
    });
    if let Some(shared) = worker.generation().admission.shared_store() {
        shared.connected(number).await;
    }
    let stack = gateway::stack(access.clone());
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|(socket, entrance)| accept(socket, entrance, worker.clone(), stack.clone()))
        .map(tokio::task::spawn_local)
        .collect();
    let flushes = worker.flushes.clone();
    let flusher = tokio::task::spawn_local(async move { flushes.run().await });
    let ticker = tokio::task::spawn_local(tick(worker.clone(), access.clone(), clock.clone()));
    let drain = loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(WorkerOrder::Run(running, done)) => {
                    let before = worker.generation();
                    let next = Generation::new(
                        &running,
                        Some(&before),
                        number,
                        &worker.registry,
                        &clock,
                        &worker.flushes,
                    );
                    worker.generation.replace(Rc::new(next));
                    if let Some(watch) = &mut watch {
                        watch.follow(&running.upstreams, &clock);
                    }
                    let _ = done.send(());
                }
                Some(WorkerOrder::Drain(span)) => break span,
                None => break Duration::ZERO,
            },
            Some(handed) = handed.recv() => take_over(handed, &worker, &stack),
        }
    };
    for task in &accepting {
        task.abort();
    }
    // From now on the other workers keep the connections that they accept. Those handed over before are served.
    handed.close();
    while let Some(handed) = handed.recv().await {
        take_over(handed, &worker, &stack);
    }
    worker.draining.set(true);
    worker.guards.wake_all();
    let finished = async {
        while worker.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(drain, finished).await.is_err() {
        tracing::warn!(
            worker = number,
            open = worker.connections.get(),
            "drain deadline passed; open connections are closed"
        );
    }
    worker.detached.close();
    ticker.abort();
    flusher.abort();
    access.flush();
}

/// Accepts connections until the task is aborted. No error of accepting ends it.
async fn accept(socket: socket2::Socket, entrance: usize, worker: Rc<Worker>, stack: Stack) {
    let listener = match Listener::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                worker.accepted.increment(1);
                let placed = LocalConnection {
                    stream,
                    entrance,
                    from,
                    counted: worker.occupancy.count(|| worker.most_connections()).await,
                };
                if let Some(placed) = worker.placement.place(placed) {
                    serve(placed, worker.clone(), stack.clone());
                }
            }
            Err(error) if is_fault_of_client(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: some must be freed first.
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

fn is_fault_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

fn take_over(handed: HandedConnection, worker: &Rc<Worker>, stack: &Stack) {
    match handed.with(Stream::from_socket) {
        Ok(placed) => serve(placed, worker.clone(), stack.clone()),
        Err(_) => worker.placement.connection_closed(),
    }
}

fn serve(placed: LocalConnection, worker: Rc<Worker>, stack: Stack) {
    worker.connections.update(|open| open + 1);
    worker.open.increment(1.0);
    let open = OpenCount(worker.clone());
    tokio::task::spawn_local(async move {
        let _open = open;
        connection::serve(placed, worker, stack).await;
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

/// Housekeeping, ten times a second and once a second.
async fn tick(worker: Rc<Worker>, access: Rc<WorkerLog>, clock: Clock) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut host = HostLoad::new(&clock, worker.placement.workers());
    for count in 0_u64.. {
        interval.tick().await;
        worker.guards.tick();
        worker.detached.tick();
        access.tick(&clock);
        worker.recent.flush();
        worker.tend_store(&clock);
        for pool in &worker.generation().pools {
            pool.update_endpoints();
        }
        if worker.number == 0 {
            let shared = worker.generation().admission.shared_store().cloned();
            let around = StepContext {
                wall: clock.wall().into(),
                gateways: shared.map_or(1, |shared| shared.decider.breaker.gateways()),
                gateway_load: host.measure(&worker.occupancy, worker.most_connections()),
            };
            for pool in &worker.generation().pools {
                pool.servers().steer(clock.now(), &around);
            }
        }
        if count.is_multiple_of(10) {
            worker.date.replace(date(&clock));
            let generation = worker.generation();
            for pool in &generation.pools {
                pool.expire();
            }
            if worker.number == 0 {
                generation.admission.store().sweep(clock.now(), SWEEP);
            }
        }
    }
}

fn date(clock: &Clock) -> Rc<str> {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + clock.wall()).into()
}

/// Buckets of the store that are swept each second for counts that have run out.
const SWEEP: usize = 8_192;
