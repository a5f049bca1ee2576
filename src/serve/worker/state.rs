//! A worker's own state, shared by its tasks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::generation::Generation;
use super::guard::Guards;
use super::listen::Placement;
use super::occupancy::Occupancy;
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::net::Flushes;
use crate::record::insight::RecentCounts;
use crate::serve::stack::counted_key::CountedKey;
use crate::serve::stack::detached::DetachedRequests;

/// A worker's own state, shared by its tasks.
pub struct Worker {
    /// Its number.
    pub number: usize,
    /// Deadlines of its connections.
    pub guards: Rc<Guards>,
    /// Requests that go on after their clients have left.
    pub detached: Rc<DetachedRequests>,
    /// Responses that wait to be written together.
    pub flushes: Rc<Flushes>,
    /// Keys that limits have counted recently.
    pub recent: RecentCounts<CountedKey>,
    /// Where the worker's metrics are registered.
    pub registry: Registry,
    pub(super) generation: RefCell<Rc<Generation>>,
    pub(super) draining: Cell<bool>,
    pub(super) date: RefCell<Rc<str>>,
    pub(super) placement: Placement,
    pub(super) connections: Cell<usize>,
    pub(super) accepted: metrics::Counter,
    pub(super) open: metrics::Gauge,
    /// TLS handshakes that failed, and those that succeeded.
    pub(super) handshakes: [metrics::Counter; 2],
    pub(super) floods: metrics::Counter,
    pub(super) proofs: metrics::Counter,
    /// By [`RefusedConnection`].
    pub(super) refused: [metrics::Counter; 2],
    pub(super) occupancy: Arc<Occupancy>,
    pub(super) room: usize,
}

/// Why a connection is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedConnection {
    /// Its address has the most connections that one may have.
    PerIp,
    /// It comes from a proxy, and its PROXY header is missing or malformed.
    ProxyHeader,
}

impl Worker {
    /// The configuration that new requests are served by.
    pub fn generation(&self) -> Rc<Generation> {
        self.generation.borrow().clone()
    }

    /// The `Date` for responses that have none, to the second.
    pub fn date(&self) -> Rc<str> {
        self.date.borrow().clone()
    }

    /// Counts a TLS handshake.
    pub fn count_handshake(&self, succeeded: bool) {
        self.handshakes[usize::from(succeeded)].increment(1);
    }

    /// Counts an ACME challenge that was answered.
    pub fn count_proof(&self) {
        self.proofs.increment(1);
    }

    /// Most connections of all clients.
    pub(super) fn most_connections(&self) -> usize {
        let total = self.generation.borrow().ruleset.connections.total;
        total.unwrap_or(self.room)
    }

    /// Counts a connection that is closed before its first request.
    pub fn count_refused(&self, why: RefusedConnection) {
        self.refused[why as usize].increment(1);
    }

    /// Counts an HTTP/2 connection that was closed for too many frames that ask for nothing.
    pub fn count_flood(&self) {
        self.floods.increment(1);
    }

    /// Keeps the connection to a shared store, and builds the generation anew when the secret of its gateways changes.
    pub(super) fn tend_store(&self, clock: &Clock) {
        let generation = self.generation();
        let Some(shared) = generation.admission.shared_store() else {
            return;
        };
        shared.tend(self.number);
        if let Some(running) = generation.outdated() {
            let next = Generation::new(
                running,
                Some(&generation),
                self.number,
                &self.registry,
                clock,
                &self.flushes,
            );
            self.generation.replace(Rc::new(next));
        }
    }

    /// Whether connections should close after their current request.
    pub fn draining(&self) -> bool {
        self.draining.get()
    }
}
