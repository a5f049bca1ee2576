//! A stream under TLS. What a handshake leaves to be sent, a session ticket, goes out with the first answer, or
//! when there is nothing to read; the last answer goes out with the end. Each message less is one less that wakes
//! the other end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

/// See the module.
#[derive(Debug)]
pub struct Corked {
    /// The stream.
    pub stream: Stream,
    held: Vec<u8>,
    corked: bool,
}

/// From here on what is held is sent.
const MOST: usize = 32 * 1024;

impl Corked {
    /// Holds what is written until it waits for something to read, if it is `corked`.
    pub fn new(stream: Stream, corked: bool) -> Corked {
        Corked {
            stream,
            held: Vec::new(),
            corked,
        }
    }

    /// Whether from now on what is written waits, though it is flushed.
    pub fn cork(&mut self, corked: bool) {
        self.corked = corked;
    }

    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.drain(..written);
        }
        self.held = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Whether what is written must come after something that is held.
    fn holds(&self) -> bool {
        self.corked || !self.held.is_empty()
    }
}

/// An alert that ends a handshake is worth an attempt.
impl Drop for Corked {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            let _ = self.stream.try_write(&self.held);
        }
    }
}

impl AsyncRead for Corked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_pending() {
            ready!(self.poll_release(cx))?;
        }
        read
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
        if !self.holds() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        if self.held.len() >= MOST {
            ready!(self.poll_release(cx))?;
        }
        for slice in slices {
            self.held.extend_from_slice(slice);
        }
        if !self.corked
            && let Poll::Ready(Err(error)) = self.poll_release(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.corked {
            true => Poll::Ready(Ok(())),
            false => self.poll_release(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
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

    /// What the kernel has for the other end, on the same machine.
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
        corked.cork(false);
        assert_eq!(arrived(&mut other), "");
        corked.write_all(b"c").await.unwrap();
        assert_eq!(arrived(&mut other), "bc");
        // With the end, however it comes.
        corked.cork(true);
        corked.write_all(b"d").await.unwrap();
        drop(corked);
        assert_eq!(arrived(&mut other), "d");
    }
}
