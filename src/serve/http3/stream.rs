//! One request over HTTP/3 and its response, as the layers of the gateway see them.
//!
//! QUIC keeps order and flow control. So a stream holds at most one piece of the request, and what of the response QUIC
//! does not take yet.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::SizeHint;
use quinn::{SendStream, StoppedError, VarInt};

use super::frame_stream::{FrameStream, StreamEnd};
use super::shared_state::SharedState;
use crate::http::head::{Head, ResponseHead};
use crate::http::http1::chunked::BodyPiece;
use crate::http::http1::{MAX_HEAD_BYTES, MessageError};
use crate::http::http3::frame::{FrameHead, frame_type};
use crate::http::http3::{Code, qpack};
use crate::serve::http2::head_memory::HeadCharge;
use crate::serve::http2::trailers::Trailers;
use crate::serve::stack::body::CLIENT_LEFT;
use crate::serve::worker::client_socket::MAX_DRAINED_BYTES;
use crate::serve::worker::deadlines::Deadlines;

/// While this many bytes of the response wait, no interim response is sent but `100 Continue`.
const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Ready when the client wants no more of the response, or has acknowledged all of it.
type Stopped = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>>>>;

/// A stream: one request and its response.
pub struct Http3Stream {
    /// Charges the memory of the request's head for as long as the stream lives.
    _head_charge: HeadCharge,
    deadlines: Rc<Deadlines>,
    connection: Rc<SharedState>,
    /// How long the client may take none of the response.
    send_timeout: Duration,
    request: RefCell<RequestSide>,
    response: RefCell<ResponseSide>,
    /// Whether the client waits for `100 Continue`.
    awaits_continue: Cell<bool>,
    /// Whether the client has left, or has broken a rule.
    is_closed: Cell<bool>,
    /// Why the stream ends early, if not because the client has left: it has broken a rule, or the response broke off.
    failure: Cell<Option<Code>>,
}

/// The part of the request that follows its head.
struct RequestSide {
    frames: FrameStream,
    stage: RequestStage,
    /// Bytes of the body that the client still has to send, if it has stated a length.
    remaining_body_bytes: Option<u64>,
    /// The trailers, until the stream has ended: before that the request is not whole.
    trailers: Option<HeaderMap>,
    /// The charge for the memory of the trailers, which may be held elsewhere once they are read.
    trailers_charge: HeadCharge,
    /// Whether the connection counts this body among those that nobody reads now.
    is_counted_unread: bool,
}

/// What comes next of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestStage {
    /// The head of a frame: of data, of trailers, or of one to skip.
    Frame,
    /// The payload of a frame of data.
    Data,
    /// The payload of an unknown frame.
    Skipped,
    /// The fields of the trailers.
    Trailers,
    /// The stream has ended.
    Over,
}

/// The part of the response that QUIC has not taken.
struct ResponseSide {
    stream: SendStream,
    /// Pieces in the order in which they are sent.
    waiting: VecDeque<Bytes>,
    stopped: Stopped,
    /// Whether the response ends with `waiting`.
    is_whole: bool,
    /// Whether all of the response was given to QUIC.
    is_sent: bool,
}

/// The error that the stream was closed before the whole response was sent.
#[derive(Debug)]
pub struct ResponseCut;

impl Http3Stream {
    /// The stream of a request whose head was read; `None` if it could not be read.
    pub fn new(
        (frames, stream): (FrameStream, SendStream),
        head_charge: HeadCharge,
        connection: Rc<SharedState>,
        deadlines: Rc<Deadlines>,
        send_timeout: Duration,
        head: Option<&Head>,
    ) -> Rc<Http3Stream> {
        let fields = head.map(|head| &head.fields);
        let expect = fields.and_then(|fields| fields.first("expect"));
        let expects_continue =
            expect.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let is_over = frames.is_over();
        let content_length = fields.and_then(|fields| fields.text("content-length"));
        let request = RequestSide {
            stage: match is_over {
                true => RequestStage::Over,
                // A head that is too large was not read.
                false if frames.payload_bytes() > 0 => RequestStage::Skipped,
                false => RequestStage::Frame,
            },
            frames,
            remaining_body_bytes: content_length.and_then(|text| text.parse().ok()),
            trailers: None,
            trailers_charge: HeadCharge::default(),
            is_counted_unread: !is_over,
        };
        if !is_over {
            connection.change_unread_bodies(true);
        }
        let response = ResponseSide {
            waiting: VecDeque::new(),
            stopped: Box::pin(stream.stopped()),
            stream,
            is_whole: false,
            is_sent: false,
        };
        Rc::new(Http3Stream {
            _head_charge: head_charge,
            deadlines,
            connection,
            send_timeout,
            request: request.into(),
            response: response.into(),
            awaits_continue: Cell::new(expects_continue && !is_over),
            is_closed: Cell::new(false),
            failure: Cell::new(None),
        })
    }

    /// The deadlines of this request. Its connection has other ones.
    pub fn deadlines(&self) -> &Rc<Deadlines> {
        &self.deadlines
    }

    /// Reads the next piece of the request's body. A client that waits for `100 Continue` gets it first.
    ///
    /// # Errors
    ///
    /// The client has left or broken a rule before the whole body was read.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, MessageError>> {
        if self.awaits_continue.replace(false) {
            self.send_interim(&ResponseHead {
                status: StatusCode::CONTINUE,
                ..ResponseHead::default()
            });
            // What cannot be sent now is sent before the response.
            let _ = self.poll_send(cx);
        }
        if self.is_closed.get() {
            return Poll::Ready(Err(MessageError::Closed));
        }
        let request = &mut *self.request.borrow_mut();
        let polled = self.poll_request(cx, request);
        let is_unread = matches!(&polled, Poll::Ready(Ok(BodyPiece::Data(_))));
        if is_unread != std::mem::replace(&mut request.is_counted_unread, is_unread) {
            self.connection.change_unread_bodies(is_unread);
        }
        polled.map_err(|end| {
            self.is_closed.set(true);
            match end {
                BodyEnd::Stream(StreamEnd::Broken(code)) => self.connection.close(code),
                BodyEnd::Stream(StreamEnd::Gone) => {}
                BodyEnd::Stream(StreamEnd::OutOfMemory) => self.note_failure(Code::EXCESSIVE_LOAD),
                BodyEnd::Malformed => self.note_failure(Code::MESSAGE_ERROR),
            }
            MessageError::Closed
        })
    }

    fn poll_request(
        &self,
        cx: &mut Context<'_>,
        request: &mut RequestSide,
    ) -> Poll<Result<BodyPiece, BodyEnd>> {
        let frames = &mut request.frames;
        loop {
            match request.stage {
                RequestStage::Over => return Poll::Ready(Ok(BodyPiece::End)),
                RequestStage::Frame => {
                    let Some(frame) = ready!(frames.poll_frame(cx))? else {
                        if request.remaining_body_bytes.is_some_and(|bytes| bytes > 0) {
                            return Poll::Ready(Err(BodyEnd::Malformed));
                        }
                        request.stage = RequestStage::Over;
                        let trailers = request.trailers.take().map(BodyPiece::Trailers);
                        return Poll::Ready(Ok(trailers.unwrap_or(BodyPiece::End)));
                    };
                    request.stage = self.next_stage(frame, request.trailers.is_some())?;
                }
                RequestStage::Skipped => {
                    ready!(frames.poll_skip(cx))?;
                    request.stage = RequestStage::Frame;
                }
                RequestStage::Data if frames.payload_bytes() == 0 => {
                    request.stage = RequestStage::Frame;
                }
                RequestStage::Data => {
                    let piece = ready!(frames.poll_piece(cx))?;
                    if let Some(remaining_bytes) = &mut request.remaining_body_bytes {
                        let remaining = remaining_bytes.checked_sub(piece.len() as u64);
                        *remaining_bytes = remaining.ok_or(BodyEnd::Malformed)?;
                    }
                    return Poll::Ready(Ok(BodyPiece::Data(piece)));
                }
                RequestStage::Trailers => {
                    let block = ready!(frames.poll_block(cx))?;
                    request.stage = RequestStage::Frame;
                    let trailers = self.decode_trailers(&block, &mut request.trailers_charge)?;
                    request.trailers = Some(trailers);
                }
            }
        }
    }

    /// What follows the head of this frame. After the trailers only unknown frames may come.
    fn next_stage(&self, frame: FrameHead, has_trailers: bool) -> Result<RequestStage, BodyEnd> {
        Ok(match frame.frame_type {
            frame_type::DATA if !has_trailers => {
                if frame.length == 0 {
                    self.connection.spend_frame();
                }
                RequestStage::Data
            }
            frame_type::HEADERS if !has_trailers => {
                if frame.length > MAX_HEAD_BYTES as u64 {
                    return Err(BodyEnd::Malformed);
                }
                RequestStage::Trailers
            }
            frame_type::DATA | frame_type::HEADERS => {
                return Err(StreamEnd::Broken(Code::FRAME_UNEXPECTED).into());
            }
            _ if frame.is_about_connection() => {
                return Err(StreamEnd::Broken(Code::FRAME_UNEXPECTED).into());
            }
            _ => {
                self.connection.spend_frame();
                RequestStage::Skipped
            }
        })
    }

    fn decode_trailers(&self, block: &[u8], charge: &mut HeadCharge) -> Result<HeaderMap, BodyEnd> {
        let memory = &mut *self.connection.head_memory.borrow_mut();
        memory.count_received_block(block.len());
        let mut trailers = Trailers::default();
        qpack::decode(block, |field| trailers.add(field)).map_err(StreamEnd::Broken)?;
        let (map, held_bytes) = trailers.finish().ok_or(BodyEnd::Malformed)?;
        *charge = memory.charge(held_bytes).ok_or(StreamEnd::OutOfMemory)?;
        Ok(map)
    }

    /// Reads the rest of an unwanted request body and adds its bytes to `drained_bytes`; ready at the end of the body, or
    /// beyond [`MAX_DRAINED_BYTES`].
    pub fn poll_drain_body(&self, cx: &mut Context<'_>, drained_bytes: &mut usize) -> Poll<()> {
        // A client that never got `100 Continue` may send its body or not.
        while !self.awaits_continue() && *drained_bytes <= MAX_DRAINED_BYTES {
            match ready!(self.poll_body(cx)) {
                Ok(BodyPiece::Data(data)) => *drained_bytes += data.len(),
                Ok(BodyPiece::Trailers(_)) => {}
                Ok(_) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// How many bytes of the request's body are left to read; exact if that is certain.
    pub fn remaining_body(&self) -> SizeHint {
        let request = self.request.borrow();
        match request.remaining_body_bytes {
            _ if request.stage == RequestStage::Over => SizeHint::with_exact(0),
            Some(remaining_bytes) if !self.is_closed.get() => SizeHint::with_exact(remaining_bytes),
            _ => SizeHint::default(),
        }
    }

    /// Whether the client may be unable to send, because nobody reads its other requests.
    pub fn is_window_exhausted(&self) -> bool {
        self.connection.is_client_blocked()
    }

    /// Whether all of the request's body has been read.
    pub fn is_body_over(&self) -> bool {
        self.request.borrow().stage == RequestStage::Over
    }

    /// Whether the client waits for `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.awaits_continue.get()
    }

    /// Ready when the client has left: it wants no response, has taken back its request, or the connection has ended.
    pub fn poll_client_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_closed.get() {
            let response = &mut *self.response.borrow_mut();
            // Once all of the response was acknowledged, nobody can leave.
            let is_stopped = !response.is_sent && {
                let stopped = response.stopped.as_mut().poll(cx);
                matches!(stopped, Poll::Ready(Ok(Some(_)) | Err(_)))
            };
            let mut is_reset = || self.request.borrow_mut().frames.poll_gone(cx).is_ready();
            if !is_stopped && !is_reset() {
                return Poll::Pending;
            }
            self.is_closed.set(true);
        }
        Poll::Ready(())
    }

    /// Sends an interim response (1xx). While much of the response waits, only `100 Continue` is sent, because clients
    /// wait for it.
    pub fn send_interim(&self, head: &ResponseHead) {
        let waiting_bytes = {
            let response = self.response.borrow();
            response.waiting.iter().map(Bytes::len).sum::<usize>()
        };
        if waiting_bytes > MAX_WAITING_BYTES && head.status != StatusCode::CONTINUE {
            return;
        }
        let fields = head.fields.iter();
        self.send_head(head.status, |write_field| {
            fields.for_each(|(name, value)| write_field(name, value));
        });
    }

    /// Sends the head of a response. `write_fields` calls its argument with the name and value of each field.
    pub fn send_head(
        &self,
        status: StatusCode,
        write_fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
    ) {
        let mut block = Vec::with_capacity(256);
        qpack::begin_block(&mut block);
        qpack::write_status(&mut block, status.as_u16());
        write_fields(&mut |name, value| qpack::write_field(&mut block, name, value));
        self.send_frame(frame_type::HEADERS, block.into());
    }

    /// Sends the trailers of a response.
    pub fn send_trailers(&self, trailers: &HeaderMap) {
        let mut block = Vec::with_capacity(256);
        qpack::begin_block(&mut block);
        for (name, value) in trailers {
            qpack::write_field(&mut block, name.as_str().as_bytes(), value.as_bytes());
        }
        self.send_frame(frame_type::HEADERS, block.into());
    }

    /// Adds a frame to what waits. A piece of a body must only be added when nothing waits.
    pub fn send_frame(&self, frame_type: u64, payload: Bytes) {
        let mut head = Vec::new();
        let length = payload.len() as u64;
        FrameHead { frame_type, length }.write(&mut head);
        let waiting = &mut self.response.borrow_mut().waiting;
        waiting.extend([head.into(), payload]);
    }

    /// Ends the response with what waits.
    pub fn end_response(&self) {
        self.response.borrow_mut().is_whole = true;
    }

    /// Gives QUIC what waits. While it is pending, the send timeout runs.
    ///
    /// # Errors
    ///
    /// The client wants no response, or the connection has ended.
    pub fn poll_send(&self, cx: &mut Context<'_>) -> Poll<Result<(), ResponseCut>> {
        let ResponseSide {
            stream,
            waiting,
            is_whole,
            is_sent,
            ..
        } = &mut *self.response.borrow_mut();
        while !waiting.is_empty() {
            let written = pin!(stream.write_chunks(waiting.make_contiguous())).poll(cx);
            let Poll::Ready(written) = written else {
                self.deadlines.report_write_stalled(self.send_timeout);
                return Poll::Pending;
            };
            let written = written.map_err(|_| {
                self.is_closed.set(true);
                ResponseCut
            })?;
            self.deadlines.report_write_progress();
            waiting.drain(..written.chunks);
        }
        if *is_whole && !*is_sent {
            *is_sent = true;
            self.connection.allowance.borrow_mut().earn_frame();
            // An error means that the client wants no response.
            let _ = stream.finish();
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has acknowledged the whole response, or has left. While it is pending, the send timeout runs.
    pub fn poll_acknowledged(&self, cx: &mut Context<'_>) -> Poll<()> {
        let response = &mut *self.response.borrow_mut();
        if response.is_sent && response.stopped.as_mut().poll(cx).is_pending() {
            self.deadlines.report_write_stalled(self.send_timeout);
            return Poll::Pending;
        }
        self.deadlines.report_write_progress();
        Poll::Ready(())
    }

    /// Counts a head that makes no request.
    pub fn spend_head(&self) {
        self.connection.allowance.borrow_mut().spend_head();
    }

    /// Why the client gets no whole response, for the log.
    pub fn end_reason(&self) -> &'static str {
        match self.failure.get() {
            Some(_) => "stream error",
            None => CLIENT_LEFT,
        }
    }

    /// Notes the code with which the stream ends, unless it has one already.
    pub fn note_failure(&self, code: Code) {
        self.failure.set(self.failure.get().or(Some(code)));
    }

    /// Ends the stream with an error of the client.
    pub fn fail(&self, code: Code) {
        self.note_failure(code);
        self.reset(code);
    }

    /// Ends the stream: resets the response unless it was sent whole, and stops the request unless it has ended.
    pub fn reset(&self, code: Code) {
        self.is_closed.set(true);
        let response = &mut *self.response.borrow_mut();
        response.waiting = VecDeque::new();
        if !response.is_sent {
            let Code(number) = code;
            // An error means that the stream is closed already.
            let _ = response.stream.reset(number.into());
        }
        self.request.borrow_mut().frames.stop(code);
    }

    /// Closes the stream at the end of its request, whether a whole response has been sent or not.
    pub fn end_request(&self) {
        let is_sent = self.response.borrow().is_sent;
        if !is_sent && self.is_closed.get() {
            // The client has taken back its request or broken a rule, which may have cost more than the response.
            self.connection.spend_frame();
        }
        // After a whole response the client need not send the rest of its request: RFC 9114 section 4.1.
        self.reset(match is_sent {
            true => Code::NO_ERROR,
            false => self.failure.get().unwrap_or(Code::REQUEST_CANCELLED),
        });
        let request = &mut *self.request.borrow_mut();
        if std::mem::take(&mut request.is_counted_unread) {
            self.connection.change_unread_bodies(false);
        }
    }
}

/// Why a body breaks off.
enum BodyEnd {
    /// The stream or the connection has ended.
    Stream(StreamEnd),
    /// The request is malformed by RFC 9114 section 4.1.2.
    Malformed,
}

impl From<StreamEnd> for BodyEnd {
    fn from(end: StreamEnd) -> BodyEnd {
        BodyEnd::Stream(end)
    }
}
