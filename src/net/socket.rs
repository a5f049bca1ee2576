//! A connection, plain or under TLS, and the options of its TCP socket.
//!
//! Small messages are sent at once (`TCP_NODELAY`), and vanished peers are noticed (keepalive).

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
use super::tls::config::{ACME_CHALLENGE, HTTP2, Offer};
use super::{Connector, Stream, Subject};

/// A connection to a client or to a server.
#[derive(Debug)]
pub enum Socket {
    /// A connection without TLS.
    Plain(Stream),
    /// The server's or the client's side of a TLS session.
    Tls(Box<TlsStream<Corked>>),
}

impl Socket {
    /// Wraps a client's stream, which has its options from a [prepared](prepare) listener.
    pub fn plain(stream: Stream) -> Socket {
        Socket::Plain(stream)
    }

    /// Wraps a stream to a server, and sets its options.
    pub fn new(stream: impl Into<Stream>) -> io::Result<Socket> {
        Ok(Socket::Plain(prepared(stream.into())?))
    }

    /// Does a TLS handshake with a client. The stream has its options from a [prepared](prepare) listener.
    pub async fn accept(stream: Stream, offer: Offer) -> io::Result<Socket> {
        let stream = Corked::new(stream, true);
        let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = offer.config(&handshake.client_hello());
        let mut stream = handshake.into_stream(config).await?;
        stream.get_mut().0.set_corked(false);
        Ok(Socket::Tls(Box::new(stream.into())))
    }

    /// Sets the options of a stream to a server, and does a TLS handshake.
    pub async fn connect(stream: impl Into<Stream>, connector: &Connector) -> io::Result<Socket> {
        let stream = connector.connect(prepared(stream.into())?).await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }

    /// Whether the connection is under TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Whether a side may close its sending direction and still receive. TLS allows it since version 1.3: RFC 8446
    /// section 6.1.
    pub fn can_half_close(&self) -> bool {
        match self {
            Socket::Plain(_) => true,
            Socket::Tls(stream) => {
                stream.get_ref().1.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            }
        }
    }

    /// Whether the TLS handshake has chosen HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.alpn_protocol() == Some(HTTP2)
    }

    /// Whether the handshake was one of an ACME directory, which reads the proof of a name from it and sends no
    /// requests.
    pub fn is_acme_challenge(&self) -> bool {
        self.alpn_protocol() == Some(ACME_CHALLENGE)
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(stream) => stream.get_ref().1.alpn_protocol(),
        }
    }

    /// The host name that the client sent in its handshake (SNI).
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Socket::Tls(stream) => match &**stream {
                TlsStream::Server(stream) => stream.get_ref().1.server_name(),
                TlsStream::Client(_) => None,
            },
            Socket::Plain(_) => None,
        }
    }

    /// The subject of the peer's certificate, which was verified in the handshake. The certificate is parsed in each
    /// call.
    pub fn subject(&self) -> Option<Subject> {
        let Socket::Tls(stream) = self else {
            return None;
        };
        let certificates = stream.get_ref().1.peer_certificates()?;
        certificates.first().map(Subject::from_certificate)
    }

    fn stream(&self) -> &Stream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => &stream.get_ref().0.stream,
        }
    }

    /// Holds all further bytes back until the connection closes, which must be soon.
    pub fn hold_back(&mut self) {
        if let Socket::Tls(stream) = self {
            stream.get_mut().0.set_corked(true);
        }
    }

    /// Chooses whether the peer sees a reset when this socket is dropped, instead of a regular end.
    pub fn reset_on_close(&self, reset: bool) {
        // If the option cannot be set, the end looks regular, and nothing better can be done.
        let _ = SockRef::from(self.stream()).set_linger(reset.then_some(Duration::ZERO));
    }

    /// Whether the peer has reset the connection or no longer acknowledges keepalive probes. The kernel reports it only
    /// once.
    pub fn is_broken(&self) -> bool {
        !matches!(SockRef::from(self.stream()).take_error(), Ok(None))
    }

    /// Shuts both directions down at once.
    pub fn hang_up(&self) {
        // It fails if the peer has closed the connection before.
        let _ = SockRef::from(self.stream()).shutdown(Shutdown::Both);
    }

    /// Whether nothing was received, not even the end of the stream. A byte that was received is lost.
    ///
    /// It costs a system call only if the reactor has reported input.
    pub fn is_quiet(&mut self) -> bool {
        let byte = &mut [0];
        if let Socket::Tls(stream) = self {
            // The session may have decrypted content already. Or the input has none, such as a session ticket.
            let mut cx = Context::from_waker(Waker::noop());
            let read = Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(byte));
            if read.is_ready() {
                return false;
            }
        }
        let read = self.stream().try_read(byte);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn prepared(stream: Stream) -> io::Result<Stream> {
    match &stream {
        Stream::Tcp(tcp) => prepare(tcp)?,
        // A Unix socket delays nothing, and the kernel knows at once when its peer has closed.
        Stream::Unix(_) => {}
    }
    Ok(stream)
}

/// Sets `TCP_NODELAY` and keepalive, which gives a vanished peer up after 84 seconds. Connections inherit the options
/// of their listener, which saves three system calls each.
pub fn prepare<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(8))
        .with_retries(3);
    socket.set_tcp_keepalive(&probes)
}

/// Closes a listener's connections to clients that acknowledge nothing for [`UNACKED_TIMEOUT`]. Without it the kernel
/// retransmits for a quarter of an hour.
///
/// It also closes connections to clients that read nothing. So it is not set if `send`, the timeout for those, is
/// longer.
pub fn set_unacked_timeout<'s>(listener: impl Into<SockRef<'s>>, send: Duration) -> io::Result<()> {
    let listener = listener.into();
    if listener.domain()? == Domain::UNIX {
        return Ok(());
    }
    let timeout = Some(UNACKED_TIMEOUT).filter(|timeout| send <= *timeout);
    listener.set_tcp_user_timeout(timeout)
}

/// The time for which sent bytes may stay unacknowledged. It is less than the 84 seconds of the keepalive probes of
/// [`prepare`], because the kernel applies it to these too.
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
