//! Listening sockets. Each worker has its own on every address, and hands a connection to the worker with the fewest when
//! it has clearly more itself. All workers read the one queue of a Unix socket.

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
use crate::net::socket::prepare;
use crate::net::tls::acme::ManagedCertificate;
use crate::net::tls::config::{Offer, OfferedCertificate};
use crate::net::unix::{self, SocketFile};
use crate::net::{Address, PeerNetwork, Stream};
use crate::policy::Listen;

/// Connections that may wait to be accepted, on each socket.
const BACKLOG: i32 = 4096;

/// A worker with this many connections more than the least loaded one hands over the next.
const SLACK: usize = 2;

/// A connection that a client has made.
pub struct ClientConnection<S> {
    /// The socket.
    pub stream: S,
    /// What the client connected to, by its place among [`Running::entrances`].
    ///
    /// [`Running::entrances`]: super::generation::Running::entrances
    pub entrance: usize,
    /// The other end; [`LOCAL`](crate::net::address::LOCAL) for a Unix socket.
    pub from: SocketAddr,
    /// Counts it as open until it is dropped.
    pub counted: CountedConnection,
}

/// A connection that this worker serves.
pub type LocalConnection = ClientConnection<Stream>;

/// A connection on its way to another worker.
pub type HandedConnection = ClientConnection<Socket>;

impl<S> ClientConnection<S> {
    /// The same connection under another kind of socket.
    pub fn with<T>(self, make: impl FnOnce(S) -> io::Result<T>) -> io::Result<ClientConnection<T>> {
        Ok(ClientConnection {
            stream: make(self.stream)?,
            entrance: self.entrance,
            from: self.from,
            counted: self.counted,
        })
    }
}

/// Listening sockets that the process was given when it started: by systemd, or by the process before it.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(Address, Socket)>,
    /// Paths of Unix sockets that this process must remove at its end.
    files: Vec<PathBuf>,
    /// How many descriptors were passed that are no listening sockets.
    others: usize,
}

impl Inherited {
    /// Those that `LISTEN_FDS` tells of: `sd_listen_fds(3)`.
    pub fn from_environment() -> Inherited {
        let mut passed = listenfd::ListenFd::from_env();
        let mut inherited = Inherited::default();
        for place in 0..passed.len() {
            let tcp = passed.take_tcp_listener(place).ok().flatten();
            let mut unix = || passed.take_unix_listener(place).ok().flatten();
            let socket = tcp.map(Socket::from).or_else(|| unix().map(Socket::from));
            let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
            let known =
                socket.and_then(|socket| Some((Address::of(&socket.local_addr().ok()?)?, socket)));
            match known {
                Some(known) => inherited.sockets.push(known),
                None => inherited.others += 1,
            }
        }
        if let Some(files) = std::env::var_os(SOCKET_FILES) {
            inherited.files = std::env::split_paths(&files).collect();
        }
        inherited
    }

    /// Whether some listen on `address`; port 0 is any.
    pub fn has(&self, address: &Address) -> bool {
        self.chosen(address).is_some()
    }

    /// One on the same port that does not fit `address`.
    pub fn beside(&self, address: SocketAddr) -> Option<SocketAddr> {
        let mut addresses = self.sockets.iter().filter_map(|(other, _)| other.tcp());
        addresses.find(|other| other.port() == address.port() && address.port() != 0)
    }

    /// Takes those that listen on `address`. Port 0 is any one port.
    pub fn take(&mut self, address: &Address) -> Vec<Socket> {
        let Some(chosen) = self.chosen(address) else {
            return Vec::new();
        };
        let (taken, left) = std::mem::take(&mut self.sockets)
            .into_iter()
            .partition(|(other, _)| *other == chosen);
        self.sockets = left;
        let taken: Vec<_> = taken;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }

    /// Where those are that fit: on the address itself, else on the same port for all addresses of both families.
    fn chosen(&self, address: &Address) -> Option<Address> {
        let Some(tcp) = address.tcp() else {
            let same = |(other, _): &&(Address, Socket)| other == address;
            let found = self.sockets.iter().find(same);
            return found.map(|(other, _)| other.clone());
        };
        let sockets = || {
            let all = self.sockets.iter();
            all.filter_map(|(other, socket)| Some((other.tcp()?, socket)))
        };
        let exact = sockets().find(|(other, _)| is_on(*other, tcp));
        let wider = || {
            sockets().find(|(other, socket)| {
                tcp.ip() == Ipv4Addr::UNSPECIFIED
                    && other.ip() == Ipv6Addr::UNSPECIFIED
                    && other.port() == tcp.port()
                    && socket.only_v6().is_ok_and(|only| !only)
            })
        };
        exact.or_else(wider).map(|(other, _)| other.into())
    }

    /// The file at `path`, if this process is to remove it.
    fn file(&self, path: &Arc<Path>) -> Option<SocketFile> {
        let ours = self.files.iter().any(|file| **file == **path);
        ours.then(|| SocketFile::at(path).ok()).flatten()
    }

    /// Removes the files of inherited Unix sockets that no listener uses, if this process must.
    pub fn remove_left(&self) {
        for (address, _) in &self.sockets {
            if let Address::Unix(path) = address {
                self.file(path).into_iter().for_each(SocketFile::remove);
            }
        }
    }

    /// Inherited sockets that no listener uses.
    pub fn left(&self) -> impl Iterator<Item = String> {
        let sockets = self.sockets.iter().map(|(address, _)| address.to_string());
        let other = || String::from("no listening socket of TCP or with a path");
        sockets.chain(std::iter::repeat_with(other).take(self.others))
    }
}

fn is_on(other: SocketAddr, address: SocketAddr) -> bool {
    other.ip() == address.ip() && (address.port() == 0 || other.port() == address.port())
}

/// The variable in which a process names the socket files that its successor has to remove at its end.
pub const SOCKET_FILES: &str = "TOLLGATE_SOCKET_FILES";

/// Fails when somebody listens on `address`. [`bind`] would share it with another gateway, and each
/// would count for itself.
pub fn probe(address: &Address) -> io::Result<()> {
    let address = match address {
        Address::Tcp(address) => *address,
        Address::Unix(path) => return unix::probe(path),
    };
    let socket = socket(address)?;
    // Connections of a gateway that has ended do not matter.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// How many connections clients may have by the descriptors of the process, of which it takes as many as it
/// may: each of them may need one more to a server.
pub fn room() -> usize {
    let mut limits = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if setrlimit(Resource::Nofile, most).is_ok() {
        limits = most;
    }
    let descriptors = limits.current.unwrap_or(u64::MAX);
    let kept = KEPT.min(descriptors / 4 * 3);
    usize::try_from((descriptors - kept) / 2).unwrap_or(usize::MAX)
}

/// Descriptors for everything else, where there are many.
const KEPT: u64 = 128;

fn socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )
}

/// What listens on one address.
#[derive(Debug)]
pub struct BoundSockets {
    /// At least one for each worker.
    pub sockets: Vec<Socket>,
    /// The file of a Unix socket, if it is to be removed at the end.
    pub file: Option<SocketFile>,
}

/// Sockets on the address, one for each worker at least: the `inherited` ones, if there are any. Port 0 becomes one free port
/// for all of them.
pub fn bind(
    listen: &Listen,
    workers: usize,
    inherited: &mut Inherited,
) -> io::Result<BoundSockets> {
    let mut sockets = inherited.take(&listen.address);
    let mut file = None;
    match &listen.address {
        Address::Tcp(address) if sockets.is_empty() => sockets = each(*address, workers)?,
        Address::Tcp(_) => sockets.iter().try_for_each(prepare)?,
        Address::Unix(path) if sockets.is_empty() => {
            sockets.push(unix::bind(path, listen.mode, BACKLOG)?);
            file = Some(SocketFile::at(path)?);
        }
        Address::Unix(path) => file = inherited.file(path),
    }
    // A queue may have several readers, but none may be without one.
    for place in 0..workers.saturating_sub(sockets.len()) {
        sockets.push(sockets[place].try_clone()?);
    }
    Ok(BoundSockets { sockets, file })
}

/// A socket of its own for each worker.
fn each(mut address: SocketAddr, workers: usize) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..workers {
        let socket = socket(address)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        prepare(&socket)?;
        socket.listen(BACKLOG)?;
        address = socket.local_addr()?.as_socket().unwrap_or(address);
        sockets.push(socket);
    }
    Ok(sockets)
}

/// How many connections each worker has, and how to hand one over.
#[derive(Clone)]
pub struct Placement {
    loads: Arc<[AtomicUsize]>,
    others: Arc<[UnboundedSender<HandedConnection>]>,
    mine: usize,
}

impl Placement {
    /// Worker number `mine`'s view.
    pub fn new(
        loads: Arc<[AtomicUsize]>,
        others: Arc<[UnboundedSender<HandedConnection>]>,
        mine: usize,
    ) -> Placement {
        Placement {
            loads,
            others,
            mine,
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.loads.len()
    }

    /// Counts a new connection. Hands it to another worker if that one has clearly fewer, else returns it.
    pub fn place(&self, placed: LocalConnection) -> Option<LocalConnection> {
        let mine = self.loads[self.mine].load(Ordering::Relaxed);
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let (least, number) = loads.zip(0..).min().unwrap_or((mine, self.mine));
        let mut placed = placed;
        if number != self.mine && mine >= least + SLACK {
            let handed = placed.with(Stream::into_socket).ok()?;
            self.loads[number].fetch_add(1, Ordering::Relaxed);
            let Err(SendError(handed)) = self.others[number].send(handed) else {
                return None;
            };
            // The other has ended.
            self.loads[number].fetch_sub(1, Ordering::Relaxed);
            placed = handed.with(Stream::from_socket).ok()?;
        }
        self.loads[self.mine].fetch_add(1, Ordering::Relaxed);
        Some(placed)
    }

    /// A connection of this worker is over.
    pub fn connection_closed(&self) {
        self.loads[self.mine].fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is spoken to clients at one listener, and which proxies are trusted there.
#[derive(Clone, Debug)]
pub struct RunningEntrance {
    /// The TLS configuration; none if TLS is not spoken.
    pub offer: Option<Offer>,
    /// The certificates that handshakes choose from.
    pub shown: Vec<OfferedCertificate>,
    /// Certificates that an ACME directory issues.
    pub managed: Vec<Arc<ManagedCertificate>>,
    /// Peers that send a PROXY header first.
    pub proxies: Vec<PeerNetwork>,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use socket2::SockRef;

    use crate::net::socket::set_unacked_timeout;

    /// Also where the socket was there already.
    #[test]
    fn connections_have_what_their_listener_was_told() {
        let own = each(([127, 0, 0, 1], 0).into(), 1);
        let other = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        prepare(&other).expect("it is a socket");
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
