//! What the tasks of an HTTP/3 connection share: counts, the memory of heads, and what the client may still waste.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use crate::http::http3::Code;
use crate::net::quic::{CONNECTION_WINDOW, STREAM_WINDOW};
use crate::serve::http2::allowance::Allowance;
use crate::serve::http2::head_memory::HeadMemory;

/// Number of requests whose unread bodies can use up the window of the connection.
const WINDOW_FILLING_BODIES: usize = (CONNECTION_WINDOW / STREAM_WINDOW) as usize;

/// The state that the tasks of one connection share.
pub struct SharedState {
    /// The connection of QUIC, which any task may close.
    pub quic: quinn::Connection,
    /// Bounds the memory of heads and trailers.
    pub head_memory: RefCell<HeadMemory>,
    /// Bytes of all blocks of fields that have not arrived whole.
    pub partial_block_bytes: Cell<usize>,
    /// Whether the client has opened a stream of a type that it may open only once, by the type.
    pub opened_streams: [Cell<bool>; 4],
    /// Bounds what is without use.
    pub allowance: RefCell<Allowance>,
    /// The number of requests whose tasks run.
    open_request_count: Cell<usize>,
    /// The number of requests with a body that may have arrived and that nobody reads now.
    unread_body_count: Cell<usize>,
    /// Wakes the connection's task.
    waker: RefCell<Option<Waker>>,
}

impl SharedState {
    /// The state of a new connection.
    pub fn new(quic: quinn::Connection) -> Rc<SharedState> {
        Rc::new(SharedState {
            quic,
            head_memory: RefCell::default(),
            partial_block_bytes: Cell::new(0),
            opened_streams: Default::default(),
            allowance: RefCell::default(),
            open_request_count: Cell::new(0),
            unread_body_count: Cell::new(0),
            waker: RefCell::new(None),
        })
    }

    /// Closes the connection with all its streams. What was sent and not acknowledged may be lost.
    pub fn close(&self, Code(code): Code) {
        self.quic.close(code.into(), b"");
    }

    /// The number of requests whose tasks run.
    pub fn open_request_count(&self) -> usize {
        self.open_request_count.get()
    }

    /// Counts a request as open until the returned value is dropped.
    pub fn open_request(self: &Rc<Self>) -> CountedRequest {
        self.open_request_count.update(|count| count + 1);
        CountedRequest(self.clone())
    }

    /// Counts a body that may have arrived and that nobody reads now, or one such body less.
    pub fn change_unread_bodies(&self, is_one_more: bool) {
        self.unread_body_count.update(|count| match is_one_more {
            true => count + 1,
            false => count - 1,
        });
    }

    /// Whether unread bodies may have used up the window of the connection, so that the client cannot send.
    pub fn is_client_blocked(&self) -> bool {
        self.unread_body_count.get() >= WINDOW_FILLING_BODIES
    }

    /// Counts a frame or a stream without use, and lets the connection's task see it.
    pub fn spend_frame(&self) {
        self.allowance.borrow_mut().spend_frame();
        self.wake();
    }

    /// Remembers the connection's task.
    pub fn register_waker(&self, cx: &Context<'_>) {
        let waker = &mut *self.waker.borrow_mut();
        match waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Counts a request as open until this value is dropped.
pub struct CountedRequest(Rc<SharedState>);

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.open_request_count.update(|count| count - 1);
        // The connection's task may have waited for this: it ends a flood, closes, or begins the idle time.
        self.0.wake();
    }
}
