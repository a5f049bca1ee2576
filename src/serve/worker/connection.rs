//! Serves one client connection: reads the PROXY header, bounds the connections of its address, shakes hands under TLS and
//! picks the version of HTTP.
//!
//! It never reads a request itself: `serve/http1/exchanges.rs` and `serve/http2/connection.rs` do.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;

use super::client_socket::{ClientSocket, IDLE_DRAIN_TIMEOUT};
use super::deadlines::{Deadlines, Phase};
use super::occupancy::CountedConnection;
use super::placement::LocalConnection;
use super::worker_state::{ConnectionRefusal, WorkerState};
use crate::net::proxy_protocol::{self, ConnectionAddresses};
use crate::net::tls::listener_tls::ListenerTls;
use crate::net::{PeerAddress, PeerNetwork, Socket, Stream};
use crate::policy::ListenerRole;
use crate::serve::http1::exchanges::{self, ExchangesEnd};
use crate::serve::http1::wire::Wire;
use crate::serve::http2;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::peer::{HandshakeFacts, Peer};

/// Serves one connection until a side closes it or one of its deadlines passes.
pub async fn serve(connection: LocalConnection, worker: Rc<WorkerState>, stack: Stack) {
    let timeouts = worker.generation().ruleset.timeouts.clone();
    let deadlines = worker
        .deadline_clock
        .watch_connection(timeouts.idle, timeouts.header);
    let serving = pin!(serve_until_closed(
        connection,
        deadlines.clone(),
        worker,
        stack
    ));
    let _ = deadlines.run(serving).await;
}

/// Serves one connection until a side closes it. The caller enforces the deadlines.
async fn serve_until_closed(
    connection: LocalConnection,
    deadlines: Rc<Deadlines>,
    worker: Rc<WorkerState>,
    stack: Stack,
) {
    let generation = worker.generation();
    let Some(listener) = generation.listeners.get(connection.listener_index) else {
        return;
    };
    let LocalConnection {
        mut stream,
        listener_index,
        client_address,
        mut counted_connection,
        ..
    } = connection;
    let Ok(local_address) = stream.local_addr() else {
        return;
    };
    let mut addresses = ConnectionAddresses {
        client: client_address,
        local: local_address,
    };
    let mut remote_address = stream.peer_address(client_address);
    let is_from_proxy = listener
        .proxies
        .iter()
        .any(|network| network.contains(remote_address));
    if is_from_proxy {
        let reading = proxy_protocol::read_header(&mut stream);
        match run_before_first_request(&worker, &deadlines, reading).await {
            Ok(Some(declared_addresses)) => {
                addresses = declared_addresses;
                remote_address = declared_addresses.client.ip().into();
            }
            Ok(None) => {}
            Err(_) => return worker.count_refused_connection(ConnectionRefusal::ProxyHeader),
        }
    }
    if !admit_address(&worker, &mut counted_connection, remote_address) {
        return;
    }
    let socket_and_ja4 = match &listener.listener_tls {
        // Boxed, so that the handshake takes no space in this future once it is over.
        Some(listener_tls) => {
            Box::pin(shake_hands(
                stream,
                listener_tls.clone(),
                &worker,
                &deadlines,
            ))
            .await
        }
        None => Some((Socket::from_client(stream), None)),
    };
    let Some((socket, ja4)) = socket_and_ja4 else {
        return;
    };
    if socket.is_acme_challenge() {
        return worker.count_acme_proof();
    }
    // Calls of gRPC need HTTP/2, so nothing else is spoken at their listener.
    let is_http2 = socket.is_http2() || listener.role == ListenerRole::RateLimitService;
    let listener_tls = listener.listener_tls.as_ref();
    let peer = Peer::new(
        remote_address,
        (listener_index, listener.role),
        addresses,
        HandshakeFacts {
            listener_tls,
            server_name: socket.server_name(),
            tls_version: socket.tls_version(),
            tls_cipher: socket.tls_cipher(),
            subject: socket.subject(),
            ja4,
            is_quic: false,
        },
        deadlines.clone(),
        &worker,
    );
    let timeouts = &generation.ruleset.timeouts;
    let client = ClientSocket::new(
        socket,
        deadlines,
        timeouts.send,
        timeouts.half_close,
        worker.extra_discarded_bytes.clone(),
    );
    // The connection may outlive this configuration, and must not hold it.
    drop(generation);
    if is_http2 {
        return http2::serve(client, BytesMut::new(), peer, stack).await;
    }
    let wire = Wire::new(client);
    match exchanges::serve(&wire, &peer, stack.clone()).await {
        ExchangesEnd::Closed => {}
        // The client has sent the preface of HTTP/2 without TLS.
        ExchangesEnd::Http2 => {
            if let Some((client, received)) = Rc::into_inner(wire).map(Wire::into_parts) {
                http2::serve(client, received, peer, stack).await;
            }
        }
    }
}

/// Counts a connection for its address. Returns false if that has as many as `per_ip` allows, and counts the refusal.
pub fn admit_address(
    worker: &WorkerState,
    counted_connection: &mut CountedConnection,
    remote_address: PeerAddress,
) -> bool {
    let generation = worker.generation();
    let ip_settings = &generation.ruleset.identity.ip;
    let has_client = |network: &PeerNetwork| network.contains(remote_address);
    // A trusted proxy has the connections of many clients, so `per_ip` does not hold for it.
    if let Some(max_connections) = generation.ruleset.connections.per_ip
        && !ip_settings.trusted_proxies.iter().any(has_client)
        && !counted_connection.admit_address(
            ip_settings.client_network(remote_address.ip()).network(),
            max_connections,
        )
    {
        worker.count_refused_connection(ConnectionRefusal::PerIp);
        return false;
    }
    true
}

/// Runs `future`, which the connection needs before its first request, within the deadline for the head of a request.
/// While the worker drains, that deadline is [`IDLE_DRAIN_TIMEOUT`].
pub async fn run_before_first_request<F: Future>(
    worker: &WorkerState,
    deadlines: &Deadlines,
    future: F,
) -> F::Output {
    deadlines.report_bytes_received();
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && worker.is_draining() {
            deadlines.shorten_phase(IDLE_DRAIN_TIMEOUT);
        }
        polled
    })
    .await;
    deadlines.enter_phase(Phase::Idle, worker.generation().ruleset.timeouts.idle);
    output
}

/// Does the TLS handshake. Returns the socket, with the client's JA4 fingerprint where an identity needs it; `None` if the
/// handshake fails. The deadline of the connection ends one that takes too long.
async fn shake_hands(
    stream: Stream,
    listener_tls: ListenerTls,
    worker: &WorkerState,
    deadlines: &Deadlines,
) -> Option<(Socket, Option<Arc<str>>)> {
    let mut handshake_count = HandshakeCount::new(worker);
    let needs_ja4 = worker.generation().ruleset.identity.needs_ja4();
    let accepting = Socket::accept_tls(stream, listener_tls, needs_ja4);
    let accepted = run_before_first_request(worker, deadlines, accepting).await;
    let socket_and_ja4 = accepted.ok();
    handshake_count.has_succeeded = socket_and_ja4.is_some();
    socket_and_ja4
}

/// Counts a TLS handshake when dropped, also if the connection's deadline has ended the handshake.
pub struct HandshakeCount<'a> {
    worker: &'a WorkerState,
    /// Whether the handshake has succeeded.
    pub has_succeeded: bool,
}

impl HandshakeCount<'_> {
    /// Counts a handshake that begins.
    pub fn new(worker: &WorkerState) -> HandshakeCount<'_> {
        HandshakeCount {
            worker,
            has_succeeded: false,
        }
    }
}

impl Drop for HandshakeCount<'_> {
    fn drop(&mut self) {
        self.worker.count_handshake(self.has_succeeded);
    }
}
