//! Accepts the connections of one worker's UDP socket: bounds handshakes and connections as `worker/connection.rs` does for
//! TCP, and serves each connection within its deadlines.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connecting, Incoming, VarInt};

use super::connection;
use crate::http::http3::Code;
use crate::net::PeerAddress;
use crate::net::proxy_protocol::ConnectionAddresses;
use crate::net::quic::{self, QuicSockets};
use crate::policy::ListenerRole;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::peer::{HandshakeFacts, Peer};
use crate::serve::worker::connection::{HandshakeCount, admit_address, run_before_first_request};
use crate::serve::worker::deadlines::Deadlines;
use crate::serve::worker::occupancy::CountedConnection;
use crate::serve::worker::worker_state::WorkerState;

/// Maximum number of handshakes of a worker whose clients have not proved their addresses. Further clients must prove them
/// first, which costs them one round trip (RFC 9000 section 8.1.2). So forged packets hold no more connections than this.
const MAX_UNPROVEN_HANDSHAKES: usize = 64;

/// How often a worker tries to bind an address that another process still has.
const BIND_INTERVAL: Duration = Duration::from_millis(200);

/// Accepts the connections of this worker until the task is aborted.
pub async fn accept_connections(
    sockets: Arc<QuicSockets>,
    listener_index: usize,
    worker: Rc<WorkerState>,
    stack: Stack,
) {
    let mut is_logged = false;
    let endpoint = loop {
        let error = match sockets.take_endpoint(worker.number) {
            Ok(Some(endpoint)) => break endpoint,
            Ok(None) => return,
            Err(error) => error,
        };
        // The process that this one replaces may have connections there until it ends.
        if error.kind() != io::ErrorKind::AddrInUse && !is_logged {
            is_logged = true;
            let address = sockets.address();
            tracing::warn!(%address, %error, "HTTP/3 is not served; trying again");
        }
        tokio::time::sleep(BIND_INTERVAL).await;
    };
    let Ok(local_address) = endpoint.local_addr() else {
        return;
    };
    let listener = QuicListener {
        listener_index,
        local_address,
        worker: worker.clone(),
        stack,
    };
    // These settings make the tokens by which clients prove addresses, so they outlive reloads.
    endpoint.set_server_config(listener.settings().map(|settings| (*settings).clone()));
    worker.quic_endpoints.borrow_mut().push(endpoint.clone());
    while let Some(incoming) = endpoint.accept().await {
        listener.begin_connection(incoming);
    }
}

/// One worker's share of a listener.
struct QuicListener {
    listener_index: usize,
    local_address: SocketAddr,
    worker: Rc<WorkerState>,
    stack: Stack,
}

impl QuicListener {
    /// The current settings of the listener; `None` if it serves no HTTP/3.
    fn settings(&self) -> Option<Arc<quinn::ServerConfig>> {
        let generation = self.worker.generation();
        let listener = generation.listeners.get(self.listener_index)?;
        listener.listener_tls.as_ref()?.quic().cloned()
    }

    /// Begins a connection in a task of its own, refuses it, or asks for a proof of the client's address. Where the
    /// gateway has too many connections, clients use TCP, whose connections wait.
    fn begin_connection(&self, incoming: Incoming) {
        let worker = &self.worker;
        let has_proven_address = incoming.remote_address_validated();
        if !has_proven_address && worker.unproven_handshakes.get() >= MAX_UNPROVEN_HANDSHAKES {
            // An error means that the client has proved its address.
            let _ = incoming.retry();
            return;
        }
        worker.count_accepted_connection();
        let counted_connection = worker
            .occupancy
            .try_admit_connection(worker.max_connections());
        let Some((counted_connection, settings)) = counted_connection.zip(self.settings()) else {
            return incoming.refuse();
        };
        let connection = NewConnection {
            addresses: ConnectionAddresses {
                client: incoming.remote_address(),
                local: match incoming.local_ip() {
                    Some(ip) => SocketAddr::new(ip, self.local_address.port()),
                    None => self.local_address,
                },
            },
            listener_index: self.listener_index,
            counted_connection,
            unproven: (!has_proven_address).then(|| Unproven::new(worker)),
            worker: worker.clone(),
        };
        // A malformed first packet is an error.
        let Ok(connecting) = incoming.accept_with(settings) else {
            return;
        };
        let open_connection = worker.count_open_connection();
        let stack = self.stack.clone();
        tokio::task::spawn_local(async move {
            let _open_connection = open_connection;
            connection.serve(connecting, stack).await;
        });
    }
}

/// Counts a handshake whose client has not proved its address, until this value is dropped.
struct Unproven(Rc<WorkerState>);

impl Unproven {
    fn new(worker: &Rc<WorkerState>) -> Unproven {
        worker.unproven_handshakes.update(|count| count + 1);
        Unproven(worker.clone())
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.unproven_handshakes.update(|count| count - 1);
    }
}

/// A connection whose handshake begins.
struct NewConnection {
    addresses: ConnectionAddresses,
    listener_index: usize,
    counted_connection: CountedConnection,
    unproven: Option<Unproven>,
    worker: Rc<WorkerState>,
}

impl NewConnection {
    /// Serves the connection until a side closes it or one of its deadlines passes.
    async fn serve(self, connecting: Connecting, stack: Stack) {
        let timeouts = self.worker.generation().ruleset.timeouts.clone();
        let deadline_clock = &self.worker.deadline_clock;
        let deadlines = deadline_clock.watch_connection(timeouts.idle, timeouts.header);
        let serving = pin!(self.serve_until_closed(connecting, deadlines.clone(), stack));
        let _ = deadlines.run(serving).await;
    }

    /// Serves the connection until a side closes it. The caller enforces the deadlines.
    async fn serve_until_closed(
        self,
        connecting: Connecting,
        deadlines: Rc<Deadlines>,
        stack: Stack,
    ) {
        let NewConnection {
            addresses,
            listener_index,
            mut counted_connection,
            unproven,
            worker,
        } = self;
        let remote_address = PeerAddress::from(addresses.client.ip());
        let mut admit_address = || admit_address(&worker, &mut counted_connection, remote_address);
        // Before the proof of an address, others could use up its connections.
        if unproven.is_none() && !admit_address() {
            return;
        }
        let mut handshake_count = HandshakeCount::new(&worker);
        let handshake = run_before_first_request(&worker, &deadlines, connecting).await;
        let Ok(quic) = handshake else {
            return;
        };
        handshake_count.has_succeeded = true;
        drop(handshake_count);
        if unproven.is_some() && !admit_address() {
            return quic.close(VarInt::from_u32(Code::EXCESSIVE_LOAD.0), b"");
        }
        drop(unproven);
        let generation = worker.generation();
        let listener = generation.listeners.get(listener_index);
        let server_name = quic::server_name(&quic);
        let peer = Peer::new(
            remote_address,
            (listener_index, ListenerRole::Proxy),
            addresses,
            HandshakeFacts {
                listener_tls: listener.and_then(|listener| listener.listener_tls.as_ref()),
                server_name: server_name.as_deref(),
                tls_version: Some("TLSv1.3"),
                tls_cipher: None,
                subject: quic::subject(&quic),
                // QUIC does not show the hello.
                ja4: None,
                is_quic: true,
            },
            deadlines,
            &worker,
        );
        // The connection may outlive this configuration, and must not hold it.
        drop(generation);
        connection::serve(quic, peer, stack).await;
    }
}
