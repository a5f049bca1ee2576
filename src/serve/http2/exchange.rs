//! One request on an HTTP/2 connection: passes it through the stack and sends its response.
//!
//! It runs in the task of the connection as long as it never waits, then in a task of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::Method;
use tower::Service;

use super::reply;
use super::stream::Http2Stream;
use crate::http::head::Head;
use crate::http::http2::Reason;
use crate::serve::stack::detached;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::gateway::Stack;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::stack::unreadable::UnreadableRequest;
use crate::serve::worker::client_socket::BODY_DRAIN_TIMEOUT;

/// Counts a request as open, and ends its stream when it is dropped.
pub(super) struct OpenRequest {
    stream: Rc<Http2Stream>,
    peer: Rc<Peer>,
}

impl OpenRequest {
    pub(super) fn new(stream: Rc<Http2Stream>, peer: Rc<Peer>) -> OpenRequest {
        stream.handle.change_open_requests(1);
        OpenRequest { stream, peer }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.stream.end_request();
        let handle = &self.stream.handle;
        handle.change_open_requests(-1);
        if handle.open_requests() == 0 {
            handle.wake_task();
        }
    }
}

/// Passes one request through the stack and sends its response.
pub(super) async fn serve_request(
    request: OpenRequest,
    head: Result<Head, UnreadableRequest>,
    mut stack: Stack,
) {
    // The stream holds the charge for the head's memory, so it must live as long as the head.
    let stream = &request.stream.clone();
    let peer = request.peer.clone();
    let worker = &peer.worker;
    let head_only = head.as_ref().is_ok_and(|head| head.method == Method::HEAD);
    let is_unanswered = head.as_ref().is_err_and(|head| head.without_response);
    let future = stack.call(FreshRequest {
        head: head.map(Rc::new).map_err(Box::new),
        downstream: Downstream::Http2(stream.clone()),
        peer: peer.clone(),
        generation: worker.generation(),
        repeated: None,
    });
    let mut future = pin!(future);
    // The client is checked first, because a closed stream has lost what was received of the request.
    let response = poll_fn(|cx| match stream.poll_gone(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        // A client that does not read its responses gets no further ones.
        Poll::Pending if stream.poll_output_space(cx).is_pending() => Poll::Pending,
        Poll::Pending => future.as_mut().poll(cx).map(Result::ok),
    });
    let Some(response) = unless_late(stream, response).await.flatten() else {
        if let Some(holdings) = future.as_mut().record_departure(stream.end_reason()) {
            drop(request);
            detached::finish_response(
                future,
                ObservedBody::into_relayed,
                holdings.permits,
                stream.deadlines(),
                &worker.detached,
            )
            .await;
        }
        return;
    };
    if is_unanswered {
        // The request is recorded before the client sees its end.
        drop(response);
        return stream.fail(Reason::PROTOCOL_ERROR);
    }
    let is_own = response.body.is_from_gateway();
    let date = worker.date();
    // If the client is late, the rest of the response is dropped, and `request` resets the stream at the end.
    let sent = reply::send_response(stream, head_only, &date, response);
    unless_late(stream, sent).await;
    if is_own && !stream.is_body_over() {
        // Some clients read the response only after they have sent their whole body.
        let mut drained = 0;
        let draining = poll_fn(|cx| stream.poll_drain(cx, &mut drained));
        let _ = tokio::time::timeout(BODY_DRAIN_TIMEOUT, draining).await;
    }
}

/// The output of `future`; `None` if a deadline of the request passes first.
async fn unless_late<F: Future>(stream: &Http2Stream, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if stream.deadlines().must_close(cx) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
