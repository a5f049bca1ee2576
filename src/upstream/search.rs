//! A new connection, to the first endpoint that accepts one. Each endpoint that may be asked is tried once. The next
//! attempt starts when the last one fails, or beside it after [`ATTEMPT_DELAY`]: RFC 8305 section 5. No request is sent
//! before an attempt has won. Endpoints that did not accept their last connection in time are tried after all others.
//! Looking up a name is an attempt too: its addresses are tried once they are known, and others beside it meanwhile.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::endpoint::Endpoint;
use super::error::Error;
use super::health::Reachability;
use super::pool::{
    Caller, EndpointSet, Http1Connection, Lease, LeasedConnection, Transport, Tried, UpstreamPool,
};
use super::response_head::LastHead;
use super::servers::RequestBound;
use crate::http::http1::Outbox;
use crate::http::http1::inbox::Inbox;
use crate::net::proxy::{self, Ends};
use crate::net::{Socket, Stream};

/// The Connection Attempt Delay that RFC 8305 section 8 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The progress of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    /// Another request is connecting to the same endpoint, for both.
    Queued,
    /// The TCP handshake is under way, or the name is being looked up.
    Connecting,
    /// The TCP connection is there; TLS or HTTP/2 may still begin on it.
    Connected,
}

/// The success of an attempt.
enum AttemptSuccess {
    Connected(Transport),
    /// The upstream has the addresses of the name now.
    Resolved,
}

struct ConnectAttempt {
    lease: Lease,
    stage: Rc<Cell<AttemptStage>>,
    future: Pin<Box<dyn Future<Output = Result<AttemptSuccess, Error>>>>,
}

/// Attempts under way for one request.
struct Race<'a> {
    pool: &'a UpstreamPool,
    caller: Caller,
    attempts: Vec<ConnectAttempt>,
    error: Option<Error>,
    /// A name was looked up, so that there are other endpoints.
    resolved: bool,
}

/// What ends a wait for attempts.
enum RaceEvent {
    Connected(LeasedConnection),
    /// An attempt has failed, or a name was looked up.
    Ended,
    /// The newest attempt is not connected after its delay.
    Slow,
}

impl UpstreamPool {
    /// `first` is the lease of the server whose turn it is, to which there is no unused connection.
    pub(super) async fn search(
        &self,
        first: Lease,
        caller: Caller,
        fresh: bool,
    ) -> Result<LeasedConnection, Error> {
        let mut set = first.set.clone();
        let mut race = Race {
            pool: self,
            caller,
            attempts: Vec::new(),
            error: None,
            resolved: false,
        };
        let (mut tried, mut unreachable) = (Tried::new(), Tried::new());
        let mut first = Some(first);
        let (mut admitted, mut pending) = (None, None);
        loop {
            if std::mem::take(&mut race.resolved) {
                let before = set.endpoints.clone();
                self.update_endpoints();
                set = self.endpoints();
                for servers in [&mut tried, &mut unreachable] {
                    *servers = carried_over(servers, &before, &set.endpoints);
                }
            }
            let (lease, patient) = match first.take() {
                Some(lease) => (lease, false),
                None => match set.next(caller.key, &tried) {
                    Some(server) => {
                        let lease = set.clone().lease(server, true)?;
                        if let Some(line) = set.unused(server, fresh) {
                            return Ok(race.finish(LeasedConnection { lease, line }));
                        }
                        (lease, false)
                    }
                    None if !unreachable.is_empty() => {
                        let server = unreachable.remove(0);
                        (set.clone().lease(server, true)?, true)
                    }
                    None if race.attempts.is_empty() => break,
                    None => match race.next_event(None).await {
                        RaceEvent::Connected(connection) => return Ok(race.finish(connection)),
                        RaceEvent::Ended | RaceEvent::Slow => continue,
                    },
                },
            };
            let server = lease.server;
            let now = set.clock.now();
            let reach = match patient {
                true => Reachability::Reachable,
                false => {
                    tried.push(server);
                    let patience = set.settings().connect;
                    let gate = set.servers.gate();
                    if !*admitted.get_or_insert_with(|| gate.admits(now, patience)) {
                        continue;
                    }
                    if pending.is_none() {
                        pending = Some(PendingRequest::new(&set)?);
                    }
                    set.endpoints[server].health.reach(now)
                }
            };
            if reach == Reachability::Unreachable {
                unreachable.push(server);
            } else if let Some(connection) = race.attempt(lease, reach).await {
                return Ok(race.finish(connection));
            }
        }
        if race.error.is_some() {
            set.servers.gate().shut(set.clock.now());
        }
        Err(race.error.unwrap_or_else(|| set.unavailable()))
    }
}

impl Race<'_> {
    /// Starts an attempt and waits for a connection, until it is time to start another one.
    async fn attempt(&mut self, lease: Lease, reach: Reachability) -> Option<LeasedConnection> {
        if self.error.is_some() || !self.attempts.is_empty() {
            self.pool.counters.retried.increment(1);
        }
        let stage = Rc::new(Cell::new(AttemptStage::Queued));
        let connected = self.pool.counters.connected.clone();
        let (set, server) = (lease.set.clone(), lease.server);
        let future = attempt(
            set.clone(),
            server,
            self.caller.ends,
            connected,
            stage.clone(),
        );
        self.attempts.push(ConnectAttempt {
            lease,
            stage: stage.clone(),
            future: Box::pin(future),
        });
        let delay = match reach {
            Reachability::Retry => Duration::ZERO,
            Reachability::Reachable | Reachability::Unreachable => ATTEMPT_DELAY,
        };
        match self.next_event(Some(delay)).await {
            RaceEvent::Connected(connection) => return Some(connection),
            RaceEvent::Slow
                if reach == Reachability::Reachable && stage.get() == AttemptStage::Connecting =>
            {
                set.endpoints[server]
                    .health
                    .mark_unreachable(set.clock.now());
            }
            RaceEvent::Slow | RaceEvent::Ended => {}
        }
        None
    }

    /// Waits for any attempt to end; with a `delay` no longer than that, unless the newest one is connected by then.
    async fn next_event(&mut self, delay: Option<Duration>) -> RaceEvent {
        let mut timer = pin!(delay.map(sleep));
        poll_fn(|cx| {
            let polled = self.attempts.iter_mut().enumerate();
            let mut ready =
                polled.filter_map(|(place, attempt)| match attempt.future.as_mut().poll(cx) {
                    Poll::Ready(ended) => Some((place, ended)),
                    Poll::Pending => None,
                });
            if let Some((place, ended)) = ready.next() {
                let lease = self.attempts.remove(place).lease;
                return Poll::Ready(match ended {
                    Ok(AttemptSuccess::Connected(line)) => {
                        RaceEvent::Connected(LeasedConnection { lease, line })
                    }
                    Ok(AttemptSuccess::Resolved) => {
                        self.resolved = true;
                        RaceEvent::Ended
                    }
                    Err(error) => {
                        self.error = Some(error);
                        RaceEvent::Ended
                    }
                });
            }
            let connected =
                |attempt: &ConnectAttempt| attempt.stage.get() == AttemptStage::Connected;
            match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(())) => {
                    timer.set(None);
                    match self.attempts.last().is_some_and(connected) {
                        true => Poll::Pending,
                        false => Poll::Ready(RaceEvent::Slow),
                    }
                }
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    /// Lets the other attempts run on: their results say how their servers are, and serve other requests.
    fn finish(self, connection: LeasedConnection) -> LeasedConnection {
        for attempt in self.attempts {
            if attempt.stage.get() == AttemptStage::Queued {
                continue;
            }
            let (set, server) = (attempt.lease.set.clone(), attempt.lease.server);
            tokio::task::spawn_local(async move {
                if let Ok(AttemptSuccess::Connected(Transport::Http1(link))) = attempt.future.await
                {
                    let now = set.clock.now();
                    set.keep_idle(server, link, now);
                }
            });
        }
        connection
    }
}

/// Servers of `before` where they stand among the endpoints `after`.
fn carried_over(servers: &Tried, before: &[Endpoint], after: &Arc<[Endpoint]>) -> Tried {
    let place = |server: &usize| after.iter().position(|one| one.is_same(&before[*server]));
    servers.iter().filter_map(place).collect()
}

/// Connects to a server, or looks its name up where its address is not known.
async fn attempt(
    set: Rc<EndpointSet>,
    server: usize,
    ends: Ends,
    connected: metrics::Counter,
    stage: Rc<Cell<AttemptStage>>,
) -> Result<AttemptSuccess, Error> {
    let (settings, endpoint) = (set.settings(), &set.endpoints[server]);
    let pool = set.pool(server);
    let muxes = &pool.muxes;
    let attempt = async {
        let Some(address) = &endpoint.address else {
            stage.set(AttemptStage::Connecting);
            set.servers
                .look_up(endpoint.server, set.clock.now())
                .await?;
            return Ok(AttemptSuccess::Resolved);
        };
        let _one = match settings.http2 {
            true => Some(muxes.connecting.lock().await),
            false => None,
        };
        // Another request may have connected meanwhile.
        if let Some(line) = set.unused(server, true) {
            return Ok(AttemptSuccess::Connected(line));
        }
        stage.set(AttemptStage::Connecting);
        let mut stream = Stream::connect(address).await?;
        stage.set(AttemptStage::Connected);
        endpoint.health.mark_reachable();
        if let Some(version) = settings.proxy {
            stream.write_all(&proxy::header(version, ends)?).await?;
        }
        let socket = match &settings.servers[endpoint.server].tls {
            Some(tls) => Socket::connect(stream, tls).await?,
            None => Socket::new(stream)?,
        };
        connected.increment(1);
        if settings.http2 {
            if socket.is_secure() && !socket.speaks_http2() {
                return Err(io::Error::other("it does not speak HTTP/2"));
            }
            let channel = muxes.begin(socket).await?;
            if pool.is_removed() {
                muxes.close();
            }
            return Ok(AttemptSuccess::Connected(Transport::Http2(channel)));
        }
        let link = Http1Connection {
            socket,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            last: LastHead::default(),
            reused: false,
            waker: None,
            late: false,
        };
        let line = Transport::Http1(Rc::new(RefCell::new(link)));
        Ok(AttemptSuccess::Connected(line))
    };
    let after = settings.connect;
    let ended = match timeout(after, attempt).await {
        Ok(ended) => ended.map_err(|cause| Error::Connect {
            server: endpoint.to_string(),
            cause,
        }),
        Err(_) => Err(Error::ConnectTimeout {
            server: endpoint.to_string(),
            after,
        }),
    };
    match &ended {
        Ok(AttemptSuccess::Connected(_)) => set.servers.gate().open(),
        Ok(AttemptSuccess::Resolved) => {}
        Err(Error::Connect { cause, .. }) if is_ours(cause) => {}
        Err(_) => set.servers.failed(endpoint, set.clock.now()),
    }
    ended
}

/// The gateway has no descriptor left: no server is to blame.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A request that waits for a connection.
struct PendingRequest(Rc<EndpointSet>);

impl PendingRequest {
    fn new(set: &Rc<EndpointSet>) -> Result<PendingRequest, Error> {
        let entered = set.servers.enter(RequestBound::Pending);
        entered.map_err(|most| set.full("waiting for a connection", most))?;
        Ok(PendingRequest(set.clone()))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.0.servers.leave(RequestBound::Pending);
    }
}
