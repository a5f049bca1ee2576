//! The state of one HTTP/2 stream: the part of the request that was received and not read yet, and the part of the
//! response that waits to be sent.
//!
//! The tasks of the stream and of the connection change it. The state itself sends nothing.

use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::head_memory::HeadCharge;

/// What happens to the part of a body that is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyUse {
    /// It waits until it is read.
    #[default]
    Kept,
    /// It is dropped, and its reader gets an error, because the body is larger than its route allows.
    TooLarge,
    /// It is dropped, because nobody reads it.
    Unwanted,
}

/// The state of a stream, which its task and the connection's task share.
#[derive(Default)]
pub struct StreamState {
    /// Wakes the stream's task when the state changes.
    pub waker: Option<Waker>,
    /// The part of the body that was received and not read yet; at most the receive window of a stream.
    pub received_body: BytesMut,
    /// The trailers, if they were received and not read yet.
    pub trailers: Option<HeaderMap>,
    /// The charge for the memory of the trailers, which may be held elsewhere once they are read.
    pub trailers_charge: HeadCharge,
    /// Whether the client has ended the request.
    pub is_request_ended: bool,
    /// Bytes of the body that the client still has to send, if it has stated a length.
    pub remaining_body_bytes: Option<u64>,
    /// Bytes of the body that may still come before it is too large for its route; `None` without a bound.
    pub allowed_body_bytes: Option<u64>,
    /// What happens to the received body.
    pub body_use: BodyUse,
    /// Bytes of the body that were dropped.
    pub dropped_bytes: usize,
    /// Bytes that the client may send: its flow-control window.
    pub receive_window: u32,
    /// Bytes of the body that were read since the last window update, and of padding.
    pub consumed_bytes: u32,
    /// Whether the request asks for another protocol and the server has not agreed yet. Until then its body seems empty.
    pub awaits_tunnel: bool,
    /// Whether the client waits for `100 Continue`.
    pub awaits_continue: bool,
    /// Bytes that the gateway may send: its flow-control window. New settings of the client can make it negative.
    pub send_window: i64,
    /// A piece of the response's body that waits for the windows, or for space in the output.
    pub pending_data: Bytes,
    /// Whether the response ends with `pending_data`.
    pub is_last_data: bool,
    /// Whether the stream is in the connection's queue of streams that can send.
    pub is_queued: bool,
    /// Whether the stream waits until the connection has less output.
    pub awaits_output: bool,
    /// Whether all of the response has been added to the output.
    pub is_response_sent: bool,
    /// Whether the stream is closed, so that nothing more is sent or received.
    pub is_closed: bool,
    /// Whether the client has broken a rule on this stream.
    pub has_failed: bool,
}

impl StreamState {
    /// Closes the stream, and wakes its task. Unread parts of the request and unsent data are dropped. The request counts
    /// as incomplete.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.pending_data.clear();
        self.received_body = BytesMut::new();
        self.trailers = None;
        self.wake();
    }

    /// Wakes the task of the stream.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Remembers the task that is woken when the state changes.
    pub fn register_waker(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Takes bytes of the body off those that may come. False if that are too many.
    pub fn admit_bytes(&mut self, bytes: u64) -> bool {
        let Some(allowed_bytes) = &mut self.allowed_body_bytes else {
            return true;
        };
        let remaining_bytes = allowed_bytes.checked_sub(bytes);
        *allowed_bytes = remaining_bytes.unwrap_or_default();
        remaining_bytes.is_some()
    }

    /// Whether all of the request's body has been read, or the request waits for its tunnel. False once the stream is
    /// closed, unless it waits for its tunnel.
    pub fn is_body_over(&self) -> bool {
        let is_read = self.received_body.is_empty() && self.trailers.is_none();
        // A closed stream may have lost a part of the body, and one with too large a body has.
        let has_lost = self.is_closed || self.body_use == BodyUse::TooLarge;
        self.awaits_tunnel || (self.is_request_ended && is_read && !has_lost)
    }
}
