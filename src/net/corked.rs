//! The stream under a TLS session. It can hold small messages back so that they are sent together, because each packet
//! wakes the process at the other end.
//!
//! So a session ticket is sent with the first response, or when there is nothing to read. The last response is sent
//! with the alert that closes the session.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

/// Once so many bytes are held, they are sent before more are added, even while the stream is corked. They are about
/// two TLS records.
const MAX_HELD_BYTES: usize = 32 * 1024;

/// A stream that holds written bytes back while it is corked, as `TCP_CORK` does for TCP.
#[derive(Debug)]
pub struct Corked {
    /// The stream to which held bytes are written.
    pub stream: Stream,
    /// Written bytes that are not sent yet; fewer than [`MAX_HELD_BYTES`] and those of one more write.
    held_bytes: Vec<u8>,
    is_corked: bool,
}

impl Corked {
    /// Wraps a stream. See [`Corked::set_corked`].
    pub fn new(stream: Stream, is_corked: bool) -> Corked {
        Corked {
            stream,
            held_bytes: Vec::new(),
            is_corked,
        }
    }

    /// Corks or uncorks the stream. While it is corked, flushing sends nothing. Held bytes are sent when a read has to
    /// wait, when they are too many, and at shutdown or drop. Once the stream is uncorked, the next write or flush
    /// sends them.
    pub fn set_corked(&mut self, is_corked: bool) {
        self.is_corked = is_corked;
    }

    /// Sends the held bytes.
    fn poll_write_held_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held_bytes.is_empty() {
            let written_bytes =
                ready!(Pin::new(&mut self.stream).poll_write(cx, &self.held_bytes))?;
            if written_bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held_bytes.drain(..written_bytes);
        }
        self.held_bytes = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Whether written bytes must be held, because the stream is corked or because earlier bytes are held.
    fn must_hold(&self) -> bool {
        self.is_corked || !self.held_bytes.is_empty()
    }
}

/// Tries to send the held bytes, so that a client learns from the alert why its handshake failed.
impl Drop for Corked {
    fn drop(&mut self) {
        if !self.held_bytes.is_empty() {
            let _ = self.stream.try_write(&self.held_bytes);
        }
    }
}

impl AsyncRead for Corked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read_result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read_result.is_pending() {
            ready!(self.poll_write_held_bytes(cx))?;
        }
        read_result
    }
}

impl AsyncWrite for Corked {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.must_hold() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        if self.held_bytes.len() >= MAX_HELD_BYTES {
            ready!(self.poll_write_held_bytes(cx))?;
        }
        for slice in slices {
            self.held_bytes.extend_from_slice(slice);
        }
        // The new bytes count as written even if the socket has no room for them now: the next flush sends them.
        if !self.is_corked
            && let Poll::Ready(Err(error)) = self.poll_write_held_bytes(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.is_corked {
            true => Poll::Ready(Ok(())),
            false => self.poll_write_held_bytes(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held_bytes(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::task::Waker;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads what has arrived at the other end. On one machine, sent bytes arrive at once.
    fn arrived(from: &mut std::net::TcpStream) -> String {
        let mut bytes = [0; 64];
        let read = from.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    #[tokio::test]
    async fn what_is_held_leaves_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut corked = Corked::new(one.unwrap().into(), true);
        let mut other = other.unwrap().0.into_std().unwrap();
        corked.write_all(b"a").await.unwrap();
        corked.flush().await.unwrap();
        assert_eq!(arrived(&mut other), "");
        // When there is nothing to read.
        let mut cx = Context::from_waker(Waker::noop());
        let mut room = [0; 8];
        let mut buf = ReadBuf::new(&mut room);
        let read = Pin::new(&mut corked).poll_read(&mut cx, &mut buf);
        assert!(read.is_pending());
        assert_eq!(arrived(&mut other), "a");
        // With what comes next.
        corked.write_all(b"b").await.unwrap();
        corked.set_corked(false);
        assert_eq!(arrived(&mut other), "");
        corked.write_all(b"c").await.unwrap();
        assert_eq!(arrived(&mut other), "bc");
        // With the end, however it comes.
        corked.set_corked(true);
        corked.write_all(b"d").await.unwrap();
        drop(corked);
        assert_eq!(arrived(&mut other), "d");
    }
}
