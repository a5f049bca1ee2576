//! One request and its response over a connection of HTTP/1.1. Both directions run in the task of the request, so that
//! nothing passes from task to task.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncWrite;

use super::error::ExchangeError;
use super::pool::{Http1Connection, Lease};
use super::received::{NextFrame, ReceivedHead};
use super::response_head::{HeadReader, ParsedHead};
use super::upload::{Upload, UploadError};
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::http::http1::chunked::Piece;
use crate::http::http1::{Framing, MessageError, Outbox};

/// See the module.
pub struct Http1Exchange<B> {
    pub(super) lease: Lease,
    link: Rc<RefCell<Http1Connection>>,
    upload: Upload<B>,
    reader: HeadReader,
    /// All of the request has been sent, or no more of it will be.
    pub(super) sent: bool,
    /// The server stopped taking the request.
    failed: Option<io::Error>,
    framing: Framing,
    keep: bool,
    /// The server has been told that nobody waits.
    hung_up: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Http1Exchange<B> {
    pub fn new(
        lease: Lease,
        link: Rc<RefCell<Http1Connection>>,
        head: &Head,
        body: B,
    ) -> Http1Exchange<B> {
        let upload = Upload::new(head, body);
        upload.begin(head, &mut link.borrow_mut());
        Http1Exchange {
            lease,
            link,
            upload,
            reader: HeadReader {
                bodiless: head.method == Method::HEAD,
                upgrade: head.upgrade.is_some(),
                interim: 0,
                heard: false,
            },
            sent: false,
            failed: None,
            framing: Framing::Length(0),
            keep: false,
            hung_up: false,
        }
    }

    pub fn hold(&mut self, held: bool) {
        self.upload.held = held;
    }

    pub fn has_begun(&self) -> bool {
        self.upload.begun
    }

    pub fn may_repeat(&self) -> bool {
        self.link.borrow().reused && !self.reader.heard && self.upload.may_repeat()
    }

    pub fn repeat(&mut self, head: &Head, lease: Lease, link: Rc<RefCell<Http1Connection>>) {
        // What waits there is not to leave, and may be a piece of the body.
        let waiting = std::mem::take(&mut self.link.borrow_mut().outbox);
        if self.upload.begun {
            self.upload.begun = false;
            self.upload.begin(head, &mut link.borrow_mut());
        } else {
            link.borrow_mut().outbox = waiting;
        }
        (self.lease, self.link) = (lease, link);
        self.sent = false;
        self.failed = None;
    }

    pub fn has_sent(&mut self) -> bool {
        std::mem::take(&mut self.upload.progress)
    }

    pub fn tunnel(&mut self, bytes: B) {
        self.upload.tunnel(bytes);
        self.sent = false;
    }

    pub fn hang_up(&mut self, cx: &mut Context<'_>) {
        let link = &mut *self.link.borrow_mut();
        if !self.sent {
            self.upload.give_up();
            self.sent = true;
            link.outbox = Outbox::default();
            link.late = false;
        }
        // A whole request still leaves.
        if !self.hung_up && link.outbox.is_empty() && !link.late {
            self.hung_up = true;
            // Under TLS the end may find no room; then the server learns of it by the end of the connection.
            let _ = Pin::new(&mut link.socket).poll_shutdown(cx);
        }
    }

    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        let lead = self.poll_lead(cx);
        match &lead {
            Poll::Ready(Ok(ReceivedHead::Final(head))) => self.lease.answered(head.status),
            // A server may close a connection that is unused, or one whose client is slow.
            Poll::Ready(Err(ExchangeError::Server(_)))
                if self.sent && (self.reader.heard || !self.link.borrow().reused) =>
            {
                self.lease.failed();
            }
            _ => {}
        }
        lead
    }

    fn poll_lead(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        self.send(cx)?;
        loop {
            let mut held = self.link.borrow_mut();
            let link = &mut *held;
            let Http1Connection { inbox, last, .. } = link;
            if inbox.may_hold_whole_head() {
                match self.reader.next(&mut inbox.bytes, last)? {
                    Some(ParsedHead::Interim(head)) if head.status == StatusCode::CONTINUE => {
                        inbox.begin_message();
                        drop(held);
                        self.hold(false);
                        self.send(cx)?;
                        continue;
                    }
                    Some(ParsedHead::Interim(head)) => {
                        inbox.begin_message();
                        return Poll::Ready(Ok(ReceivedHead::Interim(head)));
                    }
                    Some(ParsedHead::Final(head)) => {
                        (self.framing, self.keep) = (head.framing, head.keep);
                        return Poll::Ready(Ok(ReceivedHead::Final(head.answer)));
                    }
                    None => {}
                }
            }
            let read = ready!(link.poll_read(cx));
            match (read, self.failed.take()) {
                (Ok(1..), failed) => self.failed = failed,
                // The write says more than the read that failed after it.
                (_, Some(error)) | (Err(error), None) => return Poll::Ready(Err(error.into())),
                (Ok(0), None) => return Poll::Ready(Err(MessageError::Closed.into())),
            }
        }
    }

    /// A server may answer and stop reading, so a write that fails does not end the exchange.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError<B::Error>> {
        let link = &mut *self.link.borrow_mut();
        if std::mem::take(&mut link.late) {
            self.sent = false;
        }
        if link.outbox.is_broken() {
            // The server may wait for the rest for ever, so that reading would not end.
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        if self.sent {
            return Ok(());
        }
        if self.upload.is_new() && self.upload.is_bodiless() {
            // Together with those of other connections. Whoever asks takes it for sent.
            self.upload.leaves();
            self.sent = true;
            link.waker = Some(cx.waker().clone());
            self.lease.flushes().add(self.link.clone());
            return Ok(());
        }
        match self.upload.poll_send(cx, link) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.sent = true,
            Poll::Ready(Err(UploadError::Body(error))) => {
                return Err(ExchangeError::Request(error));
            }
            Poll::Ready(Err(UploadError::Server(error))) => {
                self.sent = true;
                self.failed = Some(error);
            }
        }
        Ok(())
    }

    /// Nothing of the answer is left.
    pub fn is_over(&self) -> bool {
        self.framing.is_over()
    }

    /// The answer is over. What was left unsent or unread ends the connection too.
    pub fn finish(self, now: Nanos) {
        self.lease.succeeded();
        let whole = self.sent && self.failed.is_none();
        let quiet = {
            let link = self.link.borrow();
            link.inbox.bytes.is_empty() && link.outbox.is_empty() && !link.late
        };
        if self.keep && whole && quiet && !self.hung_up {
            self.lease.release(self.link, now);
        }
    }

    /// The next piece of the answer's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        Poll::Ready(match ready!(self.poll_piece(cx))? {
            Piece::Data(data) => Some(Ok(Frame::data(data))),
            Piece::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            Piece::End | Piece::More => None,
        })
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, ExchangeError<B::Error>>> {
        self.send(cx)?;
        let link = &mut *self.link.borrow_mut();
        loop {
            let piece = self.framing.next_piece(&mut link.inbox.bytes)?;
            if piece != Piece::More {
                return Poll::Ready(Ok(piece));
            }
            if ready!(link.poll_read(cx))? == 0 {
                return Poll::Ready(match self.framing {
                    Framing::Close => Ok(Piece::End),
                    _ => Err(MessageError::Closed.into()),
                });
            }
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }
}
