//! Which worker serves a connection: the one that accepted it, unless another one has clearly fewer connections.
//!
//! A connection is handed over at most once, before its first byte is read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::Socket;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use super::occupancy::CountedConnection;
use crate::net::Stream;

/// A worker with this many connections more than the least loaded worker hands over the next one. With a smaller number,
/// connections would be handed over to and fro.
const HANDOVER_SURPLUS: usize = 2;

/// A connection that a client has made and that no request has arrived on yet.
pub struct ClientConnection<S> {
    /// The connected socket.
    pub stream: S,
    /// The index in [`RunningConfig::listeners`] of the listener that the client connected to.
    ///
    /// [`RunningConfig::listeners`]: super::generation::RunningConfig::listeners
    pub listener_index: usize,
    /// The address of the client; [`UNIX_STAND_IN`](crate::net::address::UNIX_STAND_IN) for a Unix socket.
    pub client_address: SocketAddr,
    /// Counts the connection as open until this value is dropped.
    pub counted_connection: CountedConnection,
}

/// A connection that this worker serves: its socket is registered with the worker's runtime.
pub type LocalConnection = ClientConnection<Stream>;

/// A connection on its way to another worker: its socket is registered with no runtime.
pub type HandedConnection = ClientConnection<Socket>;

impl<S> ClientConnection<S> {
    /// Converts the socket of the connection by `convert`, whose error is returned.
    pub fn map_stream<T>(
        self,
        convert: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<ClientConnection<T>> {
        Ok(ClientConnection {
            stream: convert(self.stream)?,
            listener_index: self.listener_index,
            client_address: self.client_address,
            counted_connection: self.counted_connection,
        })
    }
}

/// Decides which worker serves a connection, by how many connections each worker has. Each worker has its own value.
///
/// The counts are read and changed with relaxed order: a stale count only makes workers a little less equally loaded.
#[derive(Clone)]
pub struct Placement {
    /// The number of open connections of each worker, by the worker's number.
    connection_counts: Arc<[AtomicUsize]>,
    /// The channels by which connections are handed to each worker, by the worker's number. The maximum number of open
    /// connections bounds what waits in them.
    senders: Arc<[UnboundedSender<HandedConnection>]>,
    /// The number of this worker.
    own_number: usize,
}

impl Placement {
    /// The placement as worker `own_number` sees it.
    pub fn new(
        connection_counts: Arc<[AtomicUsize]>,
        senders: Arc<[UnboundedSender<HandedConnection>]>,
        own_number: usize,
    ) -> Placement {
        Placement {
            connection_counts,
            senders,
            own_number,
        }
    }

    /// The number of workers.
    pub fn worker_count(&self) -> usize {
        self.connection_counts.len()
    }

    /// Counts a new connection for the worker that serves it. Returns the connection if that is this worker; `None` if
    /// the connection was handed to a worker with clearly fewer, or its socket has failed.
    pub fn place_connection(&self, mut connection: LocalConnection) -> Option<LocalConnection> {
        let own_count = self.connection_counts[self.own_number].load(Ordering::Relaxed);
        let counts = self.connection_counts.iter();
        let counts_and_numbers = counts.map(|count| count.load(Ordering::Relaxed)).zip(0..);
        let (fewest_count, fewest_number) = counts_and_numbers
            .min()
            .unwrap_or((own_count, self.own_number));
        if fewest_number != self.own_number && own_count >= fewest_count + HANDOVER_SURPLUS {
            let handed_connection = connection.map_stream(Stream::into_socket).ok()?;
            self.connection_counts[fewest_number].fetch_add(1, Ordering::Relaxed);
            let Err(SendError(returned)) = self.senders[fewest_number].send(handed_connection)
            else {
                return None;
            };
            // The other worker has ended.
            self.connection_counts[fewest_number].fetch_sub(1, Ordering::Relaxed);
            connection = returned.map_stream(Stream::from_socket).ok()?;
        }
        self.count_own_connection();
        Some(connection)
    }

    /// Counts a new connection for this worker, which must serve it.
    pub fn count_own_connection(&self) {
        self.connection_counts[self.own_number].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection of this worker as closed.
    pub fn count_closed_connection(&self) {
        self.connection_counts[self.own_number].fetch_sub(1, Ordering::Relaxed);
    }
}
