//! The state of one HTTP/2 stream: what was received of the request and not read yet, and what of the response waits to be
//! sent.

use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::head_memory::HeadCharge;

/// The state of a stream, which its task and the connection's task share.
#[derive(Default)]
pub struct StreamState {
    /// The task to wake when the state changes.
    pub waker: Option<Waker>,
    /// The part of the body that was received and not read yet.
    pub received: BytesMut,
    /// The trailers, if they were received and not read yet.
    pub trailers: Option<HeaderMap>,
    /// The charge for the memory of the trailers, which may be held elsewhere once they are read.
    pub trailers_charge: HeadCharge,
    /// The client has ended the request.
    pub request_ended: bool,
    /// Bytes of the body that the client still has to send, if it has stated a length.
    pub remaining_length: Option<u64>,
    /// Bytes that the client may send: its flow-control window.
    pub receive_window: u32,
    /// Bytes that were read since the last window update.
    pub consumed: u32,
    /// The request asks for another protocol, and the server has not agreed yet. Until then its body seems empty.
    pub awaits_tunnel: bool,
    /// The client waits for `100 Continue`.
    pub awaits_continue: bool,
    /// Bytes that the gateway may send: its flow-control window. New settings of the client can make it negative.
    pub send_window: i64,
    /// A piece of the response's body that waits for the window.
    pub pending_data: Bytes,
    /// The response ends with `pending_data`.
    pub is_last_data: bool,
    /// The stream is in the connection's queue of sendable streams.
    pub is_queued: bool,
    /// The stream waits until the connection has less output.
    pub awaits_output: bool,
    /// All of the response has been sent.
    pub response_sent: bool,
    /// Nothing more is sent or received.
    pub closed: bool,
    /// The client has broken a rule on this stream.
    pub failed: bool,
}

impl StreamState {
    /// Closes the stream. Unread parts of the request are dropped, and the request counts as incomplete.
    pub fn close(&mut self) {
        self.closed = true;
        self.pending_data.clear();
        self.received = BytesMut::new();
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
    pub fn register(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Whether all of the request's body has been read.
    pub fn is_body_over(&self) -> bool {
        let is_read = self.received.is_empty() && self.trailers.is_none();
        // A closed stream may have lost a part.
        self.awaits_tunnel || (self.request_ended && is_read && !self.closed)
    }
}
