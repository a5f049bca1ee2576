//! One request to a server and its response, in either version of HTTP: `http1_exchange` and `http2_exchange` do the
//! work. The task that polls the exchange moves both directions; the task of an HTTP/2 connection reads and writes its
//! frames.
//!
//! An exchange says whether its request may be sent again. The caller decides whether it is, and over which connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::error::ExchangeError;
use super::received::{NextFrame, ReceivedHead};
use super::transport::Transport;
use super::upstream_pool::CheckedOutConnection;
use super::{http1_exchange, http2_exchange};
use crate::base::clock::Nanos;
use crate::http::head::Head;

/// One request with a body of type `B`, and its response.
pub struct Exchange<B>(VersionedExchange<B>);

/// The exchange in the version of HTTP that the connection uses.
enum VersionedExchange<B> {
    Http1(http1_exchange::Http1Exchange<B>),
    Http2(Box<http2_exchange::Http2Exchange<B>>),
}

impl<B: Body<Data = Bytes> + Unpin> Exchange<B> {
    /// An exchange of which nothing has been sent.
    pub fn new(connection: CheckedOutConnection, head: &Head, body: B) -> Exchange<B> {
        let CheckedOutConnection {
            assignment,
            transport,
        } = connection;
        match transport {
            Transport::Http1(connection) => Exchange(VersionedExchange::Http1(
                http1_exchange::Http1Exchange::new(assignment, connection, head, body),
            )),
            Transport::Http2(stream) => {
                let exchange = http2_exchange::Http2Exchange::new(assignment, stream, head, body);
                Exchange(VersionedExchange::Http2(Box::new(exchange)))
            }
        }
    }

    /// Holds the body back until the server sends `100 Continue`, or [`Exchange::send_body`] is called.
    pub fn hold_body(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.set_body_held(true),
            VersionedExchange::Http2(exchange) => exchange.set_body_held(true),
        }
    }

    /// Sends the body that was held back.
    pub fn send_body(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.set_body_held(false),
            VersionedExchange::Http2(exchange) => exchange.set_body_held(false),
        }
    }

    /// The location of the server, as it is configured.
    pub fn server_name(&self) -> &Arc<str> {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.assignment.server_name(),
            VersionedExchange::Http2(exchange) => exchange.assignment.server_name(),
        }
    }

    /// Whether the server may have received some of the request.
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.has_begun(),
            VersionedExchange::Http2(exchange) => exchange.has_begun,
        }
    }

    /// Whether a request that failed may be sent over another connection. There are two cases.
    ///
    /// The server may have closed this connection while it was idle, and nothing of the response has come. Then the
    /// request must be a safe one without a body, or unsent. Or the server has certainly not processed the request, which
    /// only HTTP/2 shows, and nothing of its body was read.
    pub fn is_retryable(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.is_retryable(),
            VersionedExchange::Http2(exchange) => exchange.is_retryable(),
        }
    }

    /// Sends the same request over another connection, which must use the same version of HTTP.
    pub fn retry_over(&mut self, head: &Head, connection: CheckedOutConnection) {
        let CheckedOutConnection {
            assignment,
            transport,
        } = connection;
        match (&mut self.0, transport) {
            (VersionedExchange::Http1(exchange), Transport::Http1(connection)) => {
                exchange.retry_over(head, assignment, connection)
            }
            (VersionedExchange::Http2(exchange), Transport::Http2(stream)) => {
                exchange.retry_over(head, assignment, stream)
            }
            // All connections of a pool use the same version of HTTP.
            (VersionedExchange::Http1(_), Transport::Http2(_))
            | (VersionedExchange::Http2(_), Transport::Http1(_)) => {}
        }
    }

    /// Whether the server has accepted bytes of the request since the last call.
    pub fn take_progress(&mut self) -> bool {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.take_progress(),
            VersionedExchange::Http2(exchange) => exchange.take_progress(),
        }
    }

    /// Sends `bytes` from now on, in place of a body. The server must have agreed to change the connection or stream to
    /// another protocol.
    pub fn begin_tunnel(&mut self, bytes: B) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.begin_tunnel(bytes),
            VersionedExchange::Http2(exchange) => exchange.begin_tunnel(bytes),
        }
    }

    /// Whether the exchange has nothing left to send: the request was sent whole, was left to the worker to send, or was
    /// given up. It is false again in a tunnel, and if the worker could not send all.
    pub fn is_sent(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.is_sent,
            VersionedExchange::Http2(exchange) => exchange.is_sent,
        }
    }

    /// Records for the server's health that it broke off its response.
    fn record_failure(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.assignment.record_failure(),
            VersionedExchange::Http2(exchange) => exchange.assignment.record_failure(),
        }
    }

    /// Records for the server's health that it took too long. Over HTTP/2, new requests avoid this connection from now on.
    pub fn record_timeout(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.assignment.record_failure(),
            VersionedExchange::Http2(exchange) => exchange.record_timeout(),
        }
    }

    /// Gives up the unsent part of the request, because the client no longer waits for the response.
    ///
    /// Over HTTP/1.1 the gateway closes its sending side. Of a request that is queued whole it first sends all, so this
    /// must be called again before each poll. The end of the server's work can still be observed.
    ///
    /// Over HTTP/2 the gateway resets the stream of a request that is not sent whole. After a whole request it does
    /// nothing.
    pub fn cancel(&mut self, cx: &mut Context<'_>) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.cancel(cx),
            VersionedExchange::Http2(exchange) => exchange.cancel(),
        }
    }

    /// Whether the gateway still notices when the server ends its work. After it has reset an HTTP/2 stream it does not.
    pub fn is_observable(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(_) => true,
            VersionedExchange::Http2(exchange) => !exchange.is_canceled,
        }
    }

    /// Sends what can be sent of the request, and reads the next head of the response.
    ///
    /// # Errors
    ///
    /// The client's body broke off, the connection broke, or the head is malformed. Or the request has no form in HTTP/2.
    // Inlined into `serve/stack/forwarding.rs`, on the path of every request, which saves instructions there. The other
    // caller, `serve/stack/detached.rs`, is rare.
    #[inline(always)]
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.poll_head(cx),
            VersionedExchange::Http2(exchange) => exchange.poll_head(cx),
        }
    }

    /// The body of the response. The final head must have come. The connection counts as idle since `now`, which may be
    /// coarse.
    pub fn into_body(self, now: Nanos) -> UpstreamBody<B> {
        let mut body = UpstreamBody {
            exchange: Some(self),
            unreported_error: None,
            idle_since: now,
        };
        body.finish_if_over();
        body
    }

    /// Whether the response has ended.
    fn is_over(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.is_over(),
            VersionedExchange::Http2(exchange) => exchange.is_over(),
        }
    }

    /// Sends what can be sent of the request, and reads the next piece of the response's body.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.poll_frame(cx),
            VersionedExchange::Http2(exchange) => exchange.poll_frame(cx),
        }
    }
}

/// The body of a response, streamed. At its end a connection of HTTP/1.1 returns to its pool, if it can be used again.
pub struct UpstreamBody<B: Body> {
    /// The exchange; `None` after the end of the body, or after an error of the server.
    exchange: Option<Exchange<B>>,
    /// An error that the next poll returns. Boxed, because it would make every body larger and is rare.
    unreported_error: Option<Box<ExchangeError<B::Error>>>,
    /// The time from which the connection counts as idle after the body. It may be coarse.
    idle_since: Nanos,
}

impl<B: Body<Data = Bytes> + Unpin> UpstreamBody<B> {
    /// A body of which nothing remains.
    pub fn empty() -> UpstreamBody<B> {
        UpstreamBody {
            exchange: None,
            unreported_error: None,
            idle_since: Nanos::ZERO,
        }
    }

    /// Ends the exchange if nothing of the response is left.
    fn finish_if_over(&mut self) {
        if self.exchange.as_ref().is_some_and(Exchange::is_over) {
            self.finish();
        }
    }

    /// Ends the exchange: records the success, and returns a connection of HTTP/1.1 to its pool if it can be used again.
    fn finish(&mut self) {
        match self.exchange.take() {
            Some(Exchange(VersionedExchange::Http1(exchange))) => exchange.finish(self.idle_since),
            Some(Exchange(VersionedExchange::Http2(exchange))) => {
                exchange.assignment.record_success()
            }
            None => {}
        }
    }

    /// As [`Exchange::cancel`]; nothing after the end of the body.
    pub fn cancel(&mut self, cx: &mut Context<'_>) {
        if let Some(exchange) = &mut self.exchange {
            exchange.cancel(cx);
        }
    }

    /// As [`Exchange::is_observable`]; true after the end of the body.
    pub fn is_observable(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_observable)
    }

    /// As [`Exchange::is_sent`]; true after the end of the body.
    pub fn is_sent(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_sent)
    }

    /// As [`Exchange::take_progress`]; false after the end of the body.
    pub fn take_progress(&mut self) -> bool {
        self.exchange.as_mut().is_some_and(Exchange::take_progress)
    }
}

impl<B> Body for UpstreamBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = ExchangeError<B::Error>;

    // Inlined into `serve/stack/body/response_body.rs`, on the path of every request, which saves instructions there.
    // The other caller, `serve/stack/detached.rs`, is rare.
    #[inline(always)]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        if let Some(error) = self.unreported_error.take() {
            // After an error of the request's body the response may still be read.
            if let ExchangeError::Server(_) = *error {
                self.exchange = None;
            }
            return Poll::Ready(Some(Err(*error)));
        }
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(None);
        };
        Poll::Ready(match ready!(exchange.poll_frame(cx)) {
            Some(Ok(frame)) => {
                if frame.is_trailers() {
                    self.finish();
                } else {
                    self.finish_if_over();
                }
                Some(Ok(frame))
            }
            None => {
                self.finish();
                None
            }
            Some(Err(error)) => {
                if let ExchangeError::Server(_) = error {
                    exchange.record_failure();
                }
                // Returned with the next poll, so that what came before is sent to the client first.
                self.unreported_error = Some(Box::new(error));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.exchange {
            None => SizeHint::with_exact(0),
            Some(Exchange(VersionedExchange::Http1(exchange))) => exchange.size_hint(),
            Some(Exchange(VersionedExchange::Http2(exchange))) => exchange.size_hint(),
        }
    }
}
