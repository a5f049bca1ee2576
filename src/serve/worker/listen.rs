//! Listening sockets, and which worker serves a connection.
//!
//! Each worker has its own socket on every TCP address; all workers accept from the one queue of a Unix socket. A worker
//! with clearly more connections than another hands the next one over.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use super::occupancy::CountedConnection;
use crate::net::socket::set_tcp_options;
use crate::net::tls::acme::ManagedCertificate;
use crate::net::tls::listener_tls::{ListenerTls, OfferedCertificate};
use crate::net::unix_socket::{self, SocketFile};
use crate::net::{Address, PeerNetwork, Stream};
use crate::policy::BindSettings;

/// Connections that may wait to be accepted, for each socket.
const ACCEPT_BACKLOG: i32 = 4096;

/// A worker with this many connections more than the least loaded one hands over the next. With less, connections would
/// be handed over to and fro.
const HANDOVER_SURPLUS: usize = 2;

/// Descriptors that are reserved for everything but client connections and their upstream connections.
const RESERVED_DESCRIPTORS: u64 = 128;

/// The variable in which a process lists the socket files that its successor must remove at its end, separated like the
/// folders in `PATH`.
pub const SOCKET_FILES: &str = "TOLLGATE_SOCKET_FILES";

/// A connection that a client has made.
pub struct ClientConnection<S> {
    /// The connected socket.
    pub stream: S,
    /// The index in [`RunningConfig::listeners`] of the listener that the client connected to.
    ///
    /// [`RunningConfig::listeners`]: super::generation::RunningConfig::listeners
    pub listener: usize,
    /// The address of the client; [`UNIX_STAND_IN`](crate::net::address::UNIX_STAND_IN) for a Unix socket.
    pub from: SocketAddr,
    /// Counts the connection as open until it is dropped.
    pub counted: CountedConnection,
}

/// A connection that this worker serves.
pub type LocalConnection = ClientConnection<Stream>;

/// A connection on its way to another worker.
pub type HandedConnection = ClientConnection<Socket>;

impl<S> ClientConnection<S> {
    /// Converts the socket of the connection.
    pub fn map_stream<T>(
        self,
        convert: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<ClientConnection<T>> {
        Ok(ClientConnection {
            stream: convert(self.stream)?,
            listener: self.listener,
            from: self.from,
            counted: self.counted,
        })
    }
}

/// Listening sockets that the process was given when it started: by systemd, or by the process before it.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<(Address, Socket)>,
    /// Paths of Unix sockets that this process must remove at its end.
    files: Vec<PathBuf>,
    /// The number of passed descriptors that are no listening sockets.
    unusable: usize,
}

impl InheritedSockets {
    /// The sockets that `LISTEN_FDS` announces, by the protocol of `sd_listen_fds(3)`.
    pub fn from_environment() -> InheritedSockets {
        let mut passed = listenfd::ListenFd::from_env();
        let mut inherited = InheritedSockets::default();
        for index in 0..passed.len() {
            let tcp = passed.take_tcp_listener(index).ok().flatten();
            let mut unix = || passed.take_unix_listener(index).ok().flatten();
            let socket = tcp.map(Socket::from).or_else(|| unix().map(Socket::from));
            let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
            let listening = socket.and_then(|socket| {
                Some((Address::from_socket(&socket.local_addr().ok()?)?, socket))
            });
            match listening {
                Some(listening) => inherited.sockets.push(listening),
                None => inherited.unusable += 1,
            }
        }
        if let Some(files) = std::env::var_os(SOCKET_FILES) {
            inherited.files = std::env::split_paths(&files).collect();
        }
        inherited
    }

    /// Whether an inherited socket can serve `address`. Port 0 matches any port.
    pub fn has_socket_for(&self, address: &Address) -> bool {
        self.matching_address(address).is_some()
    }

    /// The address of an inherited socket on the same port as `address`, for the message that it does not match.
    pub fn same_port_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        let mut addresses = self.sockets.iter().filter_map(|(other, _)| other.tcp());
        addresses.find(|other| other.port() == address.port() && address.port() != 0)
    }

    /// Takes the sockets that can serve `address`. Port 0 takes those of one port, whichever it is.
    pub fn take_sockets(&mut self, address: &Address) -> Vec<Socket> {
        let Some(matching) = self.matching_address(address) else {
            return Vec::new();
        };
        let sockets = std::mem::take(&mut self.sockets);
        let (taken, unused): (Vec<_>, Vec<_>) = sockets
            .into_iter()
            .partition(|(other, _)| *other == matching);
        self.sockets = unused;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }

    /// The address of the inherited sockets that can serve `address`: the same one, or for `0.0.0.0` the same port on
    /// `[::]` of a socket that accepts IPv4 too.
    fn matching_address(&self, address: &Address) -> Option<Address> {
        let Some(tcp) = address.tcp() else {
            let mut addresses = self.sockets.iter().map(|(other, _)| other);
            return addresses.find(|other| *other == address).cloned();
        };
        let tcp_sockets = || {
            let sockets = self.sockets.iter();
            sockets.filter_map(|(other, socket)| Some((other.tcp()?, socket)))
        };
        let exact = tcp_sockets().find(|(other, _)| is_same_address(*other, tcp));
        let dual_stack = || {
            tcp_sockets().find(|(other, socket)| {
                tcp.ip() == Ipv4Addr::UNSPECIFIED
                    && other.ip() == Ipv6Addr::UNSPECIFIED
                    && other.port() == tcp.port()
                    && socket.only_v6().is_ok_and(|only| !only)
            })
        };
        exact.or_else(dual_stack).map(|(other, _)| other.into())
    }

    /// The file of the Unix socket at `path`, if this process must remove it at its end.
    fn owned_file(&self, path: &Arc<Path>) -> Option<SocketFile> {
        let is_owned = self.files.iter().any(|file| **file == **path);
        is_owned.then(|| SocketFile::at(path).ok()).flatten()
    }

    /// Removes the files of inherited Unix sockets that no listener uses, if this process must.
    pub fn remove_unused_files(&self) {
        for (address, _) in &self.sockets {
            if let Address::Unix(path) = address {
                let file = self.owned_file(path);
                file.into_iter().for_each(SocketFile::remove);
            }
        }
    }

    /// A description of each passed descriptor that no listener uses, for the log.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let sockets = self.sockets.iter().map(|(address, _)| address.to_string());
        let unusable = || String::from("no listening socket of TCP or with a path");
        sockets.chain(std::iter::repeat_with(unusable).take(self.unusable))
    }
}

/// Whether the addresses are the same. Port 0 of `address` matches any port.
fn is_same_address(other: SocketAddr, address: SocketAddr) -> bool {
    other.ip() == address.ip() && (address.port() == 0 || other.port() == address.port())
}

/// Checks that nobody listens on `address` yet. [`bind`] would share the address with another gateway, and each of them
/// would count only its own requests.
///
/// # Errors
///
/// Another process listens there, or the system does not allow this one to.
pub fn check_unused(address: &Address) -> io::Result<()> {
    let address = match address {
        Address::Tcp(address) => *address,
        Address::Unix(path) => return unix_socket::check_unused(path),
    };
    let socket = tcp_socket(address)?;
    // Connections of a gateway that has ended do not matter.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Raises the descriptor limit of the process as far as it may, and returns how many client connections that allows. Each
/// of them may need a second descriptor, for its connection to a server.
pub fn raise_connection_limit() -> usize {
    let mut limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limits = raised;
    }
    let descriptors = limits.current.unwrap_or(u64::MAX);
    let reserved = RESERVED_DESCRIPTORS.min(descriptors / 4 * 3);
    usize::try_from((descriptors - reserved) / 2).unwrap_or(usize::MAX)
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )
}

/// The sockets that listen on one address.
#[derive(Debug)]
pub struct BoundSockets {
    /// At least one for each worker.
    pub sockets: Vec<Socket>,
    /// The file of a Unix socket, if this process must remove it at its end.
    pub file: Option<SocketFile>,
}

/// Listens on an address with at least one socket for each worker, and uses the `inherited` sockets if some match. Port 0
/// becomes one free port for all of them.
///
/// # Errors
///
/// The system refuses to bind or to listen.
pub fn bind(
    listen: &BindSettings,
    workers: usize,
    inherited: &mut InheritedSockets,
) -> io::Result<BoundSockets> {
    let mut sockets = inherited.take_sockets(&listen.address);
    let mut file = None;
    match &listen.address {
        Address::Tcp(address) if sockets.is_empty() => {
            sockets = bind_for_each_worker(*address, workers)?;
        }
        Address::Tcp(_) => sockets.iter().try_for_each(set_tcp_options)?,
        Address::Unix(path) if sockets.is_empty() => {
            sockets.push(unix_socket::bind(path, listen.mode, ACCEPT_BACKLOG)?);
            file = Some(SocketFile::at(path)?);
        }
        Address::Unix(path) => file = inherited.owned_file(path),
    }
    // Several workers may accept from one queue, but each queue needs a worker and each worker a queue.
    for index in 0..workers.saturating_sub(sockets.len()) {
        sockets.push(sockets[index].try_clone()?);
    }
    Ok(BoundSockets { sockets, file })
}

/// Listens on a TCP address with a socket of its own for each worker, so that the kernel spreads connections.
fn bind_for_each_worker(mut address: SocketAddr, workers: usize) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..workers {
        let socket = tcp_socket(address)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        set_tcp_options(&socket)?;
        socket.listen(ACCEPT_BACKLOG)?;
        address = socket.local_addr()?.as_socket().unwrap_or(address);
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Decides which worker serves a connection: knows how many each has, and can hand one over.
#[derive(Clone)]
pub struct Placement {
    /// Open connections of each worker, by its number.
    connections: Arc<[AtomicUsize]>,
    /// Hand a connection to each worker, by its number.
    senders: Arc<[UnboundedSender<HandedConnection>]>,
    own_number: usize,
}

impl Placement {
    /// The placement as worker `own_number` sees it.
    pub fn new(
        connections: Arc<[AtomicUsize]>,
        senders: Arc<[UnboundedSender<HandedConnection>]>,
        own_number: usize,
    ) -> Placement {
        Placement {
            connections,
            senders,
            own_number,
        }
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.connections.len()
    }

    /// Counts a new connection. Hands it to the worker with the fewest if that one has clearly fewer, else returns it.
    pub fn place(&self, mut connection: LocalConnection) -> Option<LocalConnection> {
        let own = self.connections[self.own_number].load(Ordering::Relaxed);
        let counts = self.connections.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        let (fewest, number) = counts.zip(0..).min().unwrap_or((own, self.own_number));
        if number != self.own_number && own >= fewest + HANDOVER_SURPLUS {
            let handed = connection.map_stream(Stream::into_socket).ok()?;
            self.connections[number].fetch_add(1, Ordering::Relaxed);
            let Err(SendError(returned)) = self.senders[number].send(handed) else {
                return None;
            };
            // The other worker has ended.
            self.connections[number].fetch_sub(1, Ordering::Relaxed);
            connection = returned.map_stream(Stream::from_socket).ok()?;
        }
        self.connections[self.own_number].fetch_add(1, Ordering::Relaxed);
        Some(connection)
    }

    /// Counts a connection of this worker as closed.
    pub fn connection_closed(&self) {
        self.connections[self.own_number].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The TLS and proxy settings of one listener.
#[derive(Clone, Debug)]
pub struct RunningListener {
    /// The TLS configuration; `None` if clients speak without TLS.
    pub listener_tls: Option<ListenerTls>,
    /// The certificates that handshakes choose from.
    pub certificates: Vec<OfferedCertificate>,
    /// Certificates that an ACME directory issues.
    pub managed: Vec<Arc<ManagedCertificate>>,
    /// Networks of proxies, whose connections begin with a PROXY header.
    pub proxies: Vec<PeerNetwork>,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use socket2::SockRef;

    use crate::net::socket::set_unacked_timeout;

    /// The socket may also have been passed by another process.
    #[test]
    fn connections_inherit_the_options_of_their_listener() {
        let own = bind_for_each_worker(([127, 0, 0, 1], 0).into(), 1);
        let other = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        set_tcp_options(&other).expect("it is a socket");
        let span = Duration::from_secs;
        let own = own
            .expect("there is a port")
            .into_iter()
            .map(TcpListener::from);
        for listener in own.chain([other]) {
            let blocking = listener.set_nonblocking(false);
            let address = listener.local_addr().expect("it is bound");
            set_unacked_timeout(&listener, span(300)).expect("it is a socket");
            set_unacked_timeout(&listener, span(30)).expect("it is a socket");
            let client = TcpStream::connect(address).expect("it listens");
            let (accepted, _) = listener.accept().expect("somebody has connected");
            let accepted = SockRef::from(&accepted);
            assert!(blocking.is_ok() && client.peer_addr().is_ok());
            assert!(accepted.tcp_nodelay().is_ok_and(|is| is));
            assert!(accepted.keepalive().is_ok_and(|is| is));
            let silent = accepted.tcp_keepalive_time().expect("it is a socket");
            let probe = accepted.tcp_keepalive_interval().expect("it is a socket");
            let probes = accepted.tcp_keepalive_retries().expect("it is a socket");
            assert!(
                silent + probe * probes < span(90),
                "{silent:?} {probe:?} {probes}"
            );
            let unacked = accepted.tcp_user_timeout().expect("it is a socket");
            assert!(unacked.is_some_and(|unacked| unacked < span(90)));
            // The kernel asks it instead of the number of probes.
            assert!(unacked.is_some_and(|unacked| unacked <= silent + probe * probes));
        }
    }
}
