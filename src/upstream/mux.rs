//! Connections of HTTP/2 to one server: many requests at a time on each, a new one when all are full.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use h2::Ping;
use h2::client::{Builder, SendRequest};
use tokio::sync::Mutex;

use crate::base::clock::Nanos;
use crate::net::Socket;

/// Requests under way on one connection, if the server allows as many.
const MAX_STREAMS: usize = 100;

/// Bytes of an answer's body that wait for a slow client, on each stream.
const STREAM_WINDOW: u32 = 128 * 1024;

/// Bytes of an answer's trailers and head.
const MAX_HEAD: u32 = 64 * 1024;

/// Bytes of a request's body that wait in a stream to be sent.
const SEND_BUFFER: usize = 64 * 1024;

/// One worker's connections to one server.
#[derive(Default)]
pub struct MuxedConnections {
    all: RefCell<Vec<MuxedConnection>>,
    /// One connects for all that wait.
    pub connecting: Mutex<()>,
}

struct MuxedConnection {
    send: SendRequest<Bytes>,
    state: Rc<MuxState>,
}

struct MuxState {
    open: Cell<usize>,
    /// It takes no more requests.
    over: Cell<bool>,
    /// When it was last seen with a request.
    used: Cell<Nanos>,
}

/// A place for one request on a connection.
pub struct Channel {
    /// What the request is sent by.
    pub send: SendRequest<Bytes>,
    state: Rc<MuxState>,
    /// Other requests came before on the same connection.
    pub reused: bool,
}

impl MuxedConnections {
    /// A place on a connection that is there.
    pub fn channel(&self) -> Option<Channel> {
        self.all.borrow_mut().retain(|mux| !mux.state.over.get());
        let all = self.all.borrow();
        let free = all.iter().find(|mux| {
            let most = mux.send.current_max_send_streams().min(MAX_STREAMS);
            mux.state.open.get() < most
        });
        free.map(|mux| mux.channel(true))
    }

    /// Begins HTTP/2 over a socket; the place of the first request.
    pub async fn begin(&self, socket: Socket) -> io::Result<Channel> {
        let window = STREAM_WINDOW * MAX_STREAMS as u32;
        let (send, mut connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            // No stream waits for another one's client.
            .initial_connection_window_size(window)
            .max_header_list_size(MAX_HEAD)
            .max_send_buffer_size(SEND_BUFFER)
            .handshake(socket)
            .await
            .map_err(io::Error::other)?;
        let state = Rc::new(MuxState {
            open: Cell::new(0),
            over: Cell::new(false),
            used: Cell::new(Nanos::ZERO),
        });
        let ping = connection.ping_pong();
        let ended = OverOnDrop(state.clone());
        tokio::task::spawn_local(async move {
            let _ended = ended;
            // How it ends, the requests on it see.
            let _ = connection.await;
        });
        // Its answer comes after what the server allows, and from nobody who speaks something else.
        if let Some(mut ping) = ping {
            let pong = ping.ping(Ping::opaque()).await;
            pong.map_err(io::Error::other)?;
        }
        let mux = MuxedConnection { send, state };
        let channel = mux.channel(false);
        self.all.borrow_mut().push(mux);
        Ok(channel)
    }

    /// Gives up connections without a request since `keep_since`.
    pub fn expire(&self, now: Nanos, keep_since: Nanos) {
        self.all.borrow_mut().retain(|mux| {
            let state = &mux.state;
            if state.open.get() > 0 || state.used.get() == Nanos::ZERO {
                state.used.set(now);
            }
            !state.over.get() && state.used.get() >= keep_since
        });
    }

    /// Gives up all of them; requests under way go on.
    pub fn close(&self) {
        self.all.borrow_mut().clear();
    }
}

impl MuxedConnection {
    fn channel(&self, reused: bool) -> Channel {
        self.state.open.update(|open| open + 1);
        Channel {
            send: self.send.clone(),
            state: self.state.clone(),
            reused,
        }
    }
}

impl Channel {
    /// New requests go over other connections.
    pub fn leave(&self) {
        self.state.over.set(true);
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.state.open.update(|open| open - 1);
    }
}

struct OverOnDrop(Rc<MuxState>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.over.set(true);
    }
}
