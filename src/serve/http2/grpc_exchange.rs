//! One call of gRPC on an HTTP/2 connection of a door: reads its message and sends the reply. `serve/decide/` answers it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::exchange::OpenRequest;
use super::stream::{Http2Stream, StreamClosed};
use crate::http::head::Head;
use crate::http::http1::chunked::BodyPiece;
use crate::http::http2::Reason;
use crate::serve::decide::call::{GrpcCall, Reply};
use crate::serve::decide::grpc::{
    Failure, INCOMPLETE, MAX_MESSAGE_BYTES, Message, MessageReader, PREFIX_BYTES, TOO_LARGE,
};
use crate::serve::decide::message_memory::{MessageCharge, MessageMemory};
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::unreadable_request::UnreadableRequest;

/// The fields of every response of gRPC, before its status.
const RESPONSE_FIELDS: [(&str, &str); 2] = [
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity"),
];

/// Serves one call. A request whose head cannot be read is reset, and uses up the caller's allowance.
#[cold]
#[inline(never)]
pub(super) fn serve_call(
    request: OpenRequest,
    head: Result<Head, UnreadableRequest>,
    stack: Stack,
    memory: Rc<MessageMemory>,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let stream = &request.stream().clone();
        let Ok(head) = head else {
            return stream.reset_after_error(Reason::PROTOCOL_ERROR);
        };
        let call = GrpcCall {
            head: Rc::new(head),
            downstream: Downstream::Http2(stream.clone()),
            peer: request.peer().clone(),
        };
        let serving = async {
            let leaving = async {
                poll_fn(|cx| stream.poll_client_gone(cx)).await;
                stream.end_reason()
            };
            let answering = call.answer(&stack, read_message(stream, memory), leaving);
            let Some((reply, observed)) = answering.await else {
                return;
            };
            if !stream.is_body_over() {
                stream.drop_body();
            }
            let _ = send(stream, reply).await;
            drop(observed);
        };
        let _ = stream.deadlines().run(pin!(serving)).await;
    })
}

/// Reads the message of a call.
async fn read_message(
    stream: &Rc<Http2Stream>,
    memory: Rc<MessageMemory>,
) -> Result<Message, Failure> {
    stream.bound_body((PREFIX_BYTES + MAX_MESSAGE_BYTES) as u64);
    let mut reader = MessageReader::new(MessageCharge::new(memory));
    loop {
        match poll_fn(|cx| stream.poll_body(cx)).await {
            Ok(BodyPiece::Data(piece)) => reader.add(&piece)?,
            Ok(BodyPiece::Trailers(_) | BodyPiece::End) => return reader.finish(),
            Ok(BodyPiece::Incomplete) => {}
            Err(_) if stream.is_body_too_large() => return Err(TOO_LARGE),
            Err(_) => return Err(INCOMPLETE),
        }
    }
}

/// Sends the reply.
async fn send(stream: &Rc<Http2Stream>, reply: Reply) -> Result<(), StreamClosed> {
    poll_fn(|cx| stream.poll_output_space(cx)).await;
    match reply {
        Reply::Message(mut message) => {
            stream.send_head(StatusCode::OK, false, |write_field| {
                for (name, value) in RESPONSE_FIELDS {
                    write_field(name.as_bytes(), value.as_bytes());
                }
            });
            poll_fn(|cx| stream.poll_send_piece(cx, &mut message, false)).await?;
            poll_fn(|cx| stream.poll_no_pending_data(cx)).await?;
            let mut trailers = HeaderMap::new();
            trailers.insert(
                HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            );
            stream.end_response(Some(trailers));
        }
        Reply::Failure(Failure { code, detail }) => {
            stream.send_head(StatusCode::OK, true, |write_field| {
                for (name, value) in RESPONSE_FIELDS {
                    write_field(name.as_bytes(), value.as_bytes());
                }
                write_field(b"grpc-status", itoa::Buffer::new().format(code).as_bytes());
                write_field(b"grpc-message", detail.as_bytes());
            });
        }
        Reply::Refused(status) => {
            stream.send_head(status, true, |write_field| {
                write_field(b"content-length", b"0")
            });
        }
    }
    Ok(())
}
