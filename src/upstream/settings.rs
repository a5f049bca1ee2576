//! The settings of one upstream.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::Identity;
use crate::limit::pressure;
use crate::net::proxy::Version;
use crate::net::{Address, Connector};

/// One upstream: servers that can stand in for each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its name in policies.
    pub name: String,
    /// Its servers.
    pub servers: Vec<Server>,
    /// Requests use HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    /// Each connection begins with a PROXY header of this version, and serves only that client.
    pub proxy: Option<Version>,
    /// How the next server is chosen.
    pub balance: Balance,
    /// The health checks; none without them.
    pub check: Option<HealthCheck>,
    /// When a server is ejected because its requests fail.
    pub eject: Option<Ejection>,
    /// How long a returning server takes to reach its full share; none if it gets it at once.
    pub slow_start: Option<Duration>,
    /// Bounds on concurrent requests.
    pub bounds: Bounds,
    /// Whether load reports of servers are used; inside it the name of a custom metric, if one counts.
    pub load_metric: Option<Option<String>>,
    /// How its load is measured, if an elastic limit or a priority depends on it.
    pub pressure: Option<pressure::Settings>,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait for the first byte of a response.
    pub first_byte: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
    /// How long a request may take from its forwarding to the end of its response.
    pub total: Option<Duration>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub location: Location,
    /// How TLS is spoken to it, if it is.
    pub tls: Option<Connector>,
    /// Its share beside those of the others, at least 1.
    pub weight: u32,
}

/// Where a server is. Shown as `host:port`, an IPv6 address in brackets, or as `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A host name or an address without brackets, and a port.
    Host(String, u16),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Location {
    /// Where to connect; none for a name, which must be looked up.
    pub fn address(&self) -> Option<Address> {
        match self {
            Location::Host(host, port) => {
                let ip: IpAddr = host.parse().ok()?;
                Some(SocketAddr::new(ip, *port).into())
            }
            Location::Unix(path) => Some(Address::Unix(path.clone())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Location::Host(host, port) => write!(f, "{host}:{port}"),
            Location::Unix(path) => Address::Unix(path.clone()).fmt(f),
        }
    }
}

impl Server {
    /// The `Host` of requests that have none.
    pub fn host(&self) -> String {
        match &self.location {
            Location::Host(..) => self.location.to_string(),
            Location::Unix(_) => String::from("localhost"),
        }
    }

    /// Whether both are the same server, whatever their weights.
    pub fn is(&self, other: &Server) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// Which server is next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Of two drawn at random, the one with fewer open requests.
    LeastRequests,
    /// By a hash of these identities; round robin for a client without any.
    Hash(Vec<Identity>),
}

/// The health checks of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path of a GET whose response must be 2xx or 3xx; none where a connection is enough.
    pub path: Option<String>,
    /// The pause from the end of one check to the next.
    pub every: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// Consecutive failures that take a server out.
    pub fall: u32,
    /// Consecutive successes that bring it back.
    pub rise: u32,
}

/// When a server is ejected because its requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Consecutive failures.
    pub after: u32,
    /// The length of the first ejection.
    pub span: Duration,
}

/// Most requests of all workers at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Requests forwarded whose responses have not ended.
    pub open: Option<u32>,
    /// Requests that wait for a connection.
    pub pending: Option<u32>,
}
