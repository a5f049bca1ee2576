//! One worker's connections to one upstream: servers by round robin, the connection used last is
//! used first. Nothing here is shared between workers.
//!
//! Bound: [`MAX_IDLE`] unused connections for each worker and server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Server, Settings, Socket};
use crate::clock::{Clock, Nanos};

/// Unused connections kept for each server.
pub const MAX_IDLE: usize = 256;

/// Most bytes of an answer's head.
const MAX_HEAD: usize = 64 * 1024;

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
        cause: std::io::Error,
    },
    /// The connection broke or the answer was not HTTP.
    #[error("{server} gave no answer: {cause}")]
    Exchange {
        /// Which server.
        server: String,
        /// Why.
        cause: hyper::Error,
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
pub struct Pool<B> {
    settings: Settings,
    servers: Vec<ServerPool<B>>,
    next: Cell<usize>,
    clock: Clock,
    connected: metrics::Counter,
}

struct ServerPool<B> {
    server: Server,
    name: String,
    idle: RefCell<Vec<Idle<B>>>,
}

struct Idle<B> {
    sender: SendRequest<B>,
    since: Nanos,
}

/// A connection checked out of a pool. Give it back with [`Connection::release`] once the answer
/// has been read; dropping it closes it.
pub struct Connection<B> {
    pool: Rc<Pool<B>>,
    server: usize,
    sender: SendRequest<B>,
    /// It has carried a request before, so the server may have closed it unseen.
    pub reused: bool,
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// No connection is made yet.
    pub fn new(settings: Settings, clock: Clock, connected: metrics::Counter) -> Rc<Pool<B>> {
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
    pub async fn checkout(self: &Rc<Self>, fresh: bool) -> Result<Connection<B>, Error> {
        let first = self.turn();
        let mut last = None;
        for step in 0..self.servers.len() {
            let server = (first + step) % self.servers.len();
            if !fresh && let Some(sender) = self.idle(server) {
                return Ok(self.connection(server, sender, true));
            }
            match self.connect(server).await {
                Ok(sender) => return Ok(self.connection(server, sender, false)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Connect {
            server: self.settings.name.clone(),
            cause: std::io::Error::other("the upstream has no servers"),
        }))
    }

    fn turn(&self) -> usize {
        let turn = self.next.get();
        self.next.set((turn + 1) % self.servers.len().max(1));
        turn
    }

    fn connection(
        self: &Rc<Self>,
        server: usize,
        sender: SendRequest<B>,
        reused: bool,
    ) -> Connection<B> {
        Connection {
            pool: self.clone(),
            server,
            sender,
            reused,
        }
    }

    fn idle(&self, server: usize) -> Option<SendRequest<B>> {
        let mut idle = self.servers[server].idle.borrow_mut();
        // One that is not ready yet is still finishing its last exchange.
        let ready = idle.iter().rposition(|idle| idle.sender.is_ready())?;
        Some(idle.remove(ready).sender)
    }

    async fn connect(self: &Rc<Self>, server: usize) -> Result<SendRequest<B>, Error> {
        let ServerPool { server, name, .. } = &self.servers[server];
        let failed = |cause| Error::Connect {
            server: name.clone(),
            cause,
        };
        let attempt = TcpStream::connect((server.host.as_str(), server.port));
        let after = self.settings.connect;
        let stream = tokio::time::timeout(after, attempt)
            .await
            .map_err(|_| Error::ConnectTimeout {
                server: name.clone(),
                after,
            })?
            .map_err(failed)?;
        let stream = Socket::new(stream).map_err(failed)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|cause| Error::Exchange {
                server: name.clone(),
                cause,
            })?;
        self.connected.increment(1);
        tokio::task::spawn_local(async move {
            // An error of the connection reaches the request that was on it.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Closes connections that were not used for the time allowed.
    pub fn expire(&self) {
        let keep_since = Nanos(
            self.clock
                .now()
                .0
                .saturating_sub(Nanos::from(self.settings.idle).0),
        );
        for server in &self.servers {
            let idle = &mut *server.idle.borrow_mut();
            idle.retain(|idle| idle.since >= keep_since && !idle.sender.is_closed());
        }
    }
}

impl<B> Connection<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The server at the other end.
    pub fn server(&self) -> &str {
        &self.pool.servers[self.server].name
    }

    /// Sends a request; the answer's body must be read before the connection is released. When the
    /// request was certainly not sent, it comes back with the error.
    pub async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<B>>)> {
        self.sender
            .try_send_request(request)
            .await
            .map_err(|mut error| {
                let unsent = error.take_message();
                (error.into_error(), unsent)
            })
    }

    /// Keeps the connection for the next request. `now` may be coarse.
    pub fn release(self, now: Nanos) {
        let mut idle = self.pool.servers[self.server].idle.borrow_mut();
        if idle.len() < MAX_IDLE && !self.sender.is_closed() {
            idle.push(Idle {
                sender: self.sender,
                since: now,
            });
        }
    }
}
