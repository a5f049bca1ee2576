//! A client's HTTP/1 connection as bytes. The loop that serves it and the body of the open request share it. Both belong to
//! one task, so that nothing is passed between tasks.

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

use super::lead::lead;
use super::repeat::RepeatCache;
use super::request::{self, HeadError, Request};
use crate::http::head::ResponseHead;
use crate::http::http1::chunked::Piece;
use crate::http::http1::inbox::Inbox;
use crate::http::http1::{Cause, Framing, MAX_HEAD, Outbox};
use crate::net::Leave;
use crate::net::flush::OthersFirst;
use crate::serve::stack::unreadable::{FirstLine, Unreadable};
use crate::serve::worker::client_socket::{ClientSocket, MAX_DRAIN};
use crate::serve::worker::guard::Guard;

/// How often a socket is checked whose client has closed its sending side. After that the runtime reports nothing more that
/// happens on the socket to its reader.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// See the module.
pub struct Wire {
    guard: Rc<Guard>,
    inner: RefCell<Inner>,
}

struct Inner {
    client: ClientSocket,
    inbox: Inbox,
    outbox: Outbox,
    cache: RepeatCache,
    /// The turn of other connections, which are read before this one is served: the code that reads and the code that serves
    /// do not fit a processor's first cache together.
    others: OthersFirst,
    /// How much of the request's body is left.
    body: Framing,
    /// The version of HTTP of the last request.
    version: Version,
    /// The client waits for `100 Continue`.
    waits: bool,
    /// A part of the last response could not be sent at once.
    late: bool,
    /// The client has closed its sending side and waits for its response. The timer says when to check the socket.
    half_closed: Option<Box<Interval>>,
}

impl Wire {
    /// Nothing has been read.
    pub fn new(client: ClientSocket) -> Rc<Wire> {
        Rc::new(Wire {
            guard: client.guard.clone(),
            inner: RefCell::new(Inner {
                client,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                cache: RepeatCache::default(),
                others: OthersFirst::default(),
                body: Framing::Length(0),
                version: Version::HTTP_10,
                waits: false,
                late: false,
                half_closed: None,
            }),
        })
    }

    /// The socket and what has been read from it.
    pub fn into_parts(self) -> (ClientSocket, BytesMut) {
        let inner = self.inner.into_inner();
        (inner.client, inner.inbox.bytes)
    }

    /// The connection's deadlines.
    pub fn guard(&self) -> &Rc<Guard> {
        &self.guard
    }

    /// Before the next request.
    pub fn begin_request(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.inbox.begin();
        inner.others = OthersFirst::default();
    }

    /// The next request's head; nothing at the end of the connection.
    pub fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Request>, HeadError>> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            if !inner.inbox.bytes.is_empty() {
                self.guard.received();
                if inner.inbox.seems_whole()
                    && let Some(request) = request::next(&mut inner.inbox.bytes, &mut inner.cache)?
                {
                    inner.body = request.framing;
                    inner.version = request.expectations.version;
                    inner.waits = request.waits && inner.inbox.bytes.is_empty();
                    return Poll::Ready(Ok(Some(request)));
                }
            }
            match ready!(inner.poll_read(cx)) {
                Ok(1..) => {
                    self.guard.received();
                    inner.cache.prefetch();
                    ready!(Pin::new(&mut inner.others).poll(cx));
                }
                // The client has left.
                Ok(0) | Err(_) => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// What is to be recorded of a request that [`Wire::poll_head`] could not read; `opening` where a client that speaks
    /// HTTP/2 without TLS would send its preface.
    pub fn unreadable(&self, bad: HeadError, opening: bool) -> Unreadable {
        Unreadable {
            why: bad.into(),
            line: FirstLine::parse(&self.inner.borrow().inbox.bytes),
            unanswered: opening && bad == HeadError::Preface,
        }
    }

    /// Keeps no more room than what waits needs.
    pub fn give_up_room(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.inbox.give_up_room();
        inner.outbox.give_up_room();
        inner.cache = RepeatCache::default();
    }

    /// No part of another request has come in.
    pub fn is_idle(&self) -> bool {
        self.inner.borrow().inbox.bytes.is_empty()
    }

    /// The next piece of the request's body. A client that waits for `100 Continue` gets it first.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cause>> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            let piece = inner.body.next(&mut inner.inbox.bytes)?;
            if piece != Piece::More {
                return Poll::Ready(Ok(piece));
            }
            if std::mem::take(&mut inner.waits) {
                let go_on = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                inner.outbox.push(go_on);
            }
            if let Poll::Ready(result) = inner.outbox.poll_empty(cx, &mut inner.client) {
                result?;
            }
            if ready!(inner.poll_read(cx))? == 0 {
                return Poll::Ready(match inner.body {
                    Framing::Close => Ok(Piece::End),
                    Framing::Length(_) | Framing::Chunked(_) => Err(Cause::Closed),
                });
            }
        }
    }

    /// What comes next is another protocol, to the end of the connection.
    pub fn open_tunnel(&self) {
        self.inner.borrow_mut().body = Framing::Close;
    }

    /// How much of the request's body is left.
    pub fn body_left(&self) -> SizeHint {
        match self.inner.borrow().body {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }

    /// All of the request's body has been read.
    pub fn body_is_over(&self) -> bool {
        self.inner.borrow().body.is_over()
    }

    /// Ready when the client is seen to have left. Nothing is read while the request's body is unread, so it is not seen then.
    /// After the client has closed its sending side a reset is seen within [`HALF_CLOSED`].
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        while inner.body.is_over()
            && inner.inbox.bytes.len() < MAX_HEAD
            && inner.half_closed.is_none()
        {
            match ready!(inner.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if inner.client.may_wait() => inner.half_closed = Some(half_closed()),
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        let Some(looks) = &mut inner.half_closed else {
            return Poll::Pending;
        };
        loop {
            ready!(looks.poll_tick(cx));
            if inner.client.is_broken() {
                return Poll::Ready(());
            }
        }
    }

    /// Passes on a response that comes before the final one, which clients of HTTP/1.0 do not know.
    pub fn inform(&self, head: &ResponseHead) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.version >= Version::HTTP_11 {
            inner.outbox.text(|out| {
                lead(out, head);
                out.extend_from_slice(b"\r\n");
            });
        }
    }

    /// Adds to what is to be sent.
    pub fn push(&self, fill: impl FnOnce(&mut Outbox)) {
        fill(&mut self.inner.borrow_mut().outbox);
    }

    /// So much is to be sent that more should wait.
    pub fn is_full(&self) -> bool {
        self.inner.borrow().outbox.is_full()
    }

    /// Sends all of it.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        inner.outbox.poll_empty(cx, &mut inner.client)
    }

    /// Something of the last response is left to be sent.
    pub fn is_late(&self) -> bool {
        self.inner.borrow().late
    }

    /// Sends it.
    pub fn poll_late(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        // The request is not over yet.
        self.guard.request();
        ready!(inner.outbox.poll_empty(cx, &mut inner.client))?;
        inner.late = false;
        Poll::Ready(Ok(()))
    }

    /// Reads what is left of an unwanted body; says whether another request may follow.
    pub fn poll_drain(&self, cx: &mut Context<'_>, drained: &mut usize) -> Poll<bool> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            // A client that never got `100 Continue` may send its body or not.
            if inner.waits || *drained > MAX_DRAIN {
                return Poll::Ready(false);
            }
            match inner.body.next(&mut inner.inbox.bytes) {
                Ok(Piece::Data(data)) => *drained += data.len(),
                Ok(Piece::Trailers(_) | Piece::End) => return Poll::Ready(true),
                Ok(Piece::More) => match ready!(inner.poll_read(cx)) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Poll::Ready(false),
                },
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Whether an end is to be a reset: to a client that is told the end of a response by that of the
    /// connection.
    pub fn reset_on_close(&self, reset: bool) {
        self.inner.borrow().client.reset_on_close(reset);
    }

    /// Ends the connection, which stays open as far as its bounds are concerned.
    pub fn hang_up(&self) {
        self.inner.borrow().client.hang_up();
    }

    /// Whether the client waits for `100 Continue`.
    pub fn expects_continue(&self) -> bool {
        self.inner.borrow().waits
    }

    /// Whether another request may follow a response that is given now, the body unread.
    pub fn may_go_on(&self) -> bool {
        let inner = self.inner.borrow();
        let small = !matches!(inner.body, Framing::Length(left) if left > MAX_DRAIN as u64);
        small && !inner.waits
    }

    /// Sends what is left and closes so that the client can read it; see [`ClientSocket`].
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.outbox.is_empty() {
            inner.client.hold_back();
            ready!(inner.outbox.poll_empty(cx, &mut inner.client))?;
        }
        Pin::new(&mut inner.client).poll_shutdown(cx)
    }
}

/// When to check a socket whose client has closed its sending side.
#[cold]
fn half_closed() -> Box<Interval> {
    let mut looks = tokio::time::interval(HALF_CLOSED);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Box::new(looks)
}

impl Leave for Wire {
    fn leave(&self, cx: &mut Context<'_>) {
        let inner = &mut *self.inner.borrow_mut();
        let sent = inner.outbox.poll_empty(cx, &mut inner.client);
        inner.late = !matches!(sent, Poll::Ready(Ok(())));
        if inner.late {
            self.guard.wake();
        }
    }

    fn broke(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.outbox.break_off();
        inner.late = true;
        self.guard.wake();
    }
}

impl Inner {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.poll_read(cx, &mut self.client)
    }
}
