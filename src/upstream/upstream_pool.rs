//! One worker's connections to one upstream, and the assignment of requests to servers. Of idle connections the most
//! recently used one is used first. `balancer` chooses the server, `connection_search` makes a connection where none is
//! idle, and `servers` records how requests end. Bound: [`MAX_IDLE_CONNECTIONS`] idle ones for each worker and endpoint.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;

use super::balancer::{Balancer, ServerView};
use super::endpoint::Endpoint;
use super::error::Error;
use super::muxed_connections::MuxedConnections;
use super::retry_budget::RetryBudget;
use super::servers::{RequestBound, Servers};
use super::transport::{Http1Connection, Transport};
use super::{BalanceMethod, Settings};
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::WorkerCounter;
use crate::limit::Identity;
use crate::net::FlushQueue;
use crate::net::proxy_protocol::ConnectionAddresses;

/// Maximum number of idle HTTP/1.1 connections that a worker keeps to one endpoint. Each holds a file descriptor.
pub const MAX_IDLE_CONNECTIONS: usize = 256;

/// The connections of one worker to one upstream.
pub struct UpstreamPool {
    pub(super) counters: PoolCounters,
    retry_budget: RetryBudget,
    /// The endpoints that new requests go to.
    current_set: RefCell<Rc<EndpointSet>>,
    servers: Arc<Servers>,
    /// The seed of the worker's [`Balancer`].
    seed: u64,
}

/// The endpoints of an upstream at one time, and the connections to them. A request keeps the set that it began with.
pub(super) struct EndpointSet {
    pub(super) endpoints: Arc<[Endpoint]>,
    /// The connections to each endpoint, in the order of `endpoints`.
    pools: Vec<Rc<EndpointPool>>,
    balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    pub(super) clock: Clock,
    flush_queue: Rc<FlushQueue>,
}

/// The connections to one endpoint.
#[derive(Default)]
pub(super) struct EndpointPool {
    /// The idle connections of HTTP/1.1, the most recently used one last.
    idle_connections: RefCell<Vec<IdleConnection>>,
    pub(super) http2_connections: MuxedConnections,
    /// Whether the name no longer resolves to the endpoint. Open requests finish, and no connection is kept.
    is_removed: Cell<bool>,
}

/// One worker's counters of one upstream.
pub struct PoolCounters {
    /// The number of connections that were made.
    pub connections_made: WorkerCounter,
    /// The number of further attempts for requests: to connect to another server, or to send over another connection.
    pub retries: WorkerCounter,
}

/// A connection of HTTP/1.1 that carries no request.
struct IdleConnection {
    connection: Rc<RefCell<Http1Connection>>,
    /// The time at which the last response ended.
    idle_since: Nanos,
}

/// What the choice of a server and the PROXY header depend on.
#[derive(Clone, Copy, Debug)]
pub struct ClientContext {
    /// The hash that chooses the server; `None` unless the upstream balances by hash and the client has such an identity.
    pub balance_key: Option<u64>,
    /// The addresses of the client's connection, for the PROXY header.
    pub addresses: ConnectionAddresses,
}

/// Whether a request may use an idle connection of HTTP/1.1, which the server may have closed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleUse {
    Allowed,
    Avoided,
}

/// Whether a request is sent for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    First,
    Repeated,
}

/// A connection for one request, and the request's assignment to the server at its other end.
pub struct CheckedOutConnection {
    pub(super) assignment: Assignment,
    pub(super) transport: Transport,
}

/// The assignment of a request to a server. It counts the request as open there until it is dropped.
pub(super) struct Assignment {
    pub(super) set: Rc<EndpointSet>,
    /// The index of the server's endpoint in `set`.
    pub(super) endpoint_index: usize,
    /// Whether the request has failed by the server's fault. Then the end of its response is no success.
    has_failed: bool,
}

/// Indices of endpoints in an [`EndpointSet`]. Eight fit without an allocation; few upstreams have more servers.
pub(super) type EndpointIndices = SmallVec<[usize; 8]>;

impl UpstreamPool {
    /// A pool without connections. Pools with different `seed` begin at different servers.
    pub fn new(
        servers: Arc<Servers>,
        clock: Clock,
        counters: PoolCounters,
        seed: u64,
        flush_queue: Rc<FlushQueue>,
    ) -> Rc<UpstreamPool> {
        let set = EndpointSet::new(&servers, seed, clock, flush_queue, |_| None);
        Rc::new(UpstreamPool {
            counters,
            retry_budget: RetryBudget::new(set.clock.now()),
            current_set: RefCell::new(Rc::new(set)),
            servers,
            seed,
        })
    }

    /// The settings of the upstream.
    pub fn settings(&self) -> &Settings {
        &self.servers.settings
    }

    /// The state of the servers, which all workers share.
    pub fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// The identities whose hash chooses the server; `None` unless the upstream balances by hash.
    pub fn hashed_identities(&self) -> Option<&[Identity]> {
        match &self.settings().balance_method {
            BalanceMethod::Hash(identities) => Some(identities),
            BalanceMethod::RoundRobin | BalanceMethod::LeastRequests => None,
        }
    }

    /// A connection for a new request: an existing one to the chosen server, but no idle one of HTTP/1.1 while the retry
    /// budget is low. Otherwise it connects, and tries each server that may get requests at most once.
    ///
    /// # Errors
    ///
    /// No server may get the request, none accepts a connection, or a bound on requests is reached. Nothing was sent.
    pub fn checkout(
        self: &Rc<Self>,
        client: ClientContext,
    ) -> impl Future<Output = Result<CheckedOutConnection, Error>> {
        self.retry_budget.record_request();
        // The server may have closed an idle connection, and then the request would need one of the last retries.
        let idle_use = match self.retry_budget.is_low() {
            true => IdleUse::Avoided,
            false => IdleUse::Allowed,
        };
        self.checkout_with(client, Sending::First, idle_use)
    }

    /// Takes one retry from the budget; false if none is left, so that a failed request must not be sent again.
    pub fn take_retry(&self) -> bool {
        self.retry_budget
            .take_retry(self.current_set.borrow().clock.now())
    }

    /// A connection for a request that is sent again: a new one, or a stream of an existing one of HTTP/2.
    ///
    /// # Errors
    ///
    /// No server may get the request, none accepts a connection, or too many requests wait for one.
    pub fn checkout_for_retry(
        self: &Rc<Self>,
        client: ClientContext,
    ) -> impl Future<Output = Result<CheckedOutConnection, Error>> {
        self.counters.retries.increment(1);
        self.checkout_with(client, Sending::Repeated, IdleUse::Avoided)
    }

    /// Assigns a request to a server, and finds or makes a connection to it.
    // Not an `async fn`, whose future would keep the arguments twice.
    fn checkout_with(
        self: &Rc<Self>,
        client: ClientContext,
        sending: Sending,
        idle_use: IdleUse,
    ) -> impl Future<Output = Result<CheckedOutConnection, Error>> {
        let set = self.endpoint_set();
        async move {
            let Some(endpoint_index) =
                set.choose_endpoint(client.balance_key, &EndpointIndices::new())
            else {
                return Err(set.unavailable_error());
            };
            let assignment = match sending {
                Sending::First => set.assign(endpoint_index)?,
                Sending::Repeated => set.assign_again(endpoint_index),
            };
            if let Some(transport) = assignment.set.take_existing(endpoint_index, idle_use) {
                return Ok(CheckedOutConnection {
                    assignment,
                    transport,
                });
            }
            // Boxed, because it is rare: an unboxed future would make the future of every request larger.
            Box::pin(self.search_connection(assignment, client, idle_use)).await
        }
    }

    /// The endpoints that new requests go to.
    pub(super) fn endpoint_set(&self) -> Rc<EndpointSet> {
        self.current_set.borrow().clone()
    }

    /// The `Host` for requests that have none: that of the first server.
    pub fn host(&self) -> &str {
        self.servers.host(0)
    }

    /// Closes connections that were idle for longer than the idle timeout, or that the server has closed.
    pub fn close_idle(&self) {
        let set = self.endpoint_set();
        let now = set.clock.now();
        let keep_since = now.since(self.settings().idle_timeout.into());
        for pool in &set.pools {
            pool.http2_connections.close_idle(now, keep_since);
            pool.idle_connections.borrow_mut().retain_mut(|idle| {
                idle.idle_since >= keep_since && idle.connection.borrow_mut().socket.probe_idle()
            });
        }
    }

    /// Replaces the endpoints by those that names resolve to now. Open requests to removed endpoints finish.
    pub fn update_endpoints(&self) {
        let before = self.endpoint_set();
        if self.servers.is_current(&before.endpoints) {
            return;
        }
        let (clock, flush_queue) = (before.clock.clone(), before.flush_queue.clone());
        let after = EndpointSet::new(&self.servers, self.seed, clock, flush_queue, |endpoint| {
            let mut endpoints_before = before.endpoints.iter();
            let index = endpoints_before.position(|other| other.is_same(endpoint))?;
            Some(before.pools[index].clone())
        });
        for pool in &before.pools {
            if !after.pools.iter().any(|other| Rc::ptr_eq(other, pool)) {
                pool.close();
            }
        }
        self.current_set.replace(Rc::new(after));
    }
}

impl EndpointSet {
    /// The current endpoints of the servers. `existing_pool` returns the pool of an endpoint that is kept.
    fn new(
        servers: &Arc<Servers>,
        seed: u64,
        clock: Clock,
        flush_queue: Rc<FlushQueue>,
        existing_pool: impl Fn(&Endpoint) -> Option<Rc<EndpointPool>>,
    ) -> EndpointSet {
        let endpoints = servers.endpoints();
        let pool = |endpoint: &Endpoint| existing_pool(endpoint).unwrap_or_default();
        EndpointSet {
            pools: endpoints.iter().map(pool).collect(),
            balancer: Balancer::new(&servers.settings, &endpoints, seed),
            endpoints,
            servers: servers.clone(),
            clock,
            flush_queue,
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.servers.settings
    }

    pub(super) fn pool(&self, endpoint_index: usize) -> &EndpointPool {
        &self.pools[endpoint_index]
    }

    /// The index of the endpoint for the next attempt; `None` if every endpoint was tried or must get no request.
    pub(super) fn choose_endpoint(
        &self,
        balance_key: Option<u64>,
        tried: &EndpointIndices,
    ) -> Option<usize> {
        let view = RequestView { set: self, tried };
        self.balancer.choose(balance_key, tried.is_empty(), &view)
    }

    /// Assigns a new request to this server. Fails if the upstream has as many open requests as it may have.
    pub(super) fn assign(self: Rc<Self>, endpoint_index: usize) -> Result<Assignment, Error> {
        let count_result = self.servers.try_count_request(RequestBound::Open);
        count_result.map_err(|max| self.full_error("open", max))?;
        Ok(self.new_assignment(endpoint_index))
    }

    /// Assigns a request to one more server. Its first assignment has passed the bound on open requests.
    pub(super) fn assign_again(self: Rc<Self>, endpoint_index: usize) -> Assignment {
        self.servers.count_request(RequestBound::Open);
        self.new_assignment(endpoint_index)
    }

    fn new_assignment(self: Rc<Self>, endpoint_index: usize) -> Assignment {
        self.endpoints[endpoint_index].health.increment_open();
        Assignment {
            set: self,
            endpoint_index,
            has_failed: false,
        }
    }

    /// Takes an existing connection to this server; `None` if there is none. `idle_use` does not matter over HTTP/2.
    pub(super) fn take_existing(
        &self,
        endpoint_index: usize,
        idle_use: IdleUse,
    ) -> Option<Transport> {
        let pool = &self.pools[endpoint_index];
        if self.settings().uses_http2 {
            return pool
                .http2_connections
                .reserve_stream()
                .map(Transport::Http2);
        }
        match idle_use {
            IdleUse::Allowed => pool.take_idle().map(Transport::Http1),
            IdleUse::Avoided => None,
        }
    }

    /// Keeps a connection for the next request. Drops it if it began with a PROXY header, if the endpoint is removed, or if
    /// [`MAX_IDLE_CONNECTIONS`] are idle. `now` may be coarse.
    pub(super) fn keep_idle(
        &self,
        endpoint_index: usize,
        connection: Rc<RefCell<Http1Connection>>,
        now: Nanos,
    ) {
        let pool = &self.pools[endpoint_index];
        // The PROXY header names one client for the whole connection.
        if self.settings().proxy_protocol.is_some() || pool.is_removed() {
            return;
        }
        {
            let connection = &mut *connection.borrow_mut();
            connection.inbox.begin_message();
            connection.is_reused = true;
        }
        let mut idle_connections = pool.idle_connections.borrow_mut();
        if idle_connections.len() < MAX_IDLE_CONNECTIONS {
            idle_connections.push(IdleConnection {
                connection,
                idle_since: now,
            });
        }
    }

    /// The error of a request that reaches the bound `max`; `state` is that of [`Error::Full`].
    pub(super) fn full_error(&self, state: &'static str, max: u32) -> Error {
        Error::Full {
            upstream: self.settings().name.clone(),
            state,
            max,
        }
    }

    #[cold]
    pub(super) fn unavailable_error(&self) -> Error {
        Error::Unavailable {
            upstream: self.settings().name.clone(),
        }
    }
}

impl EndpointPool {
    /// The most recently used idle connection that the server has not closed; `None` if there is none.
    fn take_idle(&self) -> Option<Rc<RefCell<Http1Connection>>> {
        let mut idle_connections = self.idle_connections.borrow_mut();
        loop {
            let most_recent = idle_connections.pop()?;
            if most_recent.connection.borrow_mut().socket.probe_idle() {
                return Some(most_recent.connection);
            }
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.get()
    }

    /// Marks the endpoint as removed, and closes its idle connections.
    fn close(&self) {
        self.is_removed.set(true);
        self.idle_connections.borrow_mut().clear();
        self.http2_connections.close();
    }
}

/// The servers as one request sees them: those that it has tried have the factor 0.
struct RequestView<'a> {
    set: &'a EndpointSet,
    tried: &'a EndpointIndices,
}

impl ServerView for RequestView<'_> {
    fn has_full_weight(&self, endpoint_index: usize) -> bool {
        let set = self.set;
        set.servers.has_full_weight(&set.endpoints[endpoint_index])
            && !self.tried.contains(&endpoint_index)
    }

    fn weight_factor(&self, endpoint_index: usize) -> u32 {
        if self.tried.contains(&endpoint_index) {
            return 0;
        }
        let set = self.set;
        let endpoint = &set.endpoints[endpoint_index];
        set.servers.weight_factor(endpoint, set.clock.now())
    }

    fn open_requests(&self, endpoint_index: usize) -> u32 {
        self.set.endpoints[endpoint_index].health.open_requests()
    }
}

impl Assignment {
    fn endpoint(&self) -> &Endpoint {
        &self.set.endpoints[self.endpoint_index]
    }

    /// The location of the server, as it is configured.
    pub fn server_name(&self) -> &Arc<str> {
        &self.endpoint().name
    }

    /// Whether the connection uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        let server_index = self.endpoint().server_index;
        self.set.settings().servers[server_index].tls.is_some()
    }

    /// Records that the request failed by the server's fault. Later failures of the same request do not count.
    pub(super) fn record_failure(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let now = self.set.clock.now();
            self.set.servers.record_failure(self.endpoint(), now);
        }
    }

    /// Records that the response has begun. The statuses 502 to 504 are failures: gateways send them for failed servers.
    pub(super) fn record_response(&mut self, status: StatusCode) {
        if matches!(status.as_u16(), 502..=504) {
            self.record_failure();
        } else {
            self.endpoint().health.record_response();
        }
    }

    /// Records that the response has ended, which is a success unless the request has failed.
    pub(super) fn record_success(&self) {
        if !self.has_failed {
            self.endpoint().health.record_success();
        }
    }

    /// The queue of requests that the worker sends together.
    pub(super) fn flush_queue(&self) -> &FlushQueue {
        &self.set.flush_queue
    }

    /// Ends the assignment, and hands the connection to [`EndpointSet::keep_idle`]. `now` may be coarse.
    pub fn release(self, connection: Rc<RefCell<Http1Connection>>, now: Nanos) {
        self.set.keep_idle(self.endpoint_index, connection, now);
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.endpoint().health.decrement_open();
        self.set.servers.uncount_request(RequestBound::Open);
    }
}

#[cfg(test)]
mod tests;
