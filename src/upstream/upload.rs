//! Sends a request to a server over HTTP/1.1: its head, then its body piece by piece. `http1_exchange` owns the
//! connection and reads the response. Only bytes that the server has not accepted yet are kept in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http_body::Body;
use tokio::io::AsyncWrite;

use super::transport::Http1Connection;
use super::websocket;
use crate::http::head::Head;
use crate::http::http1::{Outbox, fields};

/// Why a request could not be sent whole.
#[derive(Debug)]
pub enum UploadError<E> {
    /// The client's body broke off.
    Body(E),
    /// The server accepts no more bytes.
    Server(io::Error),
}

/// The sending of one request.
#[derive(Debug)]
pub struct Upload<B> {
    /// The body; `None` if there is none, and once all of it is queued or given up.
    body: Option<B>,
    /// Whether the body is sent in chunks, because its length is not known.
    is_chunked: bool,
    /// The body's length in bytes; `None` if there is no body or its length is not known.
    content_length: Option<u64>,
    /// Whether the body is held back until the server sends `100 Continue` or the caller lets it go.
    pub is_body_held: bool,
    /// Whether a write has been tried, or left to the worker, which sends for several connections together.
    has_started: bool,
    /// Whether the server may have received some of the request.
    pub has_begun: bool,
    /// Whether the server has accepted bytes since the flag was last cleared.
    pub has_progress: bool,
    /// Whether written bytes still wait in the buffers of the TLS session.
    is_flush_pending: bool,
    /// Whether the request has no body and a safe method, so that it may be sent again.
    is_safe: bool,
    /// Whether the end of the body closes the connection's sending side, as in a tunnel.
    closes_at_end: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// A request of which nothing has been sent.
    pub fn new(head: &Head, body: B) -> Upload<B> {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let content_length = body.as_ref().and_then(|body| body.size_hint().exact());
        let has_safe_method = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        Upload {
            is_chunked: body.is_some() && content_length.is_none(),
            content_length,
            is_safe: has_safe_method && body.is_none(),
            body,
            is_body_held: false,
            has_started: false,
            has_begun: false,
            has_progress: false,
            is_flush_pending: false,
            closes_at_end: false,
        }
    }

    /// Sends these bytes without any framing, after a switch to another protocol.
    pub fn begin_tunnel(&mut self, bytes: B) {
        self.body = Some(bytes);
        self.is_chunked = false;
        self.closes_at_end = true;
    }

    /// Drops the part of the body that is not queued yet.
    pub fn drop_body(&mut self) {
        self.body = None;
    }

    /// Queues the head of the request.
    pub fn queue_head(&self, head: &Head, connection: &mut Http1Connection) {
        let outbox = &mut connection.outbox;
        outbox.push_with(|out| write_head(out, head, self.is_chunked, self.content_length));
    }

    /// Whether the request may be sent over another connection, after this one failed without a response.
    pub fn is_retryable(&self) -> bool {
        self.is_safe || !self.has_begun
    }

    /// Sends the queued bytes, and the body as the client sends it; ready when the whole request has been sent.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Http1Connection,
    ) -> Poll<Result<(), UploadError<B::Error>>> {
        loop {
            if self.has_started {
                ready!(self.poll_write_queued(cx, connection)).map_err(UploadError::Server)?;
            }
            // The beginning of the body is written together with the head, and small pieces with each other.
            self.has_started = true;
            let mut has_more = self.poll_queue_piece(cx, &mut connection.outbox);
            while matches!(has_more, Poll::Ready(Ok(true))) && !connection.outbox.is_full() {
                has_more = self.poll_queue_piece(cx, &mut connection.outbox);
            }
            let written = self.poll_write_queued(cx, connection);
            let has_more = match has_more {
                // The body tells its error once. While the write waits it would be lost, and the rest look whole.
                Poll::Ready(Err(error)) => return Poll::Ready(Err(UploadError::Body(error))),
                Poll::Ready(Ok(has_more)) => Poll::Ready(has_more),
                Poll::Pending => Poll::Pending,
            };
            ready!(written).map_err(UploadError::Server)?;
            // The TLS buffer is flushed even when more of the body comes later.
            let flush = Pin::new(&mut connection.socket).poll_flush(cx);
            let flush = flush.map_err(UploadError::Server)?;
            let was_flush_pending =
                std::mem::replace(&mut self.is_flush_pending, flush.is_pending());
            self.has_progress |= was_flush_pending && flush.is_ready();
            if !ready!(has_more) {
                ready!(flush);
                if self.closes_at_end {
                    let shutdown = Pin::new(&mut connection.socket).poll_shutdown(cx);
                    return shutdown.map_err(UploadError::Server);
                }
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Writes everything that is queued.
    #[inline]
    fn poll_write_queued(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Http1Connection,
    ) -> Poll<io::Result<()>> {
        while !connection.outbox.is_empty() {
            ready!(connection.outbox.poll_write(cx, &mut connection.socket))?;
            self.has_begun = true;
            self.has_progress = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether no write has been tried yet, nor left to the worker.
    pub fn is_new(&self) -> bool {
        !self.has_started
    }

    /// Whether nothing is left to queue after the head.
    pub fn has_no_body(&self) -> bool {
        self.body.is_none()
    }

    /// Counts the queued bytes as sent: from here the worker sends them, together with those of other connections.
    pub fn mark_queued(&mut self) {
        self.has_started = true;
        self.has_begun = true;
        self.has_progress = true;
    }

    /// Queues the next piece or the end of the body. Returns `false` if the whole body was queued before.
    fn poll_queue_piece(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &mut Outbox,
    ) -> Poll<Result<bool, B::Error>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(false));
        };
        if self.is_body_held {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(body).poll_frame(cx)?);
        match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) => outbox.push_data(data, self.is_chunked),
            Some(Err(trailers)) => {
                self.body = None;
                if self.is_chunked {
                    outbox.push_chunked_end(trailers.trailers_ref());
                }
            }
            None => {
                self.body = None;
                if self.is_chunked {
                    outbox.push_chunked_end(None);
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

/// Writes the head of a request: its line, its fields, those of an upgrade, and those that state the body's framing.
fn write_head(out: &mut Vec<u8>, head: &Head, is_chunked: bool, content_length: Option<u64>) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    // The target of `http://host?query` has no path.
    if !target.starts_with('/') {
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    head.fields.write_lines(out);
    if let Some(upgrade) = &head.upgrade {
        fields::write_field(out, b"connection", b"upgrade");
        fields::write_field(out, b"upgrade", upgrade);
        if websocket::is_websocket(upgrade) && !head.fields.contains(websocket::KEY_FIELD) {
            let websocket_key = websocket::random_key();
            fields::write_field(out, websocket::KEY_FIELD.as_bytes(), &websocket_key);
        }
    }
    if is_chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    } else if let Some(length) = content_length.filter(|_| !head.fields.contains("content-length"))
    {
        fields::write_number_field(out, b"content-length", length);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::task::Waker;
    use tokio::net::UnixStream;

    use super::*;
    use crate::net::{Socket, Stream};

    /// A body that broke off must not look whole to a server that reads slowly.
    #[tokio::test]
    async fn the_error_of_a_body_is_told_while_the_server_accepts_no_bytes() {
        let (near, _far) = UnixStream::pair().unwrap();
        near.writable().await.unwrap();
        while near.try_write(&[0; 65536]).is_ok() {}
        let socket = Socket::to_server(Stream::Unix(near)).unwrap();
        let mut connection = Http1Connection::new(socket);
        let (parts, ()) = http::Request::post("/").body(()).unwrap().into_parts();
        let frames = [Ok(Frame::data(Bytes::from_static(b"data"))), Err("broken")];
        let body = StreamBody::new(stream::iter(frames));
        let mut upload = Upload::new(&Head::from(&parts), body);
        let mut cx = Context::from_waker(Waker::noop());
        let sent = upload.poll_send(&mut cx, &mut connection);
        assert!(matches!(
            sent,
            Poll::Ready(Err(UploadError::Body("broken")))
        ));
    }
}
