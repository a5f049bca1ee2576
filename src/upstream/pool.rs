//! One worker's connections to one upstream: the connection used last is used first. Which server is
//! next, `balance` says; how a request ends is told to `servers`, which all workers share.
//!
//! Bound: [`MAX_IDLE`] unused connections for each worker and server.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::StatusCode;
use smallvec::SmallVec;
use tokio::io::AsyncWriteExt;

use super::answer::Last;
use super::balance::{Balancer, View};
use super::budget::Budget;
use super::error::Error;
use super::mux::{Channel, Muxes};
use super::servers::{Bound, Servers};
use super::{Balance, Settings};
use crate::clock::{Clock, Nanos};
use crate::http1::Outbox;
use crate::http1::inbox::Inbox;
use crate::limit::Identity;
use crate::net::proxy::{self, Ends};
use crate::net::{Flushes, Leave, Socket};

/// Unused connections kept for each server.
pub const MAX_IDLE: usize = 256;

/// The connections of one worker to one upstream.
pub struct Pool {
    servers: Arc<Servers>,
    balancer: Balancer,
    budget: Budget,
    /// Unused connections of HTTP/1.1, by server.
    idle: Vec<RefCell<Vec<Idle>>>,
    /// Connections of HTTP/2, by server.
    muxes: Vec<Muxes>,
    clock: Clock,
    counters: Counters,
    flushes: Rc<Flushes>,
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
    address: SocketAddr,
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
    pool: Rc<Pool>,
    server: usize,
    /// The request failed, so that nothing that follows is a success.
    failed: bool,
}

/// Servers tried for one request.
type Tried = SmallVec<[usize; 8]>;

impl Pool {
    /// No connection is made yet. Pools of different `seed` begin at different servers.
    pub fn new(
        servers: Arc<Servers>,
        clock: Clock,
        counters: Counters,
        seed: u64,
        flushes: Rc<Flushes>,
    ) -> Rc<Pool> {
        Rc::new(Pool {
            balancer: Balancer::new(&servers.settings, seed),
            budget: Budget::new(clock.now()),
            idle: servers.all().iter().map(|_| RefCell::default()).collect(),
            muxes: servers.all().iter().map(|_| Muxes::default()).collect(),
            servers,
            clock,
            counters,
            flushes,
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
        self.budget.spend(self.clock.now())
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
        let mut tried = Tried::new();
        let mut admitted = None;
        let mut last = None;
        async move {
            while let Some(server) = self.next(caller.key, &tried) {
                let lease = self.lease(server, again)?;
                if let Some(line) = self.unused(server, fresh) {
                    return Ok(Connection { lease, line });
                }
                tried.push(server);
                if !*admitted.get_or_insert_with(|| self.admits()) {
                    continue;
                }
                if last.is_some() {
                    self.counters.retried.increment(1);
                }
                // Boxed, as all that is rare: what a request's future may hold is copied with it.
                match Box::pin(self.connect(server, caller.ends)).await {
                    Ok(line) => return Ok(Connection { lease, line }),
                    Err(full @ Error::Full { .. }) => return Err(full),
                    Err(error) => last = Some(error),
                }
            }
            if last.is_some() {
                self.servers.gate().shut(self.clock.now());
            }
            Err(last.unwrap_or_else(|| Error::Unavailable {
                upstream: self.settings().name.clone(),
            }))
        }
    }

    /// Whether servers may be asked for connections.
    fn admits(&self) -> bool {
        let patience = self.settings().connect;
        self.servers.gate().admits(self.clock.now(), patience)
    }

    fn next(&self, key: Option<u64>, tried: &Tried) -> Option<usize> {
        let view = Seen { pool: self, tried };
        self.balancer.next(key, tried.is_empty(), &view)
    }

    fn full(&self, what: &'static str, most: u32) -> Error {
        Error::Full {
            upstream: self.settings().name.clone(),
            what,
            most,
        }
    }

    /// What to call the upstream in a request that names no host: its first server.
    pub fn host(&self) -> &str {
        let first = self.servers.all().first();
        first.map_or("", |server| &server.name)
    }

    fn lease(self: &Rc<Self>, server: usize, again: bool) -> Result<Lease, Error> {
        if again {
            self.servers.enter_again(Bound::Open);
        } else {
            let entered = self.servers.enter(Bound::Open);
            entered.map_err(|most| self.full("open", most))?;
        }
        self.servers.all()[server].health.opened();
        Ok(Lease {
            pool: self.clone(),
            server,
            failed: false,
        })
    }

    /// A place on a connection of HTTP/2 is as good as a fresh one: what failed is not among them.
    fn unused(&self, server: usize, fresh: bool) -> Option<Line> {
        if self.settings().http2 {
            return self.muxes[server].channel().map(Line::Two);
        }
        (!fresh).then(|| self.idle(server)).flatten().map(Line::One)
    }

    fn idle(&self, server: usize) -> Option<Rc<RefCell<Link>>> {
        let mut idle = self.idle[server].borrow_mut();
        loop {
            let last = idle.pop()?;
            if last.link.borrow_mut().socket.is_quiet() {
                return Some(last.link);
            }
        }
    }

    async fn connect(&self, server: usize, ends: Ends) -> Result<Line, Error> {
        let after = self.settings().connect;
        let entered = self.servers.enter(Bound::Pending);
        entered.map_err(|most| self.full("waiting for a connection", most))?;
        let _pending = Pending(&self.servers);
        let known = &self.servers.all()[server];
        let muxes = &self.muxes[server];
        let attempt = async {
            let _one = match self.settings().http2 {
                true => Some(muxes.connecting.lock().await),
                false => None,
            };
            // Another request may have connected meanwhile.
            if let Some(line) = self.unused(server, true) {
                return Ok(line);
            }
            let (mut stream, address) = known.addresses.connect().await?;
            if let Some(version) = self.settings().proxy {
                stream.write_all(&proxy::header(version, ends)?).await?;
            }
            let socket = match &self.settings().servers[server].tls {
                Some(tls) => Socket::connect(stream, tls).await?,
                None => Socket::new(stream)?,
            };
            self.counters.connected.increment(1);
            if self.settings().http2 {
                if socket.is_secure() && !socket.speaks_http2() {
                    return Err(io::Error::other("it does not speak HTTP/2"));
                }
                return muxes.begin(socket, address).await.map(Line::Two);
            }
            Ok(Line::One(Rc::new(RefCell::new(Link {
                socket,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                last: Last::default(),
                reused: false,
                waker: None,
                late: false,
                address,
            }))))
        };
        let server_name = || known.name.to_string();
        let line = match tokio::time::timeout(after, attempt).await {
            Ok(line) => line.map_err(|cause| Error::Connect {
                server: server_name(),
                cause,
            }),
            Err(_) => Err(Error::ConnectTimeout {
                server: server_name(),
                after,
            }),
        };
        match &line {
            Ok(_) => self.servers.gate().open(),
            Err(Error::Connect { cause, .. }) if is_ours(cause) => {}
            Err(_) => self.servers.failed(server, self.clock.now()),
        }
        line
    }

    /// Closes connections that were not used for the time allowed, that the server has closed, or to
    /// addresses that its name no longer stands for.
    pub fn expire(&self) {
        let now = self.clock.now();
        let keep_since = now.since(self.settings().idle.into());
        for (muxes, known) in self.muxes.iter().zip(self.servers.all()) {
            muxes.expire(now, keep_since, |address| known.addresses.has(address));
        }
        for (idle, known) in self.idle.iter().zip(self.servers.all()) {
            idle.borrow_mut().retain_mut(|idle| {
                let link = &mut *idle.link.borrow_mut();
                idle.since >= keep_since
                    && known.addresses.has(link.address)
                    && link.socket.is_quiet()
            });
        }
    }
}

/// The gateway has no descriptor left: no server is to blame.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A request that waits for a connection.
struct Pending<'a>(&'a Servers);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.leave(Bound::Pending);
    }
}

/// The servers as one request sees them.
struct Seen<'a> {
    pool: &'a Pool,
    tried: &'a Tried,
}

impl View for Seen<'_> {
    fn is_plain(&self, server: usize) -> bool {
        self.pool.servers.is_plain(server) && !self.tried.contains(&server)
    }

    fn share(&self, server: usize) -> u32 {
        if self.tried.contains(&server) {
            return 0;
        }
        self.pool.servers.share(server, self.pool.clock.now())
    }

    fn open(&self, server: usize) -> u32 {
        self.pool.servers.all()[server].health.open()
    }
}

impl Lease {
    /// The server at the other end.
    pub fn server(&self) -> &Arc<str> {
        &self.pool.servers.all()[self.server].name
    }

    /// It is spoken to under TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.pool.settings().servers[self.server].tls.is_some()
    }

    /// The request failed, and the server is to blame.
    pub(super) fn failed(&mut self) {
        if !std::mem::replace(&mut self.failed, true) {
            let now = self.pool.clock.now();
            self.pool.servers.failed(self.server, now);
        }
    }

    /// The head of the answer is there. Those of gateways in trouble are failures.
    pub(super) fn answered(&mut self, status: StatusCode) {
        if matches!(status.as_u16(), 502..=504) {
            self.failed();
        } else {
            self.pool.servers.answers(self.server);
        }
    }

    /// The answer is there to its end.
    pub(super) fn succeeded(&self) {
        if !self.failed {
            self.pool.servers.succeeded(self.server);
        }
    }

    /// Where requests of the worker wait to leave together.
    pub(super) fn flushes(&self) -> &Flushes {
        &self.pool.flushes
    }

    /// Keeps the connection for the next request. `now` may be coarse.
    pub fn release(self, link: Rc<RefCell<Link>>, now: Nanos) {
        // The server takes all that comes over it for one client's.
        if self.pool.settings().proxy.is_some() {
            return;
        }
        {
            let link = &mut *link.borrow_mut();
            link.inbox.begin();
            link.reused = true;
        }
        let mut idle = self.pool.idle[self.server].borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { link, since: now });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let servers = &self.pool.servers;
        servers.all()[self.server].health.closed();
        servers.leave(Bound::Open);
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
