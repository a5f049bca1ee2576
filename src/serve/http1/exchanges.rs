//! The exchanges of an HTTP/1.1 connection: one request after the other through the stack, and each response back.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, ready};

use http::Version;
use tower::Service;

use super::reply;
use super::request::{ClientExpectations, HeadError};
use super::wire::Wire;
use crate::http::head::{Fields, Head, Response, ResponseHead};
use crate::net::flush::OthersFirst;
use crate::serve::stack::body::{CLIENT_LEFT, ReplyBody};
use crate::serve::stack::detached;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::gateway::Stack;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::worker::client_socket::{DRAIN_FOR, FAREWELL};

/// Serves one request after the other until a side closes. True if the client began to speak HTTP/2 instead.
pub async fn serve(wire: &Rc<Wire>, peer: &Rc<Peer>, mut stack: Stack) -> bool {
    let worker = &peer.worker;
    let mut first = true;
    loop {
        wire.begin_request();
        let next = poll_fn(|cx| {
            if wire.is_late() {
                if ready!(wire.poll_late(cx)).is_err() {
                    return Poll::Ready(Ok(None));
                }
                peer.response_ended();
            }
            let head = wire.poll_head(cx);
            if head.is_pending() && worker.draining() && wire.is_idle() {
                peer.guard.hurry(FAREWELL);
            }
            if head.is_pending() && peer.guard.rests() {
                wire.give_up_room();
            }
            head
        });
        let (head, repeated, expectations) = match next.await {
            Ok(None) => break,
            Ok(Some(request)) => (Ok(request.head), request.repeated, request.expectations),
            Err(HeadError::Http2) if first && !peer.secure => return true,
            Err(bad) => {
                let unreadable = wire.unreadable(bad, first && !peer.secure);
                (Err(Box::new(unreadable)), None, LAST_RESPONSE)
            }
        };
        first = false;
        let unanswered = head.as_ref().is_err_and(|head| head.unanswered);
        let response = match head.as_ref().ok().and_then(|head| proof(head, peer)) {
            Some(proof) => proof,
            None => {
                let mut future = pin!(stack.call(FreshRequest {
                    head,
                    downstream: Downstream::Http1(wire.clone()),
                    peer: peer.clone(),
                    generation: worker.generation(),
                    repeated,
                }));
                match unless_gone(wire, future.as_mut()).await {
                    Some(Ok(response)) => response,
                    None => {
                        if let Some(holdings) = future.as_mut().leave(CLIENT_LEFT) {
                            wire.hang_up();
                            let place = (&**wire.guard(), &worker.detached);
                            detached::finish(
                                future,
                                ObservedBody::into_relayed,
                                holdings.permits,
                                place,
                            )
                            .await;
                        }
                        return false;
                    }
                }
            }
        };
        if unanswered {
            break;
        }
        match reply::send(wire, expectations, response, worker).await {
            Ok(true) if wire.body_is_over() || drained(wire).await => {
                peer.response_ended();
                if !wire.is_idle() {
                    // The next request is here already.
                    OthersFirst::default().await;
                }
            }
            Ok(_) => break,
            // The client must not take what it got for a whole response.
            Err(_) => return false,
        }
    }
    let _ = poll_fn(|cx| wire.poll_shutdown(cx)).await;
    false
}

/// How a client is answered whose request cannot be read.
const LAST_RESPONSE: ClientExpectations = ClientExpectations {
    head_only: false,
    version: Version::HTTP_11,
    keep: false,
    trailers: false,
};

/// The response to an ACME directory that looks for a proof, counted as the gateway's own.
fn proof(head: &Head, peer: &Peer) -> Option<Response<ObservedBody>> {
    if peer.secure {
        return None;
    }
    let text = peer
        .worker
        .generation()
        .tokens
        .authorization(head.uri.path())?;
    peer.worker.count_proof();
    peer.guard.request();
    let mut fields = Fields::default();
    fields.add("content-type", b"application/octet-stream");
    let body = ObservedBody::unobserved(ReplyBody::own(text.into()));
    let head = ResponseHead {
        fields,
        ..ResponseHead::default()
    };
    Some(Response { head, body })
}

/// The output of `future`; none if the client leaves first.
async fn unless_gone<F: Future>(wire: &Wire, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // The client of the response before may read only now. Nothing may follow one that never came whole.
        if wire.is_late() && matches!(wire.poll_flush(cx), Poll::Ready(Err(_))) {
            return Poll::Ready(None);
        }
        wire.poll_gone(cx).map(|()| None)
    })
    .await
}

/// Reads the rest of an unwanted body for a while, so that a client that is still sending gets to read the response. True if
/// the connection may go on.
async fn drained(wire: &Wire) -> bool {
    let mut bytes = 0;
    let draining = poll_fn(|cx| wire.poll_drain(cx, &mut bytes));
    tokio::time::timeout(DRAIN_FOR, draining)
        .await
        .unwrap_or(false)
}
