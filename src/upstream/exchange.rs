//! One request over one connection and its answer: both directions run in the task of the request, so
//! that nothing is handed from task to task.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::answer::{Read, Reader};
use super::pool::Connection;
use super::upload::{Broken, Upload};
use crate::clock::Nanos;
use crate::head::{AnswerHead, Head};
use crate::http1::chunked::Piece;
use crate::http1::{Cause, Framing, Malformed};

/// Which side an exchange failed on; `E` is what the request's body breaks with.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E> {
    /// The request's body broke off.
    #[error("the request broke off")]
    Request(E),
    /// The server did not answer, or broke off its answer.
    #[error(transparent)]
    Server(Cause),
}

impl<E> From<Cause> for Failure<E> {
    fn from(cause: Cause) -> Failure<E> {
        Failure::Server(cause)
    }
}

impl<E> From<io::Error> for Failure<E> {
    fn from(error: io::Error) -> Failure<E> {
        Failure::Server(error.into())
    }
}

impl<E> From<Malformed> for Failure<E> {
    fn from(malformed: Malformed) -> Failure<E> {
        Failure::Server(malformed.into())
    }
}

/// The head of an answer.
#[derive(Debug)]
pub enum Lead {
    /// Of one before the final one.
    Interim(AnswerHead),
    /// Of the final one.
    Final(AnswerHead),
}

/// See the module.
pub struct Exchange<B> {
    connection: Connection,
    upload: Upload<B>,
    reader: Reader,
    /// All of the request has been sent, or no more of it will be.
    sent: bool,
    /// The server stopped taking the request.
    failed: Option<io::Error>,
    framing: Framing,
    keep: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Exchange<B> {
    /// A request that has not been sent.
    pub fn new(mut connection: Connection, head: &Head, body: B) -> Exchange<B> {
        let upload = Upload::new(head, body);
        upload.begin(head, &mut connection);
        Exchange {
            upload,
            connection,
            reader: Reader {
                bodiless: head.method == Method::HEAD,
                upgrade: head.upgrade.is_some(),
                interim: 0,
                heard: false,
            },
            sent: false,
            failed: None,
            framing: Framing::Length(0),
            keep: false,
        }
    }

    /// Sends the head, and the body only when the server says so or [`Exchange::go_on`] is called.
    pub fn ask_first(&mut self) {
        self.upload.held = true;
    }

    /// Sends the body.
    pub fn go_on(&mut self) {
        self.upload.held = false;
    }

    /// The server that is asked.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// Whether the server may have got some of the request.
    pub fn has_begun(&self) -> bool {
        self.upload.begun
    }

    /// Whether the request, having failed, may be sent over another connection: the server may have
    /// closed this one while it was unused, and nothing was answered.
    pub fn may_repeat(&self) -> bool {
        self.connection.reused && !self.reader.heard && self.upload.may_repeat()
    }

    /// The same request over another connection.
    pub fn repeat(&mut self, head: &Head, mut connection: Connection) {
        if self.upload.begun {
            self.upload.begun = false;
            self.upload.begin(head, &mut connection);
        } else {
            // A piece of the body may wait there.
            std::mem::swap(
                &mut connection.link.outbox,
                &mut self.connection.link.outbox,
            );
        }
        self.connection = connection;
        self.sent = false;
        self.failed = None;
    }

    /// Whether the server has taken some of the request since the last time this was asked.
    pub fn has_sent(&mut self) -> bool {
        std::mem::take(&mut self.upload.progress)
    }

    /// Sends these bytes from now on: the server has changed to another protocol.
    pub fn tunnel(&mut self, bytes: B) {
        self.upload.tunnel(bytes);
        self.sent = false;
    }

    /// Whether all of the request has been sent that will be.
    pub fn is_sent(&self) -> bool {
        self.sent
    }

    /// The server took too long.
    pub fn late(&mut self) {
        self.connection.failed();
    }

    /// Sends, and reads the answer's heads.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lead, Failure<B::Error>>> {
        let lead = self.poll_lead(cx);
        match &lead {
            Poll::Ready(Ok(Lead::Final(head))) => self.connection.answered(head.status),
            // A server may close a connection that is unused, or one whose client is slow.
            Poll::Ready(Err(Failure::Server(_)))
                if self.sent && (self.reader.heard || !self.connection.reused) =>
            {
                self.connection.failed();
            }
            _ => {}
        }
        lead
    }

    fn poll_lead(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lead, Failure<B::Error>>> {
        self.send(cx)?;
        loop {
            let inbox = &mut self.connection.link.inbox;
            if inbox.seems_whole() {
                match self.reader.next(&mut inbox.bytes)? {
                    Some(Read::Interim(head)) if head.status == StatusCode::CONTINUE => {
                        inbox.begin();
                        self.go_on();
                        self.send(cx)?;
                        continue;
                    }
                    Some(Read::Interim(head)) => {
                        inbox.begin();
                        return Poll::Ready(Ok(Lead::Interim(head)));
                    }
                    Some(Read::Final(head)) => {
                        (self.framing, self.keep) = (head.framing, head.keep);
                        return Poll::Ready(Ok(Lead::Final(head.answer)));
                    }
                    None => {}
                }
            }
            let read = ready!(self.connection.poll_read(cx));
            match (read, self.failed.take()) {
                (Ok(1..), failed) => self.failed = failed,
                // The write says more than the read that failed after it.
                (_, Some(error)) | (Err(error), None) => return Poll::Ready(Err(error.into())),
                (Ok(0), None) => return Poll::Ready(Err(Cause::Closed.into())),
            }
        }
    }

    /// A server may answer and stop reading, so a write that fails does not end the exchange.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Failure<B::Error>> {
        if self.sent {
            return Ok(());
        }
        match self.upload.poll_send(cx, &mut self.connection.link) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.sent = true,
            Poll::Ready(Err(Broken::Body(error))) => return Err(Failure::Request(error)),
            Poll::Ready(Err(Broken::Server(error))) => {
                self.sent = true;
                self.failed = Some(error);
            }
        }
        Ok(())
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
}

/// The body of an answer, streamed; at its end the connection goes back to its pool.
pub struct AnswerBody<B: Body> {
    exchange: Option<Exchange<B>>,
    failure: Option<Failure<B::Error>>,
    now: Nanos,
}

impl<B: Body<Data = Bytes> + Unpin> AnswerBody<B> {
    fn finish_if_over(&mut self) {
        if self.exchange.as_ref().is_some_and(|e| e.framing.is_over()) {
            self.finish();
        }
    }

    /// The answer is over. What was left unsent or unread ends the connection too.
    fn finish(&mut self) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        exchange.connection.succeeded();
        let whole = exchange.sent && exchange.failed.is_none();
        if exchange.keep && whole && exchange.connection.link.inbox.bytes.is_empty() {
            exchange.connection.release(self.now);
        }
    }

    /// See [`Exchange::late`].
    pub fn late(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.late();
        }
    }

    /// See [`Exchange::has_sent`].
    pub fn has_sent(&mut self) -> bool {
        self.exchange.as_mut().is_some_and(Exchange::has_sent)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Failure<B::Error>>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(Piece::End));
        };
        exchange.send(cx)?;
        loop {
            let piece = exchange
                .framing
                .next(&mut exchange.connection.link.inbox.bytes)?;
            if piece != Piece::More {
                return Poll::Ready(Ok(piece));
            }
            if ready!(exchange.connection.poll_read(cx))? == 0 {
                return Poll::Ready(match exchange.framing {
                    Framing::Close => Ok(Piece::End),
                    _ => Err(Cause::Closed.into()),
                });
            }
        }
    }
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes, Error: Unpin> + Unpin,
{
    type Data = Bytes;
    type Error = Failure<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure<B::Error>>>> {
        if let Some(failure) = self.failure.take() {
            self.exchange = None;
            return Poll::Ready(Some(Err(failure)));
        }
        Poll::Ready(match ready!(self.poll_piece(cx)) {
            Ok(Piece::Data(data)) => {
                self.finish_if_over();
                Some(Ok(Frame::data(data)))
            }
            Ok(Piece::Trailers(trailers)) => {
                self.finish();
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(Piece::End | Piece::More) => {
                self.finish();
                None
            }
            Err(failure) => {
                if let Failure::Server(_) = failure {
                    self.late();
                }
                // The next time, so that what came before it goes out first.
                self.failure = Some(failure);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.exchange.as_ref().map(|exchange| exchange.framing) {
            None => SizeHint::with_exact(0),
            Some(Framing::Length(left)) => SizeHint::with_exact(left),
            Some(Framing::Chunked(_) | Framing::Close) => SizeHint::default(),
        }
    }
}
