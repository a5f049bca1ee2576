//! One request on an HTTP/2 connection: passes it through the stack and sends its response.
//!
//! The exchange runs in the task of the connection until it waits for the first time, then in a task of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Method;
use tower::Service;

use super::send_response::send_response;
use super::stream::Http2Stream;
use crate::http::head::{Head, Response};
use crate::http::http2::Reason;
use crate::serve::stack::detached;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::stack::unreadable_request::UnreadableRequest;
use crate::serve::worker::client_socket::BODY_DRAIN_TIMEOUT;

/// Counts a request as open until it is dropped. Then it ends the request's stream.
pub(super) struct OpenRequest {
    stream: Rc<Http2Stream>,
    peer: Rc<Peer>,
}

impl OpenRequest {
    pub(super) fn new(stream: Rc<Http2Stream>, peer: Rc<Peer>) -> OpenRequest {
        stream.handle.change_open_request_count(1);
        OpenRequest { stream, peer }
    }

    pub(super) fn stream(&self) -> &Rc<Http2Stream> {
        &self.stream
    }

    pub(super) fn peer(&self) -> &Rc<Peer> {
        &self.peer
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.stream.end_request();
        let handle = &self.stream.handle;
        handle.change_open_request_count(-1);
        // The connection's task may have waited for this: it closes the connection, or begins its idle time.
        if handle.open_request_count() == 0 {
            handle.wake_task();
        }
    }
}

/// Passes one request through the stack and sends its response.
pub(super) async fn serve_request(
    request: OpenRequest,
    head: Result<Head, UnreadableRequest>,
    stack: Stack,
) {
    // The stream holds the charge for the head's memory, so the stream must live as long as the head.
    let stream = &request.stream.clone();
    let peer = request.peer.clone();
    let worker = &peer.worker;
    let is_head_request = head.as_ref().is_ok_and(|head| head.method == Method::HEAD);
    let gets_no_response = head
        .as_ref()
        .is_err_and(|unreadable| unreadable.gets_no_response);
    let fresh_request = FreshRequest {
        head: head.map(Rc::new).map_err(Box::new),
        downstream: Downstream::Http2(stream.clone()),
        peer: peer.clone(),
        generation: worker.generation(),
        repeated_fields: None,
        spare_context: None,
    };
    // The client is checked first, because a closed stream has lost what was received of the request.
    let poll_client = |cx: &mut Context<'_>| match stream.poll_client_gone(cx) {
        Poll::Ready(()) => Poll::Ready(false),
        // While the client does not read what the connection has sent, no further response is made.
        Poll::Pending => stream.poll_output_space(cx).map(|()| true),
    };
    let end_reason = || stream.end_reason();
    let awaited = await_response(stack, fresh_request, request, poll_client, end_reason).await;
    let Some((response, _request)) = awaited else {
        return;
    };
    if gets_no_response {
        // The request is recorded before the client sees its end.
        drop(response);
        return stream.reset_after_error(Reason::PROTOCOL_ERROR);
    }
    if response.body.is_withheld() {
        // The drop of `_request` resets the stream.
        return;
    }
    let is_body_unwanted = response.body.is_from_gateway() && !stream.is_body_over();
    if is_body_unwanted {
        stream.drop_body();
    }
    let date = worker.date();
    // If the client is late, the rest of the response is dropped. The drop of `_request` then resets the stream.
    let sending = send_response(stream, is_head_request, date.value(), response);
    let _ = stream.deadlines().run(pin!(sending)).await;
    if is_body_unwanted {
        // Some clients read the response only after they have sent their whole body.
        let draining = poll_fn(|cx| stream.poll_drain_body(cx));
        let _ = tokio::time::timeout(BODY_DRAIN_TIMEOUT, draining).await;
    }
}

/// Passes a request of a stream through the stack, of HTTP/2 or HTTP/3. `poll_client` is polled before the response: ready
/// with `false` once the client has left. The drop of `guard` ends the stream.
///
/// `None` if the client has left or is late. Then the stream has ended, and what holds permits goes on with the server.
pub async fn await_response<G>(
    mut stack: Stack,
    request: FreshRequest,
    guard: G,
    mut poll_client: impl FnMut(&mut Context<'_>) -> Poll<bool>,
    end_reason: impl Fn() -> &'static str,
) -> Option<(Response<ObservedBody>, G)> {
    let deadlines = request.downstream.deadlines().clone();
    let worker = request.peer.worker.clone();
    let mut response_future = pin!(stack.call(request));
    let response = poll_fn(|cx| match poll_client(cx) {
        Poll::Ready(true) => response_future.as_mut().poll(cx).map(Result::ok),
        Poll::Ready(false) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    if let Some(response) = deadlines.run(pin!(response)).await.flatten() {
        return Some((response, guard));
    }
    if let Some(holdings) = response_future.as_mut().record_departure(end_reason()) {
        drop(guard);
        detached::finish_response(
            response_future,
            ObservedBody::into_admitted,
            holdings.permits,
            &deadlines,
            &worker.detached_requests,
        )
        .await;
    }
    None
}
