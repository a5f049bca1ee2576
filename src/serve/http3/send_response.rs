//! Sends a response on an HTTP/3 stream: its head, its body piece by piece, its trailers.
//!
//! The body is polled only as fast as the client reads it, as in `http2/send_response.rs`.

use std::future::poll_fn;
use std::pin::Pin;

use http_body::{Body, Frame};

use super::stream::{Http3Stream, ResponseCut};
use crate::http::head::Response;
use crate::http::http3::Code;
use crate::http::http3::frame::frame_type;
use crate::serve::http2::response_form::ResponseForm;
use crate::serve::stack::observe::ObservedBody;

/// Sends a response, with `date` and `content-length` if it lacks them. A response to HEAD, or of status 204 or 304, is
/// sent without its body.
///
/// # Errors
///
/// The stream is closed, or the body breaks off.
pub async fn send_response(
    stream: &Http3Stream,
    is_head_request: bool,
    date: &str,
    response: Response<ObservedBody>,
) -> Result<(), ResponseCut> {
    let Response { head, body } = response;
    let form = ResponseForm::new(&head, &body, is_head_request);
    stream.send_head(head.status, |write_field| {
        form.write_fields(&head, date, write_field)
    });
    // An empty body is dropped here, so that the request is recorded before the client sees the end.
    let mut body = (!form.ends_with_head).then_some(body);
    while let Some(unsent_body) = &mut body {
        poll_fn(|cx| stream.poll_send(cx)).await?;
        let frame = poll_fn(|cx| {
            // The client is checked before the body is polled, because polling may still forward parts of the request.
            if stream.poll_client_gone(cx).is_ready() {
                return std::task::Poll::Ready(Some(Err(ResponseCut)));
            }
            let frame = Pin::new(&mut *unsent_body).poll_frame(cx);
            frame.map_err(|_| {
                stream.note_failure(Code::INTERNAL_ERROR);
                ResponseCut
            })
        })
        .await;
        match frame.transpose()?.map(Frame::into_data) {
            Some(Ok(data)) => {
                if !data.is_empty() {
                    stream.send_frame(frame_type::DATA, data);
                }
                if unsent_body.is_end_stream() {
                    body = None;
                }
            }
            Some(Err(frame)) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.send_trailers(&trailers);
                }
                body = None;
            }
            None => body = None,
        }
    }
    stream.end_response();
    poll_fn(|cx| stream.poll_send(cx)).await
}
