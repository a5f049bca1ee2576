//! The connection or stream that carries a request to a server. Which one a request gets is decided in `upstream_pool` and
//! `connection_search`.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::head_reader::LastHead;
use super::muxed_connections::ReservedStream;
use crate::http::http1::Outbox;
use crate::http::http1::inbox::Inbox;
use crate::net::{DeferredFlush, Socket};

/// The connection or stream that carries a request.
pub(super) enum Transport {
    /// A whole connection. It returns to the pool by `Assignment::release` after the response; otherwise it closes.
    Http1(Rc<RefCell<Http1Connection>>),
    /// A stream of an HTTP/2 connection.
    Http2(ReservedStream),
}

/// A connection of HTTP/1.1, with the buffers that it keeps from request to request.
pub(super) struct Http1Connection {
    pub(super) socket: Socket,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// The last response head, which the server may send again.
    pub(super) last_head: LastHead,
    /// Whether the connection has carried a request before. The server may have closed it meanwhile.
    pub(super) is_reused: bool,
    /// Wakes the task of a request that the worker sends together with those of other connections; `None` otherwise.
    pub(super) waker: Option<Waker>,
    /// Whether the worker could not send such a request whole, so that its own task must send the rest.
    pub(super) is_flush_late: bool,
}

impl Http1Connection {
    /// A connection that has carried no request.
    pub(super) fn new(socket: Socket) -> Http1Connection {
        Http1Connection {
            socket,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            last_head: LastHead::default(),
            is_reused: false,
            waker: None,
            is_flush_late: false,
        }
    }

    /// Reads more bytes into the inbox. Returns their number; 0 at the end of the stream.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.socket)
    }
}

impl DeferredFlush for RefCell<Http1Connection> {
    fn flush_deferred(&self, cx: &mut Context<'_>) {
        let connection = &mut *self.borrow_mut();
        let flush = connection.outbox.poll_flush(cx, &mut connection.socket);
        let waker = connection.waker.take();
        if !matches!(flush, Poll::Ready(Ok(()))) {
            connection.is_flush_late = true;
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn mark_broken(&self) {
        let connection = &mut *self.borrow_mut();
        connection.outbox.mark_broken();
        connection.is_flush_late = true;
        connection.waker.take().into_iter().for_each(Waker::wake);
    }
}
