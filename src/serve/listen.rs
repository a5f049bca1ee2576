//! Listening sockets: each worker has its own on every address, and hands a connection to the worker
//! with the fewest when its own share has become too large.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipnet::IpNet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use super::occupancy::Seat;
use crate::acme::Wanted;
use crate::net::socket::prepare;
use crate::net::tls::{Offer, Shown};

/// Connections that may wait to be accepted, on each socket.
const BACKLOG: i32 = 4096;

/// How many connections more than the least loaded worker a worker keeps for itself.
const SLACK: usize = 2;

/// A connection that a client has made.
pub struct Incoming<S> {
    /// The socket.
    pub stream: S,
    /// What the client connected to, by its place among [`Running::entrances`].
    ///
    /// [`Running::entrances`]: super::generation::Running::entrances
    pub entrance: usize,
    /// The other end.
    pub from: SocketAddr,
    /// Counts it as open.
    pub seat: Seat,
}

/// One that stays with the worker that accepted it.
pub type Placed = Incoming<tokio::net::TcpStream>;

/// One on its way to another worker.
pub type Handed = Incoming<std::net::TcpStream>;

impl<S> Incoming<S> {
    /// The same connection under another kind of socket.
    pub fn with<T>(self, make: impl FnOnce(S) -> io::Result<T>) -> io::Result<Incoming<T>> {
        Ok(Incoming {
            stream: make(self.stream)?,
            entrance: self.entrance,
            from: self.from,
            seat: self.seat,
        })
    }
}

/// Listening sockets that the process was given when it started: by systemd, or by the process before it.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(SocketAddr, std::net::TcpListener)>,
    /// What else was passed, by its name.
    others: Vec<String>,
}

impl Inherited {
    /// Those that `LISTEN_FDS` tells of: `sd_listen_fds(3)`.
    pub fn from_environment() -> Inherited {
        let mut passed = listenfd::ListenFd::from_env();
        let mut inherited = Inherited::default();
        for place in 0..passed.len() {
            let socket = passed.take_tcp_listener(place).ok().flatten();
            let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
            let known = socket.and_then(|socket| Some((socket.local_addr().ok()?, socket)));
            match known {
                Some(known) => inherited.sockets.push(known),
                None => {
                    let unix = passed.take_unix_listener(place).ok().flatten();
                    let path = unix.and_then(|unix| unix.local_addr().ok());
                    let path = path.and_then(|at| Some(at.as_pathname()?.display().to_string()));
                    inherited
                        .others
                        .push(path.unwrap_or_else(|| String::from("no listening socket of TCP")));
                }
            }
        }
        inherited
    }

    /// Whether some listen on `address`; port 0 is any.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.chosen(address).is_some()
    }

    /// One on the same port that does not fit `address`.
    pub fn beside(&self, address: SocketAddr) -> Option<SocketAddr> {
        let mut addresses = self.sockets.iter().map(|(other, _)| *other);
        addresses.find(|other| other.port() == address.port() && address.port() != 0)
    }

    /// Takes those that listen on `address`. Port 0 is any one port.
    pub fn take(&mut self, address: SocketAddr) -> Vec<std::net::TcpListener> {
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
    fn chosen(&self, address: SocketAddr) -> Option<SocketAddr> {
        let exact = self
            .sockets
            .iter()
            .find(|(other, _)| is_on(*other, address));
        let wider = || {
            self.sockets.iter().find(|(other, socket)| {
                address.ip() == Ipv4Addr::UNSPECIFIED
                    && other.ip() == Ipv6Addr::UNSPECIFIED
                    && other.port() == address.port()
                    && SockRef::from(socket).only_v6().is_ok_and(|only| !only)
            })
        };
        exact.or_else(wider).map(|(other, _)| *other)
    }

    /// What nobody has taken.
    pub fn left(&self) -> impl Iterator<Item = String> {
        let sockets = self.sockets.iter().map(|(address, _)| address.to_string());
        sockets.chain(self.others.iter().cloned())
    }
}

fn is_on(other: SocketAddr, address: SocketAddr) -> bool {
    other.ip() == address.ip() && (address.port() == 0 || other.port() == address.port())
}

/// Fails when somebody listens on `address`. [`bind`] would share it with another gateway, and each
/// would count for itself.
pub fn probe(address: SocketAddr) -> io::Result<()> {
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

/// Sockets on `address` for so many workers, at least one each; those that were `inherited`, if there are any.
/// Port 0 becomes one free port for all of them.
pub fn bind(
    address: SocketAddr,
    workers: usize,
    inherited: &mut Inherited,
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut sockets = inherited.take(address);
    if !sockets.is_empty() {
        // A queue may have several readers, but none may be without one.
        for place in 0..workers.saturating_sub(sockets.len()) {
            sockets.push(sockets[place].try_clone()?);
        }
        sockets.iter().try_for_each(prepare)?;
        return Ok(sockets);
    }
    let mut address = address;
    for _ in 0..workers {
        let socket = socket(address)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        prepare(&socket)?;
        socket.listen(BACKLOG)?;
        let socket: std::net::TcpListener = socket.into();
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// How many connections each worker has, and how to reach the others.
#[derive(Clone)]
pub struct Share {
    loads: Arc<[AtomicUsize]>,
    others: Arc<[UnboundedSender<Handed>]>,
    mine: usize,
}

impl Share {
    /// Worker number `mine`'s view.
    pub fn new(
        loads: Arc<[AtomicUsize]>,
        others: Arc<[UnboundedSender<Handed>]>,
        mine: usize,
    ) -> Share {
        Share {
            loads,
            others,
            mine,
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.loads.len()
    }

    /// Counts a new connection. Gives it to another worker when that one has clearly fewer; else
    /// gives it back.
    pub fn place(&self, placed: Placed) -> Option<Placed> {
        let mine = self.loads[self.mine].load(Ordering::Relaxed);
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let (least, number) = loads.zip(0..).min().unwrap_or((mine, self.mine));
        let mut placed = placed;
        if number != self.mine && mine >= least + SLACK {
            let handed = placed.with(tokio::net::TcpStream::into_std).ok()?;
            self.loads[number].fetch_add(1, Ordering::Relaxed);
            let Err(SendError(handed)) = self.others[number].send(handed) else {
                return None;
            };
            // The other has ended.
            self.loads[number].fetch_sub(1, Ordering::Relaxed);
            placed = handed.with(tokio::net::TcpStream::from_std).ok()?;
        }
        self.loads[self.mine].fetch_add(1, Ordering::Relaxed);
        Some(placed)
    }

    /// A connection of this worker is over.
    pub fn over(&self) {
        self.loads[self.mine].fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is spoken to clients at one place, and whom the gateway believes there.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What handshakes are made with, where TLS is spoken.
    pub offer: Option<Offer>,
    /// The certificates among which handshakes choose.
    pub shown: Vec<Shown>,
    /// Those of them that a directory issues.
    pub wanted: Vec<Arc<Wanted>>,
    /// Peers that begin each connection by saying where it comes from.
    pub proxies: Vec<IpNet>,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::net::socket::set_unacked_timeout;

    /// Also where the socket was there already.
    #[test]
    fn connections_have_what_their_listener_was_told() {
        let own = bind(([127, 0, 0, 1], 0).into(), 1, &mut Inherited::default());
        let other = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        prepare(&other).expect("it is a socket");
        let span = Duration::from_secs;
        for listener in own.expect("there is a port").into_iter().chain([other]) {
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
