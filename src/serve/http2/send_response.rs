//! Sends a response on an HTTP/2 stream: its head, its body piece by piece, its trailers.
//!
//! `exchange.rs` calls it. The body is polled only as fast as the client reads it. `http1/send_response.rs` does the same
//! for HTTP/1.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};

use super::response_form::ResponseForm;
use super::stream::{Http2Stream, StreamClosed};
use crate::http::head::Response;
use crate::http::http2::Reason;
use crate::serve::stack::observe::ObservedBody;

/// Sends a response, with `date` and `content-length` if it lacks them. A response to HEAD, or of status 204 or 304, is
/// sent without its body.
///
/// Returns early if the stream is closed or the body breaks off. Then the stream is reset, unless it is closed.
pub async fn send_response(
    stream: &Rc<Http2Stream>,
    is_head_request: bool,
    date: &str,
    response: Response<ObservedBody>,
) {
    let Response { head, body } = response;
    let status = match head.status {
        // A tunnel begins with 200 in HTTP/2: RFC 8441 section 5.
        StatusCode::SWITCHING_PROTOCOLS => StatusCode::OK,
        status => status,
    };
    let form = ResponseForm::new(&head, &body, is_head_request);
    // An empty body is dropped here, so that the request is recorded before the client sees the end.
    let body = (!form.ends_with_head).then_some(body);
    stream.send_head(status, form.ends_with_head, |write_field| {
        form.write_fields(&head, date, write_field);
    });
    let mut body_sender = BodySender {
        stream,
        piece: Bytes::new(),
        remaining_parts: body.map_or(RemainingParts::Nothing, RemainingParts::Body),
    };
    if poll_fn(|cx| body_sender.poll(cx)).await.is_err() {
        // Without a reset the client would wait for the rest of the response.
        stream.reset(Reason::INTERNAL_ERROR);
    }
}

/// Sends what follows the head of a response.
struct BodySender<'a> {
    stream: &'a Rc<Http2Stream>,
    /// A piece of the body that the stream has not taken over yet; empty if there is none.
    piece: Bytes,
    remaining_parts: RemainingParts,
}

/// The parts of a response that follow the current piece of its body.
enum RemainingParts {
    /// Further pieces of the body, perhaps none, and perhaps trailers.
    Body(ObservedBody),
    /// A frame that ends the response, with trailers if there are any.
    End(Option<HeaderMap>),
    /// The response ends with the current piece, or has ended.
    Nothing,
}

impl BodySender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamClosed>> {
        // The client is checked before the body is polled, because polling may still forward parts of the request.
        if self.stream.poll_client_gone(cx).is_ready() {
            return Poll::Ready(Err(StreamClosed));
        }
        loop {
            if !self.piece.is_empty() {
                let is_last = matches!(self.remaining_parts, RemainingParts::Nothing);
                ready!(self.stream.poll_send_piece(cx, &mut self.piece, is_last))?;
            }
            if !matches!(self.remaining_parts, RemainingParts::Nothing) {
                ready!(self.stream.poll_output_space(cx));
            }
            match &mut self.remaining_parts {
                RemainingParts::Body(body) => {
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    self.accept_frame(frame.transpose().map_err(|_| StreamClosed)?);
                }
                RemainingParts::End(trailers) => {
                    ready!(self.stream.poll_no_pending_data(cx))?;
                    self.stream.end_response(trailers.take());
                    self.remaining_parts = RemainingParts::Nothing;
                }
                RemainingParts::Nothing => return self.stream.poll_no_pending_data(cx),
            }
        }
    }

    /// Takes over a frame of the body: data, trailers, or `None` at its end.
    fn accept_frame(&mut self, frame: Option<Frame<Bytes>>) {
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.piece = data,
            Some(Err(frame)) => {
                self.remaining_parts = RemainingParts::End(frame.into_trailers().ok())
            }
            None => self.remaining_parts = RemainingParts::End(None),
        }
        if matches!(&self.remaining_parts, RemainingParts::Body(body) if body.is_end_stream()) {
            // If there is a last piece, its frame ends the response.
            self.remaining_parts = match self.piece.is_empty() {
                true => RemainingParts::End(None),
                false => RemainingParts::Nothing,
            };
        }
    }
}
