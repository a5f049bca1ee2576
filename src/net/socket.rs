//! A stream, plain or under TLS, that sends at once.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::ProtocolVersion;
use rustls::server::Acceptor;
use socket2::{Domain, SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{LazyConfigAcceptor, TlsStream};

use super::corked::Corked;
use super::tls::config::{HTTP2, Offer, PROOF};
use super::{Connector, Stream, Subject};

/// See the module.
#[derive(Debug)]
pub enum Socket {
    /// Bytes as they are.
    Plain(Stream),
    /// Either side of TLS.
    Tls(Box<TlsStream<Corked>>),
}

impl Socket {
    /// Takes a client's stream that came from a listener which is [prepared](prepare).
    pub fn plain(stream: Stream) -> Socket {
        Socket::Plain(stream)
    }

    /// Takes a connected stream and sends small messages at once.
    pub fn new(stream: impl Into<Stream>) -> io::Result<Socket> {
        Ok(Socket::Plain(prepared(stream.into())?))
    }

    /// Takes a stream as [`Socket::plain`] does and shakes hands with its client.
    pub async fn accept(stream: Stream, offer: Offer) -> io::Result<Socket> {
        let stream = Corked::new(stream, true);
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = offer.config(&begun.client_hello());
        let mut stream = begun.into_stream(config).await?;
        stream.get_mut().0.cork(false);
        Ok(Socket::Tls(Box::new(stream.into())))
    }

    /// Takes a connected stream and shakes hands with its server.
    pub async fn connect(stream: impl Into<Stream>, connector: &Connector) -> io::Result<Socket> {
        let stream = connector.connect(prepared(stream.into())?).await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }

    /// What passes is under TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Either end may close its sending side and still receive: not before TLS 1.3 (RFC 8446 section 6.1).
    pub fn closes_by_halves(&self) -> bool {
        match self {
            Socket::Plain(_) => true,
            Socket::Tls(stream) => {
                stream.get_ref().1.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            }
        }
    }

    /// Both ends have agreed to speak HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        self.protocol() == Some(HTTP2)
    }

    /// The other end wanted a proof and no more; it has it.
    pub fn is_proof(&self) -> bool {
        self.protocol() == Some(PROOF)
    }

    fn protocol(&self) -> Option<&[u8]> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(stream) => stream.get_ref().1.alpn_protocol(),
        }
    }

    /// The name that the client has asked for in its handshake.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Socket::Tls(stream) => match &**stream {
                TlsStream::Server(stream) => stream.get_ref().1.server_name(),
                TlsStream::Client(_) => None,
            },
            Socket::Plain(_) => None,
        }
    }

    /// Whom the certificate is for that the other end has shown and that was verified. Reads it anew each time.
    pub fn subject(&self) -> Option<Subject> {
        let Socket::Tls(stream) = self else {
            return None;
        };
        let shown = stream.get_ref().1.peer_certificates()?;
        shown.first().map(Subject::of)
    }

    fn stream(&self) -> &Stream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => &stream.get_ref().0.stream,
        }
    }

    /// What is written from now on leaves with the end, which is near.
    pub fn hold_back(&mut self) {
        if let Socket::Tls(stream) = self {
            stream.get_mut().0.cork(true);
        }
    }

    /// Whether the other end sees a reset when this one is dropped.
    pub fn reset_on_close(&self, reset: bool) {
        // Without it the end looks regular; nothing better can be done.
        let _ = SockRef::from(self.stream()).set_linger(reset.then_some(Duration::ZERO));
    }

    /// The other end has reset the connection, or answers no probe any more. Says so once, and asks the kernel.
    pub fn is_broken(&self) -> bool {
        !matches!(SockRef::from(self.stream()).take_error(), Ok(None))
    }

    /// Ends the connection for both sides, whatever waits.
    pub fn hang_up(&self) {
        // It fails when the other end has done so before.
        let _ = SockRef::from(self.stream()).shutdown(Shutdown::Both);
    }

    /// Nothing has come in, not even the end. Asks the kernel only when it said that something did. What
    /// did come in is lost.
    pub fn is_quiet(&mut self) -> bool {
        let byte = &mut [0];
        if let Socket::Tls(stream) = self {
            // It may be in there already, or what came may be no content, such as a session ticket.
            let mut cx = Context::from_waker(Waker::noop());
            let read = Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(byte));
            if read.is_ready() {
                return false;
            }
        }
        let nothing = self.stream().try_read(byte);
        nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn prepared(stream: Stream) -> io::Result<Stream> {
    match &stream {
        Stream::Tcp(tcp) => prepare(tcp)?,
        // The kernel knows at once that its other end has closed.
        Stream::Unix(_) => {}
    }
    Ok(stream)
}

/// Has small messages of TCP sent at once, and notices an end that vanished without a word. What comes from a listener
/// has what the listener was told, which spares each connection three calls.
pub fn prepare<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(8))
        .with_retries(3);
    socket.set_tcp_keepalive(&probes)
}

/// Ends connections of a listener to clients that acknowledge nothing for [`UNACKED_TIMEOUT`]; without it the kernel
/// retransmits for a quarter of an hour. It also ends those to clients that read nothing, so it is not set where `send`
/// lets these wait longer.
pub fn set_unacked_timeout<'s>(listener: impl Into<SockRef<'s>>, send: Duration) -> io::Result<()> {
    let listener = listener.into();
    if listener.domain()? == Domain::UNIX {
        return Ok(());
    }
    let longest = Some(UNACKED_TIMEOUT).filter(|timeout| send <= *timeout);
    listener.set_tcp_user_timeout(longest)
}

/// Less than the keepalive probes of [`prepare`] take: the kernel applies it to these too.
const UNACKED_TIMEOUT: Duration = Duration::from_secs(80);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
