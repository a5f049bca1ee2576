//! The body of a request: streamed, with a deadline for each piece, and read ahead where a limit needs it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::error::Error;
use crate::http::head::hop::clean_trailers;
use crate::http::http1::chunked::Piece;
use crate::serve::stack::downstream::Downstream;
use crate::serve::worker::generation::Generation;
use crate::serve::worker::guard::Guard;

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
    rest: Option<Downstream>,
    guard: Rc<Guard>,
    generation: Rc<Generation>,
}

impl RequestBody {
    /// The body of the request that comes from `downstream`.
    pub fn new(downstream: &Downstream, generation: &Rc<Generation>) -> RequestBody {
        let sent = || Sent {
            ahead: None,
            trailers: None,
            rest: Some(downstream.clone()),
            guard: downstream.guard().clone(),
            generation: generation.clone(),
        };
        RequestBody((!downstream.is_body_over()).then(|| Box::new(sent())))
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
        self.guard.body_arrived();
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
        let Some(downstream) = &this.rest else {
            return Poll::Ready(None);
        };
        let Poll::Ready(piece) = downstream.poll_body(cx) else {
            let idle = this.generation.ruleset.timeouts.body_idle;
            if downstream.is_held_back() {
                // It may have become so while this one was waited for.
                this.guard.body_arrived();
                return Poll::Pending;
            }
            if this.guard.is_body_late() {
                return Poll::Ready(Some(Err(Error::Idle(idle))));
            }
            this.guard.await_body(idle);
            return Poll::Pending;
        };
        this.guard.body_arrived();
        if matches!(piece, Err(_) | Ok(Piece::End)) || downstream.is_body_over() {
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
            Some(downstream) => downstream.remaining_body(),
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
