//! The exchanges of an HTTP/1.1 connection: passes one request after the other through the stack and sends each response.
//!
//! It never decides about a request: an unreadable one goes through the stack too, which refuses and logs it. Only ACME
//! challenges are served outside of the stack.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use tower::Service;

use super::request::{ClientExpectations, HeadError, ParsedRequest};
use super::send_response::{ConnectionReuse, send_response};
use super::wire::Wire;
use crate::http::head::{Fields, Head, Response, ResponseHead};
use crate::net::flush_queue::YieldToOthers;
use crate::serve::stack::body::{CLIENT_LEFT, ResponseBody};
use crate::serve::stack::detached;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::http_check;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::request_context::RequestContext;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::worker::client_socket::{BODY_DRAIN_TIMEOUT, IDLE_DRAIN_TIMEOUT};
use crate::serve::worker::generation::Generation;

/// How the HTTP/1.1 exchanges of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangesEnd {
    /// The gateway or the client has closed the connection.
    Closed,
    /// The client's first bytes were the preface of HTTP/2; they are still in the connection's inbox.
    Http2,
}

/// Serves one request after the other until a side closes the connection, or the first bytes are those of HTTP/2.
pub async fn serve(wire: &Rc<Wire>, peer: &Rc<Peer>, mut stack: Stack) -> ExchangesEnd {
    let worker = &peer.worker;
    // A client without TLS may begin with the preface of HTTP/2.
    let mut may_be_http2 = !peer.is_tls;
    let mut spare_context = None;
    loop {
        wire.begin_request();
        let next_request = poll_fn(|cx| poll_request(wire, peer, &mut spare_context, cx));
        let (head, repeated_fields, expectations) = match next_request.await {
            Ok(None) => break,
            Ok(Some(request)) => (
                Ok(request.head),
                request.repeated_fields,
                request.expectations,
            ),
            Err(HeadError::Http2) if may_be_http2 => return ExchangesEnd::Http2,
            Err(error) => {
                let unreadable = wire.describe_unreadable(error, may_be_http2);
                (Err(Box::new(unreadable)), None, UNREADABLE_EXPECTATIONS)
            }
        };
        may_be_http2 = false;
        let gets_no_response = head
            .as_ref()
            .is_err_and(|unreadable| unreadable.gets_no_response);
        let generation = worker.generation();
        let unobserved_response = head
            .as_ref()
            .ok()
            .and_then(|head| respond_unobserved(head, peer, &generation));
        let response = match unobserved_response {
            Some(response) => response,
            None => {
                let mut response_future = pin!(stack.call(FreshRequest {
                    head,
                    downstream: Downstream::Http1(wire.clone()),
                    peer: peer.clone(),
                    generation,
                    repeated_fields,
                    spare_context: spare_context.take(),
                }));
                let Some(Ok(response)) = run_while_connected(wire, response_future.as_mut()).await
                else {
                    // The client has left. A request that holds permits or reserved units goes on without it, because
                    // its end decides when they are free and what it costs: see `detached.rs`.
                    if let Some(holdings) = response_future.as_mut().record_departure(CLIENT_LEFT) {
                        wire.hang_up();
                        detached::finish_response(
                            response_future,
                            ObservedBody::into_admitted,
                            holdings.permits,
                            wire.deadlines(),
                            &worker.detached_requests,
                        )
                        .await;
                    }
                    return ExchangesEnd::Closed;
                };
                response
            }
        };
        if gets_no_response || response.body.is_withheld() {
            break;
        }
        match send_response(wire, expectations, response, worker, &mut spare_context).await {
            Ok(ConnectionReuse::Possible) if wire.is_body_over() || drain_body(wire).await => {
                peer.enter_idle();
                if !wire.is_idle() {
                    // The next request has arrived already, so other connections are served first.
                    YieldToOthers::default().await;
                }
            }
            Ok(_) => break,
            // The response broke off. A regular close could make it look whole, so the connection is just dropped.
            Err(_) => return ExchangesEnd::Closed,
        }
    }
    let _ = poll_fn(|cx| wire.poll_shutdown(cx)).await;
    ExchangesEnd::Closed
}

/// Sends the unsent part of the last response, then reads the head of the next request. Meanwhile an idle connection frees
/// its buffers, or closes soon if the worker drains. `Ok(None)` means that no request follows: the client has closed the
/// connection, or the last response cannot be sent.
#[inline]
fn poll_request(
    wire: &Wire,
    peer: &Peer,
    spare_context: &mut Option<Rc<RequestContext>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<ParsedRequest>, HeadError>> {
    if wire.has_unsent_response() {
        if ready!(wire.poll_unsent_response(cx)).is_err() {
            return Poll::Ready(Ok(None));
        }
        peer.enter_idle();
    }
    let head = wire.poll_head(cx);
    if head.is_pending() && peer.worker.is_draining() && wire.is_idle() {
        peer.deadlines.shorten_phase(IDLE_DRAIN_TIMEOUT);
    }
    if head.is_pending() && peer.deadlines.take_free_buffers_flag() {
        wire.free_buffers();
        *spare_context = None;
    }
    head
}

/// The expectations of a client whose request cannot be read. The response to it is the last one of the connection.
const UNREADABLE_EXPECTATIONS: ClientExpectations = ClientExpectations {
    is_head_request: false,
    version: Version::HTTP_11,
    is_persistent: false,
    accepts_trailers: false,
};

/// The response to a request that no limit counts: an ACME http-01 challenge (RFC 8555 section 8.3) on a connection without
/// TLS, or a proxy's word on how a request ended. `None` for every other request.
fn respond_unobserved(
    head: &Head,
    peer: &Peer,
    generation: &Generation,
) -> Option<Response<ObservedBody>> {
    if peer.is_tls {
        return None;
    }
    if peer.is_check() {
        let status = http_check::settle(head, peer, generation)?;
        peer.deadlines.report_request_begun();
        return Some(Response {
            head: ResponseHead {
                status,
                ..ResponseHead::default()
            },
            body: ObservedBody::unobserved(ResponseBody::from_gateway(Bytes::new())),
        });
    }
    let key_authorization = generation
        .challenge_tokens
        .key_authorization(head.uri.path())?;
    peer.worker.count_acme_proof();
    peer.deadlines.report_request_begun();
    let mut fields = Fields::default();
    fields.add("content-type", b"application/octet-stream");
    let body = ObservedBody::unobserved(ResponseBody::from_gateway(key_authorization.into()));
    let head = ResponseHead {
        fields,
        ..ResponseHead::default()
    };
    Some(Response { head, body })
}

/// The output of `future`; `None` if the client leaves first, or if the rest of the last response cannot be sent.
async fn run_while_connected<F: Future>(wire: &Wire, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // A part of the last response may still have to be sent. If that fails, nothing may follow it.
        if wire.has_unsent_response() && matches!(wire.poll_flush(cx), Poll::Ready(Err(_))) {
            return Poll::Ready(None);
        }
        wire.poll_client_gone(cx).map(|()| None)
    })
    .await
}

/// Reads the rest of an unwanted request body within [`BODY_DRAIN_TIMEOUT`], because many clients read the response only
/// after they have sent all. True if the connection can be reused.
async fn drain_body(wire: &Wire) -> bool {
    let mut drained_bytes = 0;
    let draining = poll_fn(|cx| wire.poll_drain_body(cx, &mut drained_bytes));
    tokio::time::timeout(BODY_DRAIN_TIMEOUT, draining)
        .await
        .unwrap_or(false)
}
