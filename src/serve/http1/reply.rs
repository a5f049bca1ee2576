//! A response on its way to the client: its head as bytes, then its body as it comes.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::Version;
use http_body::Body;

use super::lead::lead;
use super::request::ClientExpectations;
use super::wire::Wire;
use crate::http::head::{Present, Response, ResponseHead};
use crate::http::http1::{Cause, fields};
use crate::net::Flushes;
use crate::net::flush::OthersFirst;
use crate::serve::stack::body;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::worker::state::Worker;

/// Longest body that waits for the responses of other connections. A longer one leaves as soon as it is there, for the
/// processor still has it at hand; its connection waits before it is read.
const SHORT: u64 = 4096;

/// How the body of a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// Not at all.
    Nothing,
    /// As it is.
    Plain,
    /// In chunks.
    Chunked,
}

/// Sends a response, whose head is written at once; comes to whether the connection may go on.
pub fn send<'a>(
    wire: &'a Rc<Wire>,
    expectations: ClientExpectations,
    response: Response<ObservedBody>,
    worker: &'a Worker,
) -> SendResponse<'a> {
    let Response { mut head, body } = response;
    let exact = body.size_hint().exact();
    let short = exact.is_some_and(|length| length <= SHORT);
    let status = head.status.as_u16();
    let switched = status == 101;
    let shape = if switched {
        BodyFraming::Plain
    } else if expectations.head_only || matches!(status, 204 | 304) {
        BodyFraming::Nothing
    } else if exact.is_some() || expectations.version < Version::HTTP_11 {
        BodyFraming::Plain
    } else {
        BodyFraming::Chunked
    };
    let endless = shape == BodyFraming::Plain && exact.is_none();
    // Of the gateway's own responses those have one after which nothing can follow.
    let mut has = head.fields.present();
    let last = has.connection && !switched;
    if last {
        head.fields.remove("connection");
        has.connection = false;
    }
    let follows = !body.is_own() || wire.may_go_on();
    let keep = expectations.keep && !worker.draining() && !endless && !last && follows;
    let length = match shape {
        BodyFraming::Plain => exact,
        // The length that the response to a GET would have, if it is known.
        BodyFraming::Nothing => exact.filter(|length| expectations.head_only && *length > 0),
        BodyFraming::Chunked => None,
    };
    let date = worker.date();
    wire.push(|outbox| {
        outbox.text(|out| {
            encode(
                out,
                &head,
                has,
                (expectations.version, keep),
                shape,
                length,
                &date,
            )
        })
    });
    if endless {
        wire.reset_on_close(true);
    }
    SendResponse {
        wire,
        body: Some(body),
        shape,
        trailers: expectations.trailers,
        end: match (keep, endless) {
            (true, _) if short && wire.body_is_over() => LastFlush::Together(&worker.flushes),
            (false, false) => LastFlush::Closes,
            _ => LastFlush::Alone,
        },
        others: (!short).then(OthersFirst::default),
        begun: false,
        keep,
        endless,
    }
}

/// The future of [`send`].
pub struct SendResponse<'a> {
    wire: &'a Rc<Wire>,
    /// Gone when it is over: then the request is on record before the client sees its end.
    body: Option<ObservedBody>,
    shape: BodyFraming,
    trailers: bool,
    end: LastFlush<'a>,
    /// Those that have a turn before.
    others: Option<OthersFirst>,
    begun: bool,
    /// Another request may follow.
    keep: bool,
    /// The end of the connection is that of the response.
    endless: bool,
}

impl Future for SendResponse<'_> {
    type Output = Result<bool, body::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(others) = &mut self.others {
            ready!(Pin::new(others).poll(cx));
            self.others = None;
        }
        ready!(self.poll_all(cx))?;
        if self.endless {
            self.wire.reset_on_close(false);
        }
        Poll::Ready(Ok(self.keep))
    }
}

/// How the last piece of a response leaves.
enum LastFlush<'a> {
    /// With those of other connections.
    Together(&'a Flushes),
    /// With the end of the connection.
    Closes,
    /// By itself.
    Alone,
}

impl SendResponse<'_> {
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), body::Error>> {
        loop {
            if std::mem::replace(&mut self.begun, true) {
                ready!(self.wire.poll_flush(cx)).map_err(Cause::from)?;
            }
            // What is there of the body goes with the head, and small pieces go together.
            let mut next = self.poll_next(cx);
            while matches!(next, Poll::Ready(Ok(()))) && self.body.is_some() && !self.wire.is_full()
            {
                next = self.poll_next(cx);
            }
            if self.body.is_none() && matches!(next, Poll::Ready(Ok(()))) {
                match self.end {
                    LastFlush::Together(flushes) if !self.wire.is_full() => {
                        flushes.add(self.wire.clone());
                        return Poll::Ready(Ok(()));
                    }
                    LastFlush::Closes => return Poll::Ready(Ok(())),
                    LastFlush::Together(_) | LastFlush::Alone => {}
                }
            }
            let flushed = self.wire.poll_flush(cx).map_err(Cause::from)?;
            ready!(next)?;
            ready!(flushed);
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Queues the next piece.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), body::Error>> {
        let Some(body) = self.body.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        if self.shape == BodyFraming::Nothing || body.is_end_stream() {
            self.end(None);
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
            // Nothing comes for a while: has the client gone meanwhile?
            ready!(self.wire.poll_gone(cx));
            return Poll::Ready(Err(Cause::Closed.into()));
        };
        let chunked = self.shape == BodyFraming::Chunked;
        match frame.transpose()?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => self.wire.push(|outbox| outbox.push_data(data, chunked)),
            Some(Err(trailers)) => self.end(trailers.trailers_ref()),
            None => self.end(None),
        }
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.end(None);
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, trailers: Option<&http::HeaderMap>) {
        if self.body.take().is_some() && self.shape == BodyFraming::Chunked {
            let trailers = trailers.filter(|_| self.trailers);
            self.wire.push(|outbox| outbox.push_end(trailers));
        }
    }
}

fn encode(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    has: Present,
    (version, keep): (Version, bool),
    shape: BodyFraming,
    length: Option<u64>,
    date: &str,
) {
    lead(out, head);
    if let Some(length) = length.filter(|_| !has.length) {
        fields::write_number(out, b"content-length", length);
    }
    if shape == BodyFraming::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if has.connection {
        // It says what the connection changes to.
    } else if !keep {
        out.extend_from_slice(b"connection: close\r\n");
    } else if version < Version::HTTP_11 {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
    if !has.date {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
