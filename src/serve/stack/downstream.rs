//! The client's side of one request, in any version of HTTP. Layers read the request's body from it and send interim
//! responses over it.
//!
//! The final response does not pass through here: the `send_response.rs` of each version sends it.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Version;
use http_body::SizeHint;

use crate::http::head::ResponseHead;
use crate::http::http1::MessageError;
use crate::http::http1::chunked::BodyPiece;
use crate::serve::http1::wire::Wire;
use crate::serve::http2::Http2Stream;
use crate::serve::http3::Http3Stream;
use crate::serve::worker::deadlines::Deadlines;

/// Where a request comes from.
#[derive(Clone)]
pub enum Downstream {
    /// A connection of HTTP/1.0 or HTTP/1.1, which carries one request at a time.
    Http1(Rc<Wire>),
    /// One stream of an HTTP/2 connection.
    Http2(Rc<Http2Stream>),
    /// One stream of an HTTP/3 connection.
    Http3(Rc<Http3Stream>),
}

impl Downstream {
    /// The deadlines of the request.
    pub fn deadlines(&self) -> &Rc<Deadlines> {
        match self {
            Downstream::Http1(wire) => wire.deadlines(),
            Downstream::Http2(stream) => stream.deadlines(),
            Downstream::Http3(stream) => stream.deadlines(),
        }
    }

    /// The gateway's element of the request's `Via` field: RFC 9110 section 7.6.3.
    pub fn via_element(&self, version: Version) -> &'static [u8] {
        match self {
            Downstream::Http1(_) if version >= Version::HTTP_11 => b"1.1 tollgate",
            Downstream::Http1(_) => b"1.0 tollgate",
            Downstream::Http2(_) => b"2.0 tollgate",
            Downstream::Http3(_) => b"3.0 tollgate",
        }
    }

    /// Reads the next piece of the body. A client that waits for `100 Continue` gets it first.
    ///
    /// # Errors
    ///
    /// The client has left or broken a rule of HTTP/2, or the framing of the body is malformed.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, MessageError>> {
        match self {
            Downstream::Http1(wire) => wire.poll_body(cx),
            Downstream::Http2(stream) => stream.poll_body(cx),
            Downstream::Http3(stream) => stream.poll_body(cx),
        }
    }

    /// How many bytes of the body are still to be read; exact if the client has stated a length or ended the body.
    pub fn remaining_body(&self) -> SizeHint {
        match self {
            Downstream::Http1(wire) => wire.remaining_body(),
            Downstream::Http2(stream) => stream.remaining_body(),
            Downstream::Http3(stream) => stream.remaining_body(),
        }
    }

    /// Bounds what is still to be read of the body. HTTP/2 receives ahead of the reader, so it must know what is too large.
    pub fn bound_body(&self, max_bytes: u64) {
        if let Downstream::Http2(stream) = self {
            stream.bound_body(max_bytes);
        }
    }

    /// Whether more than [`Downstream::bound_body`] allows has come, so that the rest cannot be read. The other versions
    /// leave that to their reader.
    pub fn is_body_too_large(&self) -> bool {
        match self {
            Downstream::Http2(stream) => stream.is_body_too_large(),
            Downstream::Http1(_) | Downstream::Http3(_) => false,
        }
    }

    /// Drops the rest of the body, which nobody reads. HTTP/1 and HTTP/3 receive nothing while nobody reads.
    pub fn drop_body(&self) {
        if let Downstream::Http2(stream) = self {
            stream.drop_body();
        }
    }

    /// Whether the client may be unable to send, because it has used up the flow-control window of its connection. Never
    /// so over HTTP/1.
    pub fn is_window_exhausted(&self) -> bool {
        match self {
            Downstream::Http1(_) => false,
            Downstream::Http2(stream) => stream.is_window_exhausted(),
            Downstream::Http3(stream) => stream.is_window_exhausted(),
        }
    }

    /// Reads the body as another protocol from now on, to the end of the connection or stream.
    pub fn open_tunnel(&self) {
        match self {
            Downstream::Http1(wire) => wire.open_tunnel(),
            Downstream::Http2(stream) => stream.open_tunnel(),
            // No request opens a tunnel.
            Downstream::Http3(_) => {}
        }
    }

    /// Whether all of the body has been read. A request that waits for its tunnel has no body.
    #[inline]
    pub fn is_body_over(&self) -> bool {
        match self {
            Downstream::Http1(wire) => wire.is_body_over(),
            Downstream::Http2(stream) => stream.is_body_over(),
            Downstream::Http3(stream) => stream.is_body_over(),
        }
    }

    /// Whether the client waits for `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        match self {
            Downstream::Http1(wire) => wire.awaits_continue(),
            Downstream::Http2(stream) => stream.awaits_continue(),
            Downstream::Http3(stream) => stream.awaits_continue(),
        }
    }

    /// Queues an interim response, such as 103, for the client. It is left out over HTTP/1.0, and over HTTP/2 while the
    /// client does not read (except 100).
    pub fn send_interim(&self, head: &ResponseHead) {
        match self {
            Downstream::Http1(wire) => wire.send_interim(head),
            Downstream::Http2(stream) => stream.send_interim(head),
            Downstream::Http3(stream) => stream.send_interim(head),
        }
    }

    /// Sends the queued interim responses. An error is one of the client's connection.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Downstream::Http1(wire) => wire.poll_flush(cx),
            // A connection of HTTP/2 sends what its streams queue.
            Downstream::Http2(_) => Poll::Ready(Ok(())),
            Downstream::Http3(stream) => stream
                .poll_send(cx)
                .map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    }
}
