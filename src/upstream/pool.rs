//! One worker's connections to one upstream: servers by round robin, the connection used last is
//! used first. Nothing here is shared between workers.
//!
//! Bound: [`MAX_IDLE`] unused connections for each worker and server.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;

use super::{Server, Settings};
use crate::clock::{Clock, Nanos};
use crate::http1::inbox::Inbox;
use crate::http1::{Cause, Outbox};
use crate::net::Socket;

/// Unused connections kept for each server.
pub const MAX_IDLE: usize = 256;

/// Why an upstream gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection within the time allowed.
    #[error("no connection to {server} within {after:?}")]
    ConnectTimeout {
        /// Which server.
        server: String,
        /// How long was allowed.
        after: Duration,
    },
    /// No connection.
    #[error("no connection to {server}: {cause}")]
    Connect {
        /// Which server.
        server: String,
        /// Why.
        cause: io::Error,
    },
    /// The connection broke or the answer was not HTTP.
    #[error("{server} gave no answer: {cause}")]
    Exchange {
        /// Which server.
        server: String,
        /// Why.
        cause: Cause,
    },
    /// No first byte within the time allowed.
    #[error("{server} sent no answer within {after:?}")]
    FirstByteTimeout {
        /// Which server.
        server: String,
        /// How long was allowed.
        after: Duration,
    },
}

/// The connections of one worker to one upstream.
pub struct Pool {
    settings: Settings,
    servers: Vec<ServerPool>,
    next: Cell<usize>,
    clock: Clock,
    connected: metrics::Counter,
}

struct ServerPool {
    server: Server,
    name: String,
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    link: Link,
    since: Nanos,
}

/// A connection and the room it keeps from request to request.
pub struct Link {
    pub(super) socket: Socket,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
}

/// A connection checked out of a pool. Give it back with [`Connection::release`] once the answer
/// has been read; dropping it closes it.
pub struct Connection {
    pool: Rc<Pool>,
    server: usize,
    pub(super) link: Link,
    /// It has carried a request before, so the server may have closed it unseen.
    pub reused: bool,
}

impl Pool {
    /// No connection is made yet.
    pub fn new(settings: Settings, clock: Clock, connected: metrics::Counter) -> Rc<Pool> {
        let servers = settings.servers.iter().map(|server| ServerPool {
            server: server.clone(),
            name: server.authority(),
            idle: RefCell::new(Vec::new()),
        });
        let servers = servers.collect();
        Rc::new(Pool {
            settings,
            servers,
            next: Cell::new(0),
            clock,
            connected,
        })
    }

    /// What the pool was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A connection to the server whose turn it is, an unused one if there is one. A server that
    /// cannot be reached is passed over once for each of the others.
    pub async fn checkout(self: &Rc<Self>, fresh: bool) -> Result<Connection, Error> {
        let first = self.turn();
        let mut last = None;
        for step in 0..self.servers.len() {
            let server = (first + step) % self.servers.len();
            if !fresh && let Some(idle) = self.idle(server) {
                return Ok(self.connection(server, idle.link, true));
            }
            match self.connect(server).await {
                Ok(socket) => {
                    let link = Link {
                        socket,
                        inbox: Inbox::default(),
                        outbox: Outbox::default(),
                    };
                    return Ok(self.connection(server, link, false));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Connect {
            server: self.settings.name.clone(),
            cause: io::Error::other("the upstream has no servers"),
        }))
    }

    /// What to call the upstream in a request that names no host: its first server.
    pub fn host(&self) -> &str {
        self.servers.first().map_or("", |server| &server.name)
    }

    fn turn(&self) -> usize {
        let turn = self.next.get();
        self.next.set((turn + 1) % self.servers.len().max(1));
        turn
    }

    fn connection(self: &Rc<Self>, server: usize, link: Link, reused: bool) -> Connection {
        Connection {
            pool: self.clone(),
            server,
            link,
            reused,
        }
    }

    fn idle(&self, server: usize) -> Option<Idle> {
        let mut idle = self.servers[server].idle.borrow_mut();
        loop {
            let mut last = idle.pop()?;
            if last.link.socket.is_quiet() {
                return Some(last);
            }
        }
    }

    async fn connect(self: &Rc<Self>, server: usize) -> Result<Socket, Error> {
        let ServerPool { server, name, .. } = &self.servers[server];
        let failed = |cause| Error::Connect {
            server: name.clone(),
            cause,
        };
        let attempt = async {
            let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
            match &server.tls {
                Some(tls) => Socket::connect(stream, tls).await,
                None => Socket::new(stream),
            }
        };
        let after = self.settings.connect;
        let socket = tokio::time::timeout(after, attempt)
            .await
            .map_err(|_| Error::ConnectTimeout {
                server: name.clone(),
                after,
            })?
            .map_err(failed)?;
        self.connected.increment(1);
        Ok(socket)
    }

    /// Closes connections that were not used for the time allowed, or that the server has closed.
    pub fn expire(&self) {
        let keep_since = self.clock.now().since(self.settings.idle.into());
        for server in &self.servers {
            let idle = &mut *server.idle.borrow_mut();
            idle.retain_mut(|idle| idle.since >= keep_since && idle.link.socket.is_quiet());
        }
    }
}

impl Connection {
    /// The server at the other end.
    pub fn server(&self) -> &str {
        &self.pool.servers[self.server].name
    }

    /// Reads more; 0 at the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.link.inbox.poll_read(cx, &mut self.link.socket)
    }

    /// Keeps the connection for the next request. `now` may be coarse.
    pub fn release(mut self, now: Nanos) {
        self.link.inbox.begin();
        let mut idle = self.pool.servers[self.server].idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(Idle {
                link: self.link,
                since: now,
            });
        }
    }
}
