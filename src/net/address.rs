//! Where a socket listens or connects to, and who is at the other end of one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use socket2::SockAddr;

/// How the path of a Unix socket begins where addresses are written.
pub const UNIX: &str = "unix:";

/// Most bytes of the path of a Unix socket: `unix(7)` has 108, and the last one is zero.
pub const MAX_UNIX_PATH: usize = 107;

/// Stands for both ends of a connection over a Unix socket, which have no addresses of their own.
pub const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Shown as `127.0.0.1:8080` or `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Address {
    /// The one of a socket; none where it has no name that can be written.
    pub fn of(address: &SockAddr) -> Option<Address> {
        let tcp = address.as_socket().map(Address::Tcp);
        tcp.or_else(|| Some(Address::Unix(address.as_pathname()?.into())))
    }

    /// The address of TCP, if it is one.
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
            Address::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// Its address, IPv4-mapped IPv6 folded.
    Ip(IpAddr),
    /// A process of this machine that has connected over a Unix socket.
    Unix,
}

impl PeerAddress {
    /// The address that it counts as: loopback for a process of this machine.
    pub fn ip(self) -> IpAddr {
        match self {
            PeerAddress::Ip(ip) => ip,
            PeerAddress::Unix => LOCAL.ip(),
        }
    }
}

impl From<IpAddr> for PeerAddress {
    fn from(ip: IpAddr) -> PeerAddress {
        PeerAddress::Ip(ip.to_canonical())
    }
}

/// Peers that a setting names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerNetwork {
    /// Those with an address in this network.
    Ip(IpNet),
    /// All that connect over a Unix socket: its file says who may.
    Unix,
}

impl PeerNetwork {
    /// Whether `peer` is one of them. A network of loopback has no peer of a Unix socket.
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
