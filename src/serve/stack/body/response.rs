//! The body of a response. One that an upstream sends is streamed, with a deadline for each piece. One that the gateway
//! makes itself is a single piece of bytes.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::error::Error;
use super::request::RequestBody;
use crate::http::head::hop_by_hop::strip_forbidden_trailers;
use crate::serve::stack::deadline::Deadline;
use crate::serve::stack::upstream_load;
use crate::serve::worker::deadlines::Deadlines;
use crate::throttle::SettlingBody;
use crate::upstream::UpstreamBody;

/// A response's body from an upstream. Boxed, because every layer of the stack moves the response, and a response of
/// the gateway itself would be as large.
pub struct Relay(Box<RelayedBody>);

struct RelayedBody {
    inner: UpstreamBody<RequestBody>,
    deadlines: Rc<Deadlines>,
    settings: RelaySettings,
}

/// How long a response's body may take, and what of it is not for the client.
pub struct RelaySettings {
    /// The longest time without a byte from the server.
    pub idle_timeout: Duration,
    /// The end of the time for the whole request.
    pub deadline: Deadline,
    /// Removes the server's load reports from the trailers.
    pub strips_load_reports: bool,
    /// The server has switched to another protocol, so that either side may be silent.
    pub is_tunnel: bool,
}

impl Relay {
    /// Streams `inner`. `deadlines` are those of the client's connection.
    pub fn new(
        inner: UpstreamBody<RequestBody>,
        deadlines: Rc<Deadlines>,
        settings: RelaySettings,
    ) -> Relay {
        Relay(Box::new(RelayedBody {
            inner,
            deadlines,
            settings,
        }))
    }

    /// Replaces the deadlines of a client that has left, because its connection may carry other requests.
    pub fn detach(&mut self, deadlines: Rc<Deadlines>) {
        self.0.deadlines = deadlines;
    }

    /// Prepares the next read of a response whose client has left: wakes the task when the server is late, and cancels
    /// a request that was not sent whole. Returns whether more of the response can come.
    pub fn poll_detached(&mut self, cx: &mut Context<'_>) -> bool {
        let RelayedBody {
            inner, deadlines, ..
        } = &mut *self.0;
        let _ = deadlines.must_close(cx);
        if !inner.is_sent() {
            inner.cancel(cx);
        }
        inner.is_observable()
    }

    /// Takes the unread body out, without the client's deadlines.
    pub fn take(&mut self) -> UpstreamBody<RequestBody> {
        std::mem::replace(&mut self.0.inner, UpstreamBody::empty())
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self.0;
        let frame = Pin::new(&mut this.inner).poll_frame(cx);
        if frame.is_ready() {
            this.deadlines.server_responded();
        } else {
            let settings = &mut this.settings;
            if settings.deadline.has_passed(cx) {
                return Poll::Ready(Some(Err(Error::Overdue)));
            }
            let has_progress = this.inner.take_progress();
            if !has_progress && this.deadlines.is_server_late() {
                // A server whose response has begun may have nothing to send, so its health does not suffer.
                let error = match settings.is_tunnel {
                    true => Error::Unused,
                    false => Error::Silent,
                };
                return Poll::Ready(Some(Err(error(settings.idle_timeout))));
            }
            let idle_timeout = settings.idle_timeout;
            this.deadlines.await_server(idle_timeout, has_progress);
        }
        let strips_load_reports = this.settings.strips_load_reports;
        frame.map(|frame| {
            let frame = frame?.map_err(Error::from);
            Some(frame.map(|frame| match frame.into_trailers() {
                Ok(mut trailers) => {
                    strip_forbidden_trailers(&mut trailers, |name| {
                        strips_load_reports && upstream_load::is_report_field(name)
                    });
                    Frame::trailers(trailers)
                }
                Err(frame) => frame,
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.inner.size_hint()
    }
}

/// The body that a client gets.
pub enum ReplyBody {
    /// Made by the gateway; none once it has been sent.
    Own(Option<Bytes>),
    /// Sent by an upstream.
    Relayed(SettlingBody<Relay>),
}

impl ReplyBody {
    /// Wraps a body that the gateway has made.
    pub fn own(bytes: Bytes) -> ReplyBody {
        ReplyBody::Own(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Takes the body out, and leaves an empty one.
    pub fn take(&mut self) -> ReplyBody {
        std::mem::replace(self, ReplyBody::Own(None))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut *self {
            ReplyBody::Own(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            ReplyBody::Relayed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Own(bytes) => bytes.is_none(),
            ReplyBody::Relayed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ReplyBody::Relayed(body) => body.size_hint(),
        }
    }
}
