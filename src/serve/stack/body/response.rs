//! The body of a response: what an upstream sends, streamed with a deadline for each piece, or what the gateway says itself.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::error::Error;
use super::request::RequestBody;
use crate::http::head::hop::clean_trailers;
use crate::serve::stack::deadline::Deadline;
use crate::serve::stack::load;
use crate::serve::worker::guard::Guard;
use crate::throttle::Settling;
use crate::upstream::UpstreamBody;

/// What an upstream answers; streamed, with a deadline for each piece. On the heap, for a response goes through many
/// hands, also one that the gateway gives itself.
pub struct Relay(Box<Relayed>);

struct Relayed {
    inner: UpstreamBody<RequestBody>,
    guard: Rc<Guard>,
    silence: Duration,
    deadline: Deadline,
    takes_reports: bool,
    tunnel: bool,
}

impl Relay {
    /// Lets the server say nothing for so long, and take until `deadline` for all of it. `takes_reports`: what
    /// it says of its load in trailers is not for the client. `tunnel`: it is another protocol.
    pub fn new(
        inner: UpstreamBody<RequestBody>,
        guard: Rc<Guard>,
        silence: Duration,
        deadline: Deadline,
        takes_reports: bool,
        tunnel: bool,
    ) -> Relay {
        Relay(Box::new(Relayed {
            inner,
            guard,
            silence,
            deadline,
            takes_reports,
            tunnel,
        }))
    }

    /// The client has left, and its connection may go on: `guard` is for this body alone.
    pub fn detach(&mut self, guard: Rc<Guard>) {
        self.0.guard = guard;
    }

    /// To be called before each piece once the client has left: wakes the task when the server is late, and gives up a
    /// request that was not sent whole. Says whether more of the response can come.
    pub fn go_on_alone(&mut self, cx: &mut Context<'_>) -> bool {
        let Relayed { inner, guard, .. } = &mut *self.0;
        let _ = guard.must_close(cx);
        if !inner.is_sent() {
            inner.hang_up(cx);
        }
        inner.is_seen()
    }

    /// What is left of the server's side.
    pub fn take(&mut self) -> UpstreamBody<RequestBody> {
        std::mem::replace(&mut self.0.inner, UpstreamBody::over())
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
            this.guard.server_responded();
        } else {
            if this.deadline.has_passed(cx) {
                return Poll::Ready(Some(Err(Error::Overdue)));
            }
            let progress = this.inner.has_sent();
            if !progress && this.guard.is_server_late() {
                // A server that has begun to answer may have nothing to say: it is not to blame.
                let silent = if this.tunnel {
                    Error::Unused
                } else {
                    Error::Silent
                };
                return Poll::Ready(Some(Err(silent(this.silence))));
            }
            this.guard.await_server(this.silence, progress);
        }
        let takes_reports = this.takes_reports;
        frame.map(|frame| {
            let frame = frame?.map_err(Error::from);
            Some(frame.map(|frame| match frame.into_trailers() {
                Ok(mut trailers) => {
                    let is_report = |name: &[u8]| takes_reports && load::is_report(name);
                    clean_trailers(&mut trailers, is_report);
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

/// What a client is answered.
pub enum ReplyBody {
    /// By the gateway itself.
    Own(Option<Bytes>),
    /// By an upstream.
    Relayed(Settling<Relay>),
}

impl ReplyBody {
    /// What the gateway says itself.
    pub fn own(bytes: Bytes) -> ReplyBody {
        ReplyBody::Own(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Leaves nothing behind.
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
