//! A request on its way to a server: its head as bytes, then its body piece by piece, so that no more
//! of the body is held than the server has not taken yet.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http_body::Body;

use super::Socket;
use crate::http1::{Outbox, fields};

/// Why a request could not be sent whole.
#[derive(Debug)]
pub enum Broken<E> {
    /// Its body broke off.
    Body(E),
    /// The server takes no more.
    Server(io::Error),
}

/// See the module.
#[derive(Debug)]
pub struct Upload<B> {
    head: Bytes,
    outbox: Outbox,
    body: Option<B>,
    chunked: bool,
    /// The server's kernel has taken some of it.
    begun: bool,
    /// The request has no body, and its method no effect: it may be sent again.
    repeatable: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// A request of which nothing has been sent; `host` stands in where it names none.
    pub fn new(head: &Parts, host: &str, body: B) -> Upload<B> {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let exact = body.as_ref().and_then(|body| body.size_hint().exact());
        let chunked = body.is_some() && exact.is_none();
        let safe = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let bytes = Bytes::from(encode(head, host, chunked, exact));
        let mut outbox = Outbox::default();
        outbox.push(bytes.clone());
        Upload {
            outbox,
            head: bytes,
            repeatable: safe && body.is_none(),
            body,
            chunked,
            begun: false,
        }
    }

    /// Whether it may go to another connection after this one failed without an answer.
    pub fn may_repeat(&self) -> bool {
        self.repeatable || !self.begun
    }

    /// From the start again.
    pub fn repeat(&mut self) {
        if self.begun {
            self.outbox.clear();
            self.outbox.push(self.head.clone());
            self.begun = false;
        }
    }

    /// Sends what there is; ready when all has been sent.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
    ) -> Poll<Result<(), Broken<B::Error>>> {
        loop {
            if self.begun {
                ready!(self.outbox.poll_empty(cx, socket)).map_err(Broken::Server)?;
            }
            // What is there of the body goes with the head.
            let more = self.poll_body(cx).map_err(Broken::Body)?;
            while !self.outbox.is_empty() {
                ready!(self.outbox.poll_write(cx, socket)).map_err(Broken::Server)?;
                self.begun = true;
            }
            match more {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Queues the next piece of the body; says whether there was one.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, B::Error>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(false));
        };
        let frame = ready!(Pin::new(body).poll_frame(cx)?);
        match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) => self.outbox.push_data(data, self.chunked),
            Some(Err(trailers)) => {
                self.body = None;
                if self.chunked {
                    self.outbox.push_end(trailers.trailers_ref());
                }
            }
            None => {
                self.body = None;
                if self.chunked {
                    self.outbox.push_end(None);
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

fn encode(head: &Parts, host: &str, chunked: bool, exact: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query();
    out.extend_from_slice(target.map_or("/", |target| target.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    fields::write(&mut out, &head.headers);
    if !head.headers.contains_key(HOST) {
        for piece in ["host: ", host, "\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    } else if let Some(length) = exact.filter(|_| !head.headers.contains_key(CONTENT_LENGTH)) {
        // Writing to memory cannot fail.
        let _ = write!(out, "content-length: {length}\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}
