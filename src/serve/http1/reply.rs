//! Sends a response on an HTTP/1.1 connection: its head at once, then its body piece by piece.
//!
//! It decides how the body is framed and whether the connection can be reused. It never waits for a body while the client
//! does not read.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::Version;
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
use crate::serve::worker::state::Worker;

/// Longest body, in bytes, whose response is sent together with those of other connections. A longer one is sent at once,
/// while the processor still has it in its cache. For that its connection waits for the others before the body is read.
const MAX_GROUPED_BODY: u64 = 4096;

/// How the body of a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// The response has no body.
    Bodiless,
    /// As it is, up to its length or the end of the connection.
    Plain,
    /// In chunks.
    Chunked,
}

/// Whether the connection can carry another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Once the request's body has been read.
    Possible,
    /// The connection must be closed.
    Impossible,
}

/// Sends a response. The head is queued before this returns.
pub fn send_response<'a>(
    wire: &'a Rc<Wire>,
    expectations: ClientExpectations,
    response: Response<ObservedBody>,
    worker: &'a Worker,
) -> SendResponse<'a> {
    let Response { mut head, body } = response;
    let exact = body.size_hint().exact();
    let is_short = exact.is_some_and(|length| length <= MAX_GROUPED_BODY);
    let status = head.status.as_u16();
    let switches_protocol = status == 101;
    let framing = choose_framing(status, &expectations, exact);
    let ends_with_connection = framing == BodyFraming::Plain && exact.is_none();
    let mut present = head.fields.present_fields();
    // The gateway sets `Connection` on its own responses after which nothing can follow.
    let is_last = present.has_connection && !switches_protocol;
    if is_last {
        head.fields.remove("connection");
        present.has_connection = false;
    }
    // A response of the gateway may leave the request's body unread.
    let can_read_body = !body.is_from_gateway() || wire.can_drain_body();
    let is_persistent = expectations.persistent
        && !worker.is_draining()
        && !ends_with_connection
        && !is_last
        && can_read_body;
    let content_length = match framing {
        BodyFraming::Plain => exact,
        // The length that the response to a GET would have, if it is known.
        BodyFraming::Bodiless => exact.filter(|length| expectations.head_only && *length > 0),
        BodyFraming::Chunked => None,
    };
    let date = worker.date();
    let added = AddedFields {
        present,
        version: expectations.version,
        is_persistent,
        framing,
        content_length,
        date: &date,
    };
    wire.queue(|outbox| {
        outbox.push_with(|out| {
            write_response_head(out, &head);
            added.write(out);
        })
    });
    if ends_with_connection {
        wire.reset_on_close(true);
    }
    SendResponse {
        wire,
        body: Some(body),
        framing,
        trailers: expectations.trailers,
        last_flush: match (is_persistent, ends_with_connection) {
            (true, _) if is_short && wire.is_body_over() => LastFlush::Grouped(&worker.flushes),
            (false, false) => LastFlush::WithClose,
            _ => LastFlush::Alone,
        },
        others_first: (!is_short).then(YieldToOthers::default),
        has_begun: false,
        is_persistent,
        ends_with_connection,
    }
}

/// The framing of a body whose length is `exact`, if it is known.
#[inline]
fn choose_framing(
    status: u16,
    expectations: &ClientExpectations,
    exact: Option<u64>,
) -> BodyFraming {
    if status == 101 {
        BodyFraming::Plain
    } else if expectations.head_only || matches!(status, 204 | 304) {
        BodyFraming::Bodiless
    } else if exact.is_some() || expectations.version < Version::HTTP_11 {
        BodyFraming::Plain
    } else {
        BodyFraming::Chunked
    }
}

/// Fields that the gateway adds to the head of a response.
struct AddedFields<'a> {
    /// Fields that the head has already.
    present: PresentFields,
    version: Version,
    is_persistent: bool,
    framing: BodyFraming,
    content_length: Option<u64>,
    date: &'a str,
}

impl AddedFields<'_> {
    /// Appends the fields and the empty line after them.
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(length) = self.content_length.filter(|_| !self.present.has_length) {
            fields::write_number_field(out, b"content-length", length);
        }
        if self.framing == BodyFraming::Chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        if self.present.has_connection {
            // The field names the protocol that the connection changes to.
        } else if !self.is_persistent {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.version < Version::HTTP_11 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        if !self.present.has_date {
            out.extend_from_slice(b"date: ");
            out.extend_from_slice(self.date.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The future of [`send_response`].
pub struct SendResponse<'a> {
    wire: &'a Rc<Wire>,
    /// Dropped when its last piece is queued, so that the request is recorded before the client sees the end.
    body: Option<ObservedBody>,
    framing: BodyFraming,
    /// The client accepts trailers.
    trailers: bool,
    last_flush: LastFlush<'a>,
    /// The turn of other connections, before a long body is read.
    others_first: Option<YieldToOthers>,
    has_begun: bool,
    is_persistent: bool,
    /// The body ends with the connection, for want of another framing.
    ends_with_connection: bool,
}

impl Future for SendResponse<'_> {
    type Output = Result<Reuse, body::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(others_first) = &mut self.others_first {
            ready!(Pin::new(others_first).poll(cx));
            self.others_first = None;
        }
        ready!(self.poll_body(cx))?;
        if self.ends_with_connection {
            self.wire.reset_on_close(false);
        }
        Poll::Ready(Ok(match self.is_persistent {
            true => Reuse::Possible,
            false => Reuse::Impossible,
        }))
    }
}

/// When the last piece of a response is sent.
enum LastFlush<'a> {
    /// Together with those of other connections, at the end of the worker's turn.
    Grouped(&'a FlushQueue),
    /// Together with the end of the connection.
    WithClose,
    /// At once.
    Alone,
}

impl SendResponse<'_> {
    /// Sends the whole body. Pieces that are ready at once are sent together.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), body::Error>> {
        loop {
            if std::mem::replace(&mut self.has_begun, true) {
                ready!(self.wire.poll_flush(cx)).map_err(MessageError::from)?;
            }
            // The first pieces are sent with the head, and small pieces together.
            let mut next = self.poll_queue_piece(cx);
            while matches!(next, Poll::Ready(Ok(())))
                && self.body.is_some()
                && !self.wire.is_queue_full()
            {
                next = self.poll_queue_piece(cx);
            }
            if self.body.is_none() && matches!(next, Poll::Ready(Ok(()))) {
                match self.last_flush {
                    LastFlush::Grouped(flushes) if !self.wire.is_queue_full() => {
                        flushes.add(self.wire.clone());
                        return Poll::Ready(Ok(()));
                    }
                    LastFlush::WithClose => return Poll::Ready(Ok(())),
                    LastFlush::Grouped(_) | LastFlush::Alone => {}
                }
            }
            let flushed = self.wire.poll_flush(cx).map_err(MessageError::from)?;
            ready!(next)?;
            ready!(flushed);
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Queues the next piece of the body. The body is dropped with its last one.
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
            ready!(self.wire.poll_gone(cx));
            return Poll::Ready(Err(MessageError::Closed.into()));
        };
        let chunked = self.framing == BodyFraming::Chunked;
        match frame.transpose()?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => self.wire.queue(|outbox| outbox.push_data(data, chunked)),
            Some(Err(trailers)) => self.end_body(trailers.trailers_ref()),
            None => self.end_body(None),
        }
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.end_body(None);
        }
        Poll::Ready(Ok(()))
    }

    /// Drops the body, and queues the last chunk if it is chunked.
    fn end_body(&mut self, trailers: Option<&http::HeaderMap>) {
        if self.body.take().is_some() && self.framing == BodyFraming::Chunked {
            let trailers = trailers.filter(|_| self.trailers);
            self.wire.queue(|outbox| outbox.push_chunked_end(trailers));
        }
    }
}
