//! The settings of one upstream, as policies compile to them. Nothing here changes while the gateway runs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::limit::Identity;
use crate::limit::pressure;
use crate::net::proxy_protocol::ProxyProtocolVersion;
use crate::net::{Address, Connector};

/// One upstream: servers that can stand in for each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name in policies.
    pub name: String,
    /// The servers in the order of the policies.
    pub servers: Vec<Server>,
    /// Whether requests use HTTP/2 instead of HTTP/1.1.
    pub uses_http2: bool,
    /// The version of the PROXY header that begins each connection; `None` for no header. A connection with a header serves
    /// one client.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// How the next server is chosen.
    pub balance_method: BalanceMethod,
    /// The health checks, if servers are checked.
    pub health_check: Option<HealthCheck>,
    /// When a server is ejected; `None` if servers are never ejected.
    pub ejection: Option<Ejection>,
    /// The time in which a returning server reaches its full share; `None` if it gets its full share at once.
    pub slow_start: Option<Duration>,
    /// The bounds on concurrent requests.
    pub bounds: Bounds,
    /// Whether load reports of servers are used. The inner value is the name of a custom metric, if one counts.
    pub load_metric: Option<Option<String>>,
    /// How the pressure is measured, if an elastic limit or a priority depends on it.
    pub pressure: Option<pressure::Settings>,
    /// The timeout for a new connection.
    pub connect_timeout: Duration,
    /// The timeout for the first byte of a response.
    pub first_byte_timeout: Duration,
    /// The time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// The timeout for a whole request, from its forwarding to the end of its response; `None` for no timeout.
    pub total_timeout: Option<Duration>,
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The address or the name, as it is configured.
    pub location: Location,
    /// The TLS settings; `None` for a server without TLS.
    pub tls: Option<Connector>,
    /// The server's share of requests relative to the other servers' weights, at least 1.
    pub weight: u32,
}

/// The location of a server. Written as `host:port`, an IPv6 address in brackets, or as `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A host name or an address without brackets, and a port.
    Host(String, u16),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Location {
    /// The address to connect to; `None` for a name, which must be looked up.
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
    /// The `Host` for requests that have none.
    pub fn host(&self) -> String {
        match &self.location {
            Location::Host(..) => self.location.to_string(),
            Location::Unix(_) => String::from("localhost"),
        }
    }

    /// Whether both are the same server, whatever their weights.
    pub fn is_same(&self, other: &Server) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// How the server for the next request is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceMethod {
    /// One server after another, by weight.
    #[default]
    RoundRobin,
    /// Of two servers drawn at random, the one with fewer open requests.
    LeastRequests,
    /// By a hash of these identities; round robin for a client without any.
    Hash(Vec<Identity>),
}

/// The health checks of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path of a GET whose response must be 2xx or 3xx; `None` where a connection is enough.
    pub path: Option<String>,
    /// The time from the end of one check to the next.
    pub interval: Duration,
    /// The longest time that one check may take.
    pub timeout: Duration,
    /// The number of consecutive failures that take a server out.
    pub fall: u32,
    /// The number of consecutive successes that bring a server back.
    pub rise: u32,
}

/// When a server is ejected because requests to it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// The number of consecutive failures that eject a server.
    pub failures: u32,
    /// The duration of the first ejection in a row.
    pub first_duration: Duration,
}

/// The bounds on the concurrent requests of all workers; `None` for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of forwarded requests whose responses have not ended.
    pub open: Option<u32>,
    /// Maximum number of requests that wait for a connection.
    pub pending: Option<u32>,
}
