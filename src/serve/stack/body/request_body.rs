//! The body of a request. It is streamed, with a deadline for each piece, and read ahead where the route or a limit
//! depends on it.
//!
//! Bytes that were read ahead are put back into the body, so that the upstream gets every byte.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::body_error::Error;
use crate::http::head::hop_by_hop::strip_forbidden_trailers;
use crate::http::http1::chunked::BodyPiece;
use crate::serve::stack::downstream::Downstream;
use crate::serve::worker::deadlines::Deadlines;
use crate::serve::worker::generation::Generation;

/// The body that a client sends. It is boxed, because most requests have no body.
pub struct RequestBody(Option<Box<UnreadBody>>);

/// Maximum bytes of a body that are read ahead, but for the piece that exceeds them. A limit may set a lower bound.
pub const MAX_READ_AHEAD_BYTES: usize = 1024 * 1024;

/// Maximum bytes that decide whether a body is read ahead. They are few, because all of them are examined again after each
/// new piece.
const MAX_PREFIX_BYTES: usize = 512;

/// The beginning of a body, which was read ahead.
pub struct ReadAhead {
    /// The content that was read.
    pub bytes: Bytes,
    /// The trailers, if they were read too.
    pub trailers: Option<HeaderMap>,
    /// Whether `bytes` are the whole body.
    pub is_whole: bool,
}

/// The part of a body that is still to be read.
struct UnreadBody {
    /// Content that was read ahead and put back.
    read_ahead: Option<Bytes>,
    /// Trailers that were read ahead and put back.
    trailers: Option<Box<HeaderMap>>,
    /// Where the remaining content comes from; `None` at the end of the body.
    downstream: Option<Downstream>,
    deadlines: Rc<Deadlines>,
    /// The configuration of the request, with its timeouts and the fields that no trailer may have.
    generation: Rc<Generation>,
}

impl RequestBody {
    /// The body of the request that comes from `downstream`.
    pub fn new(downstream: &Downstream, generation: &Rc<Generation>) -> RequestBody {
        let unread = || UnreadBody {
            read_ahead: None,
            trailers: None,
            downstream: Some(downstream.clone()),
            deadlines: downstream.deadlines().clone(),
            generation: generation.clone(),
        };
        RequestBody((!downstream.is_body_over()).then(|| Box::new(unread())))
    }

    /// Reads ahead until more than `max_bytes` are read or the body ends. The caller must put the bytes back with
    /// [`RequestBody::put_back`].
    ///
    /// # Errors
    ///
    /// The body broke off, or the client has sent nothing for too long.
    pub async fn peek(&mut self, max_bytes: usize) -> Result<ReadAhead, Error> {
        let mut bytes = BytesMut::new();
        let mut trailers = None;
        while !self.is_empty() && bytes.len() <= max_bytes {
            match self.frame().await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => bytes.extend_from_slice(&data),
                Some(Err(frame)) => trailers = frame.into_trailers().ok(),
                None => break,
            }
        }
        Ok(ReadAhead {
            bytes: bytes.freeze(),
            trailers,
            is_whole: self.is_empty(),
        })
    }

    /// Reads ahead until `look_for_field` decides whether the body may have a field, and returns that. True where neither
    /// the whole body nor its first [`MAX_PREFIX_BYTES`] bytes decide. The bytes stay in the body.
    ///
    /// # Errors
    ///
    /// The body broke off, or the client has sent nothing for too long.
    pub async fn read_ahead_for_field(
        &mut self,
        look_for_field: impl Fn(&[u8], bool) -> Option<bool>,
    ) -> Result<bool, Error> {
        let (mut bytes, mut is_whole) = (Bytes::new(), self.is_empty());
        loop {
            let prefix = &bytes[..bytes.len().min(MAX_PREFIX_BYTES)];
            let body_start = is_whole && prefix.len() == bytes.len();
            if let Some(judgement) = look_for_field(prefix, body_start) {
                return Ok(judgement);
            }
            if is_whole || bytes.len() >= MAX_PREFIX_BYTES {
                return Ok(true);
            }
            let peeked = self.peek(bytes.len()).await?;
            (bytes, is_whole) = (peeked.bytes.clone(), peeked.is_whole);
            self.put_back(peeked.bytes, peeked.trailers);
        }
    }

    /// Puts back the bytes and the trailers that [`RequestBody::peek`] has read.
    pub fn put_back(&mut self, bytes: Bytes, trailers: Option<HeaderMap>) {
        if let Some(unread) = &mut self.0 {
            unread.read_ahead = Some(bytes).filter(|bytes| !bytes.is_empty());
            unread.trailers = trailers.map(Box::new);
        }
    }

    /// Whether nothing remains to be read.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|unread| unread.is_empty())
    }
}

impl UnreadBody {
    fn is_empty(&self) -> bool {
        self.read_ahead.is_none() && self.trailers.is_none() && self.downstream.is_none()
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        self.deadlines.report_body_arrived();
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
        if let Some(bytes) = this.read_ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        let Some(downstream) = &this.downstream else {
            return Poll::Ready(None);
        };
        let Poll::Ready(piece) = downstream.poll_body(cx) else {
            let idle_timeout = this.generation.ruleset.timeouts.body_idle;
            if downstream.is_window_exhausted() {
                // The client cannot send, so it is not late. Its window may have closed only while this piece was awaited.
                this.deadlines.report_body_arrived();
                return Poll::Pending;
            }
            if this.deadlines.is_body_late() {
                return Poll::Ready(Some(Err(Error::Idle(idle_timeout))));
            }
            this.deadlines.await_body(idle_timeout);
            return Poll::Pending;
        };
        this.deadlines.report_body_arrived();
        if matches!(piece, Err(_) | Ok(BodyPiece::End)) || downstream.is_body_over() {
            this.downstream = None;
        }
        Poll::Ready(match piece {
            Ok(BodyPiece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyPiece::Trailers(mut trailers)) => {
                let identifier = &this.generation.identifier;
                strip_forbidden_trailers(&mut trailers, |name| identifier.is_protected(name));
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(BodyPiece::End | BodyPiece::Incomplete) => None,
            Err(cause) => Some(Err(cause.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(unread) = &self.0 else {
            return SizeHint::with_exact(0);
        };
        let read_ahead = unread.read_ahead.as_ref();
        let read_ahead_bytes = read_ahead.map_or(0, |bytes| bytes.len() as u64);
        let remaining = match &unread.downstream {
            Some(downstream) => downstream.remaining_body(),
            // A body with trailers is sent in chunks, without a length.
            None if unread.trailers.is_some() => SizeHint::default(),
            None => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        // The downstream has already subtracted the bytes that were read ahead.
        hint.set_lower(remaining.lower() + read_ahead_bytes);
        if let Some(upper) = remaining.upper() {
            hint.set_upper(upper + read_ahead_bytes);
        }
        hint
    }
}
