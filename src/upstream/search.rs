//! A new connection, to the first endpoint that accepts one. Each endpoint that may be asked is tried once. The next
//! attempt starts when the last one fails, or beside it after [`ATTEMPT_DELAY`]: RFC 8305 section 5. No request is sent
//! before an attempt has won. Endpoints that did not accept their last connection in time are tried after all others.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::answer::Last;
use super::error::Error;
use super::health::Reach;
use super::pool::{Caller, Connection, EndpointSet, Lease, Line, Link, Pool, Tried};
use super::servers::Bound;
use crate::http1::Outbox;
use crate::http1::inbox::Inbox;
use crate::net::Socket;
use crate::net::proxy::{self, Ends};

/// The Connection Attempt Delay that RFC 8305 section 8 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The progress of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Another request is connecting to the same endpoint, for both.
    Queued,
    /// The TCP handshake is under way.
    Connecting,
    /// The TCP connection is there; TLS or HTTP/2 may still begin on it.
    Connected,
}

struct Attempt {
    lease: Lease,
    stage: Rc<Cell<Stage>>,
    line: Pin<Box<dyn Future<Output = Result<Line, Error>>>>,
}

/// Attempts under way for one request.
struct Race<'a> {
    pool: &'a Pool,
    caller: Caller,
    attempts: Vec<Attempt>,
    error: Option<Error>,
}

/// What ends a wait for attempts.
enum Event {
    Connected(Connection),
    /// An attempt has failed.
    Failed,
    /// The newest attempt is not connected after its delay.
    Slow,
}

impl Pool {
    /// `first` is the lease of the server whose turn it is, to which there is no unused connection.
    pub(super) async fn search(
        &self,
        first: Lease,
        caller: Caller,
        fresh: bool,
    ) -> Result<Connection, Error> {
        let mut set = first.set.clone();
        let mut race = Race {
            pool: self,
            caller,
            attempts: Vec::new(),
            error: None,
        };
        let (mut tried, mut unreachable) = (Tried::new(), Tried::new());
        let mut first = Some(first);
        let (mut admitted, mut pending) = (None, None);
        loop {
            let lease = match first.take() {
                Some(lease) => lease,
                None => {
                    let Some(server) = set.next(caller.key, &tried) else {
                        break;
                    };
                    let lease = set.clone().lease(server, true)?;
                    if let Some(line) = set.unused(server, fresh) {
                        return Ok(race.finish(Connection { lease, line }));
                    }
                    lease
                }
            };
            let server = lease.server;
            tried.push(server);
            let now = set.clock.now();
            let patience = set.settings().connect;
            let gate = set.servers.gate();
            if !*admitted.get_or_insert_with(|| gate.admits(now, patience)) {
                continue;
            }
            if pending.is_none() {
                pending = Some(Pending::new(&set)?);
            }
            if set.endpoints[server].address.is_none() {
                match set.look_up(server).await {
                    Ok(()) => {
                        self.update_endpoints();
                        set = self.endpoints();
                        (tried, unreachable) = (Tried::new(), Tried::new());
                    }
                    Err(error) => race.error = Some(error),
                }
                continue;
            }
            let reach = set.endpoints[server].health.reach(now);
            if reach == Reach::Unreachable {
                unreachable.push(server);
                continue;
            }
            if let Some(connection) = race.attempt(lease, reach).await {
                return Ok(race.finish(connection));
            }
        }
        for server in unreachable {
            let lease = set.clone().lease(server, true)?;
            if let Some(connection) = race.attempt(lease, Reach::Reachable).await {
                return Ok(race.finish(connection));
            }
        }
        while !race.attempts.is_empty() {
            if let Event::Connected(connection) = race.next_event(None).await {
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
    async fn attempt(&mut self, lease: Lease, reach: Reach) -> Option<Connection> {
        if self.error.is_some() || !self.attempts.is_empty() {
            self.pool.counters.retried.increment(1);
        }
        let stage = Rc::new(Cell::new(Stage::Queued));
        let connected = self.pool.counters.connected.clone();
        let (set, server) = (lease.set.clone(), lease.server);
        let line = connect(
            set.clone(),
            server,
            self.caller.ends,
            connected,
            stage.clone(),
        );
        self.attempts.push(Attempt {
            lease,
            stage: stage.clone(),
            line: Box::pin(line),
        });
        let delay = match reach {
            Reach::Retry => Duration::ZERO,
            Reach::Reachable | Reach::Unreachable => ATTEMPT_DELAY,
        };
        match self.next_event(Some(delay)).await {
            Event::Connected(connection) => return Some(connection),
            Event::Slow if reach == Reach::Reachable && stage.get() == Stage::Connecting => {
                set.endpoints[server]
                    .health
                    .mark_unreachable(set.clock.now());
            }
            Event::Slow | Event::Failed => {}
        }
        None
    }

    /// Waits for any attempt to end; with a `delay` no longer than that, unless the newest one is connected by then.
    async fn next_event(&mut self, delay: Option<Duration>) -> Event {
        let mut timer = pin!(delay.map(sleep));
        poll_fn(|cx| {
            let polled = self.attempts.iter_mut().enumerate();
            let mut ready =
                polled.filter_map(|(place, attempt)| match attempt.line.as_mut().poll(cx) {
                    Poll::Ready(line) => Some((place, line)),
                    Poll::Pending => None,
                });
            if let Some((place, line)) = ready.next() {
                let lease = self.attempts.remove(place).lease;
                return Poll::Ready(match line {
                    Ok(line) => Event::Connected(Connection { lease, line }),
                    Err(error) => {
                        self.error = Some(error);
                        Event::Failed
                    }
                });
            }
            let connected = |attempt: &Attempt| attempt.stage.get() == Stage::Connected;
            match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(())) => {
                    timer.set(None);
                    match self.attempts.last().is_some_and(connected) {
                        true => Poll::Pending,
                        false => Poll::Ready(Event::Slow),
                    }
                }
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    /// Lets the other attempts run on: their results say how their servers are, and serve other requests.
    fn finish(self, connection: Connection) -> Connection {
        for attempt in self.attempts {
            if attempt.stage.get() == Stage::Queued {
                continue;
            }
            let (set, server) = (attempt.lease.set.clone(), attempt.lease.server);
            tokio::task::spawn_local(async move {
                if let Ok(Line::One(link)) = attempt.line.await {
                    let now = set.clock.now();
                    set.keep_idle(server, link, now);
                }
            });
        }
        connection
    }
}

impl EndpointSet {
    async fn look_up(&self, server: usize) -> Result<(), Error> {
        let endpoint = &self.endpoints[server];
        let after = self.settings().connect;
        let found = self.servers.look_up(endpoint.server, self.clock.now());
        let found = timeout(after, found).await;
        if !matches!(found, Ok(Ok(()))) {
            self.servers.failed(endpoint, self.clock.now());
        }
        let server = || endpoint.to_string();
        match found {
            Ok(found) => found.map_err(|cause| Error::Connect {
                server: server(),
                cause,
            }),
            Err(_) => Err(Error::ConnectTimeout {
                server: server(),
                after,
            }),
        }
    }
}

async fn connect(
    set: Rc<EndpointSet>,
    server: usize,
    ends: Ends,
    connected: metrics::Counter,
    stage: Rc<Cell<Stage>>,
) -> Result<Line, Error> {
    let (settings, endpoint) = (set.settings(), &set.endpoints[server]);
    let pool = set.pool(server);
    let muxes = &pool.muxes;
    let attempt = async {
        let _one = match settings.http2 {
            true => Some(muxes.connecting.lock().await),
            false => None,
        };
        // Another request may have connected meanwhile.
        if let Some(line) = set.unused(server, true) {
            return Ok(line);
        }
        let Some(address) = endpoint.address else {
            return Err(io::Error::other("the name was not looked up"));
        };
        stage.set(Stage::Connecting);
        let mut stream = TcpStream::connect(address).await?;
        stage.set(Stage::Connected);
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
            return Ok(Line::Two(channel));
        }
        Ok(Line::One(Rc::new(std::cell::RefCell::new(Link {
            socket,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            last: Last::default(),
            reused: false,
            waker: None,
            late: false,
        }))))
    };
    let after = settings.connect;
    let line = match timeout(after, attempt).await {
        Ok(line) => line.map_err(|cause| Error::Connect {
            server: endpoint.to_string(),
            cause,
        }),
        Err(_) => Err(Error::ConnectTimeout {
            server: endpoint.to_string(),
            after,
        }),
    };
    match &line {
        Ok(_) => set.servers.gate().open(),
        Err(Error::Connect { cause, .. }) if is_ours(cause) => {}
        Err(_) => set.servers.failed(endpoint, set.clock.now()),
    }
    line
}

/// The gateway has no descriptor left: no server is to blame.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A request that waits for a connection.
struct Pending(Rc<EndpointSet>);

impl Pending {
    fn new(set: &Rc<EndpointSet>) -> Result<Pending, Error> {
        let entered = set.servers.enter(Bound::Pending);
        entered.map_err(|most| set.full("waiting for a connection", most))?;
        Ok(Pending(set.clone()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.servers.leave(Bound::Pending);
    }
}
