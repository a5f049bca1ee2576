//! Bodies on their way: what clients send, what upstreams answer, what the gateway says itself.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::guard::{Guard, Interrupted, Phase};
use super::wire::Wire;
use crate::http1::Cause;
use crate::http1::chunked::Piece;
use crate::throttle::Settling;
use crate::upstream::{AnswerBody, Failure};

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client stopped sending.
    #[error("the client sent nothing for {0:?}")]
    Idle(Duration),
    /// The client broke the connection or the framing.
    #[error(transparent)]
    Broken(#[from] Cause),
    /// The upstream broke off its answer.
    #[error("the upstream broke off its answer: {0}")]
    Upstream(Cause),
}

impl From<Failure<Error>> for Error {
    fn from(failure: Failure<Error>) -> Error {
        match failure {
            Failure::Request(error) => error,
            Failure::Server(cause) => Error::Upstream(cause),
        }
    }
}

/// What a client sends; streamed, with a deadline for each piece.
pub struct RequestBody {
    /// Read ahead to look for an email address.
    ahead: Option<Bytes>,
    rest: Option<Rc<Wire>>,
    guard: Rc<Guard>,
    idle: Duration,
    waiting: Option<Interrupted>,
}

impl RequestBody {
    /// The body of the request that `wire` is at.
    pub fn new(wire: &Rc<Wire>, guard: Rc<Guard>, idle: Duration) -> RequestBody {
        RequestBody {
            ahead: None,
            rest: (!wire.body_is_over()).then(|| wire.clone()),
            guard,
            idle,
            waiting: None,
        }
    }

    /// Puts back what was read from it.
    pub fn put_back(&mut self, ahead: Bytes) {
        self.ahead = Some(ahead).filter(|bytes| !bytes.is_empty());
    }

    /// Nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.ahead.is_none() && self.rest.is_none()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(before) = self.waiting.take() {
            self.guard.resume(Phase::Body, before);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let this = &mut *self;
        let Some(wire) = &this.rest else {
            return Poll::Ready(None);
        };
        let piece = match wire.poll_body(cx) {
            Poll::Pending if this.guard.phase_expired(Phase::Body) => {
                return Poll::Ready(Some(Err(Error::Idle(this.idle))));
            }
            Poll::Pending => {
                if this.waiting.is_none() {
                    this.waiting = Some(this.guard.interrupt(Phase::Body, this.idle));
                }
                return Poll::Pending;
            }
            Poll::Ready(piece) => piece,
        };
        if let Some(before) = this.waiting.take() {
            this.guard.resume(Phase::Body, before);
        }
        if piece.is_err() || wire.body_is_over() {
            this.rest = None;
        }
        Poll::Ready(match piece {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(trailers)) => Some(Ok(clean(Frame::trailers(trailers)))),
            Ok(Piece::End | Piece::More) => None,
            Err(cause) => Some(Err(cause.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let rest = self
            .rest
            .as_ref()
            .map_or(SizeHint::with_exact(0), |wire| wire.body_left());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}

/// Takes out of trailers what may not stand there: framing, routing and credentials.
fn clean(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            super::hop::clean_trailers(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

/// What an upstream answers.
pub struct Relay(pub Box<AnswerBody<RequestBody>>);

impl Body for Relay {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(clean).map_err(Error::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
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
