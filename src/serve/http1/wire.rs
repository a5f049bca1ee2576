//! The bytes of a client's HTTP/1 connection, in and out.
//!
//! The loop in `exchanges.rs` and the body of the open request share one [`Wire`]. The worker's task for deferred
//! writes uses it too ([`DeferredFlush`]). All of them run on one thread, so a cell is enough.

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
    state: RefCell<WireState>,
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
    /// The part of the request's body that is still to be read.
    remaining_body: Framing,
    /// The version of HTTP of the last request.
    version: Version,
    /// Whether the client waits for `100 Continue` before it sends the body.
    awaits_continue: bool,
    /// Whether a part of the last response could not be sent at once.
    has_unsent_response: bool,
    /// When to check the socket of a client that has closed its sending side and waits for its response; `None` while the
    /// client may send.
    half_close_check: Option<Box<Interval>>,
}

impl Wire {
    /// A connection from which nothing has been read.
    pub fn new(client: ClientSocket) -> Rc<Wire> {
        Rc::new(Wire {
            deadlines: client.deadlines.clone(),
            state: RefCell::new(WireState {
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
        let state = self.state.into_inner();
        (state.socket, state.inbox.bytes)
    }

    /// The deadlines of the connection and of its open request.
    pub fn deadlines(&self) -> &Rc<Deadlines> {
        &self.deadlines
    }

    /// Prepares the connection for the next request.
    pub fn begin_request(&self) {
        let state = &mut *self.state.borrow_mut();
        state.inbox.begin_message();
        state.yield_to_others = YieldToOthers::default();
    }

    /// Reads the head of the next request; `None` if the connection ends or fails.
    ///
    /// # Errors
    ///
    /// The head cannot be parsed.
    pub fn poll_head(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ParsedRequest>, HeadError>> {
        let state = &mut *self.state.borrow_mut();
        loop {
            if !state.inbox.bytes.is_empty() {
                self.deadlines.report_bytes_received();
                let inbox = &mut state.inbox;
                if inbox.is_head_worth_parsing()
                    && let Some(request) =
                        request::parse_request(&mut inbox.bytes, &mut state.repeat_cache)?
                {
                    state.remaining_body = request.framing;
                    state.version = request.expectations.version;
                    state.awaits_continue = request.awaits_continue && state.inbox.bytes.is_empty();
                    return Poll::Ready(Ok(Some(request)));
                }
            }
            match ready!(state.poll_read(cx)) {
                Ok(1..) => {
                    self.deadlines.report_bytes_received();
                    state.repeat_cache.prefetch();
                    ready!(Pin::new(&mut state.yield_to_others).poll(cx));
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
            first_line: FirstLine::parse(&self.state.borrow().inbox.bytes),
            gets_no_response: may_be_http2 && error == HeadError::Preface,
        }
    }

    /// Frees the buffers that hold nothing, and the cache of repeated requests.
    pub fn free_buffers(&self) {
        self.state.borrow_mut().free_buffers();
    }

    /// Whether the inbox is empty, so that no part of another request has arrived.
    pub fn is_idle(&self) -> bool {
        self.state.borrow().inbox.bytes.is_empty()
    }

    /// Reads the next piece of the request's body. A client that waits for `100 Continue` gets it first.
    ///
    /// # Errors
    ///
    /// The body's framing is malformed, or the connection ends or fails within the body.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, MessageError>> {
        let state = &mut *self.state.borrow_mut();
        loop {
            let piece = state.remaining_body.next_piece(&mut state.inbox.bytes)?;
            if piece != BodyPiece::Incomplete {
                return Poll::Ready(Ok(piece));
            }
            if std::mem::take(&mut state.awaits_continue) {
                let interim_response = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                state.outbox.push(interim_response);
            }
            if let Poll::Ready(result) = state.outbox.poll_flush(cx, &mut state.socket) {
                result?;
            }
            state.inbox.expect_body();
            if ready!(state.poll_read(cx))? == 0 {
                return Poll::Ready(match state.remaining_body {
                    Framing::Close => Ok(BodyPiece::End),
                    Framing::Length(_) | Framing::Chunked(_) => Err(MessageError::Closed),
                });
            }
        }
    }

    /// Treats all further bytes as another protocol, to the end of the connection.
    pub fn open_tunnel(&self) {
        self.state.borrow_mut().remaining_body = Framing::Close;
    }

    /// How many bytes of the request's body are still to be read; exact only if its length is stated.
    pub fn remaining_body(&self) -> SizeHint {
        match self.state.borrow().remaining_body {
            Framing::Length(length) => SizeHint::with_exact(length),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }

    /// Whether all of the request's body has been read.
    pub fn is_body_over(&self) -> bool {
        self.state.borrow().remaining_body.is_over()
    }

    /// Ready when the client is seen to have left. Nothing is read while a part of the request's body is unread or the
    /// inbox has [`MAX_HEAD_BYTES`], so no departure is seen then. A reset of a half-closed connection is seen within
    /// [`HALF_CLOSE_CHECK_INTERVAL`].
    pub fn poll_client_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        while state.remaining_body.is_over()
            && state.inbox.bytes.len() < MAX_HEAD_BYTES
            && state.half_close_check.is_none()
        {
            match ready!(state.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if state.socket.may_await_response() => {
                    state.half_close_check = Some(new_half_close_check());
                }
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        let Some(check) = &mut state.half_close_check else {
            return Poll::Pending;
        };
        loop {
            ready!(check.poll_tick(cx));
            if state.socket.is_broken() {
                return Poll::Ready(());
            }
        }
    }

    /// Queues an interim response (1xx), unless the client speaks HTTP/1.0, which has none.
    pub fn send_interim(&self, head: &ResponseHead) {
        let state = &mut *self.state.borrow_mut();
        if state.version >= Version::HTTP_11 {
            state.outbox.push_with(|out| {
                write_response_head(out, head);
                out.extend_from_slice(b"\r\n");
            });
        }
    }

    /// Lets `fill` queue bytes to be sent.
    pub fn fill_outbox(&self, fill: impl FnOnce(&mut Outbox)) {
        fill(&mut self.state.borrow_mut().outbox);
    }

    /// Whether so much is queued that nothing should be added.
    pub fn is_outbox_full(&self) -> bool {
        self.state.borrow().outbox.is_full()
    }

    /// Sends everything that is queued.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.outbox.poll_flush(cx, &mut state.socket)
    }

    /// Whether a part of the last response still has to be sent.
    pub fn has_unsent_response(&self) -> bool {
        self.state.borrow().has_unsent_response
    }

    /// Sends the unsent part of the last response.
    pub fn poll_unsent_response(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        // The request is not over yet.
        self.deadlines.report_request_begun();
        ready!(state.outbox.poll_flush(cx, &mut state.socket))?;
        state.has_unsent_response = false;
        Poll::Ready(Ok(()))
    }

    /// Reads the rest of an unwanted request body, within [`MAX_DRAINED_BYTES`], and adds its bytes to `drained_bytes`.
    /// Ready with true if the connection can be reused, and with false if the body is longer, breaks off or is still
    /// held back.
    pub fn poll_drain_body(&self, cx: &mut Context<'_>, drained_bytes: &mut usize) -> Poll<bool> {
        let state = &mut *self.state.borrow_mut();
        loop {
            // A client that never got `100 Continue` may send its body or not.
            if state.awaits_continue || *drained_bytes > MAX_DRAINED_BYTES {
                return Poll::Ready(false);
            }
            match state.remaining_body.next_piece(&mut state.inbox.bytes) {
                Ok(BodyPiece::Data(data)) => *drained_bytes += data.len(),
                Ok(BodyPiece::Trailers(_) | BodyPiece::End) => return Poll::Ready(true),
                Ok(BodyPiece::Incomplete) => match ready!(state.poll_read(cx)) {
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
        self.state.borrow().socket.set_reset_on_close(should_reset);
    }

    /// Ends the connection for both sides at once. It still counts as open until it is dropped.
    pub fn hang_up(&self) {
        self.state.borrow().socket.hang_up();
    }

    /// Whether the client waits for `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.state.borrow().awaits_continue
    }

    /// Whether the unread part of the request's body may be read after the response, so that the connection can be reused.
    pub fn can_drain_body(&self) -> bool {
        let state = self.state.borrow();
        let is_small = !matches!(
            state.remaining_body,
            Framing::Length(length) if length > MAX_DRAINED_BYTES as u64
        );
        is_small && !state.awaits_continue
    }

    /// Sends everything that is queued, then closes the connection so that the client can read it; see [`ClientSocket`].
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        if !state.outbox.is_empty() {
            state.socket.hold_back();
            ready!(state.outbox.poll_flush(cx, &mut state.socket))?;
        }
        // No request follows, and the client may take its time to close its side.
        state.inbox = Inbox::default();
        state.free_buffers();
        Pin::new(&mut state.socket).poll_shutdown(cx)
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
        let state = &mut *self.state.borrow_mut();
        let flushed = state.outbox.poll_flush(cx, &mut state.socket);
        state.has_unsent_response = !matches!(flushed, Poll::Ready(Ok(())));
        if state.has_unsent_response {
            self.deadlines.wake();
        }
    }

    fn mark_broken(&self) {
        let state = &mut *self.state.borrow_mut();
        state.outbox.mark_broken();
        state.has_unsent_response = true;
        self.deadlines.wake();
    }
}

impl WireState {
    /// Reads more bytes into the inbox; ready with their number, 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.socket)
    }

    /// Frees the buffers that hold nothing, and the cache of repeated requests.
    fn free_buffers(&mut self) {
        self.inbox.free_buffer();
        self.outbox.free_buffer();
        self.repeat_cache = RepeatCache::default();
    }
}
