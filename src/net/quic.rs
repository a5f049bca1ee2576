//! QUIC, the transport of HTTP/3: its sockets and settings, and what its handshake says of a client.
//!
//! It serves no connection: `serve/http3` does.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime};
use quinn::{TransportConfig, VarInt};
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};

use super::Subject;

/// Maximum number of requests that a client may have open on one connection, as over HTTP/2. RFC 9114 section 6.1
/// recommends at least 100.
pub const MAX_CONCURRENT_STREAMS: u32 = 128;

/// Maximum number of streams in one direction that a client may have open. It needs three, and may try out others.
pub const MAX_ONE_WAY_STREAMS: u32 = 8;

/// Flow-control window of each stream, in bytes. At most this much of a request is buffered and not read.
pub const STREAM_WINDOW: u32 = 256 * 1024;

/// Flow-control window of a connection, in bytes. At most this much of all its requests is buffered and not read.
pub const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Maximum bytes of all responses of a connection that are sent or wait to be sent, and that the client has not
/// acknowledged.
const SEND_WINDOW: u64 = 1024 * 1024;

/// Bytes of handshake messages that may arrive in any order. A chain of client certificates fits.
const CRYPTO_BUFFER_BYTES: usize = 16 * 1024;

/// How long a client may be silent before the connection counts as lost. [`KEEP_ALIVE_INTERVAL`] makes live clients
/// respond before.
const SILENCE_TIMEOUT: VarInt = VarInt::from_u32(30_000);

/// How often a client without other packets is asked for a sign of life, as TCP does with its keep-alive probes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of handshakes whose first packet waits to be looked at, for each endpoint.
const MAX_WAITING_HANDSHAKES: usize = 1024;

/// Maximum bytes of packets that such handshakes hold, for each and for all together.
const WAITING_BYTES: (u64, u64) = (16 * 1024, 4 * 1024 * 1024);

/// Size in bytes of the kernel's buffers of a socket. The default holds only about a hundred packets.
const SOCKET_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Makes the settings of a listener's connections. `tls` has them for the handshake.
///
/// # Errors
///
/// Fails if `tls` has no cipher suite for the first packets, or without randomness.
pub fn build_settings(tls: rustls::ServerConfig) -> Result<Arc<ServerConfig>, rustls::Error> {
    let crypto = QuicServerConfig::try_from(Arc::new(tls))
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(MAX_CONCURRENT_STREAMS.into())
        .max_concurrent_uni_streams(MAX_ONE_WAY_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(SEND_WINDOW)
        .crypto_buffer_size(CRYPTO_BUFFER_BYTES)
        .max_idle_timeout(Some(IdleTimeout::from(SILENCE_TIMEOUT)))
        .keep_alive_interval(Some(KEEP_ALIVE_INTERVAL))
        .datagram_receive_buffer_size(None);
    let mut settings = ServerConfig::with_crypto(Arc::new(crypto));
    let (waiting_bytes, all_waiting_bytes) = WAITING_BYTES;
    settings
        .transport_config(Arc::new(transport))
        // Limits count by the address that a connection began with. And the kernel gives the packets of another port to
        // another worker.
        .migration(false)
        .max_incoming(MAX_WAITING_HANDSHAKES)
        .incoming_buffer_size(waiting_bytes)
        .incoming_buffer_size_total(all_waiting_bytes);
    Ok(Arc::new(settings))
}

/// The sockets of one listener: one for each worker, among which the kernel spreads clients by address and port.
///
/// They are not passed to a process that takes over. It could not read the packets of connections that the old process
/// still has. So it binds the address once the old process has finished with it; until then clients use TCP.
#[derive(Debug)]
pub struct QuicSockets {
    address: SocketAddr,
    worker_count: usize,
    /// The sockets that no worker has yet, by the worker's number; empty before they are bound.
    sockets: Mutex<Vec<Option<UdpSocket>>>,
}

impl QuicSockets {
    /// Sockets for this number of workers, which are not bound yet.
    pub fn new(address: SocketAddr, worker_count: usize) -> QuicSockets {
        QuicSockets {
            address,
            worker_count,
            sockets: Mutex::default(),
        }
    }

    /// Binds all sockets, unless they are bound already.
    ///
    /// # Errors
    ///
    /// The system refuses, also because another process uses the address.
    pub fn bind(&self) -> io::Result<()> {
        let mut sockets = self.sockets.lock();
        if !sockets.is_empty() {
            return Ok(());
        }
        // The sockets share the address, and would share it with another process too.
        check_unused(self.address)?;
        let bound = (0..self.worker_count).map(|_| {
            let socket = new_socket(self.address)?;
            socket.set_reuse_port(true)?;
            // The kernel may allow less, which is enough for less.
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
            let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
            socket.bind(&self.address.into())?;
            Ok(Some(UdpSocket::from(socket)))
        });
        *sockets = bound.collect::<io::Result<_>>()?;
        Ok(())
    }

    /// The address of the sockets.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the socket of this worker, and makes it an endpoint that belongs to the runtime of this thread.
    ///
    /// # Errors
    ///
    /// As [`QuicSockets::bind`], or the runtime cannot use the socket.
    pub fn take_endpoint(&self, worker_number: usize) -> io::Result<Option<Endpoint>> {
        self.bind()?;
        let socket = self
            .sockets
            .lock()
            .get_mut(worker_number)
            .and_then(Option::take);
        let endpoint = |socket| {
            // Each endpoint has keys of its own, so that none helps to forge the resets of another.
            let config = EndpointConfig::default();
            Endpoint::new(config, None, socket, Arc::new(TokioRuntime))
        };
        socket.map(endpoint).transpose()
    }
}

/// Checks that no process uses the address for UDP.
///
/// # Errors
///
/// Another process does, or the system does not allow this one to.
pub fn check_unused(address: SocketAddr) -> io::Result<()> {
    new_socket(address)?.bind(&address.into())
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The host name that the client sent in its handshake (SNI); `None` if it sent none.
pub fn server_name(connection: &quinn::Connection) -> Option<String> {
    let data = connection.handshake_data()?;
    data.downcast::<HandshakeData>().ok()?.server_name
}

/// The subject of the client's certificate, which was verified in the handshake; `None` if it sent none.
pub fn subject(connection: &quinn::Connection) -> Option<Subject> {
    let identity = connection.peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    certificates.first().map(Subject::from_certificate)
}
