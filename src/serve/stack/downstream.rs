//! The client side of one request, whatever its version of HTTP: the rest of its body, and the way for interim responses.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Version;
use http_body::SizeHint;

use crate::http::head::ResponseHead;
use crate::http::http1::MessageError;
use crate::http::http1::chunked::Piece;
use crate::serve::http1::wire::Wire;
use crate::serve::http2::Http2Stream;
use crate::serve::worker::guard::Guard;

/// See the module.
#[derive(Clone)]
pub enum Downstream {
    /// A connection of HTTP/1, at this request.
    Http1(Rc<Wire>),
    /// A stream of HTTP/2.
    Http2(Rc<Http2Stream>),
}

impl Downstream {
    /// The request's deadlines.
    pub fn guard(&self) -> &Rc<Guard> {
        match self {
            Downstream::Http1(wire) => wire.guard(),
            Downstream::Http2(stream) => stream.guard(),
        }
    }

    /// What `Via` says of a request that came from here: RFC 9110 section 7.6.3.
    pub fn via(&self, version: Version) -> &'static [u8] {
        match self {
            Downstream::Http1(_) if version >= Version::HTTP_11 => b"1.1 tollgate",
            Downstream::Http1(_) => b"1.0 tollgate",
            Downstream::Http2(_) => b"2.0 tollgate",
        }
    }

    /// The next piece of the body. A client that waits for `100 Continue` gets it first.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Piece, MessageError>> {
        match self {
            Downstream::Http1(wire) => wire.poll_body(cx),
            Downstream::Http2(stream) => stream.poll_body(cx),
        }
    }

    /// How much of the body is left.
    pub fn remaining_body(&self) -> SizeHint {
        match self {
            Downstream::Http1(wire) => wire.remaining_body(),
            Downstream::Http2(stream) => stream.remaining_body(),
        }
    }

    /// Whether the client cannot send, because the gateway has no room for more.
    pub fn is_held_back(&self) -> bool {
        match self {
            Downstream::Http1(_) => false,
            Downstream::Http2(stream) => stream.is_held_back(),
        }
    }

    /// From now on the body is another protocol, to the end of the connection or stream.
    pub fn open_tunnel(&self) {
        match self {
            Downstream::Http1(wire) => wire.open_tunnel(),
            Downstream::Http2(stream) => stream.open_tunnel(),
        }
    }

    /// All of the body has been read.
    pub fn is_body_over(&self) -> bool {
        match self {
            Downstream::Http1(wire) => wire.is_body_over(),
            Downstream::Http2(stream) => stream.is_body_over(),
        }
    }

    /// Whether the client waits for `100 Continue`.
    pub fn expects_continue(&self) -> bool {
        match self {
            Downstream::Http1(wire) => wire.expects_continue(),
            Downstream::Http2(stream) => stream.expects_continue(),
        }
    }

    /// Passes on an interim response.
    pub fn send_interim(&self, head: &ResponseHead) {
        match self {
            Downstream::Http1(wire) => wire.send_interim(head),
            Downstream::Http2(stream) => stream.send_interim(head),
        }
    }

    /// Sends the interim responses.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Downstream::Http1(wire) => wire.poll_flush(cx),
            // The connection sends by itself.
            Downstream::Http2(_) => Poll::Ready(Ok(())),
        }
    }
}
