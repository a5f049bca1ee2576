//! The socket of a client's connection, under HTTP/1 and HTTP/2. The socket reports the progress of writes to the
//! connection's deadlines, and closes in a way that lets the client read the last response.
//!
//! It parses no message. The bounds for unwanted bodies and for the end of a connection are here, because both versions
//! share them.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadlines::{Deadlines, Phase};
use crate::net::Socket;
use crate::policy::HalfClose;

/// Maximum bytes of an unwanted request body that are read and discarded (drained). So an HTTP/1 connection can be reused.
/// And clients that send their whole body before they read do read the response.
pub const MAX_DRAINED_BYTES: usize = 256 * 1024;

/// Longest time for which an unwanted request body is drained.
pub const BODY_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a client may take to close its sending side after the gateway has closed its own.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection without a request stays open while the worker finishes its open requests: an idle one over
/// HTTP/1, or one before its first request. A request that arrives in this time is served as the last one.
pub const IDLE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum bytes that the closing connections of one worker discard together, besides [`MAX_DRAINED_BYTES`] of each. So one
/// client may send a large body to its end before it reads, and a thousand at once may not.
const MAX_EXTRA_DISCARDED_BYTES: usize = 64 * 1024 * 1024;

/// Size in bytes of the buffer for what a client still sends while its connection closes.
const DISCARD_BUFFER_BYTES: usize = 16 * 1024;

/// The socket of a client's connection.
pub struct ClientSocket {
    stream: Socket,
    /// The deadlines of the connection, to which writes are reported.
    pub deadlines: Rc<Deadlines>,
    /// How long a write may wait for the client.
    send_timeout: Duration,
    /// What happens to a request whose client has closed its sending side.
    half_close: HalfClose,
    /// Whether the gateway's sending side is closed.
    is_shut_down: bool,
    discarded_bytes: DiscardedBytes,
}

/// The bytes that a closing connection has discarded. The drop ends its share in what the worker's connections discard.
struct DiscardedBytes {
    bytes: usize,
    /// Bytes that the closing connections of the worker have discarded beyond [`MAX_DRAINED_BYTES`] of each.
    worker_extra_bytes: Rc<Cell<usize>>,
}

impl DiscardedBytes {
    /// Whether the connection may discard more bytes.
    fn may_grow(&self) -> bool {
        self.bytes < MAX_DRAINED_BYTES || self.worker_extra_bytes.get() < MAX_EXTRA_DISCARDED_BYTES
    }

    fn add(&mut self, bytes: usize) {
        let extra_bytes_before = self.extra_bytes();
        self.bytes += bytes;
        let extra_bytes = self.extra_bytes() - extra_bytes_before;
        let worker_extra_bytes = self.worker_extra_bytes.get();
        self.worker_extra_bytes
            .set(worker_extra_bytes + extra_bytes);
    }

    fn extra_bytes(&self) -> usize {
        self.bytes.saturating_sub(MAX_DRAINED_BYTES)
    }
}

impl Drop for DiscardedBytes {
    fn drop(&mut self) {
        let worker_extra_bytes = self.worker_extra_bytes.get();
        self.worker_extra_bytes
            .set(worker_extra_bytes - self.extra_bytes());
    }
}

impl ClientSocket {
    /// A client's socket over `stream`. A client that reads nothing for `send_timeout` misses its deadline.
    /// `worker_extra_bytes` is the sum that all connections of the worker share; see [`MAX_EXTRA_DISCARDED_BYTES`].
    pub fn new(
        stream: Socket,
        deadlines: Rc<Deadlines>,
        send_timeout: Duration,
        half_close: HalfClose,
        worker_extra_bytes: Rc<Cell<usize>>,
    ) -> ClientSocket {
        ClientSocket {
            stream,
            deadlines,
            send_timeout,
            half_close,
            is_shut_down: false,
            discarded_bytes: DiscardedBytes {
                bytes: 0,
                worker_extra_bytes,
            },
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl ClientSocket {
    /// Whether a client that has closed its sending side may still wait for its response.
    #[cold]
    pub fn may_await_response(&self) -> bool {
        self.half_close == HalfClose::Answered && self.stream.can_half_close()
    }

    /// Whether the client has reset the connection or no longer responds to keep-alive probes. Asks the kernel, which
    /// reports each error once.
    pub fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }

    /// Sets whether the client sees a reset when the socket is dropped.
    pub fn set_reset_on_close(&self, should_reset: bool) {
        self.stream.set_reset_on_close(should_reset);
    }

    /// Ends the connection for both sides at once, whatever waits to be sent.
    pub fn hang_up(&self) {
        self.stream.shut_down_both();
    }

    /// Under TLS, holds back what is written from now on, so that it is sent together with the end of the connection.
    pub fn hold_back(&mut self) {
        self.stream.hold_output();
    }

    /// Reports to the deadlines whether a write has to wait for the client, and returns the write's result.
    fn report_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &result {
            Poll::Pending => self.deadlines.report_write_stalled(self.send_timeout),
            Poll::Ready(_) => self.deadlines.report_write_progress(),
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
        self.report_write(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.report_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.report_write(result)
    }

    /// Closes the sending side, then reads and discards bytes until the client has closed its side too. If bytes were left
    /// unread, the kernel would reset the connection and destroy a response that the client has not read yet. Too many bytes
    /// are left to the kernel, and the deadline ends the connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut_down {
            // Under TLS the end is a message, which may have to wait like any other write.
            let result = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.report_write(result))?;
            this.is_shut_down = true;
            this.deadlines.enter_phase(Phase::Linger, LINGER_TIMEOUT);
        }
        let mut discarded_bytes = [MaybeUninit::uninit(); DISCARD_BUFFER_BYTES];
        loop {
            if !this.discarded_bytes.may_grow() {
                return Poll::Pending;
            }
            let mut buffer = ReadBuf::uninit(&mut discarded_bytes);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer))?;
            this.discarded_bytes.add(buffer.filled().len());
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
