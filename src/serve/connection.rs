//! One client connection: its deadlines, its requests through the stack, and a close that lets the
//! client read the last answer.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;

use super::gateway::Stack;
use super::guard::{Guard, Phase};
use super::worker::Worker;
use crate::clock::Nanos;
use crate::telemetry::{Label, Metric};
use crate::upstream::Socket;

/// Most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1024;

/// How long a client may take to close after the gateway has.
const LINGER: Duration = Duration::from_secs(2);

/// The client side of one connection.
pub struct Peer {
    /// The other end's address, IPv4-mapped IPv6 folded.
    pub ip: IpAddr,
    /// The same as a header value.
    pub address: HeaderValue,
    /// The connection's deadlines.
    pub guard: Rc<Guard>,
    forwarded: RefCell<Option<(HeaderValue, HeaderValue)>>,
    idle: Cell<Duration>,
    worker: Rc<Worker>,
}

impl Peer {
    fn new(address: SocketAddr, worker: &Rc<Worker>) -> Rc<Peer> {
        let ip = address.ip().to_canonical();
        let timeouts = worker.generation().ruleset.timeouts.clone();
        let guard = worker.guards.watch(timeouts.idle);
        guard.allow_header(timeouts.header);
        // An address has no characters that a header value may not have.
        let text = HeaderValue::from_str(&ip.to_string());
        Rc::new(Peer {
            ip,
            address: text.unwrap_or(HeaderValue::from_static("unknown")),
            guard,
            forwarded: RefCell::new(None),
            idle: Cell::new(timeouts.idle),
            worker: worker.clone(),
        })
    }

    /// This hop's element of `Forwarded`, kept while the connection asks for the same host.
    pub fn forwarded(&self, host: &HeaderValue) -> HeaderValue {
        let mut kept = self.forwarded.borrow_mut();
        if let Some((known, value)) = &*kept
            && known == host
        {
            return value.clone();
        }
        let node = match self.ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        let host_text = host.to_str().unwrap_or_default();
        let text = format!("for={node};host=\"{host_text}\";proto=http");
        let value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("for=unknown"));
        *kept = Some((host.clone(), value.clone()));
        value
    }

    /// An answer is over: the client has until the idle deadline for its next request.
    pub fn answered(&self) {
        self.guard.enter(Phase::Idle, self.idle.get());
    }

    /// Time as of the worker's last tick.
    pub fn coarse(&self) -> Nanos {
        self.worker.guards.coarse()
    }

    /// The counter of one kind of failure of one upstream.
    pub fn failures(&self, metric: Metric, upstream: &str, reason: &str) -> metrics::Counter {
        let labels = [(Label::Upstream, upstream), (Label::Reason, reason)];
        self.worker
            .registry
            .worker_counter(self.worker.number, metric, &labels)
    }
}

/// Serves one connection to its end.
pub async fn serve(stream: Socket, address: SocketAddr, worker: Rc<Worker>, stack: Stack) {
    let peer = Peer::new(address, &worker);
    let guard = peer.guard.clone();
    let send = worker.generation().ruleset.timeouts.send;
    let io = TokioIo::new(Client {
        stream,
        guard: guard.clone(),
        send,
        closing: false,
    });
    let service = service_fn(|request| {
        let mut stack = stack.clone();
        stack.call((request, peer.clone(), worker.generation()))
    });
    let connection = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .header_read_timeout(None)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut told = false;
    poll_fn(|cx| {
        if worker.draining() && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        if guard.must_close(cx) {
            return Poll::Ready(());
        }
        // An error here is the client's: it broke off, or it does not speak HTTP and hyper has
        // answered 400.
        connection.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

/// The client's socket, telling the guard what happens on it.
struct Client {
    stream: Socket,
    guard: Rc<Guard>,
    send: Duration,
    closing: bool,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.guard.received();
        Poll::Ready(Ok(()))
    }
}

impl Client {
    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Pending => self.guard.write_waits(self.send),
            Poll::Ready(_) => self.guard.wrote(),
        }
        result
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    /// Closes the sending side, then reads until the client has closed too: a close with unread
    /// bytes would make the kernel reset the connection and destroy an answer not yet read.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closing {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.closing = true;
            this.guard.enter(Phase::Linger, LINGER);
        }
        let mut scratch = [0; 16 * 1024];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
