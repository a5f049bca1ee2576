//! The bytes of a client's HTTP/1 connection, in and out.
//!
//! The loop that serves the connection and the body of the open request share it. Both belong to one task, so a cell is
//! enough and nothing passes between tasks.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http_body::SizeHint;
use tokio::io::AsyncWrite;
use tokio::time::{Interval, MissedTickBehavior};

use super::repeat_cache::RepeatCache;
use super::request::{self, HeadError, ParsedRequest};
use super::response_head::write_response_head;
use crate::http::head::ResponseHead;
use crate::http::http1::chunked::BodyPiece;
use crate::http::http1::inbox::Inbox;
use crate::http::http1::{Framing, MAX_HEAD_BYTES, MessageError, Outbox};
use crate::net::DeferredFlush;
use crate::net::flush_queue::YieldToOthers;
use crate::serve::stack::unreadable_request::{FirstLine, UnreadableRequest};
use crate::serve::worker::client_socket::{ClientSocket, MAX_DRAINED_BYTES};
use crate::serve::worker::deadlines::Deadlines;

/// How often a half-closed connection is checked for a reset. Once the client has closed its sending side, the runtime
/// reports nothing more to a reader of the socket.
const HALF_CLOSE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A client's HTTP/1 connection: its socket, its buffers, and how far the open request has been read.
pub struct Wire {
    deadlines: Rc<Deadlines>,
    inner: RefCell<WireState>,
}

/// The mutable part of a [`Wire`].
struct WireState {
    socket: ClientSocket,
    inbox: Inbox,
    outbox: Outbox,
    repeat_cache: RepeatCache,
    /// Gives the worker's other connections their turn, so that all are read before any is served. The code that reads
    /// and the code that serves do not fit a processor's first-level cache together.
    yield_to_others: YieldToOthers,
    /// What is left of the request's body.
    remaining_body: Framing,
    /// The version of HTTP of the last request.
    version: Version,
    /// Whether the client waits for `100 Continue` before it sends the body.
    awaits_continue: bool,
    /// Whether a part of the last response could not be sent at once.
    has_unsent_response: bool,
    /// When to check the socket of a client that has closed its sending side and waits for its response.
    half_close_check: Option<Box<Interval>>,
}

impl Wire {
    /// A connection from which nothing has been read.
    pub fn new(client: ClientSocket) -> Rc<Wire> {
        Rc::new(Wire {
            deadlines: client.deadlines.clone(),
            inner: RefCell::new(WireState {
                socket: client,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                repeat_cache: RepeatCache::default(),
                yield_to_others: YieldToOthers::default(),
                remaining_body: Framing::Length(0),
                version: Version::HTTP_10,
                awaits_continue: false,
                has_unsent_response: false,
                half_close_check: None,
            }),
        })
    }

    /// The socket, and the bytes that were read from it and not used.
    pub fn into_parts(self) -> (ClientSocket, BytesMut) {
        let inner = self.inner.into_inner();
        (inner.socket, inner.inbox.bytes)
    }

    /// The connection's deadlines.
    pub fn deadlines(&self) -> &Rc<Deadlines> {
        &self.deadlines
    }

    /// Prepares the connection for the next request.
    pub fn begin_request(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.inbox.begin_message();
        inner.yield_to_others = YieldToOthers::default();
    }

    /// Reads the head of the next request; `None` at the end of the connection.
    pub fn poll_head(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ParsedRequest>, HeadError>> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            if !inner.inbox.bytes.is_empty() {
                self.deadlines.report_bytes_received();
                let inbox = &mut inner.inbox;
                if inbox.is_head_worth_parsing()
                    && let Some(request) =
                        request::parse_request(&mut inbox.bytes, &mut inner.repeat_cache)?
                {
                    inner.remaining_body = request.framing;
                    inner.version = request.expectations.version;
                    inner.awaits_continue = request.awaits_continue && inner.inbox.bytes.is_empty();
                    return Poll::Ready(Ok(Some(request)));
                }
            }
            match ready!(inner.poll_read(cx)) {
                Ok(1..) => {
                    self.deadlines.report_bytes_received();
                    inner.repeat_cache.prefetch();
                    ready!(Pin::new(&mut inner.yield_to_others).poll(cx));
                }
                // The client has left.
                Ok(0) | Err(_) => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// What is recorded of a request that [`Wire::poll_head`] could not read. A bad preface gets no response if
    /// `may_be_http2`, because a client of HTTP/2 could not read a response of HTTP/1.
    pub fn describe_unreadable(&self, error: HeadError, may_be_http2: bool) -> UnreadableRequest {
        UnreadableRequest {
            cause: error.into(),
            line: FirstLine::parse(&self.inner.borrow().inbox.bytes),
            gets_no_response: may_be_http2 && error == HeadError::Preface,
        }
    }

    /// Frees the buffers that hold nothing, and the repeat_cache of repeated requests.
    pub fn free_buffers(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.inbox.free_buffer();
        inner.outbox.free_buffer();
        inner.repeat_cache = RepeatCache::default();
    }

    /// Whether no part of another request has arrived.
    pub fn is_idle(&self) -> bool {
        self.inner.borrow().inbox.bytes.is_empty()
    }

    /// Reads the next piece of the request's body. A client that waits for `100 Continue` gets it first.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, MessageError>> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            let piece = inner.remaining_body.next_piece(&mut inner.inbox.bytes)?;
            if piece != BodyPiece::Incomplete {
                return Poll::Ready(Ok(piece));
            }
            if std::mem::take(&mut inner.awaits_continue) {
                let interim = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                inner.outbox.push(interim);
            }
            if let Poll::Ready(result) = inner.outbox.poll_flush(cx, &mut inner.socket) {
                result?;
            }
            if ready!(inner.poll_read(cx))? == 0 {
                return Poll::Ready(match inner.remaining_body {
                    Framing::Close => Ok(BodyPiece::End),
                    Framing::Length(_) | Framing::Chunked(_) => Err(MessageError::Closed),
                });
            }
        }
    }

    /// Treats all further bytes as another protocol, to the end of the connection.
    pub fn open_tunnel(&self) {
        self.inner.borrow_mut().remaining_body = Framing::Close;
    }

    /// How many bytes of the request's body are left.
    pub fn remaining_body(&self) -> SizeHint {
        match self.inner.borrow().remaining_body {
            Framing::Length(length) => SizeHint::with_exact(length),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }

    /// Whether all of the request's body has been read.
    pub fn is_body_over(&self) -> bool {
        self.inner.borrow().remaining_body.is_over()
    }

    /// Ready when the client is seen to have left. While a part of the request's body is unread, nothing more is read, so
    /// that is not seen. A reset of a half-closed connection is seen within [`HALF_CLOSE_CHECK_INTERVAL`].
    pub fn poll_client_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        while inner.remaining_body.is_over()
            && inner.inbox.bytes.len() < MAX_HEAD_BYTES
            && inner.half_close_check.is_none()
        {
            match ready!(inner.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if inner.socket.may_await_response() => {
                    inner.half_close_check = Some(new_half_close_check());
                }
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        let Some(check) = &mut inner.half_close_check else {
            return Poll::Pending;
        };
        loop {
            ready!(check.poll_tick(cx));
            if inner.socket.is_broken() {
                return Poll::Ready(());
            }
        }
    }

    /// Queues an interim response (1xx), unless the client speaks HTTP/1.0, which has none.
    pub fn send_interim(&self, head: &ResponseHead) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.version >= Version::HTTP_11 {
            inner.outbox.push_with(|out| {
                write_response_head(out, head);
                out.extend_from_slice(b"\r\n");
            });
        }
    }

    /// Lets `fill` queue bytes to be sent.
    pub fn fill_outbox(&self, fill: impl FnOnce(&mut Outbox)) {
        fill(&mut self.inner.borrow_mut().outbox);
    }

    /// Whether so much is queued that nothing should be added.
    pub fn is_outbox_full(&self) -> bool {
        self.inner.borrow().outbox.is_full()
    }

    /// Sends everything that is queued.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        inner.outbox.poll_flush(cx, &mut inner.socket)
    }

    /// Whether a part of the last response still has to be sent.
    pub fn has_unsent_response(&self) -> bool {
        self.inner.borrow().has_unsent_response
    }

    /// Sends the rest of the last response.
    pub fn poll_unsent_response(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        // The request is not over yet.
        self.deadlines.report_request_begun();
        ready!(inner.outbox.poll_flush(cx, &mut inner.socket))?;
        inner.has_unsent_response = false;
        Poll::Ready(Ok(()))
    }

    /// Reads the rest of an unwanted request body, within [`MAX_DRAINED_BYTES`], and adds its bytes to `drained_bytes`.
    /// Ready with true if the connection can be reused.
    pub fn poll_drain_body(&self, cx: &mut Context<'_>, drained_bytes: &mut usize) -> Poll<bool> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            // A client that never got `100 Continue` may send its body or not.
            if inner.awaits_continue || *drained_bytes > MAX_DRAINED_BYTES {
                return Poll::Ready(false);
            }
            match inner.remaining_body.next_piece(&mut inner.inbox.bytes) {
                Ok(BodyPiece::Data(data)) => *drained_bytes += data.len(),
                Ok(BodyPiece::Trailers(_) | BodyPiece::End) => return Poll::Ready(true),
                Ok(BodyPiece::Incomplete) => match ready!(inner.poll_read(cx)) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Poll::Ready(false),
                },
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Sets whether a close resets the connection. A response that ends with the connection needs that until it is sent,
    /// so that the client does not take a part for the whole.
    pub fn set_reset_on_close(&self, should_reset: bool) {
        self.inner.borrow().socket.set_reset_on_close(should_reset);
    }

    /// Ends the connection for both sides at once. It still counts as open until it is dropped.
    pub fn hang_up(&self) {
        self.inner.borrow().socket.hang_up();
    }

    /// Whether the client waits for `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.inner.borrow().awaits_continue
    }

    /// Whether the connection can be reused after a response that is given while the request's body is unread.
    pub fn can_drain_body(&self) -> bool {
        let inner = self.inner.borrow();
        let is_small = !matches!(
            inner.remaining_body,
            Framing::Length(length) if length > MAX_DRAINED_BYTES as u64
        );
        is_small && !inner.awaits_continue
    }

    /// Sends everything that is queued, then closes the connection so that the client can read it; see [`ClientSocket`].
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.outbox.is_empty() {
            inner.socket.hold_back();
            ready!(inner.outbox.poll_flush(cx, &mut inner.socket))?;
        }
        Pin::new(&mut inner.socket).poll_shutdown(cx)
    }
}

#[cold]
fn new_half_close_check() -> Box<Interval> {
    let mut interval = tokio::time::interval(HALF_CLOSE_CHECK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Box::new(interval)
}

/// Sends the end of a response together with the ends of other connections' responses.
impl DeferredFlush for Wire {
    fn flush_deferred(&self, cx: &mut Context<'_>) {
        let inner = &mut *self.inner.borrow_mut();
        let sent = inner.outbox.poll_flush(cx, &mut inner.socket);
        inner.has_unsent_response = !matches!(sent, Poll::Ready(Ok(())));
        if inner.has_unsent_response {
            self.deadlines.wake();
        }
    }

    fn mark_broken(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.outbox.mark_broken();
        inner.has_unsent_response = true;
        self.deadlines.wake();
    }
}

impl WireState {
    /// Reads more bytes into the inbox; ready with their number, 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.socket)
    }
}
