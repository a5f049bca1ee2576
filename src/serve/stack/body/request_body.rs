//! The body of a request. It is streamed, with a deadline for each piece, and read ahead where the route or a limit
//! depends on it.
//!
//! Bytes that were read ahead are put back into the body, so that the upstream gets every byte.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::body_error::Error;
use crate::http::head::hop_by_hop::strip_forbidden_trailers;
use crate::http::http1::chunked::BodyPiece;
use crate::identity::strip::is_alike_any;
use crate::route::FieldChanges;
use crate::serve::stack::downstream::Downstream;
use crate::serve::worker::deadlines::Deadlines;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::PassedBytes;

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

/// The beginning of a body, as it is searched.
#[derive(Clone, Copy)]
pub struct BodyStart<'b> {
    /// The content that was read.
    pub bytes: &'b [u8],
    /// Whether that is the whole body.
    pub is_whole: bool,
}

impl<'b> BodyStart<'b> {
    /// A body without content.
    pub const EMPTY: BodyStart<'static> = BodyStart {
        bytes: b"",
        is_whole: true,
    };

    /// `is_whole` says whether `bytes` are the whole body. A body of more than [`MAX_READ_AHEAD_BYTES`] never counts as
    /// whole, because the sizes of its pieces decide whether its last bytes were read too.
    pub fn new(bytes: &'b [u8], is_whole: bool) -> BodyStart<'b> {
        BodyStart {
            bytes,
            is_whole: is_whole && bytes.len() <= MAX_READ_AHEAD_BYTES,
        }
    }
}

/// Whether a body may have a field, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPresence {
    /// Some framework may find the field in the body.
    Possible,
    /// No framework finds the field in the body.
    Impossible,
    /// More bytes are needed to decide.
    Undecided,
}

impl From<Option<bool>> for FieldPresence {
    /// The result of `may_have_field` in [`crate::identity::body`], which is `None` if it needs more bytes.
    fn from(may_have_field: Option<bool>) -> FieldPresence {
        match may_have_field {
            Some(true) => FieldPresence::Possible,
            Some(false) => FieldPresence::Impossible,
            None => FieldPresence::Undecided,
        }
    }
}

/// The part of a body that is still to be read.
struct UnreadBody {
    /// Content that was read ahead and put back.
    read_ahead: Option<Bytes>,
    /// Trailers that were read ahead and put back.
    trailers: Option<Box<HeaderMap>>,
    /// Where the remaining content comes from; `None` at the end of the body.
    downstream: Option<Downstream>,
    /// Bounds the size of the body; `None` if its route does not.
    size_bound: Option<SizeBound>,
    deadlines: Rc<Deadlines>,
    /// The configuration of the request, with its timeouts and the fields that no trailer may have.
    generation: Rc<Generation>,
    /// The changes of the request's fields, which no trailer may undo; `None` if there are none.
    field_changes: Option<Arc<FieldChanges>>,
    /// Counts the bytes that come, for the access log; `None` where it does not have them.
    received_bytes: Option<Rc<Cell<u64>>>,
    /// Where limits count the bytes or the messages of the body; `None` for most bodies.
    meter: Option<Box<BodyMeter>>,
}

/// The bound that a route puts on the size of a body.
struct SizeBound {
    max_bytes: u64,
    /// Bytes that may still come from the client.
    remaining_bytes: u64,
}

impl SizeBound {
    /// Takes a piece of this many bytes off the remaining ones.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] where fewer remain.
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        let remaining_bytes = self.remaining_bytes.checked_sub(bytes as u64);
        self.remaining_bytes = remaining_bytes.ok_or(Error::TooLarge(self.max_bytes))?;
        Ok(())
    }
}

/// The result of polling a request's body; `None` inside at the end of the body.
pub type PolledFrame = Poll<Option<Result<Frame<Bytes>, Error>>>;

/// Decides which of a client's bytes pass through a tunnel to the server. It keeps their order.
pub trait TunnelGate {
    /// Whether no byte waits to pass.
    fn is_empty(&self) -> bool;

    /// The next bytes that may pass; `None` at the end. `poll_source` reads more bytes from the client.
    fn poll_passed(
        &mut self,
        cx: &mut Context<'_>,
        poll_source: &mut dyn FnMut(&mut Context<'_>) -> PolledFrame,
    ) -> PolledFrame;
}

/// Counts the bytes of a body for limits, and lets a limit on messages hold them back.
#[derive(Default)]
struct BodyMeter {
    passed_bytes: Option<Arc<PassedBytes>>,
    tunnel_gate: Option<Box<dyn TunnelGate>>,
}

impl RequestBody {
    /// The body of the request that comes from `downstream`. The bytes that come are added to `received_bytes`, if any.
    pub fn new(
        downstream: &Downstream,
        generation: &Rc<Generation>,
        received_bytes: Option<&Rc<Cell<u64>>>,
    ) -> RequestBody {
        let unread = || UnreadBody {
            read_ahead: None,
            trailers: None,
            downstream: Some(downstream.clone()),
            size_bound: None,
            deadlines: downstream.deadlines().clone(),
            generation: generation.clone(),
            field_changes: None,
            received_bytes: received_bytes.cloned(),
            meter: None,
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
        look_for_field: impl Fn(BodyStart<'_>) -> FieldPresence,
    ) -> Result<bool, Error> {
        let mut bytes = Bytes::new();
        let mut is_whole = self.is_empty();
        loop {
            let prefix = &bytes[..bytes.len().min(MAX_PREFIX_BYTES)];
            let body_start = BodyStart {
                bytes: prefix,
                is_whole: is_whole && prefix.len() == bytes.len(),
            };
            match look_for_field(body_start) {
                FieldPresence::Possible => return Ok(true),
                FieldPresence::Impossible => return Ok(false),
                FieldPresence::Undecided => {}
            }
            if is_whole || bytes.len() >= MAX_PREFIX_BYTES {
                return Ok(true);
            }
            let read_ahead = self.peek(bytes.len()).await?;
            bytes = read_ahead.bytes.clone();
            is_whole = read_ahead.is_whole;
            self.put_back(read_ahead.bytes, read_ahead.trailers);
        }
    }

    /// Puts back the bytes and the trailers that [`RequestBody::peek`] has read.
    pub fn put_back(&mut self, bytes: Bytes, trailers: Option<HeaderMap>) {
        if let Some(unread) = &mut self.0 {
            unread.read_ahead = Some(bytes).filter(|bytes| !bytes.is_empty());
            unread.trailers = trailers.map(Box::new);
        }
    }

    /// Bounds the size of the whole body, with what was read ahead and put back. That must not be larger already.
    pub fn bound_size(&mut self, max_bytes: u64) {
        if let Some(unread) = &mut self.0 {
            let read_ahead_bytes = unread.read_ahead.as_ref().map_or(0, Bytes::len) as u64;
            let remaining_bytes = max_bytes.saturating_sub(read_ahead_bytes);
            unread.size_bound = Some(SizeBound {
                max_bytes,
                remaining_bytes,
            });
            if let Some(downstream) = &unread.downstream {
                downstream.bound_body(remaining_bytes);
            }
        }
    }

    /// Counts the bytes that pass from now on. What was read ahead has not passed yet.
    pub fn count_bytes(&mut self, passed_bytes: Arc<PassedBytes>) {
        if let Some(unread) = &mut self.0 {
            unread.meter.get_or_insert_default().passed_bytes = Some(passed_bytes);
        }
    }

    /// Passes on only the bytes that `tunnel_gate` lets pass.
    pub fn pass_through(&mut self, tunnel_gate: Box<dyn TunnelGate>) {
        if let Some(unread) = &mut self.0 {
            unread.meter.get_or_insert_default().tunnel_gate = Some(tunnel_gate);
        }
    }

    /// Keeps the fields that a policy sets or removes out of the trailers, in any spelling.
    pub fn guard_trailers(&mut self, changes: &Arc<FieldChanges>) {
        let Some(unread) = &mut self.0 else {
            return;
        };
        unread.field_changes = Some(changes.clone());
        if let Some(mut trailers) = unread.trailers.take() {
            unread.strip_trailers(&mut trailers);
            unread.trailers = Some(trailers);
        }
    }

    /// Whether nothing remains to be read.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|unread| unread.is_empty())
    }
}

impl UnreadBody {
    fn is_empty(&self) -> bool {
        let is_gate_empty = |meter: &BodyMeter| {
            let tunnel_gate = meter.tunnel_gate.as_ref();
            tunnel_gate.is_none_or(|gate| gate.is_empty())
        };
        self.read_ahead.is_none()
            && self.trailers.is_none()
            && self.downstream.is_none()
            && self.meter.as_deref().is_none_or(is_gate_empty)
    }

    /// Removes the trailers that no client may send.
    fn strip_trailers(&self, trailers: &mut HeaderMap) {
        let identifier = &self.generation.identifier;
        let is_changed = |name: &[u8]| {
            let changes = self.field_changes.as_ref();
            changes.is_some_and(|changes| is_alike_any(name, &changes.removed))
        };
        strip_forbidden_trailers(trailers, |name| {
            identifier.is_protected(name) || is_changed(name)
        });
    }

    /// The next piece of a body that limits meter. Not inlined, because most bodies have no meter.
    #[inline(never)]
    fn poll_metered(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        // Taken out, because the gate polls the body without its meter.
        let mut meter = self.meter.take();
        let tunnel_gate = meter.as_mut().and_then(|meter| meter.tunnel_gate.as_mut());
        let frame = match tunnel_gate {
            Some(gate) => gate.poll_passed(cx, &mut |cx| self.poll_piece(cx)),
            None => self.poll_piece(cx),
        };
        let passed_bytes = meter.as_ref().and_then(|meter| meter.passed_bytes.as_ref());
        if let (Some(passed_bytes), Poll::Ready(Some(Ok(frame)))) = (passed_bytes, &frame) {
            passed_bytes.add_incoming(frame.data_ref().map_or(0, Bytes::len));
        }
        self.meter = meter;
        frame
    }

    /// The next piece of the body.
    #[inline]
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(bytes) = self.read_ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        let Some(downstream) = &self.downstream else {
            return Poll::Ready(None);
        };
        if let Some(bound) = &self.size_bound
            && downstream.is_body_too_large()
        {
            return Poll::Ready(Some(Err(Error::TooLarge(bound.max_bytes))));
        }
        let Poll::Ready(piece) = downstream.poll_body(cx) else {
            let idle_timeout = self.generation.ruleset.timeouts.body_idle;
            if downstream.is_window_exhausted() {
                // The client cannot send, so it is not late. Its window may have closed only while this piece was awaited.
                self.deadlines.report_body_arrived();
                return Poll::Pending;
            }
            if self.deadlines.is_body_late() {
                return Poll::Ready(Some(Err(Error::Idle(idle_timeout))));
            }
            self.deadlines.await_body(idle_timeout);
            return Poll::Pending;
        };
        self.deadlines.report_body_arrived();
        if matches!(piece, Err(_) | Ok(BodyPiece::End)) || downstream.is_body_over() {
            self.downstream = None;
        }
        Poll::Ready(match piece {
            Ok(BodyPiece::Data(data)) => {
                if let Some(received_bytes) = &self.received_bytes {
                    received_bytes.set(received_bytes.get() + data.len() as u64);
                }
                match &mut self.size_bound {
                    Some(bound) => Some(bound.admit(data.len()).map(|()| Frame::data(data))),
                    None => Some(Ok(Frame::data(data))),
                }
            }
            Ok(BodyPiece::Trailers(mut trailers)) => {
                self.strip_trailers(&mut trailers);
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(BodyPiece::End | BodyPiece::Incomplete) => None,
            Err(cause) => Some(Err(cause.into())),
        })
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        // Nobody waits for the rest of the body any more, so the client cannot be late with it.
        self.deadlines.report_body_arrived();
        if let Some(downstream) = &self.downstream {
            downstream.drop_body();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let Some(unread) = &mut self.0 else {
            return Poll::Ready(None);
        };
        match unread.meter {
            None => unread.poll_piece(cx),
            Some(_) => unread.poll_metered(cx),
        }
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
