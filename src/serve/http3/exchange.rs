//! One request on an HTTP/3 connection: reads its head, passes it through the stack and sends its response. Each request has
//! a task of its own, so a fault in one ends no other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Method;
use quinn::{RecvStream, SendStream};

use super::frame_stream::{FrameStream, StreamEnd};
use super::request_head::{HeadEnd, read_head};
use super::send_response::send_response;
use super::shared_state::{CountedRequest, SharedState};
use super::stream::Http3Stream;
use crate::http::head::Head;
use crate::http::http3::Code;
use crate::serve::http2::exchange::await_response;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::stack::unreadable_request::UnreadableRequest;
use crate::serve::worker::client_socket::BODY_DRAIN_TIMEOUT;

/// Ends the stream of a request when dropped, also if its task is.
struct StreamGuard(Rc<Http3Stream>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Serves the request that comes on a stream of the client.
pub async fn serve_request(
    (mut sender, receiver): (SendStream, RecvStream),
    state: Rc<SharedState>,
    _open_request: CountedRequest,
    peer: Rc<Peer>,
    stack: Stack,
) {
    let worker = &peer.worker;
    // The request has deadlines of its own: at first for its head.
    let deadlines = worker
        .deadline_clock
        .watch_connection(peer.idle_timeout, peer.header_timeout);
    deadlines.report_bytes_received();
    let mut frames = FrameStream::new(receiver, state.clone());
    let read = deadlines.run(pin!(read_head(&mut frames, &state))).await;
    let code = match read {
        Some(Ok((head, head_charge))) => {
            let send_timeout = worker.generation().ruleset.timeouts.send;
            let streams = (frames, sender);
            let stream = Http3Stream::new(
                streams,
                head_charge,
                state,
                deadlines,
                send_timeout,
                head.as_ref().ok(),
            );
            return serve_head(StreamGuard(stream), head, peer, stack).await;
        }
        Some(Err(HeadEnd::Stream(StreamEnd::Broken(code)))) => return state.close(code),
        Some(Err(HeadEnd::OutOfMemory)) => Code::REQUEST_REJECTED,
        // The client is too late, or has taken its request back.
        None | Some(Err(HeadEnd::Incomplete | HeadEnd::Stream(_))) => Code::REQUEST_INCOMPLETE,
    };
    state.allowance.borrow_mut().spend_head();
    let Code(number) = code;
    // An error means that the stream is closed already.
    let _ = sender.reset(number.into());
    frames.stop(code);
}

/// Passes a request through the stack and sends its response.
async fn serve_head(
    guard: StreamGuard,
    head: Result<Head, UnreadableRequest>,
    peer: Rc<Peer>,
    stack: Stack,
) {
    let stream = &guard.0.clone();
    let worker = &peer.worker;
    let is_head_request = head.as_ref().is_ok_and(|head| head.method == Method::HEAD);
    let gets_no_response = head
        .as_ref()
        .is_err_and(|unreadable| unreadable.gets_no_response);
    if head.is_err() {
        stream.spend_head();
    }
    let fresh_request = FreshRequest {
        head: head.map(Rc::new).map_err(Box::new),
        downstream: Downstream::Http3(stream.clone()),
        peer: peer.clone(),
        generation: worker.generation(),
        repeated_fields: None,
        spare_context: None,
    };
    let poll_client = |cx: &mut Context<'_>| Poll::Ready(stream.poll_client_gone(cx).is_pending());
    let end_reason = || stream.end_reason();
    let awaited = await_response(stack, fresh_request, guard, poll_client, end_reason).await;
    let Some((response, _guard)) = awaited else {
        return;
    };
    if gets_no_response {
        // The request is recorded before the client sees its end.
        drop(response);
        return stream.fail(Code::MESSAGE_ERROR);
    }
    if response.body.is_withheld() {
        // The drop of `_guard` resets the stream.
        return;
    }
    let is_body_unwanted = response.body.is_from_gateway() && !stream.is_body_over();
    let mut drained_bytes = 0;
    let date = worker.date();
    let mut sending = pin!(send_response(
        stream,
        is_head_request,
        date.value(),
        response
    ));
    let sending = poll_fn(|cx| {
        // A client that does not read the response must not make the gateway hold its body.
        if is_body_unwanted {
            let _ = stream.poll_drain_body(cx, &mut drained_bytes);
        }
        sending.as_mut().poll(cx)
    });
    // If the client is late, the rest of the response is dropped. The drop of `_guard` then resets the stream.
    let is_sent = matches!(stream.deadlines().run(pin!(sending)).await, Some(Ok(())));
    if is_body_unwanted && is_sent {
        // Some clients read the response only after they have sent their whole body.
        let draining = poll_fn(|cx| stream.poll_drain_body(cx, &mut drained_bytes));
        let _ = tokio::time::timeout(BODY_DRAIN_TIMEOUT, draining).await;
    }
    // The end of the connection would destroy what the client has not received.
    let acknowledged = poll_fn(|cx| stream.poll_acknowledged(cx));
    let _ = stream.deadlines().run(pin!(acknowledged)).await;
}
