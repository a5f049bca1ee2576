//! One request over HTTP/2 and its response, as the layers of the gateway see them.
//!
//! A stream takes the body from its [`StreamState`], and puts the response there or into the connection's output. It never
//! touches the socket: it wakes the connection's task, which sends the output.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body::SizeHint;

use super::connection_handle::ConnectionHandle;
use super::connection_state::{ConnectionState, OpenStream};
use super::head_memory::HeadCharge;
use super::initial_settings::STREAM_WINDOW;
use super::stream_state::{BodyUse, StreamState};
use crate::http::head::{Head, ResponseHead};
use crate::http::http1::MessageError;
use crate::http::http1::chunked::BodyPiece;
use crate::http::http2::hpack::Encoder;
use crate::http::http2::{Reason, frame};
use crate::serve::stack::body::CLIENT_LEFT;
use crate::serve::worker::client_socket::MAX_DRAINED_BYTES;
use crate::serve::worker::deadlines::Deadlines;

/// Maximum bytes of one piece of a request's body, so that a large received part is passed on bit by bit.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// A stream: one request and its response.
pub struct Http2Stream {
    /// The identifier of the stream.
    pub id: u32,
    /// Charges the memory of the request's head for as long as the stream lives.
    _head_charge: HeadCharge,
    deadlines: Rc<Deadlines>,
    /// Access to the state that the streams of the connection share.
    pub(super) handle: Rc<ConnectionHandle<Http2Stream>>,
    /// How long the client may read nothing of the response that waits for it.
    send_timeout: Duration,
    /// If the state of the connection is borrowed too, it must be borrowed first.
    pub(super) state: RefCell<StreamState>,
}

/// The error that the stream was closed before the whole response was sent.
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

    fn on_output_drained(&self, state: &mut StreamState) {
        self.deadlines.report_write_progress();
        state.wake();
    }

    fn on_data_sent(&self, state: &mut StreamState) {
        self.deadlines.report_write_progress();
        if state.pending_data.is_empty() {
            state.wake();
        } else {
            self.deadlines.report_write_stalled(self.send_timeout);
        }
    }
}

impl Http2Stream {
    /// Opens a stream for a request, and adds it to the open streams of its connection. `head` is `None` if the head could
    /// not be read. `is_request_ended` says that the request has no body.
    pub fn new(
        id: u32,
        head_charge: HeadCharge,
        handle: Rc<ConnectionHandle<Http2Stream>>,
        deadlines: Rc<Deadlines>,
        send_timeout: Duration,
        head: Option<&Head>,
        is_request_ended: bool,
    ) -> Rc<Http2Stream> {
        let fields = head.map(|head| &head.fields);
        let expect = fields.and_then(|fields| fields.first("expect"));
        let expects_continue =
            expect.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let content_length = fields.and_then(|fields| fields.text("content-length"));
        let body_length = content_length.filter(|_| !is_request_ended);
        let state = StreamState {
            is_request_ended,
            remaining_body_bytes: body_length.and_then(|text| text.parse().ok()),
            receive_window: STREAM_WINDOW,
            awaits_tunnel: head.is_some_and(|head| head.upgrade.is_some()),
            awaits_continue: expects_continue && !is_request_ended,
            send_window: handle.with_state(|connection| connection.initial_send_window()),
            ..StreamState::default()
        };
        let stream = Rc::new(Http2Stream {
            id,
            _head_charge: head_charge,
            deadlines,
            handle,
            send_timeout,
            state: RefCell::new(state),
        });
        stream
            .handle
            .with_state(|connection| connection.add_stream(stream.clone()));
        stream
    }

    /// Calls `access` with the state of the connection and the state of this stream.
    fn with_states<T>(
        &self,
        access: impl FnOnce(&mut ConnectionState<Http2Stream>, &mut StreamState) -> T,
    ) -> T {
        self.handle
            .with_state(|connection| access(connection, &mut self.state.borrow_mut()))
    }

    /// Ready when the connection does not have too much output, or the stream is closed. While it is pending, the send
    /// timeout runs.
    pub fn poll_output_space(&self, cx: &Context<'_>) -> Poll<()> {
        self.with_states(|connection, state| {
            if !connection.is_overfull() || state.is_closed {
                return Poll::Ready(());
            }
            connection.await_output_space(state);
            self.deadlines.report_write_stalled(self.send_timeout);
            state.register_waker(cx);
            Poll::Pending
        })
    }

    /// The deadlines of this request. Its connection has other ones.
    pub fn deadlines(&self) -> &Rc<Deadlines> {
        &self.deadlines
    }

    /// Reads the next piece of the request's body. A client that waits for `100 Continue` gets it first. A request that
    /// waits for its tunnel has no body.
    ///
    /// # Errors
    ///
    /// The stream was closed before the whole body was read.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, MessageError>> {
        if self.awaits_continue() {
            self.send_interim(&ResponseHead {
                status: StatusCode::CONTINUE,
                ..ResponseHead::default()
            });
            self.state.borrow_mut().awaits_continue = false;
        }
        self.with_states(|connection, state| {
            if state.awaits_tunnel {
                return Poll::Ready(Ok(BodyPiece::End));
            }
            if state.body_use != BodyUse::Kept {
                return Poll::Ready(Err(MessageError::Closed));
            }
            if !state.received_body.is_empty() {
                let length = state.received_body.len().min(MAX_PIECE_BYTES);
                let data = state.received_body.split_to(length).freeze();
                // A reader asks for a piece only when it has used the last one, so the client may send this much more.
                connection.consume_stream_bytes(self.id, state, length as u32);
                if connection.has_output() {
                    self.handle.wake_task();
                }
                return Poll::Ready(Ok(BodyPiece::Data(data)));
            }
            if state.is_closed {
                return Poll::Ready(Err(MessageError::Closed));
            }
            if let Some(trailers) = state.trailers.take() {
                return Poll::Ready(Ok(BodyPiece::Trailers(trailers)));
            }
            if state.is_request_ended {
                return Poll::Ready(Ok(BodyPiece::End));
            }
            // An empty buffer keeps the memory of the pieces that were taken from it.
            state.received_body = BytesMut::new();
            state.register_waker(cx);
            Poll::Pending
        })
    }

    /// Bounds what is still to be read of the body, by what its route allows. A larger body is not kept.
    pub fn bound_body(&self, max_bytes: u64) {
        self.change_body(|connection, state| connection.bound_body(self.id, state, max_bytes));
    }

    /// Whether the body is larger than [`Http2Stream::bound_body`] allows.
    pub fn is_body_too_large(&self) -> bool {
        self.state.borrow().body_use == BodyUse::TooLarge
    }

    /// Drops what is not read of the body, and what still comes, because nobody reads it any more.
    pub fn drop_body(&self) {
        self.change_body(|connection, state| {
            connection.drop_body(self.id, state, BodyUse::Unwanted);
        });
    }

    /// Does the same as [`Http2Stream::with_states`], then lets the connection send window updates.
    fn change_body(
        &self,
        change: impl FnOnce(&mut ConnectionState<Http2Stream>, &mut StreamState),
    ) {
        let has_output = self.with_states(|connection, state| {
            change(connection, state);
            connection.has_output()
        });
        if has_output {
            self.handle.wake_task();
        }
    }

    /// Ready when the client has sent all of a body that nobody reads, or more than [`MAX_DRAINED_BYTES`] of it.
    pub fn poll_drain_body(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        let is_over = state.is_request_ended || state.is_closed;
        // A client that never got `100 Continue` may send its body or not.
        if is_over || state.awaits_continue || state.dropped_bytes > MAX_DRAINED_BYTES {
            return Poll::Ready(());
        }
        state.register_waker(cx);
        Poll::Pending
    }

    /// Opens the tunnel that the request is for. From now on the stream's data is read, as another protocol.
    pub fn open_tunnel(&self) {
        self.state.borrow_mut().awaits_tunnel = false;
    }

    /// How many bytes of the request's body are left to read; exact if that is certain.
    pub fn remaining_body(&self) -> SizeHint {
        let state = self.state.borrow();
        let received_bytes = state.received_body.len() as u64;
        match state.remaining_body_bytes {
            _ if state.is_body_over() => SizeHint::with_exact(0),
            _ if state.is_closed || state.body_use == BodyUse::TooLarge => SizeHint::default(),
            _ if state.is_request_ended && state.trailers.is_none() => {
                SizeHint::with_exact(received_bytes)
            }
            Some(unreceived_bytes) => {
                SizeHint::with_exact(unreceived_bytes.saturating_add(received_bytes))
            }
            None => SizeHint::default(),
        }
    }

    /// Whether less than one full frame is left of the connection's window, so that the client may be unable to send more.
    pub fn is_window_exhausted(&self) -> bool {
        self.handle
            .with_state(|connection| connection.is_client_blocked())
    }

    /// Whether all of the request's body has been read, or the request waits for its tunnel.
    pub fn is_body_over(&self) -> bool {
        self.state.borrow().is_body_over()
    }

    /// Whether the client waits for `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.state.borrow().awaits_continue
    }

    /// Sends an interim response (1xx). While there is too much output, only `100 Continue` is sent, because clients wait
    /// for it.
    pub fn send_interim(&self, head: &ResponseHead) {
        let is_overfull = self
            .handle
            .with_state(|connection| connection.is_overfull());
        if is_overfull && head.status != StatusCode::CONTINUE {
            return;
        }
        self.send_head(head.status, false, |write_field| {
            for (name, value) in head.fields.iter() {
                write_field(name, value);
            }
        });
    }

    /// Ready when the stream is closed: the client has reset it or broken a rule on it, or the connection has ended.
    pub fn poll_client_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.is_closed {
            return Poll::Ready(());
        }
        state.register_waker(cx);
        Poll::Pending
    }

    /// Sends the head of a response. `write_fields` calls its argument with the name and value of each field. The response
    /// ends with the head if `ends_stream`.
    pub fn send_head(
        &self,
        status: StatusCode,
        ends_stream: bool,
        write_fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
    ) {
        self.queue_frames(ends_stream, |encoder, out| {
            frame::write_headers(out, self.id, ends_stream, |block| {
                encoder.begin_block(block);
                encoder.write_status(block, status.as_u16());
                write_fields(&mut |name, value| encoder.write_field(block, name, value));
            });
        });
    }

    /// Adds frames without flow control to the output. The response ends with them if `ends_stream`.
    fn queue_frames(
        &self,
        ends_stream: bool,
        write_frames: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        self.with_states(|connection, state| {
            if state.is_closed {
                return;
            }
            let ConnectionState {
                outbox, encoder, ..
            } = connection;
            outbox.push_with(|out| write_frames(encoder, out));
            connection.allowance.earn_frame();
            state.is_response_sent = ends_stream;
            connection.remove_if_over(self, state);
        });
        self.handle.wake_task();
    }

    /// Takes over a piece of the response's body, once the piece before it has been added to the output. The response ends
    /// with the piece if `is_last`. The error is as in [`Http2Stream::poll_no_pending_data`].
    pub fn poll_send_piece(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        piece: &mut Bytes,
        is_last: bool,
    ) -> Poll<Result<(), StreamClosed>> {
        ready!(self.poll_no_pending_data(cx))?;
        self.with_states(|connection, state| {
            state.pending_data = std::mem::take(piece);
            state.is_last_data = is_last;
            connection.send_or_queue(self, state);
        });
        self.handle.wake_task();
        Poll::Ready(Ok(()))
    }

    /// Ready when all pieces of the body have been added to the output; with an error once the stream is closed. While it
    /// is pending, the send timeout runs.
    pub fn poll_no_pending_data(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamClosed>> {
        let state = &mut *self.state.borrow_mut();
        if state.is_closed {
            return Poll::Ready(Err(StreamClosed));
        }
        if state.pending_data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.deadlines.report_write_stalled(self.send_timeout);
        state.register_waker(cx);
        Poll::Pending
    }

    /// Ends a response whose body has been sent, with its trailers if there are any.
    pub fn end_response(&self, trailers: Option<HeaderMap>) {
        self.queue_frames(true, |encoder, out| match trailers {
            Some(trailers) => frame::write_headers(out, self.id, true, |block| {
                encoder.begin_block(block);
                for (name, value) in &trailers {
                    encoder.write_field(block, name.as_str().as_bytes(), value.as_bytes());
                }
            }),
            None => frame::write_end(out, self.id),
        });
    }

    /// Closes the stream, and resets it unless both sides have ended it. The reset makes the client stop waiting, and stop
    /// sending.
    pub fn reset(&self, reason: Reason) {
        self.with_states(|connection, state| {
            if state.is_closed {
                return;
            }
            if !(state.is_response_sent && state.is_request_ended) {
                connection.reset_stream(self.id, reason);
            }
            connection.close_stream(self, state);
        });
        self.handle.wake_task();
    }

    /// Why the client gets no whole response, for the log.
    pub fn end_reason(&self) -> &'static str {
        match self.state.borrow().has_failed {
            true => "stream error",
            false => CLIENT_LEFT,
        }
    }

    /// Resets the stream and spends a part of the client's allowance, because the client has broken a rule.
    pub fn reset_after_error(&self, reason: Reason) {
        self.with_states(|connection, state| {
            if !state.is_closed {
                connection.fail_stream(self, state, reason);
            }
        });
        self.handle.wake_task();
    }

    /// Closes the stream at the end of its request, whether a whole response has been sent or not.
    pub fn end_request(&self) {
        let is_response_sent = self.state.borrow().is_response_sent;
        // After a whole response the client need not send the rest of its request: RFC 9113 section 8.1.
        self.reset(if is_response_sent {
            Reason::NO_ERROR
        } else {
            Reason::CANCEL
        });
    }
}
