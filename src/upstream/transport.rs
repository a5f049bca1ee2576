//! The connection or stream that carries a request to a server. `upstream_pool` and `connection_search` decide which one
//! a request gets; `http1_exchange` and `http2_exchange` use it.

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
    /// A whole connection. It returns to the pool by `Assignment::release` after the response, or closes when dropped.
    Http1(Rc<RefCell<Http1Connection>>),
    /// A stream of an HTTP/2 connection.
    Http2(ReservedStream),
}

/// A connection of HTTP/1.1, with the buffers that it keeps from request to request.
pub(super) struct Http1Connection {
    pub(super) socket: Socket,
    /// The received bytes that are not parsed yet.
    pub(super) inbox: Inbox,
    /// The queued bytes of the request that are not sent yet.
    pub(super) outbox: Outbox,
    /// The last head of a response. A server often sends the same bytes again.
    pub(super) last_head: LastHead,
    /// Whether the connection has carried a request before. The server may have closed it meanwhile.
    pub(super) is_reused: bool,
    /// Wakes the task of a request that waits in the worker's [`FlushQueue`](crate::net::FlushQueue); `None` otherwise.
    pub(super) waker: Option<Waker>,
    /// Whether the worker could not send a queued request whole, so that the task of the request must send the rest.
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
