//! A request on its way to a server: its head as bytes, then its body piece by piece, so that no more
//! of the body is held than the server has not taken yet.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::Socket;

/// Most pieces that are written at once.
const GATHERED: usize = 8;

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
    queue: VecDeque<Bytes>,
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
        Upload {
            queue: VecDeque::from([bytes.clone()]),
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
            self.queue = VecDeque::from([self.head.clone()]);
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
            // What is there of the body goes with the head.
            let more = if self.queue.len() < 2 {
                self.poll_body(cx).map_err(Broken::Body)?
            } else {
                Poll::Ready(true)
            };
            while !self.queue.is_empty() {
                ready!(self.poll_write(cx, socket)).map_err(Broken::Server)?;
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
        match ready!(Pin::new(body).poll_frame(cx)?) {
            None => self.end(&HeaderMap::new()),
            Some(frame) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if self.chunked => {
                    let size = format!("{:x}\r\n", data.len());
                    self.queue
                        .extend([size.into(), data, Bytes::from_static(b"\r\n")]);
                }
                Ok(data) => self.queue.push_back(data),
                Err(frame) => self.end(&frame.into_trailers().unwrap_or_default()),
            },
        }
        Poll::Ready(Ok(true))
    }

    fn end(&mut self, trailers: &HeaderMap) {
        self.body = None;
        if self.chunked {
            let mut end = b"0\r\n".to_vec();
            fields(&mut end, trailers);
            end.extend_from_slice(b"\r\n");
            self.queue.push_back(end.into());
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); GATHERED];
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        let socket = Pin::new(socket);
        let mut written = ready!(socket.poll_write_vectored(cx, &slices[..filled]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.begun = true;
        while let Some(piece) = self.queue.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

fn encode(head: &Parts, host: &str, chunked: bool, exact: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query();
    out.extend_from_slice(target.map_or("/", |target| target.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    fields(&mut out, &head.headers);
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

fn fields(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
