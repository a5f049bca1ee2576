//! A connection, plain or under TLS, and the options of its TCP socket.
//!
//! Small messages are sent at once (`TCP_NODELAY`), and vanished peers are noticed (keepalive).

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::server::Acceptor;
use rustls::{CipherSuite, ProtocolVersion};
use socket2::{Domain, SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::StartHandshake;
use tokio_rustls::{LazyConfigAcceptor, TlsStream};

use super::corked::Corked;
use super::tls::ja4::{self, RecordedStream};
use super::tls::listener_tls::{ACME_CHALLENGE, HTTP2, ListenerTls};
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
    /// Wraps the stream of a client without TLS, which has inherited its options from the listener: see
    /// [`set_tcp_options`].
    pub fn from_client(stream: Stream) -> Socket {
        Socket::Plain(stream)
    }

    /// Wraps a stream to a server without TLS, and sets its options.
    ///
    /// # Errors
    ///
    /// Fails if the options cannot be set.
    pub fn to_server(stream: impl Into<Stream>) -> io::Result<Socket> {
        Ok(Socket::Plain(with_tcp_options(stream.into())?))
    }

    /// Does the TLS handshake with a client. Returns also its JA4 fingerprint; `None` unless `needs_ja4`, or if the
    /// hello cannot be read. The stream has inherited its options from the listener: see [`set_tcp_options`]. There is
    /// no timeout; the caller sets one.
    ///
    /// # Errors
    ///
    /// Fails if the connection or the handshake fails.
    pub async fn accept_tls(
        stream: Stream,
        listener_tls: ListenerTls,
        needs_ja4: bool,
    ) -> io::Result<(Socket, Option<Arc<str>>)> {
        let stream = Corked::new(stream, true);
        let (handshake, ja4) = match needs_ja4 {
            false => (
                LazyConfigAcceptor::new(Acceptor::default(), stream).await?,
                None,
            ),
            true => {
                let stream = RecordedStream::new(stream);
                let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
                let ja4 = ja4::fingerprint(handshake.io.received());
                let handshake = StartHandshake::from_parts(handshake.accepted, handshake.io.stream);
                (handshake, ja4.map(Arc::from))
            }
        };
        let config = listener_tls.config(&handshake.client_hello());
        let mut stream = handshake.into_stream(config).await?;
        stream.get_mut().0.set_corked(false);
        Ok((Socket::Tls(Box::new(stream.into())), ja4))
    }

    /// Sets the options of a stream to a server, and does the TLS handshake. There is no timeout; the caller sets one.
    ///
    /// # Errors
    ///
    /// Fails if the options cannot be set, or if the connection or the handshake fails.
    pub async fn connect_tls(
        stream: impl Into<Stream>,
        connector: &Connector,
    ) -> io::Result<Socket> {
        let stream = connector.connect(with_tcp_options(stream.into())?).await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }

    /// Whether the connection is under TLS.
    pub fn is_tls(&self) -> bool {
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

    /// Whether the handshake was one of an ACME directory. A directory reads the proof of a name from the handshake, and
    /// sends no requests.
    pub fn is_acme_challenge(&self) -> bool {
        self.alpn_protocol() == Some(ACME_CHALLENGE)
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(stream) => stream.get_ref().1.alpn_protocol(),
        }
    }

    /// The host name that the client sent in its handshake (SNI). `None` without TLS, without SNI, and for a connection to
    /// a server.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Socket::Tls(stream) => match &**stream {
                TlsStream::Server(stream) => stream.get_ref().1.server_name(),
                TlsStream::Client(_) => None,
            },
            Socket::Plain(_) => None,
        }
    }

    /// The version of TLS, as logs of servers write it; `None` without TLS.
    pub fn tls_version(&self) -> Option<&'static str> {
        let Socket::Tls(stream) = self else {
            return None;
        };
        Some(match stream.get_ref().1.protocol_version()? {
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => "TLSv1.3",
        })
    }

    /// The cipher suite by its name at IANA; `None` without TLS.
    pub fn tls_cipher(&self) -> Option<&'static str> {
        let Socket::Tls(stream) = self else {
            return None;
        };
        match stream.get_ref().1.negotiated_cipher_suite()?.suite() {
            // rustls puts the version into these names.
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Some("TLS_AES_128_GCM_SHA256"),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Some("TLS_AES_256_GCM_SHA384"),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some("TLS_CHACHA20_POLY1305_SHA256"),
            suite => suite.as_str(),
        }
    }

    /// The subject of the peer's certificate, which was verified in the handshake. `None` without TLS, or if the peer
    /// has sent no certificate. Each call parses the certificate.
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

    /// Holds further output back until the connection closes, a read waits, or 32 KiB are held. So the last response
    /// leaves together with the alert that ends the session. It has no effect without TLS.
    pub fn hold_output(&mut self) {
        if let Socket::Tls(stream) = self {
            stream.get_mut().0.set_corked(true);
        }
    }

    /// Chooses whether the peer sees a reset when this socket is dropped, instead of a regular end.
    pub fn set_reset_on_close(&self, should_reset: bool) {
        // If the option cannot be set, the end looks regular, and nothing better can be done.
        let _ = SockRef::from(self.stream()).set_linger(should_reset.then_some(Duration::ZERO));
    }

    /// Whether the connection has failed: the peer has reset it, or no longer acknowledges what is sent. The kernel
    /// reports it only once.
    pub fn is_broken(&self) -> bool {
        !matches!(SockRef::from(self.stream()).take_error(), Ok(None))
    }

    /// Shuts both directions down at once.
    pub fn shut_down_both(&self) {
        // It fails if the peer has closed the connection before.
        let _ = SockRef::from(self.stream()).shutdown(Shutdown::Both);
    }

    /// Whether nothing was received, not even the end of the stream. If something was, the check may consume a byte of it,
    /// so the connection must not be used any more.
    ///
    /// The check costs a system call only if the reactor has reported input.
    pub fn probe_idle(&mut self) -> bool {
        let byte = &mut [0];
        if let Socket::Tls(stream) = self {
            // The session may hold decrypted content already. And input without content, such as a session ticket, must be
            // consumed here: it does not count as received.
            let mut cx = Context::from_waker(Waker::noop());
            let read_result = Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(byte));
            if read_result.is_ready() {
                return false;
            }
        }
        let read_result = self.stream().try_read(byte);
        read_result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Sets the options of a stream to a server: see [`set_tcp_options`].
fn with_tcp_options(stream: Stream) -> io::Result<Stream> {
    match &stream {
        Stream::Tcp(tcp) => set_tcp_options(tcp)?,
        // A Unix socket delays nothing, and the kernel knows at once when its peer has closed.
        Stream::Unix(_) => {}
    }
    Ok(stream)
}

/// Time without received bytes before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(8);

/// Unanswered keepalive probes after which the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;

/// Sets `TCP_NODELAY` and keepalive. A vanished peer is given up after 84 seconds: 60 of silence, and 3 probes of 8.
///
/// Connections inherit the options of their listener, which saves three system calls each.
///
/// # Errors
///
/// Fails if the kernel does not accept an option.
pub fn set_tcp_options<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// Makes the kernel close a listener's connections to clients that acknowledge nothing for [`UNACKED_TIMEOUT`]. By
/// default the kernel retransmits for a quarter of an hour.
///
/// The timeout also closes connections to clients that read nothing. So it is not set if `send_timeout`, which is for
/// those clients, is longer. Unix sockets have no such timeout.
///
/// # Errors
///
/// Fails if the kernel does not accept the option.
pub fn set_unacked_timeout<'s>(
    listener: impl Into<SockRef<'s>>,
    send_timeout: Duration,
) -> io::Result<()> {
    let listener = listener.into();
    if listener.domain()? == Domain::UNIX {
        return Ok(());
    }
    let timeout = Some(UNACKED_TIMEOUT).filter(|timeout| send_timeout <= *timeout);
    listener.set_tcp_user_timeout(timeout)
}

/// The time for which sent bytes may stay unacknowledged. It is less than the 84 seconds of
/// [`set_tcp_options`], because the kernel applies it to keepalive probes too.
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
