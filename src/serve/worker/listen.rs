//! Binds the listening sockets of all workers when the process starts, and raises the limit of descriptors. It accepts
//! nothing; `run.rs` does.
//!
//! Each worker has its own socket on every TCP address, unless fewer sockets were inherited. All workers accept from the
//! one queue of a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use super::inherited_sockets::InheritedSockets;
use crate::net::socket::set_tcp_options;
use crate::net::tls::acme::ManagedCertificate;
use crate::net::tls::listener_tls::{ListenerTls, OfferedCertificate};
use crate::net::unix_socket::{self, SocketFile};
use crate::net::{Address, PeerNetwork};
use crate::policy::{BindSettings, ListenerRole};
use crate::route::Redirect;

/// Maximum number of connections that wait to be accepted, for each socket. The kernel may bound it further.
const ACCEPT_BACKLOG: i32 = 4096;

/// Number of descriptors that are reserved for everything but client connections and their upstream connections: files,
/// listening sockets, stores, and the admin listener.
const RESERVED_DESCRIPTORS: u64 = 128;

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
    let socket = new_tcp_socket(address)?;
    // Without this option, closed connections of a gateway that has ended would keep the address in use for a minute.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Raises the descriptor limit of the process as far as it may, and returns how many client connections that allows. Each
/// of them may need a second descriptor, for its connection to a server.
pub fn raise_connection_limit() -> usize {
    let mut limits = getrlimit(Resource::Nofile);
    let raised_limits = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if setrlimit(Resource::Nofile, raised_limits).is_ok() {
        limits = raised_limits;
    }
    // `None` means that there is no limit.
    let descriptor_count = limits.current.unwrap_or(u64::MAX);
    // Under a very low limit at least a quarter of the descriptors is left for connections.
    let reserved_count = RESERVED_DESCRIPTORS.min(descriptor_count / 4 * 3);
    usize::try_from((descriptor_count - reserved_count) / 2).unwrap_or(usize::MAX)
}

fn new_tcp_socket(address: SocketAddr) -> io::Result<Socket> {
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

/// Listens on an address with at least one socket for each worker, and uses the `inherited` sockets if some match. For
/// port 0 all sockets share one free port.
///
/// # Errors
///
/// The system refuses to bind or to listen.
pub fn bind(
    settings: &BindSettings,
    worker_count: usize,
    inherited: &mut InheritedSockets,
) -> io::Result<BoundSockets> {
    let mut sockets = inherited.take_sockets(&settings.address);
    let mut file = None;
    match &settings.address {
        Address::Tcp(address) if sockets.is_empty() => {
            sockets = bind_for_each_worker(*address, worker_count)?;
        }
        Address::Tcp(_) => sockets.iter().try_for_each(set_tcp_options)?,
        Address::Unix(path) if sockets.is_empty() => {
            sockets.push(unix_socket::bind(path, settings.mode, ACCEPT_BACKLOG)?);
            file = Some(SocketFile::at(path)?);
        }
        Address::Unix(path) => file = inherited.owned_file(path),
    }
    // Several workers may accept from one queue, but each queue needs a worker and each worker a queue.
    for index in 0..worker_count.saturating_sub(sockets.len()) {
        sockets.push(sockets[index].try_clone()?);
    }
    Ok(BoundSockets { sockets, file })
}

/// Listens on a TCP address with a socket of its own for each worker, so that the kernel spreads connections. An error is
/// one of the system.
fn bind_for_each_worker(mut address: SocketAddr, worker_count: usize) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..worker_count {
        let socket = new_tcp_socket(address)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        set_tcp_options(&socket)?;
        socket.listen(ACCEPT_BACKLOG)?;
        // If `address` has port 0, the first socket gets a free port, and the others bind the same one.
        address = socket.local_addr()?.as_socket().unwrap_or(address);
        sockets.push(socket);
    }
    Ok(sockets)
}

/// The settings of one listener that a reload may change.
#[derive(Clone, Debug)]
pub struct RunningListener {
    /// The listener's name in the gateway file, if it has one.
    pub name: Option<Box<str>>,
    /// The index of the listener's route table in [`Ruleset::listener_tables`]; `None` for the table that all other
    /// listeners share.
    ///
    /// [`Ruleset::listener_tables`]: crate::policy::Ruleset::listener_tables
    pub table_index: Option<usize>,
    /// The TLS configuration; `None` if clients connect without TLS.
    pub listener_tls: Option<ListenerTls>,
    /// The certificates that handshakes choose from.
    pub certificates: Vec<OfferedCertificate>,
    /// The certificates among these that an ACME directory issues.
    pub managed_certificates: Vec<Arc<ManagedCertificate>>,
    /// The value of `Strict-Transport-Security` in every response; `None` if the gateway adds none.
    pub hsts: Option<Arc<str>>,
    /// Whether every response over TCP says that HTTP/3 is served, at the same port.
    pub announces_http3: bool,
    /// Where every request is sent before a route is looked for; `None` if the routes take them.
    pub redirect: Option<Redirect>,
    /// Networks of proxies, whose connections begin with a PROXY header.
    pub proxies: Vec<PeerNetwork>,
    /// What the gateway does with the requests. A reload cannot change it.
    pub role: ListenerRole,
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
        let bound_sockets = bind_for_each_worker(([127, 0, 0, 1], 0).into(), 1);
        let passed_listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        set_tcp_options(&passed_listener).expect("it is a socket");
        let seconds = Duration::from_secs;
        let bound_listeners = bound_sockets
            .expect("there is a port")
            .into_iter()
            .map(TcpListener::from);
        for listener in bound_listeners.chain([passed_listener]) {
            let blocking = listener.set_nonblocking(false);
            let address = listener.local_addr().expect("it is bound");
            set_unacked_timeout(&listener, seconds(300)).expect("it is a socket");
            set_unacked_timeout(&listener, seconds(30)).expect("it is a socket");
            let client = TcpStream::connect(address).expect("it listens");
            let (accepted, _) = listener.accept().expect("somebody has connected");
            let accepted = SockRef::from(&accepted);
            assert!(blocking.is_ok() && client.peer_addr().is_ok());
            assert!(accepted.tcp_nodelay().is_ok_and(|is| is));
            assert!(accepted.keepalive().is_ok_and(|is| is));
            let silence = accepted.tcp_keepalive_time().expect("it is a socket");
            let probe_interval = accepted.tcp_keepalive_interval().expect("it is a socket");
            let probe_count = accepted.tcp_keepalive_retries().expect("it is a socket");
            let keepalive_timeout = silence + probe_interval * probe_count;
            assert!(
                keepalive_timeout < seconds(90),
                "{silence:?} {probe_interval:?} {probe_count}"
            );
            let unacked = accepted.tcp_user_timeout().expect("it is a socket");
            assert!(unacked.is_some_and(|timeout| timeout < seconds(90)));
            // If both are set, the kernel obeys this timeout in place of the number of probes (tcp(7)).
            assert!(unacked.is_some_and(|timeout| timeout <= keepalive_timeout));
        }
    }
}
