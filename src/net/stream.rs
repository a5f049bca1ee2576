//! TCP and Unix streams, and the listeners that accept them. Polled reads and writes are system calls without libc.
//! [`Stream::try_read`] and [`Stream::try_write`], which are rare, go through libc.
//!
//! In libc both calls are cancellation points, which cost two atomic operations each in a process with several threads
//! (glibc before 2.41). The only unsafe code here fills a read buffer that is not initialised.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Socket};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

use super::address::{Address, PeerAddress, UNIX_STAND_IN};

/// A connected stream, which belongs to the runtime of one thread.
#[derive(Debug)]
pub enum Stream {
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over a Unix socket.
    Unix(UnixStream),
}

/// Evaluates the same expression for a TCP stream and for a Unix stream.
macro_rules! for_either_kind {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
        }
    };
}

/// The delay before another attempt to connect to a Unix socket whose queue is full. The kernel does not report when
/// there is room.
const QUEUE_RETRY_DELAY: Duration = Duration::from_millis(5);

impl Stream {
    /// Connects to a server. While the queue of a Unix socket is full, it waits, as the kernel does for TCP. There is no
    /// timeout; the caller sets one.
    pub async fn connect(address: &Address) -> io::Result<Stream> {
        let path = match address {
            Address::Tcp(address) => return TcpStream::connect(address).await.map(Stream::Tcp),
            Address::Unix(path) => path,
        };
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(QUEUE_RETRY_DELAY).await
                }
                connected => return connected.map(Stream::Unix),
            }
        }
    }

    /// Registers a socket from [`Stream::into_socket`] with the runtime of this thread. Fails if the kernel refuses.
    pub fn from_socket(socket: Socket) -> io::Result<Stream> {
        match socket.domain()? {
            Domain::UNIX => UnixStream::from_std(socket.into()).map(Stream::Unix),
            _ => TcpStream::from_std(socket.into()).map(Stream::Tcp),
        }
    }

    /// Removes the stream from the runtime, so that it can move to another thread. Fails if the runtime refuses.
    pub fn into_socket(self) -> io::Result<Socket> {
        for_either_kind!(self, stream => stream.into_std().map(|stream| OwnedFd::from(stream).into()))
    }

    /// The address of this side; [`UNIX_STAND_IN`] for a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr(),
            Stream::Unix(_) => Ok(UNIX_STAND_IN),
        }
    }

    /// The address of the peer. `accepted_from` is the address that [`Listener::accept`] returned.
    pub fn peer_address(&self, accepted_from: SocketAddr) -> PeerAddress {
        match self {
            Stream::Tcp(_) => accepted_from.ip().into(),
            Stream::Unix(_) => PeerAddress::Unix,
        }
    }

    /// Reads without waiting, as [`TcpStream::try_read`] does.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        for_either_kind!(self, stream => stream.try_read(bytes))
    }

    /// Writes without waiting, as [`TcpStream::try_write`] does.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        for_either_kind!(self, stream => stream.try_write(bytes))
    }

    /// Waits for input and copies it without consuming it. Returns the number of bytes; zero at the end of the stream.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let fd = self.as_fd();
        let mut peek = || {
            let (peeked, _) = rustix::net::recv(fd, &mut *bytes, RecvFlags::PEEK)?;
            Ok(peeked)
        };
        for_either_kind!(self, stream => stream.async_io(Interest::READABLE, &mut peek).await)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for_either_kind!(self, stream => stream.poll_read_ready(cx))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for_either_kind!(self, stream => stream.poll_write_ready(cx))
    }

    /// Does a system call without waiting, as [`TcpStream::try_io`] does.
    fn try_io<R>(
        &self,
        interest: Interest,
        system_call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        for_either_kind!(self, stream => stream.try_io(interest, system_call))
    }

    /// Reads or writes up to `wanted_bytes` bytes with `system_call`. Returns `None` if that would block.
    ///
    /// If TCP transfers fewer bytes than wanted, another system call would block. So this one is reported to tokio as
    /// one that has blocked, which saves the other. A Unix socket also stops between two messages of its queue, so the
    /// same does not hold for it.
    fn try_transfer(
        &self,
        interest: Interest,
        wanted_bytes: usize,
        system_call: impl FnOnce() -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut transferred_bytes = None;
        let result = self.try_io(interest, || {
            let byte_count = system_call()?;
            transferred_bytes = Some(byte_count);
            match (1..wanted_bytes).contains(&byte_count) && matches!(self, Stream::Tcp(_)) {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        });
        match (transferred_bytes, result) {
            (Some(byte_count), _) => Some(Ok(byte_count)),
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Some(Err(error)),
            (None, _) => None,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        for_either_kind!(self, stream => stream.as_fd())
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(stream)
    }
}

/// A listening socket, which belongs to the runtime of one thread.
#[derive(Debug)]
pub enum Listener {
    /// A listening TCP socket.
    Tcp(TcpListener),
    /// A listening Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Registers a socket with the runtime of this thread. It must listen, and must not block.
    pub fn new(socket: Socket) -> io::Result<Listener> {
        match socket.domain()? {
            Domain::UNIX => UnixListener::from_std(socket.into()).map(Listener::Unix),
            _ => TcpListener::from_std(socket.into()).map(Listener::Tcp),
        }
    }

    /// Waits for the next connection. Returns also the address of the peer, or [`UNIX_STAND_IN`] for a Unix socket.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), from))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), UNIX_STAND_IN))
            }
        }
    }
}

/// Receives bytes into the unfilled part of a buffer. Returns the number of received bytes.
#[allow(unsafe_code)]
fn receive(stream: &Stream, buf: &mut ReadBuf<'_>) -> rustix::io::Result<usize> {
    // SAFETY: only the kernel writes to this part, and nothing marks initialised bytes of it as uninitialised.
    let unfilled = unsafe { buf.unfilled_mut() };
    let ((received, _), _) = rustix::net::recv(stream, unfilled, RecvFlags::empty())?;
    let byte_count = received.len();
    // SAFETY: the kernel has written these bytes, at the beginning of the unfilled part.
    unsafe { buf.assume_init(byte_count) };
    buf.advance(byte_count);
    Ok(byte_count)
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let wanted_bytes = buf.remaining();
            let system_call = || receive(&self, buf);
            let result = self.try_transfer(Interest::READABLE, wanted_bytes, system_call);
            if let Some(result) = result {
                return Poll::Ready(result.map(|_| ()));
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            let system_call = || rustix::net::send(&*self, bytes, SendFlags::NOSIGNAL);
            let result = self.try_transfer(Interest::WRITABLE, bytes.len(), system_call);
            if let Some(result) = result {
                return Poll::Ready(result);
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
        let wanted_bytes = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.poll_write_ready(cx))?;
            let mut control = SendAncillaryBuffer::default();
            let system_call =
                || rustix::net::sendmsg(&*self, slices, &mut control, SendFlags::NOSIGNAL);
            let result = self.try_transfer(Interest::WRITABLE, wanted_bytes, system_call);
            if let Some(result) = result {
                return Poll::Ready(result);
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for_either_kind!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use rustix::net::SendAncillaryMessage;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    async fn tcp() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let (one, other) = tokio::join!(Stream::connect(&address), listener.accept());
        (one.unwrap(), Stream::Tcp(other.unwrap().0))
    }

    fn unix() -> (Stream, Stream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Stream::Unix(one), Stream::Unix(other))
    }

    #[tokio::test]
    async fn all_bytes_pass_in_pieces_of_any_size() {
        for pair in [tcp().await, unix()] {
            passes_all(pair).await;
        }
    }

    async fn passes_all((mut one, mut other): (Stream, Stream)) {
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
        let (mut one, mut other) = tcp().await;
        let mut room = [0; 8];
        for text in ["ab", "cd"] {
            one.write_all(text.as_bytes()).await.unwrap();
            let read = other.read(&mut room).await.unwrap();
            assert_eq!(&room[..read], text.as_bytes());
            // Tokio tells so without a system call.
            let ready = other.try_io(Interest::READABLE, || Ok(()));
            assert_eq!(ready.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let mut buf = ReadBuf::new(&mut room);
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut other).poll_read(cx, &mut buf).is_pending());
        }
        drop(one);
        assert_eq!(other.read(&mut room).await.unwrap(), 0);
    }

    /// The kernel reads no further than a message that a file came with.
    #[tokio::test]
    async fn a_short_read_of_a_unix_socket_need_not_be_the_last() {
        let (mut one, mut other) = unix();
        let fds = [one.as_fd()];
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let slices = [IoSlice::new(b"ab")];
        rustix::net::sendmsg(&one, &slices, &mut control, SendFlags::NOSIGNAL).unwrap();
        one.write_all(b"cd").await.unwrap();
        for text in ["ab", "cd"] {
            let mut room = [0; 8];
            let read = timeout(Duration::from_secs(9), other.read(&mut room)).await;
            assert_eq!(&room[..read.unwrap().unwrap()], text.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_short_write_is_the_last_until_some_is_read() {
        let (mut one, mut other) = tcp().await;
        let (bytes, cx) = (vec![7; 1 << 20], &mut Context::from_waker(Waker::noop()));
        let mut sent = 0;
        for half in [0, 1 << 19].into_iter().cycle() {
            let (head, tail) = bytes.split_at(half);
            let slices = [IoSlice::new(head), IoSlice::new(tail)];
            let written = Pin::new(&mut one).poll_write_vectored(cx, &slices);
            let Poll::Ready(written) = written else { break };
            sent += written.unwrap();
            if sent % bytes.len() != 0 {
                let ready = one.try_io(Interest::WRITABLE, || Ok(()));
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
    async fn a_full_queue_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("a.sock").into());
        let Address::Unix(path) = &address else {
            unreachable!()
        };
        let listener = crate::net::unix_socket::bind(path, 0o600, 0).unwrap();
        let listener = Listener::new(listener).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let socket = Socket::new(Domain::UNIX, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let connected = socket.connect(&socket2::SockAddr::unix(path).unwrap());
            connected.is_ok().then_some(socket)
        })
        .collect();
        assert!(!waiting.is_empty());
        let accept = async {
            for _ in 0..=waiting.len() {
                let (stream, from) = listener.accept().await.unwrap();
                assert_eq!(stream.peer_address(from), PeerAddress::Unix);
            }
        };
        let (connected, ()) = tokio::join!(Stream::connect(&address), accept);
        assert!(connected.is_ok());
    }

    #[tokio::test]
    async fn a_reset_is_an_error() {
        let (one, mut other) = tcp().await;
        socket2::SockRef::from(&one)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(one);
        let error = other.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let error = other.write_all(b"a").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
