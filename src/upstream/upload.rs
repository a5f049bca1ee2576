//! A request on its way to a server: its head as bytes, then its body piece by piece. Only what the server has not
//! taken yet is held.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http_body::Body;
use tokio::io::AsyncWrite;

use super::pool::Http1Connection;
use super::websocket;
use crate::http::head::Head;
use crate::http::http1::{Outbox, fields};

/// Why a request could not be sent whole.
#[derive(Debug)]
pub enum UploadError<E> {
    /// Its body broke off.
    Body(E),
    /// The server takes no more.
    Server(io::Error),
}

/// See the module.
#[derive(Debug)]
pub struct Upload<B> {
    body: Option<B>,
    chunked: bool,
    /// The body's length, if it is known.
    exact: Option<u64>,
    /// The server is asked before the body is.
    pub held: bool,
    /// A write has been tried.
    started: bool,
    /// The server may have got some of it.
    pub begun: bool,
    /// The same, since somebody looked.
    pub progress: bool,
    /// Some of what was written waits under TLS to be sent.
    waits: bool,
    /// The request has no body, and its method no effect: it may be sent again.
    repeatable: bool,
    /// The end of the body is that of the connection's sending side.
    closes: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// A request of which nothing has been sent.
    pub fn new(head: &Head, body: B) -> Upload<B> {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let exact = body.as_ref().and_then(|body| body.size_hint().exact());
        let safe = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        Upload {
            chunked: body.is_some() && exact.is_none(),
            exact,
            repeatable: safe && body.is_none(),
            body,
            held: false,
            started: false,
            begun: false,
            progress: false,
            waits: false,
            closes: false,
        }
    }

    /// Goes on with these bytes as they are, after a change of protocol.
    pub fn tunnel(&mut self, bytes: B) {
        self.body = Some(bytes);
        self.chunked = false;
        self.closes = true;
    }

    /// Sends no more of it.
    pub fn give_up(&mut self) {
        self.body = None;
    }

    /// Queues the head.
    pub fn begin(&self, head: &Head, link: &mut Http1Connection) {
        link.outbox
            .push_with(|out| encode(out, head, self.chunked, self.exact));
    }

    /// Whether it may go to another connection after this one failed without an answer.
    pub fn may_repeat(&self) -> bool {
        self.repeatable || !self.begun
    }

    /// Sends what there is; ready when all has been sent.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Http1Connection,
    ) -> Poll<Result<(), UploadError<B::Error>>> {
        loop {
            if self.started {
                while !link.outbox.is_empty() {
                    ready!(link.outbox.poll_write(cx, &mut link.socket))
                        .map_err(UploadError::Server)?;
                    (self.begun, self.progress) = (true, true);
                }
            }
            // What is there of the body goes with the head, and small pieces go together.
            self.started = true;
            let mut more = self.poll_body(cx, &mut link.outbox);
            while matches!(more, Poll::Ready(Ok(true))) && !link.outbox.is_full() {
                more = self.poll_body(cx, &mut link.outbox);
            }
            while !link.outbox.is_empty() {
                ready!(link.outbox.poll_write(cx, &mut link.socket))
                    .map_err(UploadError::Server)?;
                (self.begun, self.progress) = (true, true);
            }
            // Under TLS what was written may still have to be sent, also when more is to come later.
            let sent = Pin::new(&mut link.socket).poll_flush(cx);
            let sent = sent.map_err(UploadError::Server)?;
            let waited = std::mem::replace(&mut self.waits, sent.is_pending());
            self.progress |= waited && sent.is_ready();
            if !ready!(more).map_err(UploadError::Body)? {
                ready!(sent);
                if self.closes {
                    let closed = Pin::new(&mut link.socket).poll_shutdown(cx);
                    return closed.map_err(UploadError::Server);
                }
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Nothing has been sent yet, nor is it on its way.
    pub fn is_new(&self) -> bool {
        !self.started
    }

    /// There is nothing behind the head.
    pub fn is_bodiless(&self) -> bool {
        self.body.is_none()
    }

    /// Somebody else sends what is queued.
    pub fn leaves(&mut self) {
        (self.started, self.begun, self.progress) = (true, true, true);
    }

    /// Queues the next piece of the body; says whether there was one.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &mut Outbox,
    ) -> Poll<Result<bool, B::Error>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(false));
        };
        if self.held {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(body).poll_frame(cx)?);
        match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) => outbox.push_data(data, self.chunked),
            Some(Err(trailers)) => {
                self.body = None;
                if self.chunked {
                    outbox.push_end(trailers.trailers_ref());
                }
            }
            None => {
                self.body = None;
                if self.chunked {
                    outbox.push_end(None);
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

fn encode(out: &mut Vec<u8>, head: &Head, chunked: bool, exact: Option<u64>) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    // `http://host?query` has no path.
    if !target.starts_with('/') {
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    head.fields.write_lines(out);
    if let Some(upgrade) = &head.upgrade {
        fields::write_field(out, b"connection", b"upgrade");
        fields::write_field(out, b"upgrade", upgrade);
        if websocket::is_asked_for(upgrade) && !head.fields.contains(websocket::KEY) {
            fields::write_field(out, websocket::KEY.as_bytes(), &websocket::key());
        }
    }
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    } else if let Some(length) = exact.filter(|_| !head.fields.contains("content-length")) {
        fields::write_number_field(out, b"content-length", length);
    }
    out.extend_from_slice(b"\r\n");
}
