//! Sends a response on an HTTP/1.1 connection: its head at once, then its body piece by piece.
//!
//! This file decides how the body is framed and whether the connection can be reused. It never polls the body for more
//! while the client does not read. `http2/send_response.rs` does the same for HTTP/2.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{StatusCode, Version};
use http_body::Body;

use super::request::ClientExpectations;
use super::response_head::write_response_head;
use super::wire::Wire;
use crate::http::head::{PresentFields, Response};
use crate::http::http1::{MessageError, fields};
use crate::net::FlushQueue;
use crate::net::flush_queue::YieldToOthers;
use crate::serve::stack::body;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::request_context::RequestContext;
use crate::serve::worker::date_line::DateLine;
use crate::serve::worker::worker_state::WorkerState;

/// Longest body, in bytes, whose response is sent together with the responses of other connections. A longer body, or
/// one of unknown length, is sent as soon as it is read, while the processor has it in its cache. So the other
/// connections have their turn before it.
const MAX_GROUPED_BODY_BYTES: u64 = 4096;

/// How the body of a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// The response has no body.
    Bodiless,
    /// The body is sent as it is, up to its length or the end of the connection.
    Plain,
    /// The body is sent in chunks (RFC 9112 section 7.1).
    Chunked,
}

/// Whether the connection can carry another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// The connection can be reused once the request's body has been read.
    Possible,
    /// The connection must be closed.
    Impossible,
}

/// Sends a response. The head is queued before this returns. `spare_context` gets the context of the request when it has
/// ended.
pub fn send_response<'a>(
    wire: &'a Rc<Wire>,
    expectations: ClientExpectations,
    response: Response<ObservedBody>,
    worker: &'a WorkerState,
    spare_context: &'a mut Option<Rc<RequestContext>>,
) -> SendResponse<'a> {
    let Response { mut head, body } = response;
    let exact_length = body.size_hint().exact();
    let is_short = exact_length.is_some_and(|length| length <= MAX_GROUPED_BODY_BYTES);
    let switches_protocol = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let framing = choose_framing(head.status, &expectations, exact_length);
    let ends_with_connection = framing == BodyFraming::Plain && exact_length.is_none();
    let mut present_fields = head.fields.present_fields();
    // The gateway sets `Connection` on its own responses after which nothing can follow.
    let is_last_response = present_fields.has_connection && !switches_protocol;
    if is_last_response {
        head.fields.remove("connection");
        present_fields.has_connection = false;
    }
    // A response of the gateway may leave the request's body unread.
    let can_read_body = !body.is_from_gateway() || wire.can_drain_body();
    let is_persistent = expectations.is_persistent
        && !worker.is_draining()
        && !ends_with_connection
        && !is_last_response
        && can_read_body;
    let content_length = match framing {
        BodyFraming::Plain => exact_length,
        // The length that the response to a GET would have. A length of 0 only says that HEAD gets no body.
        BodyFraming::Bodiless => {
            exact_length.filter(|length| expectations.is_head_request && *length > 0)
        }
        BodyFraming::Chunked => None,
    };
    let date = worker.date();
    let connection_fields = ConnectionFields {
        present_fields,
        version: expectations.version,
        is_persistent,
        framing,
        content_length,
        date: &date,
    };
    wire.fill_outbox(|outbox| {
        outbox.push_with(|out| {
            write_response_head(out, &head);
            connection_fields.write(out);
        })
    });
    if ends_with_connection {
        wire.set_reset_on_close(true);
    }
    SendResponse {
        wire,
        body: Some(body),
        spare_context,
        framing,
        accepts_trailers: expectations.accepts_trailers,
        last_flush: match (is_persistent, ends_with_connection) {
            (true, _) if is_short && wire.is_body_over() => LastFlush::Grouped(&worker.flush_queue),
            (false, false) => LastFlush::WithClose,
            _ => LastFlush::AtOnce,
        },
        yield_to_others: (!is_short).then(YieldToOthers::default),
        has_queued_first_pieces: false,
        is_persistent,
        ends_with_connection,
    }
}

/// The framing of a response's body (RFC 9112 section 6.3). `exact_length` is in bytes; `None` if it is not fixed yet.
#[inline]
fn choose_framing(
    status: StatusCode,
    expectations: &ClientExpectations,
    exact_length: Option<u64>,
) -> BodyFraming {
    let is_bodiless_status = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        BodyFraming::Plain
    } else if expectations.is_head_request || is_bodiless_status {
        BodyFraming::Bodiless
    } else if exact_length.is_some() || expectations.version < Version::HTTP_11 {
        BodyFraming::Plain
    } else {
        BodyFraming::Chunked
    }
}

/// Fields of the connection and of the framing, which are added to the head of a response.
struct ConnectionFields<'a> {
    /// Fields that the head has already, so that they are not added.
    present_fields: PresentFields,
    version: Version,
    is_persistent: bool,
    framing: BodyFraming,
    /// The value of `Content-Length`; `None` if the field is left out.
    content_length: Option<u64>,
    date: &'a DateLine,
}

impl ConnectionFields<'_> {
    /// Appends the fields and the empty line after them.
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(length) = self
            .content_length
            .filter(|_| !self.present_fields.has_length)
        {
            fields::write_number_field(out, b"content-length", length);
        }
        if self.framing == BodyFraming::Chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        if self.present_fields.has_connection {
            // The field names the protocol that the connection changes to.
        } else if !self.is_persistent {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.version < Version::HTTP_11 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(match self.present_fields.has_date {
            true => b"\r\n",
            false => self.date.as_last_lines(),
        });
    }
}

/// The future of [`send_response`]. It fails if the client has left, if the connection fails, or if the body breaks
/// off.
pub struct SendResponse<'a> {
    wire: &'a Rc<Wire>,
    /// Dropped when its last piece is queued, so that the request is recorded before the client sees the end.
    body: Option<ObservedBody>,
    /// Where the context of the request is put for the next one.
    spare_context: &'a mut Option<Rc<RequestContext>>,
    framing: BodyFraming,
    accepts_trailers: bool,
    /// How the last piece is sent.
    last_flush: LastFlush<'a>,
    /// Gives other connections their turn before a long body is read; `None` when they have had it.
    yield_to_others: Option<YieldToOthers>,
    /// Whether the first pieces have been queued. Before them nothing is flushed, so that they leave with the head.
    has_queued_first_pieces: bool,
    /// Whether the connection can be reused after the response.
    is_persistent: bool,
    /// Whether the body ends with the connection, for want of another framing.
    ends_with_connection: bool,
}

impl Future for SendResponse<'_> {
    type Output = Result<ConnectionReuse, body::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(yielding) = &mut self.yield_to_others {
            ready!(Pin::new(yielding).poll(cx));
            self.yield_to_others = None;
        }
        ready!(self.poll_body(cx))?;
        if self.ends_with_connection {
            self.wire.set_reset_on_close(false);
        }
        Poll::Ready(Ok(match self.is_persistent {
            true => ConnectionReuse::Possible,
            false => ConnectionReuse::Impossible,
        }))
    }
}

/// How the last piece of a response is sent.
enum LastFlush<'a> {
    /// The piece is sent together with pieces of other connections, at the end of the worker's turn.
    Grouped(&'a FlushQueue),
    /// The piece is sent together with the end of the connection.
    WithClose,
    /// The piece is sent at once.
    AtOnce,
}

impl SendResponse<'_> {
    /// Sends the whole body. Pieces that are ready at once are sent together. Fails as [`SendResponse`] does.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), body::Error>> {
        loop {
            // Nothing is flushed before the first pieces, so that they are sent together with the head.
            if std::mem::replace(&mut self.has_queued_first_pieces, true) {
                ready!(self.wire.poll_flush(cx)).map_err(MessageError::from)?;
            }
            let mut queued = self.poll_queue_piece(cx);
            while matches!(queued, Poll::Ready(Ok(())))
                && self.body.is_some()
                && !self.wire.is_outbox_full()
            {
                queued = self.poll_queue_piece(cx);
            }
            if self.body.is_none() && matches!(queued, Poll::Ready(Ok(()))) {
                match self.last_flush {
                    LastFlush::Grouped(flush_queue) if !self.wire.is_outbox_full() => {
                        flush_queue.add(self.wire.clone());
                        return Poll::Ready(Ok(()));
                    }
                    LastFlush::WithClose => return Poll::Ready(Ok(())),
                    LastFlush::Grouped(_) | LastFlush::AtOnce => {}
                }
            }
            let flushed = self.wire.poll_flush(cx).map_err(MessageError::from)?;
            ready!(queued)?;
            ready!(flushed);
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Queues the next piece of the body. The body is dropped with its last one. Fails if it breaks off, or if the client
    /// leaves while no piece is ready.
    fn poll_queue_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), body::Error>> {
        let Some(body) = self.body.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        if self.framing == BodyFraming::Bodiless || body.is_end_stream() {
            self.end_body(None);
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
            // No piece is ready, so the client may have left meanwhile.
            ready!(self.wire.poll_client_gone(cx));
            return Poll::Ready(Err(MessageError::Closed.into()));
        };
        let is_chunked = self.framing == BodyFraming::Chunked;
        match frame.transpose()?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => self
                .wire
                .fill_outbox(|outbox| outbox.push_data(data, is_chunked)),
            Some(Err(trailers)) => self.end_body(trailers.trailers_ref()),
            None => self.end_body(None),
        }
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.end_body(None);
        }
        Poll::Ready(Ok(()))
    }

    /// Drops the body, and queues the last chunk if it is chunked, with `trailers` if the client accepts them.
    fn end_body(&mut self, trailers: Option<&http::HeaderMap>) {
        let Some(body) = self.body.take() else {
            return;
        };
        *self.spare_context = body.end();
        if self.framing == BodyFraming::Chunked {
            let trailers = trailers.filter(|_| self.accepts_trailers);
            self.wire
                .fill_outbox(|outbox| outbox.push_chunked_end(trailers));
        }
    }
}
