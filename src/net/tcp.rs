//! A TCP stream that is read and written past libc. There both are points at which a thread may be cancelled, which
//! costs a process of several threads two atomic operations a call (glibc before 2.41).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
#[derive(Debug)]
pub struct Tcp(pub TcpStream);

impl Tcp {
    /// What `call` does to so many bytes. That it did less than all says that the kernel can do no more for now: tokio
    /// concludes the same from its own calls, and is told here as if another call had found that out.
    fn try_all(
        &self,
        interest: Interest,
        all: usize,
        call: impl FnOnce() -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut done = None;
        let tried = self.0.try_io(interest, || {
            let bytes = call()?;
            done = Some(bytes);
            match (1..all).contains(&bytes) {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        });
        match (done, tried) {
            (Some(bytes), _) => Some(Ok(bytes)),
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Some(Err(error)),
            (None, _) => None,
        }
    }
}

/// Adds what has come in.
#[allow(unsafe_code)]
fn receive(tcp: &TcpStream, buf: &mut ReadBuf<'_>) -> rustix::io::Result<usize> {
    // SAFETY: the kernel writes into the room and nobody makes any of it uninitialised.
    let room = unsafe { buf.unfilled_mut() };
    let ((came, _), _) = rustix::net::recv(tcp, room, RecvFlags::empty())?;
    let bytes = came.len();
    // SAFETY: the kernel has written these bytes, at the beginning of the room.
    unsafe { buf.assume_init(bytes) };
    buf.advance(bytes);
    Ok(bytes)
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let room = buf.remaining();
            let call = || receive(&self.0, buf);
            if let Some(read) = self.try_all(Interest::READABLE, room, call) {
                return Poll::Ready(read.map(|_| ()));
            }
        }
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let call = || rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL);
            if let Some(written) = self.try_all(Interest::WRITABLE, bytes.len(), call) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [bytes] = slices {
            return self.poll_write(cx, bytes);
        }
        let all = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let mut control = SendAncillaryBuffer::default();
            let call = || rustix::net::sendmsg(&self.0, slices, &mut control, SendFlags::NOSIGNAL);
            if let Some(written) = self.try_all(Interest::WRITABLE, all, call) {
                return Poll::Ready(written);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Tcp, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Tcp(one.unwrap()), Tcp(other.unwrap().0))
    }

    #[tokio::test]
    async fn all_bytes_pass_in_pieces_of_any_size() {
        let (mut one, mut other) = pair().await;
        // More than sockets hold, so that both sides must wait for each other.
        let sent: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
        let sending = async {
            one.write_all(&sent).await.unwrap();
            one.shutdown().await.unwrap();
            one
        };
        let receiving = async {
            let (mut got, mut size) = (Vec::new(), 1);
            loop {
                let mut piece = vec![0; size];
                match other.read(&mut piece).await.unwrap() {
                    0 => return got,
                    read => got.extend_from_slice(&piece[..read]),
                }
                size = size % 70_001 + 1_237;
            }
        };
        let (_, got) = tokio::join!(sending, receiving);
        assert!(got == sent);
    }

    #[tokio::test]
    async fn a_short_read_is_the_last_until_more_comes() {
        let (mut one, mut other) = pair().await;
        let mut room = [0; 8];
        for text in ["ab", "cd"] {
            one.write_all(text.as_bytes()).await.unwrap();
            let read = other.read(&mut room).await.unwrap();
            assert_eq!(&room[..read], text.as_bytes());
            // Known without a question to the kernel.
            let ready = other.0.try_io(Interest::READABLE, || Ok(()));
            assert_eq!(ready.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let mut buf = ReadBuf::new(&mut room);
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut other).poll_read(cx, &mut buf).is_pending());
        }
        drop(one);
        assert_eq!(other.read(&mut room).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_short_write_is_the_last_until_some_is_read() {
        let (mut one, mut other) = pair().await;
        let (bytes, cx) = (vec![7; 1 << 20], &mut Context::from_waker(Waker::noop()));
        let mut sent = 0;
        for half in [0, 1 << 19].into_iter().cycle() {
            let (head, tail) = bytes.split_at(half);
            let slices = [IoSlice::new(head), IoSlice::new(tail)];
            let written = Pin::new(&mut one).poll_write_vectored(cx, &slices);
            let Poll::Ready(written) = written else { break };
            sent += written.unwrap();
            if sent % bytes.len() != 0 {
                let ready = one.0.try_io(Interest::WRITABLE, || Ok(()));
                assert_eq!(ready.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            }
        }
        let mut got = vec![0; sent];
        other.read_exact(&mut got).await.unwrap();
        assert!(got.iter().all(|byte| *byte == 7));
        one.write_all(b"more").await.unwrap();
        other.read_exact(&mut got[..4]).await.unwrap();
        assert_eq!(&got[..4], b"more");
    }

    #[tokio::test]
    async fn a_reset_is_an_error() {
        let (one, mut other) = pair().await;
        socket2::SockRef::from(&one.0)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(one);
        let error = other.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let error = other.write_all(b"a").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
