//! The addresses of listeners, servers and peers, and networks of peers. Nothing here connects.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use socket2::SockAddr;

/// The prefix of a Unix socket's path in an address, as the gateway file and messages write it.
pub const UNIX_PREFIX: &str = "unix:";

/// Maximum bytes of the path of a Unix socket. The field in `unix(7)` has 108, of which the last one is zero.
pub const MAX_UNIX_PATH_BYTES: usize = 107;

/// The address that stands for both ends of a connection over a Unix socket, which have none of their own.
pub const UNIX_STAND_IN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The address of a listener or a server, shown as `127.0.0.1:8080` or `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Address {
    /// Converts the address of a socket. Returns `None` for an unnamed or abstract Unix socket, and for other families.
    pub fn from_socket(address: &SockAddr) -> Option<Address> {
        let tcp_address = address.as_socket().map(Address::Tcp);
        tcp_address.or_else(|| Some(Address::Unix(address.as_pathname()?.into())))
    }

    /// The IP address and port; `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

/// The address of the peer of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// The IP address. IPv4-mapped IPv6 addresses are converted to IPv4.
    Ip(IpAddr),
    /// A process of this machine that connected over a Unix socket.
    Unix,
}

impl PeerAddress {
    /// The IP address by which limits count the peer. For a Unix socket it is the loopback address.
    pub fn ip(self) -> IpAddr {
        match self {
            PeerAddress::Ip(ip) => ip,
            PeerAddress::Unix => UNIX_STAND_IN.ip(),
        }
    }
}

impl From<IpAddr> for PeerAddress {
    fn from(ip: IpAddr) -> PeerAddress {
        PeerAddress::Ip(ip.to_canonical())
    }
}

/// A set of peers. The trusted proxies of a listener are a list of such sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerNetwork {
    /// The peers with an address in this network.
    Ip(IpNet),
    /// All peers that connect over a Unix socket. The permissions of its file decide who can.
    Unix,
}

impl PeerNetwork {
    /// Whether the set contains `peer`. A network with loopback addresses does not contain peers of Unix sockets.
    pub fn contains(&self, peer: PeerAddress) -> bool {
        match (self, peer) {
            (PeerNetwork::Ip(network), PeerAddress::Ip(ip)) => network.contains(&ip),
            (PeerNetwork::Unix, PeerAddress::Unix) => true,
            _ => false,
        }
    }
}

impl From<IpNet> for PeerNetwork {
    fn from(network: IpNet) -> PeerNetwork {
        PeerNetwork::Ip(network)
    }
}
