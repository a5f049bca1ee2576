//! One request and its response over a connection of HTTP/1.1. Both directions run in the task of the request, so that
//! nothing is handed from task to task. A connection is reused only after both directions have ended cleanly.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncWrite;

use super::error::ExchangeError;
use super::head_reader::{HeadReader, ParsedHead};
use super::received::{NextFrame, ReceivedHead};
use super::transport::Http1Connection;
use super::upload::{Upload, UploadError};
use super::upstream_pool::Assignment;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::http::http1::chunked::BodyPiece;
use crate::http::http1::{Framing, MessageError, Outbox};

/// An exchange over HTTP/1.1. [`super::exchange::Exchange`] documents its methods.
pub struct Http1Exchange<B> {
    pub(super) assignment: Assignment,
    connection: Rc<RefCell<Http1Connection>>,
    upload: Upload<B>,
    head_reader: HeadReader,
    /// Whether the exchange has nothing left to send; see [`super::exchange::Exchange::is_sent`].
    pub(super) is_sent: bool,
    /// The error with which the server stopped accepting the request; `None` while it accepts bytes.
    write_error: Option<io::Error>,
    /// How the end of the response's body is detected, with the bytes that are left of it. Before the head it is that of
    /// an empty body.
    framing: Framing,
    /// Whether the server keeps the connection open after the response.
    keeps_alive: bool,
    /// Whether the gateway has closed its sending side of the connection.
    is_shut_down: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Http1Exchange<B> {
    pub fn new(
        assignment: Assignment,
        connection: Rc<RefCell<Http1Connection>>,
        head: &Head,
        body: B,
    ) -> Http1Exchange<B> {
        let upload = Upload::new(head, body);
        upload.queue_head(head, &mut connection.borrow_mut());
        Http1Exchange {
            assignment,
            connection,
            upload,
            head_reader: HeadReader::for_request(head),
            is_sent: false,
            write_error: None,
            framing: Framing::Length(0),
            keeps_alive: false,
            is_shut_down: false,
        }
    }

    pub fn set_body_held(&mut self, is_held: bool) {
        self.upload.is_body_held = is_held;
    }

    pub fn has_begun(&self) -> bool {
        self.upload.has_begun
    }

    pub fn is_retryable(&self) -> bool {
        self.connection.borrow().is_reused
            && !self.head_reader.has_received
            && self.upload.is_retryable()
    }

    pub fn retry_over(
        &mut self,
        head: &Head,
        assignment: Assignment,
        connection: Rc<RefCell<Http1Connection>>,
    ) {
        // The old connection must not send its queued bytes. Before the first write they are all of the request so far.
        let queued_bytes = std::mem::take(&mut self.connection.borrow_mut().outbox);
        if self.upload.has_begun {
            self.upload.has_begun = false;
            self.upload.queue_head(head, &mut connection.borrow_mut());
        } else {
            connection.borrow_mut().outbox = queued_bytes;
        }
        self.assignment = assignment;
        self.connection = connection;
        self.is_sent = false;
        self.write_error = None;
    }

    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.upload.has_progress)
    }

    pub fn begin_tunnel(&mut self, bytes: B) {
        self.upload.begin_tunnel(bytes);
        self.is_sent = false;
    }

    pub fn cancel(&mut self, cx: &mut Context<'_>) {
        let connection = &mut *self.connection.borrow_mut();
        if !self.is_sent {
            self.upload.drop_body();
            self.is_sent = true;
            connection.outbox = Outbox::default();
            connection.is_flush_late = false;
        }
        // A request that is queued whole is sent to its end before the shutdown.
        if !self.is_shut_down && connection.outbox.is_empty() && !connection.is_flush_late {
            self.is_shut_down = true;
            // A full TLS buffer may prevent the shutdown; then the server notices when the connection closes.
            let _ = Pin::new(&mut connection.socket).poll_shutdown(cx);
        }
    }

    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        let head = self.poll_next_head(cx);
        match &head {
            Poll::Ready(Ok(ReceivedHead::Final(head))) => {
                self.assignment.record_response(head.status)
            }
            // It is no failure if a server closes a connection that was idle, or whose request is not sent whole yet.
            Poll::Ready(Err(ExchangeError::Server(_)))
                if self.is_sent
                    && (self.head_reader.has_received || !self.connection.borrow().is_reused) =>
            {
                self.assignment.record_failure();
            }
            _ => {}
        }
        head
    }

    fn poll_next_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        self.advance_upload(cx)?;
        loop {
            let mut borrowed = self.connection.borrow_mut();
            let connection = &mut *borrowed;
            let Http1Connection {
                inbox, last_head, ..
            } = connection;
            if inbox.is_head_worth_parsing() {
                match self.head_reader.next_head(&mut inbox.bytes, last_head)? {
                    Some(ParsedHead::Interim(head)) if head.status == StatusCode::CONTINUE => {
                        inbox.begin_message();
                        drop(borrowed);
                        self.set_body_held(false);
                        self.advance_upload(cx)?;
                        continue;
                    }
                    Some(ParsedHead::Interim(head)) => {
                        inbox.begin_message();
                        return Poll::Ready(Ok(ReceivedHead::Interim(head)));
                    }
                    Some(ParsedHead::Final(head)) => {
                        self.framing = head.framing;
                        self.keeps_alive = head.keeps_alive;
                        return Poll::Ready(Ok(ReceivedHead::Final(head.response)));
                    }
                    None => {}
                }
            }
            let read_result = ready!(connection.poll_read(cx));
            match (read_result, self.write_error.take()) {
                (Ok(1..), write_error) => self.write_error = write_error,
                // The write failed first, so its error tells more than the read's.
                (_, Some(error)) | (Err(error), None) => return Poll::Ready(Err(error.into())),
                (Ok(0), None) => return Poll::Ready(Err(MessageError::Closed.into())),
            }
        }
    }

    /// Sends as much of the request as the server accepts now. A server may respond and stop reading, so a write that
    /// fails does not end the exchange. A broken outbox does.
    fn advance_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError<B::Error>> {
        let connection = &mut *self.connection.borrow_mut();
        if std::mem::take(&mut connection.is_flush_late) {
            self.is_sent = false;
        }
        if connection.outbox.is_broken() {
            // Some of the request is lost. The server may wait for it for ever, and send no response.
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        if self.is_sent {
            return Ok(());
        }
        if self.upload.is_new() && self.upload.has_no_body() {
            // The worker sends such requests of several connections together. This one counts as sent already.
            self.upload.mark_queued();
            self.is_sent = true;
            connection.waker = Some(cx.waker().clone());
            self.assignment.flush_queue().add(self.connection.clone());
            return Ok(());
        }
        match self.upload.poll_send(cx, connection) {
            // The response may be far off, so that no buffer waits for it.
            Poll::Pending => connection.inbox.expect_body(),
            Poll::Ready(Ok(())) => self.is_sent = true,
            Poll::Ready(Err(UploadError::Body(error))) => {
                return Err(ExchangeError::Request(error));
            }
            Poll::Ready(Err(UploadError::Server(error))) => {
                self.is_sent = true;
                self.write_error = Some(error);
            }
        }
        Ok(())
    }

    /// Whether the response has ended.
    pub fn is_over(&self) -> bool {
        self.framing.is_over()
    }

    /// Ends the exchange after the response. The connection returns to its pool if both sides keep it open and no bytes are
    /// unsent or unread.
    pub fn finish(self, now: Nanos) {
        self.assignment.record_success();
        let is_sent_whole = self.is_sent && self.write_error.is_none();
        let has_empty_buffers = {
            let connection = self.connection.borrow();
            connection.inbox.bytes.is_empty()
                && connection.outbox.is_empty()
                && !connection.is_flush_late
        };
        if self.keeps_alive && is_sent_whole && has_empty_buffers && !self.is_shut_down {
            self.assignment.release(self.connection, now);
        }
    }

    /// Receives the next piece of the response's body. Ready with `None` at its end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        Poll::Ready(match ready!(self.poll_piece(cx))? {
            BodyPiece::Data(data) => Some(Ok(Frame::data(data))),
            BodyPiece::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            BodyPiece::End | BodyPiece::Incomplete => None,
        })
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BodyPiece, ExchangeError<B::Error>>> {
        self.advance_upload(cx)?;
        let connection = &mut *self.connection.borrow_mut();
        loop {
            let piece = self.framing.next_piece(&mut connection.inbox.bytes)?;
            if piece != BodyPiece::Incomplete {
                return Poll::Ready(Ok(piece));
            }
            if ready!(connection.poll_read(cx))? == 0 {
                return Poll::Ready(match self.framing {
                    Framing::Close => Ok(BodyPiece::End),
                    _ => Err(MessageError::Closed.into()),
                });
            }
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(remaining) => SizeHint::with_exact(remaining),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }
}
