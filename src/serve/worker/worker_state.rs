//! The state of one worker, which its tasks share: its generation of the configuration, deadlines and counters.
//!
//! No other thread sees the state, so it uses cells in place of locks. `run.rs` builds it and does the worker's work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use quinn::Endpoint;

use super::asked_tickets::AskedTickets;
use super::date_line::DateLine;
use super::deadlines::DeadlineClock;
use super::generation::{Generation, RunningConfig};
use super::occupancy::Occupancy;
use super::placement::Placement;
use crate::base::clock::Clock;
use crate::base::telemetry::{Registry, WorkerCounter};
use crate::net::FlushQueue;
use crate::record::insight::RecentCounts;
use crate::serve::decide::message_memory::WorkerMessageMemory;
use crate::serve::stack::counted_key::CountedKey;
use crate::serve::stack::detached::DetachedRequests;
use crate::trace::Tracer;

/// The state of one worker. It lives as long as the worker's thread; a reload replaces only the generation in it.
pub struct WorkerState {
    /// The worker's number, from 0.
    pub number: usize,
    /// Checks the deadlines of the worker's connections.
    pub deadline_clock: Rc<DeadlineClock>,
    /// Requests that go on after their clients have left.
    pub detached_requests: Rc<DetachedRequests>,
    /// The memory of messages of gRPC that are not decided yet.
    pub message_memory: Rc<WorkerMessageMemory>,
    /// Connections whose responses wait to be written together.
    pub flush_queue: Rc<FlushQueue>,
    /// How often limits counted each key since the last tick. Each tick adds these counts to the top keys.
    pub recent_keys: RecentCounts<CountedKey>,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    /// Chooses the requests that are traced, and takes their spans; `None` without traces.
    pub tracer: Option<Tracer>,
    /// The generation that new requests are served by.
    pub(super) generation: RefCell<Rc<Generation>>,
    /// See [`WorkerState::is_draining`].
    pub(super) is_draining: Cell<bool>,
    /// See [`WorkerState::is_ready`].
    pub(super) is_end_announced: Arc<AtomicBool>,
    /// The `Date` field, renewed every second.
    pub(super) date: RefCell<Rc<DateLine>>,
    /// Decides which worker serves a new connection.
    pub(super) placement: Placement,
    /// Connections that this worker serves now.
    pub(super) open_connections: Cell<usize>,
    /// Connections that this worker has accepted, also those that it has handed over.
    pub(super) accepted_connections: WorkerCounter,
    /// Open connections of all workers.
    pub(super) open_connections_gauge: metrics::Gauge,
    /// TLS handshakes: those that failed at index 0, those that succeeded at index 1.
    pub(super) handshakes: [WorkerCounter; 2],
    /// See [`WorkerState::count_flood`].
    pub(super) floods: WorkerCounter,
    /// See [`WorkerState::count_acme_proof`].
    pub(super) acme_proofs: WorkerCounter,
    /// Refused connections, by [`ConnectionRefusal`].
    pub(super) refused_connections: [WorkerCounter; 2],
    /// Open connections of all workers, and how many each address has.
    pub occupancy: Arc<Occupancy>,
    /// Tickets of requests that other proxies serve.
    pub asked_tickets: Arc<AskedTickets>,
    /// What closing connections have discarded of what their clients still sent: see `client_socket.rs`.
    pub extra_discarded_bytes: Rc<Cell<usize>>,
    /// Handshakes of QUIC whose clients have not proved their addresses, at all listeners.
    pub unproven_handshakes: Cell<usize>,
    /// The endpoints of QUIC by which this worker serves HTTP/3; empty without such listeners.
    pub quic_endpoints: RefCell<Vec<Endpoint>>,
    /// Maximum number of client connections of all workers if the gateway file sets none.
    pub(super) default_max_connections: usize,
}

/// Why a connection is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The client's address has as many open connections as `connections.per_ip` allows.
    PerIp,
    /// The connection comes from a proxy of the listener, and its PROXY header is missing or malformed.
    ProxyHeader,
}

impl WorkerState {
    /// The configuration that new requests are served by.
    pub fn generation(&self) -> Rc<Generation> {
        self.generation.borrow().clone()
    }

    /// The `Date` field for responses without one, to the second.
    pub fn date(&self) -> Rc<DateLine> {
        self.date.borrow().clone()
    }

    /// Counts a connection that was accepted, whether it is served or not.
    pub fn count_accepted_connection(&self) {
        self.accepted_connections.increment(1);
    }

    /// Counts a connection of this worker over QUIC as open, until the returned value is dropped.
    pub fn count_open_connection(self: &Rc<Self>) -> ConnectionCount {
        self.placement.count_own_connection();
        ConnectionCount::new(self.clone())
    }

    /// Counts a TLS handshake that has ended.
    pub fn count_handshake(&self, has_succeeded: bool) {
        self.handshakes[usize::from(has_succeeded)].increment(1);
    }

    /// Counts an ACME challenge that the gateway has met.
    pub fn count_acme_proof(&self) {
        self.acme_proofs.increment(1);
    }

    /// Maximum number of client connections of all workers.
    pub fn max_connections(&self) -> usize {
        let configured = self.generation.borrow().ruleset.connections.total;
        configured.unwrap_or(self.default_max_connections)
    }

    /// Counts a connection that is closed before its first request.
    pub fn count_refused_connection(&self, refusal: ConnectionRefusal) {
        self.refused_connections[refusal as usize].increment(1);
    }

    /// Counts a connection of HTTP/2 or HTTP/3 that was closed for too many frames without use, as in `http2/allowance.rs`.
    pub fn count_flood(&self) {
        self.floods.increment(1);
    }

    /// Serves new requests by `running_config` from now on. Open requests finish with the generation they began with.
    pub(super) fn start_generation(&self, running_config: &RunningConfig, clock: &Clock) {
        let previous_generation = self.generation();
        let new_generation = Generation::new(
            running_config,
            Some(&previous_generation),
            self.number,
            &self.registry,
            clock,
            &self.flush_queue,
        );
        self.generation.replace(Rc::new(new_generation));
    }

    /// Keeps up the connection to a shared store, and starts a new generation when the secret of its gateways changes.
    pub(super) fn maintain_shared_store(&self, clock: &Clock) {
        let generation = self.generation();
        let Some(shared) = generation.admission.shared_store() else {
            return;
        };
        shared.keep_connected(self.number);
        if let Some(running_config) = generation.config_to_rebuild() {
            self.start_generation(running_config, clock);
        }
    }

    /// Whether load balancers should send requests. As `/readyz` says it, they should not once the end was announced.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.get() && !self.is_end_announced.load(Relaxed)
    }

    /// Whether connections should close after their current request.
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }
}

/// Counts a connection as open until this value is dropped, also if the connection's task was aborted.
pub struct ConnectionCount(Rc<WorkerState>);

impl ConnectionCount {
    /// Counts a connection that its placement has counted already.
    pub(super) fn new(worker: Rc<WorkerState>) -> ConnectionCount {
        worker.open_connections.update(|count| count + 1);
        worker.open_connections_gauge.increment(1.0);
        ConnectionCount(worker)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.open_connections.update(|count| count - 1);
        self.0.open_connections_gauge.decrement(1.0);
        self.0.placement.count_closed_connection();
    }
}
