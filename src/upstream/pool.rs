//! One worker's connections to one upstream; the most recently used one is used first. `balance` chooses the server,
//! `servers`, which all workers share, learns how requests end, and `search` makes a connection where none is idle.
//!
//! Bound: [`MAX_IDLE`] unused connections for each worker and server.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::StatusCode;
use smallvec::SmallVec;

use super::balance::{Balancer, ServerView};
use super::budget::RetryBudget;
use super::endpoint::Endpoint;
use super::error::Error;
use super::mux::{Channel, MuxedConnections};
use super::response_head::LastHead;
use super::servers::{RequestBound, Servers};
use super::{Balance, Settings};
use crate::base::clock::{Clock, Nanos};
use crate::http::http1::Outbox;
use crate::http::http1::inbox::Inbox;
use crate::limit::Identity;
use crate::net::proxy::Ends;
use crate::net::{Flushes, Leave, Socket};

/// Unused connections kept for each server.
pub const MAX_IDLE: usize = 256;

/// The connections of one worker to one upstream.
pub struct UpstreamPool {
    pub(super) counters: Counters,
    budget: RetryBudget,
    current: RefCell<Rc<EndpointSet>>,
    servers: Arc<Servers>,
    seed: u64,
}

/// The endpoints of an upstream at one time, and the connections to them.
pub(super) struct EndpointSet {
    pub(super) endpoints: Arc<[Endpoint]>,
    pools: Vec<Rc<EndpointPool>>,
    balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    pub(super) clock: Clock,
    flushes: Rc<Flushes>,
}

/// The connections to one endpoint.
#[derive(Default)]
pub(super) struct EndpointPool {
    /// Unused ones of HTTP/1.1.
    idle: RefCell<Vec<Idle>>,
    /// Those of HTTP/2.
    pub(super) muxes: MuxedConnections,
    /// Its name no longer resolves to it: requests under way finish, and no connection is kept.
    removed: Cell<bool>,
}

/// One worker's counters of one upstream.
pub struct Counters {
    /// Connections made.
    pub connected: metrics::Counter,
    /// Requests that went on to another server, or over another connection.
    pub retried: metrics::Counter,
}

struct Idle {
    link: Rc<RefCell<Http1Connection>>,
    since: Nanos,
}

/// A connection of HTTP/1.1 and the room it keeps from request to request.
pub(super) struct Http1Connection {
    pub(super) socket: Socket,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// What it said last.
    pub(super) last: LastHead,
    /// It has carried a request before, so the server may have closed it unseen.
    pub(super) reused: bool,
    /// The task of the request, when that may have to send what is left of it.
    pub(super) waker: Option<Waker>,
    /// It has to.
    pub(super) late: bool,
}

/// The client for whom a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The hash that chooses the server, if the upstream balances by one.
    pub key: Option<u64>,
    /// The client's connection.
    pub ends: Ends,
}

/// The connection or stream that carries a request.
pub(super) enum Transport {
    /// A connection of its own. Give it back with `Lease::release` once the answer has been read;
    /// dropping it closes it.
    Http1(Rc<RefCell<Http1Connection>>),
    /// A place on a connection of HTTP/2.
    Http2(Channel),
}

/// A connection from the pool, counted as an open request.
pub struct LeasedConnection {
    pub(super) lease: Lease,
    pub(super) line: Transport,
}

/// A request that counts as open at a server, however it ends.
pub(super) struct Lease {
    pub(super) set: Rc<EndpointSet>,
    pub(super) server: usize,
    /// The request failed, so that nothing that follows is a success.
    failed: bool,
}

/// Servers tried for one request.
pub(super) type Tried = SmallVec<[usize; 8]>;

impl UpstreamPool {
    /// No connection is made yet. Pools of different `seed` begin at different servers.
    pub fn new(
        servers: Arc<Servers>,
        clock: Clock,
        counters: Counters,
        seed: u64,
        flushes: Rc<Flushes>,
    ) -> Rc<UpstreamPool> {
        let set = EndpointSet::new(&servers, seed, clock, flushes, |_| None);
        Rc::new(UpstreamPool {
            counters,
            budget: RetryBudget::new(set.clock.now()),
            current: RefCell::new(Rc::new(set)),
            servers,
            seed,
        })
    }

    /// What is configured.
    pub fn settings(&self) -> &Settings {
        &self.servers.settings
    }

    /// What all workers know of its servers.
    pub fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// What requests are spread by, if by a key.
    pub fn hashes(&self) -> Option<&[Identity]> {
        match &self.settings().balance {
            Balance::Hash(identities) => Some(identities),
            Balance::RoundRobin | Balance::LeastRequests => None,
        }
    }

    /// A connection for a new request, an unused one if there is one. Each server that may be asked is
    /// tried once; nothing has been sent to those that cannot be reached.
    pub fn checkout(
        self: &Rc<Self>,
        caller: Caller,
    ) -> impl Future<Output = Result<LeasedConnection, Error>> {
        self.budget.earn();
        let fresh = self.budget.is_low();
        self.find(caller, fresh, false)
    }

    /// Whether a request that may be repeated may also be repeated for the sake of the servers.
    pub fn may_retry(&self) -> bool {
        self.budget.spend(self.current.borrow().clock.now())
    }

    /// Another connection for a request that is repeated: a new one, or a place on one of HTTP/2 that goes on.
    pub fn checkout_fresh(
        self: &Rc<Self>,
        caller: Caller,
    ) -> impl Future<Output = Result<LeasedConnection, Error>> {
        self.counters.retried.increment(1);
        self.find(caller, true, true)
    }

    // An `async fn` would keep its arguments twice.
    fn find(
        self: &Rc<Self>,
        caller: Caller,
        fresh: bool,
        again: bool,
    ) -> impl Future<Output = Result<LeasedConnection, Error>> {
        let set = self.endpoints();
        async move {
            let Some(server) = set.next(caller.key, &Tried::new()) else {
                return Err(set.unavailable());
            };
            let lease = set.lease(server, again)?;
            if let Some(line) = lease.set.unused(server, fresh) {
                return Ok(LeasedConnection { lease, line });
            }
            // Boxed, as all that is rare: what a request's future may hold is copied with it.
            Box::pin(self.search(lease, caller, fresh)).await
        }
    }

    /// The endpoints that new requests go to.
    pub(super) fn endpoints(&self) -> Rc<EndpointSet> {
        self.current.borrow().clone()
    }

    /// What to call the upstream in a request that names no host: its first server.
    pub fn host(&self) -> &str {
        self.servers.host(0)
    }

    /// Closes connections that were not used for the time allowed, or that the server has closed.
    pub fn expire(&self) {
        let set = self.endpoints();
        let now = set.clock.now();
        let keep_since = now.since(self.settings().idle.into());
        for pool in &set.pools {
            pool.muxes.expire(now, keep_since);
            pool.idle.borrow_mut().retain_mut(|idle| {
                idle.since >= keep_since && idle.link.borrow_mut().socket.is_quiet()
            });
        }
    }

    /// Uses the endpoints that names resolve to now. Requests under way to removed ones finish.
    pub fn update_endpoints(&self) {
        let before = self.endpoints();
        if self.servers.is_current(&before.endpoints) {
            return;
        }
        let (clock, flushes) = (before.clock.clone(), before.flushes.clone());
        let next = EndpointSet::new(&self.servers, self.seed, clock, flushes, |one| {
            let place = before
                .endpoints
                .iter()
                .position(|other| other.is_same(one))?;
            Some(before.pools[place].clone())
        });
        for pool in &before.pools {
            if !next.pools.iter().any(|one| Rc::ptr_eq(one, pool)) {
                pool.close();
            }
        }
        self.current.replace(Rc::new(next));
    }
}

impl EndpointSet {
    /// Takes over the connections of endpoints that were `known` before.
    fn new(
        servers: &Arc<Servers>,
        seed: u64,
        clock: Clock,
        flushes: Rc<Flushes>,
        known: impl Fn(&Endpoint) -> Option<Rc<EndpointPool>>,
    ) -> EndpointSet {
        let endpoints = servers.endpoints();
        let pool = |one: &Endpoint| known(one).unwrap_or_default();
        EndpointSet {
            pools: endpoints.iter().map(pool).collect(),
            balancer: Balancer::new(&servers.settings, &endpoints, seed),
            endpoints,
            servers: servers.clone(),
            clock,
            flushes,
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.servers.settings
    }

    pub(super) fn pool(&self, server: usize) -> &EndpointPool {
        &self.pools[server]
    }

    pub(super) fn next(&self, key: Option<u64>, tried: &Tried) -> Option<usize> {
        let view = PoolView { set: self, tried };
        self.balancer.next(key, tried.is_empty(), &view)
    }

    /// `again`: the request has its place already.
    pub(super) fn lease(self: Rc<Self>, server: usize, again: bool) -> Result<Lease, Error> {
        if again {
            self.servers.enter_again(RequestBound::Open);
        } else {
            let entered = self.servers.enter(RequestBound::Open);
            entered.map_err(|most| self.full("open", most))?;
        }
        self.endpoints[server].health.opened();
        Ok(Lease {
            set: self,
            server,
            failed: false,
        })
    }

    /// A place on a connection of HTTP/2 is as good as a fresh one: what failed is not among them.
    pub(super) fn unused(&self, server: usize, fresh: bool) -> Option<Transport> {
        let pool = &self.pools[server];
        if self.settings().http2 {
            return pool.muxes.channel().map(Transport::Http2);
        }
        (!fresh)
            .then(|| pool.idle())
            .flatten()
            .map(Transport::Http1)
    }

    /// Keeps a connection for the next request. `now` may be coarse.
    pub(super) fn keep_idle(&self, server: usize, link: Rc<RefCell<Http1Connection>>, now: Nanos) {
        let pool = &self.pools[server];
        // With a PROXY header the server takes all that comes over it for one client's.
        if self.settings().proxy.is_some() || pool.removed.get() {
            return;
        }
        {
            let link = &mut *link.borrow_mut();
            link.inbox.begin_message();
            link.reused = true;
        }
        let mut idle = pool.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { link, since: now });
        }
    }

    pub(super) fn full(&self, what: &'static str, most: u32) -> Error {
        Error::Full {
            upstream: self.settings().name.clone(),
            what,
            most,
        }
    }

    #[cold]
    pub(super) fn unavailable(&self) -> Error {
        Error::Unavailable {
            upstream: self.settings().name.clone(),
        }
    }
}

impl EndpointPool {
    fn idle(&self) -> Option<Rc<RefCell<Http1Connection>>> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let last = idle.pop()?;
            if last.link.borrow_mut().socket.is_quiet() {
                return Some(last.link);
            }
        }
    }

    /// Whether its name no longer resolves to it.
    pub(super) fn is_removed(&self) -> bool {
        self.removed.get()
    }

    fn close(&self) {
        self.removed.set(true);
        self.idle.borrow_mut().clear();
        self.muxes.close();
    }
}

/// The servers as one request sees them.
struct PoolView<'a> {
    set: &'a EndpointSet,
    tried: &'a Tried,
}

impl ServerView for PoolView<'_> {
    fn is_plain(&self, server: usize) -> bool {
        let set = self.set;
        set.servers.is_plain(&set.endpoints[server]) && !self.tried.contains(&server)
    }

    fn share(&self, server: usize) -> u32 {
        if self.tried.contains(&server) {
            return 0;
        }
        let set = self.set;
        let endpoint = &set.endpoints[server];
        set.servers.share(endpoint, set.clock.now())
    }

    fn open(&self, server: usize) -> u32 {
        self.set.endpoints[server].health.open()
    }
}

impl Lease {
    fn endpoint(&self) -> &Endpoint {
        &self.set.endpoints[self.server]
    }

    /// The server at the other end, as it is written.
    pub fn server(&self) -> &Arc<str> {
        &self.endpoint().name
    }

    /// It is spoken to under TLS.
    pub(super) fn is_secure(&self) -> bool {
        let written = self.endpoint().server;
        self.set.settings().servers[written].tls.is_some()
    }

    /// The request failed, and the server is to blame.
    pub(super) fn failed(&mut self) {
        if !std::mem::replace(&mut self.failed, true) {
            let now = self.set.clock.now();
            self.set.servers.failed(self.endpoint(), now);
        }
    }

    /// The head of the answer is there. Those of gateways in trouble are failures.
    pub(super) fn answered(&mut self, status: StatusCode) {
        if matches!(status.as_u16(), 502..=504) {
            self.failed();
        } else {
            self.endpoint().health.answers();
        }
    }

    /// The answer is there to its end.
    pub(super) fn succeeded(&self) {
        if !self.failed {
            self.endpoint().health.succeeded();
        }
    }

    /// Where requests of the worker wait to leave together.
    pub(super) fn flushes(&self) -> &Flushes {
        &self.set.flushes
    }

    /// Keeps the connection for the next request. `now` may be coarse.
    pub fn release(self, link: Rc<RefCell<Http1Connection>>, now: Nanos) {
        self.set.keep_idle(self.server, link, now);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoint().health.closed();
        self.set.servers.leave(RequestBound::Open);
    }
}

impl Leave for RefCell<Http1Connection> {
    fn leave(&self, cx: &mut Context<'_>) {
        let link = &mut *self.borrow_mut();
        let sent = link.outbox.poll_flush(cx, &mut link.socket);
        let waker = link.waker.take();
        if !matches!(sent, Poll::Ready(Ok(()))) {
            link.late = true;
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn broke(&self) {
        let link = &mut *self.borrow_mut();
        link.outbox.mark_broken();
        link.late = true;
        link.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Http1Connection {
    /// Reads more; 0 at the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.socket)
    }
}

#[cfg(test)]
mod tests;
