//! The state of a stream: what was received of the request and not read yet, and what of the response waits to be sent.

use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::heads::HeadCharge;

/// The state of a stream, which its task and the connection's task share.
#[derive(Default)]
pub struct StreamState {
    /// The task to wake when the state changes.
    pub waker: Option<Waker>,
    /// The part of the body that was received and not read yet.
    pub received: BytesMut,
    pub trailers: Option<HeaderMap>,
    /// For their memory, also when they have been passed on.
    pub trailers_charge: HeadCharge,
    /// Nothing more comes.
    pub ended: bool,
    /// How much is still to come, if the client said how long the body is.
    pub expected: Option<u64>,
    /// Bytes that the client may send, and those that were read since its last window update.
    pub window: u32,
    pub taken: u32,
    /// The request asks for another protocol, and the server has not agreed yet.
    pub apart: bool,
    /// The client waits for `100 Continue`.
    pub waits: bool,
    /// Bytes that the client has room for.
    pub room: i64,
    /// Content that waits for room; the last there is.
    pub piece: Bytes,
    pub last: bool,
    /// It is among those whose content could go out.
    pub queued: bool,
    /// It waits until the client has taken more of what was sent.
    pub held_up: bool,
    /// All of the response has been sent.
    pub sent: bool,
    /// Nothing can be sent and nothing will come.
    pub closed: bool,
    /// The client has broken a rule.
    pub failed: bool,
}

impl StreamState {
    /// What came and was not taken is lost, and is not to be taken for the whole.
    pub fn close(&mut self) {
        self.closed = true;
        self.piece.clear();
        self.received = BytesMut::new();
        self.trailers = None;
        self.wake();
    }

    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub fn register(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    pub fn is_over(&self) -> bool {
        let is_read = self.received.is_empty() && self.trailers.is_none();
        // What is lost was not read.
        self.apart || (self.ended && is_read && !self.closed)
    }
}
