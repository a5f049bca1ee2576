//! Makes a new connection, to the first endpoint that accepts one, where `upstream_pool` has none that a request may use.
//! `balancer` chooses the endpoint of each attempt. Each endpoint that may get requests is tried once, so endpoints bound
//! the attempts. The next attempt starts when the last one fails, or beside it after [`ATTEMPT_DELAY`]: RFC 8305 section 5.
//! No request is sent before an attempt has won. Unreachable endpoints come last. A lookup of a name is an attempt too.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::endpoint::Endpoint;
use super::error::Error;
use super::server_health::Reachability;
use super::servers::RequestBound;
use super::transport::{Http1Connection, Transport};
use super::upstream_pool::{
    Assignment, CheckedOutConnection, ClientContext, EndpointIndices, EndpointSet, IdleUse,
    UpstreamPool,
};
use crate::base::telemetry::WorkerCounter;
use crate::net::proxy_protocol::{self, ConnectionAddresses};
use crate::net::{Socket, Stream};

/// The Connection Attempt Delay that RFC 8305 section 8 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The search for a connection for one request.
struct ConnectionSearch<'a> {
    race: ConnectRace<'a>,
    set: Rc<EndpointSet>,
    idle_use: IdleUse,
    /// The endpoints that need no further attempt: they were tried, or wait in `unreachable`.
    tried: EndpointIndices,
    /// The endpoints that did not accept their last connection in time. They are tried after all others.
    unreachable: EndpointIndices,
    /// Whether the gate lets the request connect; `None` until the first attempt.
    may_connect: Option<bool>,
    /// Counts the request as waiting; `None` until the first attempt.
    pending_request: Option<PendingRequest>,
}

/// The next step of a search.
enum SearchStep {
    /// Connect to this server.
    Attempt(Assignment, AttemptReason),
    /// Use a connection that was made or became idle meanwhile.
    Finish(CheckedOutConnection),
    /// Wait for the attempts under way.
    Wait,
    /// Fail, because no attempt is left.
    Fail,
}

/// Why a server is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptReason {
    /// The balancer chose it.
    Balanced,
    /// All other servers were tried, and this one did not accept its last connection in time.
    LastResort,
}

impl UpstreamPool {
    /// Connects to a server. The first attempt is at the server of `first_assignment`.
    ///
    /// # Errors
    ///
    /// Every server that may get requests failed, the gate is shut, or too many requests wait for a connection.
    pub(super) async fn search_connection(
        &self,
        first_assignment: Assignment,
        client: ClientContext,
        idle_use: IdleUse,
    ) -> Result<CheckedOutConnection, Error> {
        let mut search = ConnectionSearch {
            set: first_assignment.set.clone(),
            race: ConnectRace {
                pool: self,
                client,
                attempts: Vec::new(),
                last_error: None,
                has_resolved: false,
            },
            idle_use,
            tried: EndpointIndices::new(),
            unreachable: EndpointIndices::new(),
            may_connect: None,
            pending_request: None,
        };
        let mut first_assignment = Some(first_assignment);
        loop {
            search.use_resolved_endpoints();
            let step = match first_assignment.take() {
                Some(assignment) => SearchStep::Attempt(assignment, AttemptReason::Balanced),
                None => search.next_step(),
            };
            let (assignment, reason) = match step {
                SearchStep::Attempt(assignment, reason) => (assignment, reason),
                SearchStep::Finish(connection) => return Ok(search.race.end_with(connection)),
                SearchStep::Wait => match search.race.next_event(None).await {
                    RaceEvent::Connected(connection) => {
                        return Ok(search.race.end_with(connection));
                    }
                    RaceEvent::Ended | RaceEvent::Slow => continue,
                },
                SearchStep::Fail => return Err(search.into_error()),
            };
            let endpoint_index = assignment.endpoint_index;
            match search.reachability(endpoint_index, reason)? {
                None => {}
                Some(Reachability::Unreachable) => search.unreachable.push(endpoint_index),
                Some(reachability) => {
                    if let Some(connection) =
                        search.race.start_attempt(assignment, reachability).await
                    {
                        return Ok(search.race.end_with(connection));
                    }
                }
            }
        }
    }
}

impl ConnectionSearch<'_> {
    /// After a name was looked up, goes on with the endpoints that it resolves to.
    fn use_resolved_endpoints(&mut self) {
        if !std::mem::take(&mut self.race.has_resolved) {
            return;
        }
        let endpoints_before = self.set.endpoints.clone();
        self.race.pool.update_endpoints();
        self.set = self.race.pool.endpoint_set();
        for indices in [&mut self.tried, &mut self.unreachable] {
            *indices = convert_indices(indices, &endpoints_before, &self.set.endpoints);
        }
    }

    /// Decides what follows when an attempt has ended, is slow or was not made.
    fn next_step(&mut self) -> SearchStep {
        let set = &self.set;
        let balance_key = self.race.client.balance_key;
        if let Some(endpoint_index) = set.choose_endpoint(balance_key, &self.tried) {
            let assignment = set.clone().assign_again(endpoint_index);
            return match set.take_existing(endpoint_index, self.idle_use) {
                Some(transport) => SearchStep::Finish(CheckedOutConnection {
                    assignment,
                    transport,
                }),
                None => SearchStep::Attempt(assignment, AttemptReason::Balanced),
            };
        }
        if !self.unreachable.is_empty() {
            let endpoint_index = self.unreachable.remove(0);
            let assignment = set.clone().assign_again(endpoint_index);
            return SearchStep::Attempt(assignment, AttemptReason::LastResort);
        }
        match self.race.attempts.is_empty() {
            true => SearchStep::Fail,
            false => SearchStep::Wait,
        }
    }

    /// Marks a server as tried. Returns whether a connection to it is tried now; `None` if the gate is shut. A last resort
    /// is always tried.
    ///
    /// # Errors
    ///
    /// Too many requests wait for a connection.
    fn reachability(
        &mut self,
        endpoint_index: usize,
        reason: AttemptReason,
    ) -> Result<Option<Reachability>, Error> {
        if reason == AttemptReason::LastResort {
            return Ok(Some(Reachability::Reachable));
        }
        self.tried.push(endpoint_index);
        let set = &self.set;
        let now = set.clock.now();
        let gate = set.servers.gate();
        let connect_timeout = set.settings().connect_timeout;
        let try_pass_gate = || gate.try_pass(now, connect_timeout);
        if !*self.may_connect.get_or_insert_with(try_pass_gate) {
            return Ok(None);
        }
        if self.pending_request.is_none() {
            self.pending_request = Some(PendingRequest::new(set)?);
        }
        Ok(Some(set.endpoints[endpoint_index].health.try_reach(now)))
    }

    /// Shuts the gate if an attempt has failed, and returns the last error; else the upstream is unavailable.
    fn into_error(self) -> Error {
        let ConnectionSearch { race, set, .. } = self;
        if race.last_error.is_some() {
            set.servers.gate().shut(set.clock.now());
        }
        race.last_error.unwrap_or_else(|| set.unavailable_error())
    }
}

/// The progress of an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    /// The attempt has not begun, or another request makes an HTTP/2 connection to the same endpoint for both.
    Queued,
    /// The TCP handshake is under way, or the name is being looked up.
    Connecting,
    /// The TCP connection is there; the PROXY header, TLS or HTTP/2 may still begin on it.
    Connected,
}

/// What an attempt has achieved.
enum AttemptSuccess {
    /// The connection can carry the request.
    Connected(Transport),
    /// The name was looked up, and its addresses are endpoints of the upstream now.
    Resolved,
}

/// An attempt to connect to one endpoint.
struct ConnectAttempt {
    assignment: Assignment,
    stage: Rc<Cell<AttemptStage>>,
    future: Pin<Box<dyn Future<Output = Result<AttemptSuccess, Error>>>>,
}

/// The attempts under way for one request. The first one that connects wins.
struct ConnectRace<'a> {
    pool: &'a UpstreamPool,
    client: ClientContext,
    attempts: Vec<ConnectAttempt>,
    /// The error of the last attempt that failed.
    last_error: Option<Error>,
    /// Whether a name was looked up since the search last read the endpoints, so that the endpoints may have changed.
    has_resolved: bool,
}

/// Why a wait for attempts has ended.
enum RaceEvent {
    /// An attempt has won.
    Connected(CheckedOutConnection),
    /// An attempt has failed, or a name was looked up.
    Ended,
    /// The newest attempt has not connected within its delay.
    Slow,
}

impl ConnectRace<'_> {
    /// Starts an attempt, and waits for a connection of any attempt. Returns `None` when another attempt may start.
    async fn start_attempt(
        &mut self,
        assignment: Assignment,
        reachability: Reachability,
    ) -> Option<CheckedOutConnection> {
        if self.last_error.is_some() || !self.attempts.is_empty() {
            self.pool.counters.retries.increment(1);
        }
        let stage = Rc::new(Cell::new(AttemptStage::Queued));
        let connections_made = self.pool.counters.connections_made.clone();
        let (set, endpoint_index) = (assignment.set.clone(), assignment.endpoint_index);
        let future = run_attempt(
            set.clone(),
            endpoint_index,
            self.client.addresses,
            connections_made,
            stage.clone(),
        );
        self.attempts.push(ConnectAttempt {
            assignment,
            stage: stage.clone(),
            future: Box::pin(future),
        });
        let delay = match reachability {
            Reachability::Retry => Duration::ZERO,
            Reachability::Reachable | Reachability::Unreachable => ATTEMPT_DELAY,
        };
        match self.next_event(Some(delay)).await {
            RaceEvent::Connected(connection) => return Some(connection),
            RaceEvent::Slow
                if reachability == Reachability::Reachable
                    && stage.get() == AttemptStage::Connecting =>
            {
                set.endpoints[endpoint_index]
                    .health
                    .mark_unreachable(set.clock.now());
            }
            RaceEvent::Slow | RaceEvent::Ended => {}
        }
        None
    }

    /// Waits until an attempt ends. With a `delay` it waits no longer than that, unless the newest attempt has a TCP
    /// connection by then.
    async fn next_event(&mut self, delay: Option<Duration>) -> RaceEvent {
        let mut timer = pin!(delay.map(sleep));
        poll_fn(|cx| {
            if let Poll::Ready(event) = self.poll_attempts(cx) {
                return Poll::Ready(event);
            }
            let is_connected =
                |attempt: &ConnectAttempt| attempt.stage.get() == AttemptStage::Connected;
            match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(())) => {
                    timer.set(None);
                    match self.attempts.last().is_some_and(is_connected) {
                        true => Poll::Pending,
                        false => Poll::Ready(RaceEvent::Slow),
                    }
                }
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    /// Polls the attempts, oldest first, until one of them ends.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Poll<RaceEvent> {
        let attempts = self.attempts.iter_mut().enumerate();
        let mut ended_attempts =
            attempts.filter_map(|(index, attempt)| match attempt.future.as_mut().poll(cx) {
                Poll::Ready(result) => Some((index, result)),
                Poll::Pending => None,
            });
        let Some((index, result)) = ended_attempts.next() else {
            return Poll::Pending;
        };
        let assignment = self.attempts.remove(index).assignment;
        Poll::Ready(match result {
            Ok(AttemptSuccess::Connected(transport)) => {
                RaceEvent::Connected(CheckedOutConnection {
                    assignment,
                    transport,
                })
            }
            Ok(AttemptSuccess::Resolved) => {
                self.has_resolved = true;
                RaceEvent::Ended
            }
            Err(error) => {
                self.last_error = Some(error);
                RaceEvent::Ended
            }
        })
    }

    /// Returns the connection that has won. The other attempts that have begun run on: their results count for the health
    /// of their servers, and their connections serve other requests.
    fn end_with(self, connection: CheckedOutConnection) -> CheckedOutConnection {
        for attempt in self.attempts {
            if attempt.stage.get() == AttemptStage::Queued {
                continue;
            }
            let (set, endpoint_index) = (
                attempt.assignment.set.clone(),
                attempt.assignment.endpoint_index,
            );
            tokio::task::spawn_local(async move {
                if let Ok(AttemptSuccess::Connected(Transport::Http1(connection))) =
                    attempt.future.await
                {
                    let now = set.clock.now();
                    set.keep_idle(endpoint_index, connection, now);
                }
            });
        }
        connection
    }
}

/// Converts indices among the endpoints `before` to indices among `after`. Endpoints that were removed are left out.
fn convert_indices(
    indices: &EndpointIndices,
    before: &[Endpoint],
    after: &[Endpoint],
) -> EndpointIndices {
    let new_index = |index: &usize| {
        let endpoint = &before[*index];
        after.iter().position(|other| other.is_same(endpoint))
    };
    indices.iter().filter_map(new_index).collect()
}

/// Connects to a server or looks up its name, within the connect timeout. Records the result for the server's health
/// and for the gate.
async fn run_attempt(
    set: Rc<EndpointSet>,
    endpoint_index: usize,
    addresses: ConnectionAddresses,
    connections_made: WorkerCounter,
    stage: Rc<Cell<AttemptStage>>,
) -> Result<AttemptSuccess, Error> {
    let endpoint = &set.endpoints[endpoint_index];
    let connect_timeout = set.settings().connect_timeout;
    let attempt =
        connect_or_look_up_name(&set, endpoint_index, addresses, &connections_made, &stage);
    let result = match timeout(connect_timeout, attempt).await {
        Ok(result) => result.map_err(|cause| Error::Connect {
            server: endpoint.to_string(),
            cause,
        }),
        Err(_) => Err(Error::ConnectTimeout {
            server: endpoint.to_string(),
            after: connect_timeout,
        }),
    };
    match &result {
        Ok(AttemptSuccess::Connected(_)) => set.servers.gate().open(),
        Ok(AttemptSuccess::Resolved) => {}
        Err(Error::Connect { cause, .. }) if is_out_of_descriptors(cause) => {}
        Err(_) => set.servers.record_failure(endpoint, set.clock.now()),
    }
    result
}

/// Connects to a server, or looks up its name if that is not resolved yet.
async fn connect_or_look_up_name(
    set: &EndpointSet,
    endpoint_index: usize,
    addresses: ConnectionAddresses,
    connections_made: &WorkerCounter,
    stage: &Cell<AttemptStage>,
) -> io::Result<AttemptSuccess> {
    let (settings, endpoint) = (set.settings(), &set.endpoints[endpoint_index]);
    let pool = set.pool(endpoint_index);
    let http2_connections = &pool.http2_connections;
    let Some(address) = &endpoint.address else {
        stage.set(AttemptStage::Connecting);
        let lookup = set
            .servers
            .look_up_name(endpoint.server_index, set.clock.now());
        lookup.await?;
        return Ok(AttemptSuccess::Resolved);
    };
    let _connect_lock = match settings.uses_http2 {
        true => Some(http2_connections.connect_lock.lock().await),
        false => None,
    };
    // Another request may have connected meanwhile.
    if let Some(transport) = set.take_existing(endpoint_index, IdleUse::Avoided) {
        return Ok(AttemptSuccess::Connected(transport));
    }
    stage.set(AttemptStage::Connecting);
    let mut byte_stream = Stream::connect(address).await?;
    stage.set(AttemptStage::Connected);
    endpoint.health.mark_reachable();
    if let Some(version) = settings.proxy_protocol {
        byte_stream
            .write_all(&proxy_protocol::encode_header(version, addresses)?)
            .await?;
    }
    let socket = match &settings.servers[endpoint.server_index].tls {
        Some(tls) => Socket::connect_tls(byte_stream, tls).await?,
        None => Socket::to_server(byte_stream)?,
    };
    connections_made.increment(1);
    if settings.uses_http2 {
        if socket.is_tls() && !socket.is_http2() {
            return Err(io::Error::other("it does not speak HTTP/2"));
        }
        let reserved_stream = http2_connections.connect(socket).await?;
        if pool.is_removed() {
            http2_connections.close();
        }
        return Ok(AttemptSuccess::Connected(Transport::Http2(reserved_stream)));
    }
    let connection = Http1Connection::new(socket);
    let transport = Transport::Http1(Rc::new(RefCell::new(connection)));
    Ok(AttemptSuccess::Connected(transport))
}

/// Whether the gateway or its machine has no file descriptor left, which is no server's fault.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Counts a request as waiting for a connection, until this value is dropped.
struct PendingRequest(Rc<EndpointSet>);

impl PendingRequest {
    fn new(set: &Rc<EndpointSet>) -> Result<PendingRequest, Error> {
        let count_result = set.servers.try_count_request(RequestBound::Pending);
        count_result.map_err(|max| set.full_error("waiting for a connection", max))?;
        Ok(PendingRequest(set.clone()))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.0.servers.uncount_request(RequestBound::Pending);
    }
}
