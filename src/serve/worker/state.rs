//! The state of one worker, which its tasks share: its running configuration, deadlines and counters.
//!
//! No other thread sees it, so it uses cells in place of locks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::deadlines::DeadlineClock;
use super::generation::{Generation, RunningConfig};
use super::listen::Placement;
use super::occupancy::Occupancy;
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::net::FlushQueue;
use crate::record::insight::RecentCounts;
use crate::serve::stack::counted_key::CountedKey;
use crate::serve::stack::detached::DetachedRequests;

/// The state of one worker.
pub struct Worker {
    /// The worker's number, from 0.
    pub number: usize,
    /// Deadlines of its connections.
    pub deadline_clock: Rc<DeadlineClock>,
    /// Requests that go on after their clients have left.
    pub detached: Rc<DetachedRequests>,
    /// Connections whose responses wait to be written together.
    pub flushes: Rc<FlushQueue>,
    /// Keys that limits have counted recently.
    pub recent: RecentCounts<CountedKey>,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    pub(super) generation: RefCell<Rc<Generation>>,
    pub(super) draining: Cell<bool>,
    pub(super) date: RefCell<Rc<str>>,
    pub(super) placement: Placement,
    /// Open connections of this worker.
    pub(super) connections: Cell<usize>,
    /// Connections that this worker has accepted, also those that it has handed over.
    pub(super) accepted: metrics::Counter,
    /// Open connections of all workers.
    pub(super) open: metrics::Gauge,
    /// TLS handshakes that failed, and those that succeeded.
    pub(super) handshakes: [metrics::Counter; 2],
    pub(super) floods: metrics::Counter,
    pub(super) acme_proofs: metrics::Counter,
    /// Refused connections, by [`ConnectionRefusal`].
    pub(super) refused: [metrics::Counter; 2],
    pub(super) occupancy: Arc<Occupancy>,
    pub(super) default_max_connections: usize,
}

/// Why a connection is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// Its address has as many open connections as `connections.per_ip` allows.
    PerIp,
    /// It comes from a trusted proxy, and its PROXY header is missing or malformed.
    ProxyHeader,
}

impl Worker {
    /// The configuration that new requests are served by.
    pub fn generation(&self) -> Rc<Generation> {
        self.generation.borrow().clone()
    }

    /// The value of `Date` for responses without that field, to the second.
    pub fn date(&self) -> Rc<str> {
        self.date.borrow().clone()
    }

    /// Counts a TLS handshake.
    pub fn count_handshake(&self, succeeded: bool) {
        self.handshakes[usize::from(succeeded)].increment(1);
    }

    /// Counts an ACME challenge that the gateway has met.
    pub fn count_acme_proof(&self) {
        self.acme_proofs.increment(1);
    }

    /// Maximum number of client connections of all workers.
    pub(super) fn max_connections(&self) -> usize {
        let total = self.generation.borrow().ruleset.connections.total;
        total.unwrap_or(self.default_max_connections)
    }

    /// Counts a connection that is closed before its first request.
    pub fn count_refused_connection(&self, refusal: ConnectionRefusal) {
        self.refused[refusal as usize].increment(1);
    }

    /// Counts an HTTP/2 connection that was closed for too many frames without use, as in `http2/allowance.rs`.
    pub fn count_flood(&self) {
        self.floods.increment(1);
    }

    /// Serves new requests by `running` from now on. Open requests finish with the generation that they began with.
    pub(super) fn start_generation(&self, running: &RunningConfig, clock: &Clock) {
        let previous = self.generation();
        let next = Generation::new(
            running,
            Some(&previous),
            self.number,
            &self.registry,
            clock,
            &self.flushes,
        );
        self.generation.replace(Rc::new(next));
    }

    /// Keeps up the connection to a shared store, and starts a new generation when the secret of its gateways changes.
    pub(super) fn maintain_shared_store(&self, clock: &Clock) {
        let generation = self.generation();
        let Some(shared) = generation.admission.shared_store() else {
            return;
        };
        shared.keep_connected(self.number);
        if let Some(running) = generation.outdated_config() {
            self.start_generation(running, clock);
        }
    }

    /// Whether connections should close after their current request.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }
}
