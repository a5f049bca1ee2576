//! One request and its answer, whatever version of HTTP the server speaks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::error::Failure;
use super::pool::{Connection, Line};
use super::received::{Lead, Next};
use super::{http1, http2};
use crate::base::clock::Nanos;
use crate::http::head::Head;

/// See the module.
pub struct Exchange<B>(Way<B>);

enum Way<B> {
    /// Over a connection of HTTP/1.1.
    One(http1::Exchange<B>),
    /// Over a stream of HTTP/2.
    Two(Box<http2::Exchange<B>>),
}

impl<B: Body<Data = Bytes> + Unpin> Exchange<B> {
    /// A request that has not been sent.
    pub fn new(connection: Connection, head: &Head, body: B) -> Exchange<B> {
        let Connection { lease, line } = connection;
        match line {
            Line::One(link) => Exchange(Way::One(http1::Exchange::new(lease, link, head, body))),
            Line::Two(channel) => {
                let exchange = http2::Exchange::new(lease, channel, head, body);
                Exchange(Way::Two(Box::new(exchange)))
            }
        }
    }

    /// Sends the head, and the body only when the server says so or [`Exchange::go_on`] is called.
    pub fn ask_first(&mut self) {
        match &mut self.0 {
            Way::One(exchange) => exchange.hold(true),
            Way::Two(exchange) => exchange.hold(true),
        }
    }

    /// Sends the body.
    pub fn go_on(&mut self) {
        match &mut self.0 {
            Way::One(exchange) => exchange.hold(false),
            Way::Two(exchange) => exchange.hold(false),
        }
    }

    /// The server that is asked.
    pub fn server(&self) -> &Arc<str> {
        match &self.0 {
            Way::One(exchange) => exchange.lease.server(),
            Way::Two(exchange) => exchange.lease.server(),
        }
    }

    /// Whether the server may have got some of the request.
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            Way::One(exchange) => exchange.has_begun(),
            Way::Two(exchange) => exchange.begun,
        }
    }

    /// Whether the request, having failed, may be sent over another connection: the server may have
    /// closed this one while it was unused, and nothing was answered; or it says that it has not looked at it.
    pub fn may_repeat(&self) -> bool {
        match &self.0 {
            Way::One(exchange) => exchange.may_repeat(),
            Way::Two(exchange) => exchange.may_repeat(),
        }
    }

    /// The same request over another connection.
    pub fn repeat(&mut self, head: &Head, connection: Connection) {
        let Connection { lease, line } = connection;
        match (&mut self.0, line) {
            (Way::One(exchange), Line::One(link)) => exchange.repeat(head, lease, link),
            (Way::Two(exchange), Line::Two(channel)) => exchange.repeat(head, lease, channel),
            // A pool's connections are all of one kind.
            (Way::One(_), Line::Two(_)) | (Way::Two(_), Line::One(_)) => {}
        }
    }

    /// Whether the server has taken some of the request since the last time this was asked.
    pub fn has_sent(&mut self) -> bool {
        match &mut self.0 {
            Way::One(exchange) => exchange.has_sent(),
            Way::Two(exchange) => exchange.has_sent(),
        }
    }

    /// Sends these bytes from now on: the server has changed to another protocol.
    pub fn tunnel(&mut self, bytes: B) {
        match &mut self.0 {
            Way::One(exchange) => exchange.tunnel(bytes),
            Way::Two(exchange) => exchange.tunnel(bytes),
        }
    }

    /// Whether all of the request has been sent that will be.
    pub fn is_sent(&self) -> bool {
        match &self.0 {
            Way::One(exchange) => exchange.sent,
            Way::Two(exchange) => exchange.sent,
        }
    }

    /// The server has broken off its answer.
    fn failed(&mut self) {
        match &mut self.0 {
            Way::One(exchange) => exchange.lease.failed(),
            Way::Two(exchange) => exchange.lease.failed(),
        }
    }

    /// The server took too long.
    pub fn late(&mut self) {
        match &mut self.0 {
            Way::One(exchange) => exchange.lease.failed(),
            Way::Two(exchange) => exchange.late(),
        }
    }

    /// Tells the server that nobody waits for the response, as far as it can be told while its end can be seen: over
    /// HTTP/1.1 by the end of what is sent to it. An incomplete request over HTTP/2 is taken back, and nothing more
    /// is seen of it. To be called until the exchange is over, for what was to be sent before may wait.
    pub fn hang_up(&mut self, cx: &mut Context<'_>) {
        match &mut self.0 {
            Way::One(exchange) => exchange.hang_up(cx),
            Way::Two(exchange) => exchange.hang_up(),
        }
    }

    /// What the server does can be seen.
    pub fn is_seen(&self) -> bool {
        match &self.0 {
            Way::One(_) => true,
            Way::Two(exchange) => !exchange.canceled,
        }
    }

    /// Sends, and reads the answer's heads.
    // In one piece with what every request takes; the other caller is rare.
    #[inline(always)]
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lead, Failure<B::Error>>> {
        match &mut self.0 {
            Way::One(exchange) => exchange.poll_head(cx),
            Way::Two(exchange) => exchange.poll_head(cx),
        }
    }

    /// The body, once the head is there. `now` may be coarse.
    pub fn into_body(self, now: Nanos) -> AnswerBody<B> {
        let mut body = AnswerBody {
            exchange: Some(self),
            failure: None,
            now,
        };
        body.finish_if_over();
        body
    }

    fn is_over(&self) -> bool {
        match &self.0 {
            Way::One(exchange) => exchange.is_over(),
            Way::Two(exchange) => exchange.is_over(),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Next<B::Error>> {
        match &mut self.0 {
            Way::One(exchange) => exchange.poll_frame(cx),
            Way::Two(exchange) => exchange.poll_frame(cx),
        }
    }
}

/// The body of an answer, streamed; at its end the connection goes back to its pool.
pub struct AnswerBody<B: Body> {
    exchange: Option<Exchange<B>>,
    /// Boxed, for it is rare.
    failure: Option<Box<Failure<B::Error>>>,
    now: Nanos,
}

impl<B: Body<Data = Bytes> + Unpin> AnswerBody<B> {
    /// One of which nothing is left.
    pub fn over() -> AnswerBody<B> {
        AnswerBody {
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
            Some(Exchange(Way::One(exchange))) => exchange.finish(self.now),
            Some(Exchange(Way::Two(exchange))) => exchange.lease.succeeded(),
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

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = Failure<B::Error>;

    // In one piece with what every request takes; the other caller is rare.
    #[inline(always)]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next<B::Error>> {
        if let Some(failure) = self.failure.take() {
            // A server that got the request in part may still be read, once it has been told.
            if let Failure::Server(_) = *failure {
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
                if let Failure::Server(_) = failure {
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
            Some(Exchange(Way::One(exchange))) => exchange.size_hint(),
            Some(Exchange(Way::Two(exchange))) => exchange.size_hint(),
        }
    }
}
