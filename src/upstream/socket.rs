//! A TCP stream that sends at once and can say whether anything came in.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Takes a connected stream and sends small messages at once.
    pub fn new(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        // An end that vanished without a word is noticed all the same.
        let alive = TcpKeepalive::new().with_time(Duration::from_secs(60));
        SockRef::from(&stream).set_tcp_keepalive(&alive)?;
        Ok(Socket(stream))
    }

    /// Whether the other end sees a reset when this one is dropped.
    pub fn reset_on_close(&self, reset: bool) {
        // Without it the end looks regular; nothing better can be done.
        let _ = SockRef::from(&self.0).set_linger(reset.then_some(Duration::ZERO));
    }

    /// Nothing has come in, not even the end. Asks the kernel only when it said that something did.
    pub fn is_quiet(&self) -> bool {
        let nothing = self.0.try_read(&mut [0]);
        nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
