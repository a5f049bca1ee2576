//! A client's socket, under either version of HTTP. It reports progress to the deadlines of its connection, and closes in
//! a way that lets the client read the last response. The bounds for the end of a connection are here too.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::guard::{Guard, Phase};
use crate::net::Socket;
use crate::policy::HalfClose;

/// Most bytes of an unwanted body that are read so that the connection can go on.
pub const MAX_DRAIN: usize = 256 * 1024;

/// How long the rest of an unwanted request body is read.
pub const DRAIN_FOR: Duration = Duration::from_millis(500);

/// How long a client may take to close after the gateway has.
pub const LINGER: Duration = Duration::from_secs(2);

/// How long a connection without a request stays open when the worker is about to end. A request may be under way to it, and
/// is served as its last.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// The client's socket.
pub struct ClientSocket {
    stream: Socket,
    /// The connection's deadlines.
    pub guard: Rc<Guard>,
    send: Duration,
    /// See [`HalfClose`].
    half_close: HalfClose,
    closing: bool,
}

impl ClientSocket {
    /// Over `stream`: its client may take nothing for `send`, and close its sending side as `half_close` says.
    pub fn new(
        stream: Socket,
        guard: Rc<Guard>,
        send: Duration,
        half_close: HalfClose,
    ) -> ClientSocket {
        ClientSocket {
            stream,
            guard,
            send,
            half_close,
            closing: false,
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl ClientSocket {
    /// Whether it may be waiting for a response though it has closed its sending side.
    #[cold]
    pub fn may_wait(&self) -> bool {
        self.half_close == HalfClose::Answered && self.stream.closes_by_halves()
    }

    /// See [`Socket::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }

    /// See [`Socket::reset_on_close`].
    pub fn reset_on_close(&self, reset: bool) {
        self.stream.reset_on_close(reset);
    }

    /// See [`Socket::hang_up`].
    pub fn hang_up(&self) {
        self.stream.hang_up();
    }

    /// See [`Socket::hold_back`].
    pub fn hold_back(&mut self) {
        self.stream.hold_back();
    }

    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &result {
            Poll::Pending => self.guard.write_waits(self.send),
            Poll::Ready(_) => self.guard.wrote(),
        }
        result
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(result)
    }

    /// Closes the sending side, then reads until the client has closed too: a close with unread
    /// bytes would make the kernel reset the connection and destroy a response not yet read.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closing {
            // Under TLS the end is a message that must find room.
            let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.wrote(shut))?;
            this.closing = true;
            this.guard.enter(Phase::Linger, LINGER);
        }
        let mut scratch = [MaybeUninit::uninit(); 16 * 1024];
        loop {
            let mut buf = ReadBuf::uninit(&mut scratch);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
