//! Bodies on their way: what clients send, what upstreams answer, what the gateway says itself.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::deadline::Deadline;
use super::load;
use super::source::Source;
use crate::http::head::hop::clean_trailers;
use crate::http::http1::Cause;
use crate::http::http1::chunked::Piece;
use crate::serve::worker::generation::Generation;
use crate::serve::worker::guard::Guard;
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
    /// The upstream stopped in the middle of its answer.
    #[error("the upstream sent nothing for {0:?}")]
    Silent(Duration),
    /// Nothing passed over a tunnel.
    #[error("nothing passed for {0:?}")]
    Unused(Duration),
    /// The whole request took too long.
    #[error("the answer was not whole in time")]
    Overdue,
}

/// The client left before its answer was there.
pub const CLIENT_LEFT: &str = "client left";

impl Error {
    /// `reason` in the access log, once the response has begun.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Idle(_) => "request body too slow",
            Error::Broken(Cause::Malformed(_)) => "request body broke off",
            Error::Broken(_) => CLIENT_LEFT,
            Error::Upstream(_) => "server broke off",
            Error::Silent(_) => "idle timeout",
            Error::Unused(_) => "tunnel timeout",
            Error::Overdue => "total timeout",
        }
    }

    /// Whether the client closed its connection.
    pub fn is_client_gone(&self) -> bool {
        matches!(self, Error::Broken(Cause::Closed | Cause::Io(_)))
    }

    /// Whether `tollgate_upstream_errors_total` counts it.
    pub fn is_upstream_failure(&self) -> bool {
        matches!(self, Error::Upstream(_) | Error::Silent(_) | Error::Overdue)
    }
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
pub struct RequestBody(Option<Box<Sent>>);

/// Most bytes that are read ahead of a body, but where a limit's own bound says less.
pub const MAX_AHEAD: usize = 1024 * 1024;

/// Most bytes by which it is decided whether a body is read ahead. Few, for they are looked at anew with each piece.
const MAX_BEGIN: usize = 512;

/// The beginning of a body.
pub struct Peeked {
    /// What was read.
    pub ahead: Bytes,
    /// The trailers, if they came too.
    pub trailers: Option<HeaderMap>,
    /// It is all of it.
    pub whole: bool,
}

/// Boxed, for most requests have none.
struct Sent {
    /// Read ahead to look for a field: content, and the trailers if they came too.
    ahead: Option<Bytes>,
    trailers: Option<Box<HeaderMap>>,
    rest: Option<Source>,
    guard: Rc<Guard>,
    generation: Rc<Generation>,
}

impl RequestBody {
    /// The body of the request that comes from `source`.
    pub fn new(source: &Source, generation: &Rc<Generation>) -> RequestBody {
        let sent = || Sent {
            ahead: None,
            trailers: None,
            rest: Some(source.clone()),
            guard: source.guard().clone(),
            generation: generation.clone(),
        };
        RequestBody((!source.body_is_over()).then(|| Box::new(sent())))
    }

    /// Reads at most about `most` bytes ahead; what was read is to be put back.
    pub async fn peek(&mut self, most: usize) -> Result<Peeked, Error> {
        let mut ahead = BytesMut::new();
        let mut trailers = None;
        while !self.is_empty() && ahead.len() <= most {
            match self.frame().await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => ahead.extend_from_slice(&data),
                Some(Err(frame)) => trailers = frame.into_trailers().ok(),
                None => break,
            }
        }
        Ok(Peeked {
            ahead: ahead.freeze(),
            trailers,
            whole: self.is_empty(),
        })
    }

    /// What `judge` says of its first bytes, of which it is told too whether they are all. Reads no more than it needs,
    /// and at most [`MAX_BEGIN`]: true where those do not tell. They stay in the body.
    pub async fn begins(
        &mut self,
        judge: impl Fn(&[u8], bool) -> Option<bool>,
    ) -> Result<bool, Error> {
        let (mut ahead, mut whole) = (Bytes::new(), self.is_empty());
        loop {
            let begin = &ahead[..ahead.len().min(MAX_BEGIN)];
            let is_all = whole && begin.len() == ahead.len();
            if let Some(verdict) = judge(begin, is_all) {
                return Ok(verdict);
            }
            if whole || ahead.len() >= MAX_BEGIN {
                return Ok(true);
            }
            let peeked = self.peek(ahead.len()).await?;
            (ahead, whole) = (peeked.ahead.clone(), peeked.whole);
            self.put_back(peeked.ahead, peeked.trailers);
        }
    }

    /// Puts back what was read from it.
    pub fn put_back(&mut self, ahead: Bytes, trailers: Option<HeaderMap>) {
        if let Some(sent) = &mut self.0 {
            sent.ahead = Some(ahead).filter(|bytes| !bytes.is_empty());
            sent.trailers = trailers.map(Box::new);
        }
    }

    /// Nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|sent| sent.is_empty())
    }
}

impl Sent {
    fn is_empty(&self) -> bool {
        self.ahead.is_none() && self.trailers.is_none() && self.rest.is_none()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.guard.body_came();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(this) = &mut self.0 else {
            return Poll::Ready(None);
        };
        if let Some(ahead) = this.ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        let Some(source) = &this.rest else {
            return Poll::Ready(None);
        };
        let Poll::Ready(piece) = source.poll_body(cx) else {
            let idle = this.generation.ruleset.timeouts.body_idle;
            if source.is_held_back() {
                // It may have become so while this one was waited for.
                this.guard.body_came();
                return Poll::Pending;
            }
            if this.guard.body_late() {
                return Poll::Ready(Some(Err(Error::Idle(idle))));
            }
            this.guard.body_waits(idle);
            return Poll::Pending;
        };
        this.guard.body_came();
        if matches!(piece, Err(_) | Ok(Piece::End)) || source.body_is_over() {
            this.rest = None;
        }
        Poll::Ready(match piece {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(mut trailers)) => {
                let identifier = &this.generation.identifier;
                clean_trailers(&mut trailers, |name| identifier.guards(name));
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(Piece::End | Piece::More) => None,
            Err(cause) => Some(Err(cause.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(sent) = &self.0 else {
            return SizeHint::with_exact(0);
        };
        let ahead = sent.ahead.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let rest = match &sent.rest {
            Some(source) => source.body_left(),
            // Trailers need chunks.
            None if sent.trailers.is_some() => SizeHint::default(),
            None => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        // What was read ahead came out of the same length.
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}

/// What an upstream answers; streamed, with a deadline for each piece. On the heap, for an answer goes through many
/// hands, also one that the gateway gives itself.
pub struct Relay(Box<Relayed>);

struct Relayed {
    inner: AnswerBody<RequestBody>,
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
        inner: AnswerBody<RequestBody>,
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
    pub fn take(&mut self) -> AnswerBody<RequestBody> {
        std::mem::replace(&mut self.0.inner, AnswerBody::over())
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
            this.guard.server_spoke();
        } else {
            if this.deadline.has_passed(cx) {
                return Poll::Ready(Some(Err(Error::Overdue)));
            }
            let progress = this.inner.has_sent();
            if !progress && this.guard.server_late() {
                // A server that has begun to answer may have nothing to say: it is not to blame.
                let silent = if this.tunnel {
                    Error::Unused
                } else {
                    Error::Silent
                };
                return Poll::Ready(Some(Err(silent(this.silence))));
            }
            this.guard.server_waits(this.silence, progress);
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
