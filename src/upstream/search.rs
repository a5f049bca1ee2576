//! A new connection, to the first server that takes one. Each server that may be asked is tried once, the next as soon
//! as one has failed, or beside one that has not taken the connection in [`NEXT`]: RFC 8305 section 5. Nothing has been
//! sent to those that do not take it. Servers that did not take the last one in time come last.

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
use super::health::Hearing;
use super::pool::{Caller, Connection, Lease, Line, Lines, Link, Pool, Tried};
use super::servers::Bound;
use crate::http1::Outbox;
use crate::http1::inbox::Inbox;
use crate::net::Socket;
use crate::net::proxy::{self, Ends};

/// From one attempt to the next beside it: what RFC 8305 section 8 recommends.
const NEXT: Duration = Duration::from_millis(250);

/// How far an attempt is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Another request connects to the same server, for both.
    Waits,
    /// It is up to the server to take the connection.
    Calls,
    /// The server has taken it.
    Taken,
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
    last: Option<Error>,
}

/// What came of waiting for them.
enum Came {
    Connected(Connection),
    /// One has failed.
    Failed,
    /// The one that began last has not been taken in time.
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
        let mut lines = first.lines.clone();
        let mut race = Race {
            pool: self,
            caller,
            attempts: Vec::new(),
            last: None,
        };
        let (mut tried, mut deaf) = (Tried::new(), Tried::new());
        let mut first = Some(first);
        let (mut admitted, mut pending) = (None, None);
        loop {
            let lease = match first.take() {
                Some(lease) => lease,
                None => {
                    let Some(server) = lines.next(caller.key, &tried) else {
                        break;
                    };
                    let lease = lines.clone().lease(server, true)?;
                    if let Some(line) = lines.unused(server, fresh) {
                        return Ok(race.won(Connection { lease, line }));
                    }
                    lease
                }
            };
            let server = lease.server;
            tried.push(server);
            let now = lines.clock.now();
            let patience = lines.settings().connect;
            let gate = lines.servers.gate();
            if !*admitted.get_or_insert_with(|| gate.admits(now, patience)) {
                continue;
            }
            if pending.is_none() {
                pending = Some(Pending::new(&lines)?);
            }
            if lines.endpoints[server].address.is_none() {
                match lines.look_up(server).await {
                    Ok(()) => {
                        self.follow();
                        lines = self.lines();
                        (tried, deaf) = (Tried::new(), Tried::new());
                    }
                    Err(error) => race.last = Some(error),
                }
                continue;
            }
            let hearing = lines.endpoints[server].health.hearing(now);
            if hearing == Hearing::Deaf {
                deaf.push(server);
                continue;
            }
            if let Some(connection) = race.enter(lease, hearing).await {
                return Ok(race.won(connection));
            }
        }
        for server in deaf {
            let lease = lines.clone().lease(server, true)?;
            if let Some(connection) = race.enter(lease, Hearing::Hears).await {
                return Ok(race.won(connection));
            }
        }
        while !race.attempts.is_empty() {
            if let Came::Connected(connection) = race.wait(None).await {
                return Ok(race.won(connection));
            }
        }
        if race.last.is_some() {
            lines.servers.gate().shut(lines.clock.now());
        }
        Err(race.last.unwrap_or_else(|| lines.unavailable()))
    }
}

impl Race<'_> {
    /// Begins an attempt and waits until there is a connection, or it is time for another attempt beside it.
    async fn enter(&mut self, lease: Lease, hearing: Hearing) -> Option<Connection> {
        if self.last.is_some() || !self.attempts.is_empty() {
            self.pool.counters.retried.increment(1);
        }
        let stage = Rc::new(Cell::new(Stage::Waits));
        let connected = self.pool.counters.connected.clone();
        let (lines, server) = (lease.lines.clone(), lease.server);
        let line = connect(
            lines.clone(),
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
        let alone = match hearing {
            Hearing::Retry => Duration::ZERO,
            Hearing::Hears | Hearing::Deaf => NEXT,
        };
        match self.wait(Some(alone)).await {
            Came::Connected(connection) => return Some(connection),
            Came::Slow if hearing == Hearing::Hears && stage.get() == Stage::Calls => {
                lines.endpoints[server].health.is_deaf(lines.clock.now());
            }
            Came::Slow | Came::Failed => {}
        }
        None
    }

    /// Waits for any of the attempts; for so long, if the last one is not taken by then.
    async fn wait(&mut self, alone: Option<Duration>) -> Came {
        let mut timer = pin!(alone.map(sleep));
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
                    Ok(line) => Came::Connected(Connection { lease, line }),
                    Err(error) => {
                        self.last = Some(error);
                        Came::Failed
                    }
                });
            }
            let taken = |attempt: &Attempt| attempt.stage.get() == Stage::Taken;
            match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(())) => {
                    timer.set(None);
                    match self.attempts.last().is_some_and(taken) {
                        true => Poll::Pending,
                        false => Poll::Ready(Came::Slow),
                    }
                }
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    /// The others go on by themselves: what comes of them says how their servers are, and serves another request.
    fn won(self, connection: Connection) -> Connection {
        for attempt in self.attempts {
            if attempt.stage.get() == Stage::Waits {
                continue;
            }
            let (lines, server) = (attempt.lease.lines.clone(), attempt.lease.server);
            tokio::task::spawn_local(async move {
                if let Ok(Line::One(link)) = attempt.line.await {
                    let now = lines.clock.now();
                    lines.keep(server, link, now);
                }
            });
        }
        connection
    }
}

impl Lines {
    async fn look_up(&self, server: usize) -> Result<(), Error> {
        let endpoint = &self.endpoints[server];
        let after = self.settings().connect;
        let found = self.servers.look_up(endpoint.written, self.clock.now());
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
    lines: Rc<Lines>,
    server: usize,
    ends: Ends,
    connected: metrics::Counter,
    stage: Rc<Cell<Stage>>,
) -> Result<Line, Error> {
    let (settings, endpoint) = (lines.settings(), &lines.endpoints[server]);
    let station = lines.station(server);
    let muxes = &station.muxes;
    let attempt = async {
        let _one = match settings.http2 {
            true => Some(muxes.connecting.lock().await),
            false => None,
        };
        // Another request may have connected meanwhile.
        if let Some(line) = lines.unused(server, true) {
            return Ok(line);
        }
        let Some(address) = endpoint.address else {
            return Err(io::Error::other("the name was not looked up"));
        };
        stage.set(Stage::Calls);
        let mut stream = TcpStream::connect(address).await?;
        stage.set(Stage::Taken);
        endpoint.health.hears();
        if let Some(version) = settings.proxy {
            stream.write_all(&proxy::header(version, ends)?).await?;
        }
        let socket = match &settings.servers[endpoint.written].tls {
            Some(tls) => Socket::connect(stream, tls).await?,
            None => Socket::new(stream)?,
        };
        connected.increment(1);
        if settings.http2 {
            if socket.is_secure() && !socket.speaks_http2() {
                return Err(io::Error::other("it does not speak HTTP/2"));
            }
            let channel = muxes.begin(socket).await?;
            if station.is_gone() {
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
        Ok(_) => lines.servers.gate().open(),
        Err(Error::Connect { cause, .. }) if is_ours(cause) => {}
        Err(_) => lines.servers.failed(endpoint, lines.clock.now()),
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
struct Pending(Rc<Lines>);

impl Pending {
    fn new(lines: &Rc<Lines>) -> Result<Pending, Error> {
        let entered = lines.servers.enter(Bound::Pending);
        entered.map_err(|most| lines.full("waiting for a connection", most))?;
        Ok(Pending(lines.clone()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.servers.leave(Bound::Pending);
    }
}
