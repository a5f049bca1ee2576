//! What is configured of one upstream.

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
    /// What policies call it.
    pub name: String,
    /// Its servers.
    pub servers: Vec<Server>,
    /// They are spoken to in HTTP/2 and not in HTTP/1.1.
    pub http2: bool,
    /// Each connection begins by saying where the client is, and serves no other.
    pub proxy: Option<Version>,
    /// Which of them is next.
    pub balance: Balance,
    /// How they are asked whether they are well.
    pub check: Option<HealthCheck>,
    /// When one is left alone because requests to it fail.
    pub eject: Option<Ejection>,
    /// In what time one that comes back gets its full share; none where it gets it at once.
    pub slow_start: Option<Duration>,
    /// Most requests at a time.
    pub bounds: Bounds,
    /// Where servers are believed when they say how busy they are: the metric of theirs that counts, if it has a
    /// name of its own.
    pub load_metric: Option<Option<String>>,
    /// How its load is learnt, where something gives way to it.
    pub pressure: Option<pressure::Settings>,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait for the first byte of an answer.
    pub first_byte: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
    /// How long a request may take from its forwarding to the end of its answer.
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
    /// The one that what these identities are of falls to; one after the other where none is known.
    Hash(Vec<Identity>),
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path of a GET whose answer must be 2xx or 3xx; none where a connection is enough.
    pub path: Option<String>,
    /// From the end of one to the beginning of the next.
    pub every: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
    /// Failures in a row that take a server out.
    pub fall: u32,
    /// Successes in a row that bring it back.
    pub rise: u32,
}

/// When a server is left alone because requests to it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row.
    pub after: u32,
    /// For how long the first time.
    pub span: Duration,
}

/// Most requests of all workers at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Forwarded and not answered to the end.
    pub open: Option<u32>,
    /// Waiting for a connection.
    pub pending: Option<u32>,
}
