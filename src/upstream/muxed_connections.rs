//! One worker's connections of HTTP/2 to one endpoint. Each carries many requests at the same time. A new connection is
//! made only for a request for which all are full, so the open requests bound their number. The `h2` crate runs each in a
//! task of its own. `http2_exchange` uses the streams.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use h2::Ping;
use h2::client::{Builder, SendRequest};
use tokio::sync::Mutex;

use crate::base::clock::Nanos;
use crate::net::Socket;

/// Maximum number of concurrent requests on one connection, the least that RFC 9113 section 6.5.2 recommends to servers.
/// A server may allow fewer.
const MAX_STREAMS: usize = 100;

/// Maximum bytes of a response's body that wait for a slow client, on each stream.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;

/// Maximum size of a response's head, and of its trailers, in bytes: names, values, and 32 for each field (RFC 9113 section
/// 6.5.2).
const MAX_HEAD_BYTES: u32 = 64 * 1024;

/// Maximum bytes of a request's body that wait to be sent, on each stream.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// One worker's connections of HTTP/2 to one endpoint.
#[derive(Default)]
pub struct MuxedConnections {
    connections: RefCell<Vec<MuxedConnection>>,
    /// Held while one request makes a connection. Requests that waited for the lock use this connection too, while it has
    /// free streams.
    pub connect_lock: Mutex<()>,
}

/// One connection, as the pool sees it.
struct MuxedConnection {
    /// The handle by which requests are sent.
    sender: SendRequest<Bytes>,
    state: Rc<MuxState>,
}

/// The state of a connection, which its reserved streams and its task share.
struct MuxState {
    /// The number of open requests.
    open_requests: Cell<usize>,
    /// Whether the connection gets no more requests.
    is_retired: Cell<bool>,
    /// The time at which [`MuxedConnections::close_idle`] last saw an open request; zero before its first call.
    last_used_at: Cell<Nanos>,
}

/// A stream that is reserved for one request on a connection. It begins when the request's head is sent.
pub struct ReservedStream {
    /// The handle by which the request is sent.
    pub sender: SendRequest<Bytes>,
    state: Rc<MuxState>,
    /// Whether the connection has carried other requests before.
    pub is_reused: bool,
}

impl MuxedConnections {
    /// Reserves a stream of an existing connection; `None` if there is none or all are full.
    pub fn reserve_stream(&self) -> Option<ReservedStream> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.state.is_retired.get());
        let free_connection = connections.iter().find(|connection| {
            let allowed_streams = connection.sender.current_max_send_streams();
            connection.state.open_requests.get() < allowed_streams.min(MAX_STREAMS)
        });
        free_connection.map(|connection| connection.reserve_stream(true))
    }

    /// Begins HTTP/2 over a socket, and reserves a stream for the first request.
    ///
    /// # Errors
    ///
    /// The connection breaks, or the server does not speak HTTP/2. A server that sends nothing is noticed by the caller's
    /// timeout.
    pub async fn connect(&self, socket: Socket) -> io::Result<ReservedStream> {
        let connection_window_bytes = STREAM_WINDOW_BYTES * MAX_STREAMS as u32;
        let (sender, mut connection_task) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            // The window has room for all streams, so that a slow client does not hold up the streams of others.
            .initial_connection_window_size(connection_window_bytes)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .handshake(socket)
            .await
            .map_err(io::Error::other)?;
        let state = Rc::new(MuxState {
            open_requests: Cell::new(0),
            is_retired: Cell::new(false),
            last_used_at: Cell::new(Nanos::ZERO),
        });
        let ping_pong = connection_task.ping_pong();
        let retire_on_drop = RetireOnDrop(state.clone());
        tokio::task::spawn_local(async move {
            let _retire_on_drop = retire_on_drop;
            // The requests on the connection get its error.
            let _ = connection_task.await;
        });
        // The pong comes after the server's SETTINGS, which say how many streams it allows. A server that speaks
        // another protocol sends none.
        if let Some(mut ping_pong) = ping_pong {
            let pong = ping_pong.ping(Ping::opaque()).await;
            pong.map_err(io::Error::other)?;
        }
        let connection = MuxedConnection { sender, state };
        let stream = connection.reserve_stream(false);
        self.connections.borrow_mut().push(connection);
        Ok(stream)
    }

    /// Closes connections that had no open request since `keep_since`, and forgets retired ones. Must be called often,
    /// because a connection counts as used when a call sees an open request.
    pub fn close_idle(&self, now: Nanos, keep_since: Nanos) {
        self.connections.borrow_mut().retain(|connection| {
            let state = &connection.state;
            if state.open_requests.get() > 0 || state.last_used_at.get() == Nanos::ZERO {
                state.last_used_at.set(now);
            }
            !state.is_retired.get() && state.last_used_at.get() >= keep_since
        });
    }

    /// Gives the connections no more requests. Each closes once its open requests have ended.
    pub fn close(&self) {
        self.connections.borrow_mut().clear();
    }
}

impl MuxedConnection {
    fn reserve_stream(&self, is_reused: bool) -> ReservedStream {
        self.state.open_requests.update(|count| count + 1);
        ReservedStream {
            sender: self.sender.clone(),
            state: self.state.clone(),
            is_reused,
        }
    }
}

impl ReservedStream {
    /// Retires the connection: new requests go over others.
    pub fn retire(&self) {
        self.state.is_retired.set(true);
    }
}

impl Drop for ReservedStream {
    fn drop(&mut self) {
        self.state.open_requests.update(|count| count - 1);
    }
}

/// Retires a connection when its task ends, even by a panic.
struct RetireOnDrop(Rc<MuxState>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.is_retired.set(true);
    }
}
