//! A response on its way to a client of HTTP/2: no more of its body is asked for than the client takes.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};

use super::stream::{Http2Stream, StreamClosed};
use crate::http::head::Response;
use crate::http::http2::Reason;
use crate::serve::stack::observe::ObservedBody;

/// Sends a response, to a HEAD if `head_only`; gives up when the client does.
pub async fn send(
    stream: &Rc<Http2Stream>,
    head_only: bool,
    date: &str,
    response: Response<ObservedBody>,
) {
    let Response { head, body } = response;
    let status = match head.status {
        // RFC 8441 section 5.
        StatusCode::SWITCHING_PROTOCOLS => StatusCode::OK,
        status => status,
    };
    let bodiless = head_only || matches!(status.as_u16(), 204 | 304);
    let exact = body.size_hint().exact();
    let length = exact.filter(|length| !bodiless || (head_only && *length > 0));
    let over = bodiless || body.is_end_stream();
    // On record before the client sees the end.
    let body = (!over).then_some(body);
    stream.send_head(status, over, |say| {
        let (mut dated, mut measured) = (false, false);
        for (name, value) in head.fields.iter() {
            match name.len() {
                4 => dated |= name.eq_ignore_ascii_case(b"date"),
                14 => measured |= name.eq_ignore_ascii_case(b"content-length"),
                _ if of_http1(name) => continue,
                _ => {}
            }
            say(name, value);
        }
        if !dated {
            say(b"date", date.as_bytes());
        }
        if let Some(length) = length.filter(|_| !measured) {
            let mut digits = itoa::Buffer::new();
            say(b"content-length", digits.format(length).as_bytes());
        }
    });
    let rest = body.map_or(NextPart::Nothing, NextPart::Body);
    let mut sending = ResponseSender {
        stream,
        piece: Bytes::new(),
        rest,
    };
    if poll_fn(|cx| sending.poll(cx)).await.is_err() {
        // The client must not take what it got for a whole response.
        stream.reset(Reason::INTERNAL_ERROR);
    }
}

/// What belongs to a connection of HTTP/1.1 and is there for clients of that.
fn of_http1(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"upgrade")
}

struct ResponseSender<'a> {
    stream: &'a Rc<Http2Stream>,
    piece: Bytes,
    rest: NextPart,
}

/// What comes after the piece.
enum NextPart {
    Body(ObservedBody),
    /// An end of its own, and trailers.
    End(Option<HeaderMap>),
    Nothing,
}

impl ResponseSender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamClosed>> {
        // Before the body is asked, which may still send what came of the request.
        if self.stream.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(StreamClosed));
        }
        loop {
            if !self.piece.is_empty() {
                let last = matches!(self.rest, NextPart::Nothing);
                ready!(self.stream.poll_send(cx, &mut self.piece, last))?;
            }
            if !matches!(self.rest, NextPart::Nothing) {
                ready!(self.stream.poll_room(cx));
            }
            match &mut self.rest {
                NextPart::Body(body) => {
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    self.take(frame.transpose().map_err(|_| StreamClosed)?);
                }
                NextPart::End(trailers) => {
                    ready!(self.stream.poll_sent(cx))?;
                    self.stream.end(trailers.take());
                    self.rest = NextPart::Nothing;
                }
                NextPart::Nothing => return self.stream.poll_sent(cx),
            }
        }
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>) {
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.piece = data,
            Some(Err(frame)) => self.rest = NextPart::End(frame.into_trailers().ok()),
            None => self.rest = NextPart::End(None),
        }
        if matches!(&self.rest, NextPart::Body(body) if body.is_end_stream()) {
            // The end goes with the last piece, if there is one.
            self.rest = match self.piece.is_empty() {
                true => NextPart::End(None),
                false => NextPart::Nothing,
            };
        }
    }
}
