//! One request and its response, in either version of HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::error::ExchangeError;
use super::pool::{LeasedConnection, Transport};
use super::received::{NextFrame, ReceivedHead};
use super::{http1, http2};
use crate::base::clock::Nanos;
use crate::http::head::Head;

/// See the module.
pub struct Exchange<B>(VersionedExchange<B>);

enum VersionedExchange<B> {
    /// Over a connection of HTTP/1.1.
    Http1(http1::Http1Exchange<B>),
    /// Over a stream of HTTP/2.
    Http2(Box<http2::Http2Exchange<B>>),
}

impl<B: Body<Data = Bytes> + Unpin> Exchange<B> {
    /// A request that has not been sent.
    pub fn new(connection: LeasedConnection, head: &Head, body: B) -> Exchange<B> {
        let LeasedConnection { lease, line } = connection;
        match line {
            Transport::Http1(link) => Exchange(VersionedExchange::Http1(
                http1::Http1Exchange::new(lease, link, head, body),
            )),
            Transport::Http2(channel) => {
                let exchange = http2::Http2Exchange::new(lease, channel, head, body);
                Exchange(VersionedExchange::Http2(Box::new(exchange)))
            }
        }
    }

    /// Sends the head, and the body only when the server says so or [`Exchange::go_on`] is called.
    pub fn ask_first(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.hold(true),
            VersionedExchange::Http2(exchange) => exchange.hold(true),
        }
    }

    /// Sends the body.
    pub fn go_on(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.hold(false),
            VersionedExchange::Http2(exchange) => exchange.hold(false),
        }
    }

    /// The server that is asked.
    pub fn server(&self) -> &Arc<str> {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.lease.server(),
            VersionedExchange::Http2(exchange) => exchange.lease.server(),
        }
    }

    /// Whether the server may have got some of the request.
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.has_begun(),
            VersionedExchange::Http2(exchange) => exchange.begun,
        }
    }

    /// Whether the request, having failed, may be sent over another connection: the server may have
    /// closed this one while it was unused, and nothing was answered; or it says that it has not looked at it.
    pub fn may_repeat(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.may_repeat(),
            VersionedExchange::Http2(exchange) => exchange.may_repeat(),
        }
    }

    /// The same request over another connection.
    pub fn repeat(&mut self, head: &Head, connection: LeasedConnection) {
        let LeasedConnection { lease, line } = connection;
        match (&mut self.0, line) {
            (VersionedExchange::Http1(exchange), Transport::Http1(link)) => {
                exchange.repeat(head, lease, link)
            }
            (VersionedExchange::Http2(exchange), Transport::Http2(channel)) => {
                exchange.repeat(head, lease, channel)
            }
            // A pool's connections are all of one kind.
            (VersionedExchange::Http1(_), Transport::Http2(_))
            | (VersionedExchange::Http2(_), Transport::Http1(_)) => {}
        }
    }

    /// Whether the server has taken some of the request since the last time this was asked.
    pub fn has_sent(&mut self) -> bool {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.has_sent(),
            VersionedExchange::Http2(exchange) => exchange.has_sent(),
        }
    }

    /// Sends these bytes from now on: the server has changed to another protocol.
    pub fn tunnel(&mut self, bytes: B) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.tunnel(bytes),
            VersionedExchange::Http2(exchange) => exchange.tunnel(bytes),
        }
    }

    /// Whether all of the request has been sent that will be.
    pub fn is_sent(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.sent,
            VersionedExchange::Http2(exchange) => exchange.sent,
        }
    }

    /// The server has broken off its answer.
    fn failed(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.lease.failed(),
            VersionedExchange::Http2(exchange) => exchange.lease.failed(),
        }
    }

    /// The server took too long.
    pub fn late(&mut self) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.lease.failed(),
            VersionedExchange::Http2(exchange) => exchange.late(),
        }
    }

    /// Tells the server that nobody waits for the response, as far as it can be told while its end can be seen: over
    /// HTTP/1.1 by the end of what is sent to it. An incomplete request over HTTP/2 is taken back, and nothing more
    /// is seen of it. To be called until the exchange is over, for what was to be sent before may wait.
    pub fn hang_up(&mut self, cx: &mut Context<'_>) {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.hang_up(cx),
            VersionedExchange::Http2(exchange) => exchange.hang_up(),
        }
    }

    /// What the server does can be seen.
    pub fn is_seen(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(_) => true,
            VersionedExchange::Http2(exchange) => !exchange.canceled,
        }
    }

    /// Sends, and reads the answer's heads.
    // In one piece with what every request takes; the other caller is rare.
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

    /// The body, once the head is there. `now` may be coarse.
    pub fn into_body(self, now: Nanos) -> UpstreamBody<B> {
        let mut body = UpstreamBody {
            exchange: Some(self),
            failure: None,
            now,
        };
        body.finish_if_over();
        body
    }

    fn is_over(&self) -> bool {
        match &self.0 {
            VersionedExchange::Http1(exchange) => exchange.is_over(),
            VersionedExchange::Http2(exchange) => exchange.is_over(),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        match &mut self.0 {
            VersionedExchange::Http1(exchange) => exchange.poll_frame(cx),
            VersionedExchange::Http2(exchange) => exchange.poll_frame(cx),
        }
    }
}

/// The body of a response, streamed; at its end the connection returns to its pool.
pub struct UpstreamBody<B: Body> {
    exchange: Option<Exchange<B>>,
    /// Boxed, for it is rare.
    failure: Option<Box<ExchangeError<B::Error>>>,
    now: Nanos,
}

impl<B: Body<Data = Bytes> + Unpin> UpstreamBody<B> {
    /// One of which nothing is left.
    pub fn over() -> UpstreamBody<B> {
        UpstreamBody {
            exchange: None,
            failure: None,
            now: Nanos::ZERO,
        }
    }

    fn finish_if_over(&mut self) {
        if self.exchange.as_ref().is_some_and(Exchange::is_over) {
            self.finish();
        }
    }

    /// The answer is over.
    fn finish(&mut self) {
        match self.exchange.take() {
            Some(Exchange(VersionedExchange::Http1(exchange))) => exchange.finish(self.now),
            Some(Exchange(VersionedExchange::Http2(exchange))) => exchange.lease.succeeded(),
            None => {}
        }
    }

    /// See [`Exchange::hang_up`].
    pub fn hang_up(&mut self, cx: &mut Context<'_>) {
        if let Some(exchange) = &mut self.exchange {
            exchange.hang_up(cx);
        }
    }

    /// See [`Exchange::is_seen`].
    pub fn is_seen(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_seen)
    }

    /// See [`Exchange::is_sent`].
    pub fn is_sent(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_sent)
    }

    /// See [`Exchange::has_sent`].
    pub fn has_sent(&mut self) -> bool {
        self.exchange.as_mut().is_some_and(Exchange::has_sent)
    }
}

impl<B> Body for UpstreamBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = ExchangeError<B::Error>;

    // In one piece with what every request takes; the other caller is rare.
    #[inline(always)]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        if let Some(failure) = self.failure.take() {
            // A server that got the request in part may still be read, once it has been told.
            if let ExchangeError::Server(_) = *failure {
                self.exchange = None;
            }
            return Poll::Ready(Some(Err(*failure)));
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
            Some(Err(failure)) => {
                if let ExchangeError::Server(_) = failure {
                    exchange.failed();
                }
                // The next time, so that what came before it goes out first.
                self.failure = Some(Box::new(failure));
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
