//! An answer on its way to a client of HTTP/2: no more of its body is asked for than the client takes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::header::HeaderMap;
use http::{Response, StatusCode};
use http_body::Body;

use super::stream::Stream;
use super::traffic::Traffic;
use crate::head::Answer;
use crate::serve::record::Recorded;

/// How an answer is sent.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    /// The request was a HEAD.
    pub head_only: bool,
    /// For an answer that has none.
    pub date: &'a str,
    /// How long the client may take nothing of it.
    pub send: Duration,
}

/// Sends an answer; gives up when the client does.
pub async fn send(
    stream: &Stream,
    traffic: &Traffic,
    manner: Manner<'_>,
    answer: Answer<Recorded>,
) {
    let Answer { head, body } = answer;
    let status = match head.status {
        // RFC 8441 section 5.
        StatusCode::SWITCHING_PROTOCOLS => StatusCode::OK,
        status => status,
    };
    let exact = body.size_hint().exact();
    let mut fields = head.fields;
    fields.retain(|name| !of_http1(name));
    if !fields.contains("date") {
        fields.add("date", manner.date.as_bytes());
    }
    let bodiless = manner.head_only || matches!(status.as_u16(), 204 | 304);
    let length = exact.filter(|length| !bodiless || (manner.head_only && *length > 0));
    if let Some(length) = length.filter(|_| !fields.contains("content-length")) {
        let mut digits = itoa::Buffer::new();
        fields.add("content-length", digits.format(length).as_bytes());
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::from(fields);
    let over = bodiless || body.is_end_stream();
    // On record before the client sees the end.
    let body = (!over).then_some(body);
    let Ok(out) = stream.respond(|respond| respond.send_response(response, over)) else {
        return;
    };
    traffic.useful();
    let mut sending = Sending {
        out,
        body,
        piece: Bytes::new(),
        stream,
        traffic,
        send: manner.send,
    };
    if poll_fn(|cx| sending.poll(cx)).await.is_err() {
        // The client must not take what it got for a whole answer.
        sending.out.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// What belongs to a connection of HTTP/1.1 and is there for clients of that.
fn of_http1(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"upgrade")
}

struct Sending<'a> {
    out: SendStream<Bytes>,
    body: Option<Recorded>,
    /// What the client has not taken yet of the last piece.
    piece: Bytes,
    stream: &'a Stream,
    traffic: &'a Traffic,
    send: Duration,
}

/// The answer cannot be sent whole.
struct Broken;

impl Sending<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            while !self.piece.is_empty() {
                ready!(self.poll_send(cx))?;
            }
            let Some(body) = &mut self.body else {
                return Poll::Ready(Ok(()));
            };
            let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
                return self.poll_gone(cx);
            };
            match frame
                .transpose()
                .map_err(|_| Broken)?
                .map(http_body::Frame::into_data)
            {
                Some(Ok(data)) => self.piece = data,
                Some(Err(frame)) => {
                    self.body = None;
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(self.out.send_trailers(trailers).map_err(|_| Broken));
                }
                None => self.body = None,
            }
            if self.body.as_ref().is_some_and(Body::is_end_stream) {
                self.body = None;
            }
            if self.body.is_none() && self.piece.is_empty() {
                let end = self.out.send_data(Bytes::new(), true);
                return Poll::Ready(end.map_err(|_| Broken));
            }
        }
    }

    /// Sends as much of the piece as the client has room for.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.out.reserve_capacity(self.piece.len());
        let room = match self.out.capacity() {
            0 => {
                let Poll::Ready(room) = self.out.poll_capacity(cx) else {
                    self.stream.guard().write_waits(self.send);
                    return self.poll_gone(cx);
                };
                room.transpose().ok().flatten().ok_or(Broken)?
            }
            room => room,
        };
        self.stream.guard().wrote();
        let part = self.piece.split_to(room.min(self.piece.len()));
        let end = self.piece.is_empty() && self.body.is_none();
        self.traffic.useful();
        let sent = self.out.send_data(part, end);
        Poll::Ready(sent.map_err(|_| Broken))
    }

    /// Nothing can be done for a while: has the client gone meanwhile?
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.out.poll_reset(cx).map(|_| Err(Broken))
    }
}
