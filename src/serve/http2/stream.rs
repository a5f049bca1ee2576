//! One request of HTTP/2 and the response to it, as the rest of the gateway sees them.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::SizeHint;

use super::connection_handle::ConnectionHandle;
use super::connection_state::{ConnectionState, OpenStream};
use super::heads::HeadCharge;
use super::offer::STREAM_WINDOW;
use super::stream_state::StreamState;
use crate::http::head::{Head, ResponseHead};
use crate::http::http1::Cause;
use crate::http::http1::chunked::Piece;
use crate::http::http2::hpack::Encoder;
use crate::http::http2::{Reason, frame};
use crate::serve::stack::body::CLIENT_LEFT;
use crate::serve::worker::client_socket::MAX_DRAIN;
use crate::serve::worker::guard::Guard;

/// Most bytes of a body that are handed on at once.
const PIECE: usize = 64 * 1024;

/// See the module.
pub struct Http2Stream {
    /// Its number.
    pub id: u32,
    /// For the memory of its head.
    _charge: HeadCharge,
    guard: Rc<Guard>,
    pub(super) handle: Rc<ConnectionHandle<Http2Stream>>,
    /// How long the client may take nothing of a response.
    send: Duration,
    /// To be borrowed after what the streams share, if that is.
    pub(super) state: RefCell<StreamState>,
}

/// The response cannot be sent whole.
#[derive(Debug)]
pub struct StreamClosed;

impl OpenStream for Http2Stream {
    #[inline]
    fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    fn state(&self) -> &RefCell<StreamState> {
        &self.state
    }

    fn goes_on(&self, state: &mut StreamState) {
        self.guard.wrote();
        state.wake();
    }

    fn progressed(&self, state: &mut StreamState) {
        self.guard.wrote();
        if state.piece.is_empty() {
            state.wake();
        } else {
            self.guard.write_waits(self.send);
        }
    }
}

impl Http2Stream {
    /// The stream of a request with this head and its charge, which `ended` says is all of it; none when it cannot be read.
    pub fn new(
        (id, charge): (u32, HeadCharge),
        handle: Rc<ConnectionHandle<Http2Stream>>,
        guard: Rc<Guard>,
        send: Duration,
        head: Option<&Head>,
        ended: bool,
    ) -> Rc<Http2Stream> {
        let fields = head.map(|head| &head.fields);
        let expects = fields.and_then(|fields| fields.first("expect"));
        let waits = expects.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let length = fields.and_then(|fields| fields.text("content-length"));
        let length = length.filter(|_| !ended);
        let state = StreamState {
            ended,
            expected: length.and_then(|text| text.parse().ok()),
            window: STREAM_WINDOW,
            apart: head.is_some_and(|head| head.upgrade.is_some()),
            waits: waits && !ended,
            room: handle.with(|shared| shared.first_room()),
            ..StreamState::default()
        };
        let stream = Rc::new(Http2Stream {
            id,
            _charge: charge,
            guard,
            handle,
            send,
            state: RefCell::new(state),
        });
        stream.handle.with(|shared| shared.add(stream.clone()));
        stream
    }

    fn with<T>(
        &self,
        change: impl FnOnce(&mut ConnectionState<Http2Stream>, &mut StreamState) -> T,
    ) -> T {
        self.handle
            .with(|shared| change(shared, &mut self.state.borrow_mut()))
    }

    /// Ready unless so much waits for the client that nothing more is to be made for it.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.with(|shared, state| {
            if !shared.is_overfull() || state.closed {
                return Poll::Ready(());
            }
            shared.hold_up(state);
            self.guard.write_waits(self.send);
            state.register(cx);
            Poll::Pending
        })
    }

    /// The request's deadlines.
    pub fn guard(&self) -> &Rc<Guard> {
        &self.guard
    }

    /// See [`Downstream::poll_body`](crate::serve::stack::downstream::Downstream::poll_body).
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cause>> {
        if self.expects_continue() {
            self.inform(&ResponseHead {
                status: StatusCode::CONTINUE,
                ..ResponseHead::default()
            });
            self.state.borrow_mut().waits = false;
        }
        self.with(|shared, state| {
            if state.apart {
                return Poll::Ready(Ok(Piece::End));
            }
            if !state.received.is_empty() {
                let length = state.received.len().min(PIECE);
                let data = state.received.split_to(length).freeze();
                // Whoever asks for a piece has no other, so this much more may come.
                shared.consume(self.id, state, length as u32);
                if shared.has_output() {
                    self.handle.notify();
                }
                return Poll::Ready(Ok(Piece::Data(data)));
            }
            if state.closed {
                return Poll::Ready(Err(Cause::Closed));
            }
            if let Some(trailers) = state.trailers.take() {
                return Poll::Ready(Ok(Piece::Trailers(trailers)));
            }
            if state.ended {
                return Poll::Ready(Ok(Piece::End));
            }
            state.register(cx);
            Poll::Pending
        })
    }

    /// Reads what is left of an unwanted body, within bounds.
    pub fn poll_drain(&self, cx: &mut Context<'_>, drained: &mut usize) -> Poll<()> {
        // A client that never got `100 Continue` may send its body or not.
        while !self.expects_continue() && *drained <= MAX_DRAIN {
            match ready!(self.poll_body(cx)) {
                Ok(Piece::Data(data)) => *drained += data.len(),
                Ok(_) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// What comes next is another protocol, to the end of the stream.
    pub fn open_tunnel(&self) {
        self.state.borrow_mut().apart = false;
    }

    /// What of the body is left.
    pub fn body_left(&self) -> SizeHint {
        let state = self.state.borrow();
        let here = state.received.len() as u64;
        match state.expected {
            _ if state.is_over() => SizeHint::with_exact(0),
            _ if state.closed => SizeHint::default(),
            _ if state.ended && state.trailers.is_none() => SizeHint::with_exact(here),
            Some(expected) => SizeHint::with_exact(expected.saturating_add(here)),
            None => SizeHint::default(),
        }
    }

    /// The client cannot send more of the body, for other streams hold what the connection has room for.
    pub fn is_held_back(&self) -> bool {
        self.handle.with(|shared| shared.holds_back())
    }

    /// All of the body has been read.
    pub fn body_is_over(&self) -> bool {
        self.state.borrow().is_over()
    }

    /// Whether the client waits for `100 Continue`.
    pub fn expects_continue(&self) -> bool {
        self.state.borrow().waits
    }

    /// Passes on a response that comes before the final one; one that the client can do without only while it
    /// reads.
    pub fn inform(&self, head: &ResponseHead) {
        let overfull = self.handle.with(|shared| shared.is_overfull());
        if overfull && head.status != StatusCode::CONTINUE {
            return;
        }
        self.send_head(head.status, false, |say| {
            for (name, value) in head.fields.iter() {
                say(name, value);
            }
        });
    }

    /// Ready when the client has taken the request back or the connection has ended.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(());
        }
        state.register(cx);
        Poll::Pending
    }

    /// Sends a head with what `fields` says; `end` when nothing comes after it.
    pub fn send_head(
        &self,
        status: StatusCode,
        end: bool,
        fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
    ) {
        self.queue_frames(end, |encoder, out| {
            frame::headers(out, self.id, end, |block| {
                encoder.begin(block);
                encoder.status(block, status.as_u16());
                fields(&mut |name, value| encoder.field(block, name, value));
            });
        });
    }

    /// Adds frames that need no window to what is sent, `end` when nothing comes after them.
    fn queue_frames(&self, end: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        self.with(|shared, state| {
            if state.closed {
                return;
            }
            let ConnectionState {
                outbox, encoder, ..
            } = shared;
            outbox.text(|out| write(encoder, out));
            shared.allowance.earn();
            state.sent = end;
            shared.settle(self, state);
        });
        self.handle.notify();
    }

    /// Sends a piece of content, `last` when nothing comes after it; ready when it has been taken over.
    pub fn poll_send(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        piece: &mut Bytes,
        last: bool,
    ) -> Poll<Result<(), StreamClosed>> {
        ready!(self.poll_sent(cx))?;
        self.with(|shared, state| {
            state.piece = std::mem::take(piece);
            state.last = last;
            shared.offer(self, state);
        });
        self.handle.notify();
        Poll::Ready(Ok(()))
    }

    /// Ready when no content waits.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamClosed>> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(Err(StreamClosed));
        }
        if state.piece.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.guard.write_waits(self.send);
        state.register(cx);
        Poll::Pending
    }

    /// Ends a response all of whose content has been sent, with what comes after it.
    pub fn end(&self, trailers: Option<HeaderMap>) {
        self.queue_frames(true, |encoder, out| match trailers {
            Some(trailers) => frame::headers(out, self.id, true, |block| {
                encoder.begin(block);
                for (name, value) in &trailers {
                    encoder.field(block, name.as_str().as_bytes(), value.as_bytes());
                }
            }),
            None => frame::end(out, self.id),
        });
    }

    /// Ends it. Where one side has not said all, a response is not to be taken for a whole one.
    pub fn reset(&self, reason: Reason) {
        self.with(|shared, state| {
            if state.closed {
                return;
            }
            if !(state.sent && state.ended) {
                shared.reset(self.id, reason);
            }
            shared.close(self, state);
        });
        self.handle.notify();
    }

    /// Why it ended, for the log.
    pub fn reason(&self) -> &'static str {
        match self.state.borrow().failed {
            true => "stream error",
            false => CLIENT_LEFT,
        }
    }

    /// Ends it, for the client has broken a rule.
    pub fn fail(&self, reason: Reason) {
        self.with(|shared, state| {
            if !state.closed {
                shared.fail(self, state, reason);
            }
        });
        self.handle.notify();
    }

    /// Nothing more is done for the request.
    pub fn end_request(&self) {
        let sent = self.state.borrow().sent;
        // A whole response needs no more of the request: RFC 9113 section 8.1.
        self.reset(if sent {
            Reason::NO_ERROR
        } else {
            Reason::CANCEL
        });
    }
}
