//! One worker's connections to one upstream: the connection used last is used first. Which server is
//! next, `balance` says; how a request ends is told to `servers`, which all workers share; where no connection is
//! unused, `search` makes one.
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

use super::answer::Last;
use super::balance::{Balancer, View};
use super::budget::Budget;
use super::endpoint::Endpoint;
use super::error::Error;
use super::mux::{Channel, Muxes};
use super::servers::{Bound, Servers};
use super::{Balance, Settings};
use crate::clock::{Clock, Nanos};
use crate::http1::Outbox;
use crate::http1::inbox::Inbox;
use crate::limit::Identity;
use crate::net::proxy::Ends;
use crate::net::{Flushes, Leave, Socket};

/// Unused connections kept for each server.
pub const MAX_IDLE: usize = 256;

/// The connections of one worker to one upstream.
pub struct Pool {
    pub(super) counters: Counters,
    budget: Budget,
    lines: RefCell<Rc<Lines>>,
    servers: Arc<Servers>,
    seed: u64,
}

/// The servers as they are known at one time, and the connections to them.
pub(super) struct Lines {
    pub(super) endpoints: Arc<[Endpoint]>,
    stations: Vec<Rc<Station>>,
    balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    pub(super) clock: Clock,
    flushes: Rc<Flushes>,
}

/// The connections to one server.
#[derive(Default)]
pub(super) struct Station {
    /// Unused ones of HTTP/1.1.
    idle: RefCell<Vec<Idle>>,
    /// Those of HTTP/2.
    pub(super) muxes: Muxes,
    /// Its name leads elsewhere: what is under way ends, and nothing is kept.
    gone: Cell<bool>,
}

/// What one worker counts of one upstream.
pub struct Counters {
    /// Connections made.
    pub connected: metrics::Counter,
    /// Requests that went on to another server, or over another connection.
    pub retried: metrics::Counter,
}

struct Idle {
    link: Rc<RefCell<Link>>,
    since: Nanos,
}

/// A connection of HTTP/1.1 and the room it keeps from request to request.
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// What it said last.
    pub(super) last: Last,
    /// It has carried a request before, so the server may have closed it unseen.
    pub(super) reused: bool,
    /// The task of the request, when that may have to send what is left of it.
    pub(super) waker: Option<Waker>,
    /// It has to.
    pub(super) late: bool,
}

/// Who a request is sent for.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// What chooses the server, if something does.
    pub key: Option<u64>,
    /// The client's connection.
    pub ends: Ends,
}

/// What a request is sent over.
pub(super) enum Line {
    /// A connection of its own. Give it back with `Lease::release` once the answer has been read;
    /// dropping it closes it.
    One(Rc<RefCell<Link>>),
    /// A place on a connection of HTTP/2.
    Two(Channel),
}

/// What a request is given by a pool.
pub struct Connection {
    pub(super) lease: Lease,
    pub(super) line: Line,
}

/// A request that counts as open at a server, however it ends.
pub(super) struct Lease {
    pub(super) lines: Rc<Lines>,
    pub(super) server: usize,
    /// The request failed, so that nothing that follows is a success.
    failed: bool,
}

/// Servers tried for one request.
pub(super) type Tried = SmallVec<[usize; 8]>;

impl Pool {
    /// No connection is made yet. Pools of different `seed` begin at different servers.
    pub fn new(
        servers: Arc<Servers>,
        clock: Clock,
        counters: Counters,
        seed: u64,
        flushes: Rc<Flushes>,
    ) -> Rc<Pool> {
        let lines = Lines::new(&servers, seed, clock, flushes, |_| None);
        Rc::new(Pool {
            counters,
            budget: Budget::new(lines.clock.now()),
            lines: RefCell::new(Rc::new(lines)),
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
    ) -> impl Future<Output = Result<Connection, Error>> {
        self.budget.earn();
        let fresh = self.budget.is_low();
        self.find(caller, fresh, false)
    }

    /// Whether a request that may be repeated may also be repeated for the sake of the servers.
    pub fn may_retry(&self) -> bool {
        self.budget.spend(self.lines.borrow().clock.now())
    }

    /// Another connection for a request that is repeated: a new one, or a place on one of HTTP/2 that goes on.
    pub fn checkout_fresh(
        self: &Rc<Self>,
        caller: Caller,
    ) -> impl Future<Output = Result<Connection, Error>> {
        self.counters.retried.increment(1);
        self.find(caller, true, true)
    }

    // An `async fn` would keep its arguments twice.
    fn find(
        self: &Rc<Self>,
        caller: Caller,
        fresh: bool,
        again: bool,
    ) -> impl Future<Output = Result<Connection, Error>> {
        let lines = self.lines();
        async move {
            let Some(server) = lines.next(caller.key, &Tried::new()) else {
                return Err(lines.unavailable());
            };
            let lease = lines.lease(server, again)?;
            if let Some(line) = lease.lines.unused(server, fresh) {
                return Ok(Connection { lease, line });
            }
            // Boxed, as all that is rare: what a request's future may hold is copied with it.
            Box::pin(self.search(lease, caller, fresh)).await
        }
    }

    /// The servers as they were known last.
    pub(super) fn lines(&self) -> Rc<Lines> {
        self.lines.borrow().clone()
    }

    /// What to call the upstream in a request that names no host: its first server.
    pub fn host(&self) -> &str {
        self.servers.first()
    }

    /// Closes connections that were not used for the time allowed, or that the server has closed.
    pub fn expire(&self) {
        let lines = self.lines();
        let now = lines.clock.now();
        let keep_since = now.since(self.settings().idle.into());
        for station in &lines.stations {
            station.muxes.expire(now, keep_since);
            station.idle.borrow_mut().retain_mut(|idle| {
                idle.since >= keep_since && idle.link.borrow_mut().socket.is_quiet()
            });
        }
    }

    /// Goes by where names lead now. Requests under way to servers that are no more go on.
    pub fn follow(&self) {
        let before = self.lines();
        if self.servers.are_all(&before.endpoints) {
            return;
        }
        let (clock, flushes) = (before.clock.clone(), before.flushes.clone());
        let next = Lines::new(&self.servers, self.seed, clock, flushes, |one| {
            let place = before.endpoints.iter().position(|other| other.is(one))?;
            Some(before.stations[place].clone())
        });
        for station in &before.stations {
            if !next.stations.iter().any(|one| Rc::ptr_eq(one, station)) {
                station.close();
            }
        }
        self.lines.replace(Rc::new(next));
    }
}

impl Lines {
    /// Goes on with the connections of servers that were `known` before.
    fn new(
        servers: &Arc<Servers>,
        seed: u64,
        clock: Clock,
        flushes: Rc<Flushes>,
        known: impl Fn(&Endpoint) -> Option<Rc<Station>>,
    ) -> Lines {
        let endpoints = servers.endpoints();
        let station = |one: &Endpoint| known(one).unwrap_or_default();
        Lines {
            stations: endpoints.iter().map(station).collect(),
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

    pub(super) fn station(&self, server: usize) -> &Station {
        &self.stations[server]
    }

    pub(super) fn next(&self, key: Option<u64>, tried: &Tried) -> Option<usize> {
        let view = Seen { lines: self, tried };
        self.balancer.next(key, tried.is_empty(), &view)
    }

    /// `again`: the request has its place already.
    pub(super) fn lease(self: Rc<Self>, server: usize, again: bool) -> Result<Lease, Error> {
        if again {
            self.servers.enter_again(Bound::Open);
        } else {
            let entered = self.servers.enter(Bound::Open);
            entered.map_err(|most| self.full("open", most))?;
        }
        self.endpoints[server].health.opened();
        Ok(Lease {
            lines: self,
            server,
            failed: false,
        })
    }

    /// A place on a connection of HTTP/2 is as good as a fresh one: what failed is not among them.
    pub(super) fn unused(&self, server: usize, fresh: bool) -> Option<Line> {
        let station = &self.stations[server];
        if self.settings().http2 {
            return station.muxes.channel().map(Line::Two);
        }
        (!fresh).then(|| station.idle()).flatten().map(Line::One)
    }

    /// Keeps a connection for the next request. `now` may be coarse.
    pub(super) fn keep(&self, server: usize, link: Rc<RefCell<Link>>, now: Nanos) {
        let station = &self.stations[server];
        // With a PROXY header the server takes all that comes over it for one client's.
        if self.settings().proxy.is_some() || station.gone.get() {
            return;
        }
        {
            let link = &mut *link.borrow_mut();
            link.inbox.begin();
            link.reused = true;
        }
        let mut idle = station.idle.borrow_mut();
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

impl Station {
    fn idle(&self) -> Option<Rc<RefCell<Link>>> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let last = idle.pop()?;
            if last.link.borrow_mut().socket.is_quiet() {
                return Some(last.link);
            }
        }
    }

    /// Whether its name leads elsewhere.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn close(&self) {
        self.gone.set(true);
        self.idle.borrow_mut().clear();
        self.muxes.close();
    }
}

/// The servers as one request sees them.
struct Seen<'a> {
    lines: &'a Lines,
    tried: &'a Tried,
}

impl View for Seen<'_> {
    fn is_plain(&self, server: usize) -> bool {
        let lines = self.lines;
        lines.servers.is_plain(&lines.endpoints[server]) && !self.tried.contains(&server)
    }

    fn share(&self, server: usize) -> u32 {
        if self.tried.contains(&server) {
            return 0;
        }
        let lines = self.lines;
        let endpoint = &lines.endpoints[server];
        lines.servers.share(endpoint, lines.clock.now())
    }

    fn open(&self, server: usize) -> u32 {
        self.lines.endpoints[server].health.open()
    }
}

impl Lease {
    fn endpoint(&self) -> &Endpoint {
        &self.lines.endpoints[self.server]
    }

    /// The server at the other end, as it is written.
    pub fn server(&self) -> &Arc<str> {
        &self.endpoint().name
    }

    /// It is spoken to under TLS.
    pub(super) fn is_secure(&self) -> bool {
        let written = self.endpoint().written;
        self.lines.settings().servers[written].tls.is_some()
    }

    /// The request failed, and the server is to blame.
    pub(super) fn failed(&mut self) {
        if !std::mem::replace(&mut self.failed, true) {
            let now = self.lines.clock.now();
            self.lines.servers.failed(self.endpoint(), now);
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
        &self.lines.flushes
    }

    /// Keeps the connection for the next request. `now` may be coarse.
    pub fn release(self, link: Rc<RefCell<Link>>, now: Nanos) {
        self.lines.keep(self.server, link, now);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoint().health.closed();
        self.lines.servers.leave(Bound::Open);
    }
}

impl Leave for RefCell<Link> {
    fn leave(&self, cx: &mut Context<'_>) {
        let link = &mut *self.borrow_mut();
        let sent = link.outbox.poll_empty(cx, &mut link.socket);
        let waker = link.waker.take();
        if !matches!(sent, Poll::Ready(Ok(()))) {
            link.late = true;
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn broke(&self) {
        let link = &mut *self.borrow_mut();
        link.outbox.break_off();
        link.late = true;
        link.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Link {
    /// Reads more; 0 at the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.socket)
    }
}

#[cfg(test)]
mod tests;
