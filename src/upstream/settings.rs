//! The settings of one upstream, as `policy` compiles them from the gateway file. They never change: a reload makes new
//! ones, and `servers` keeps the state that belongs to them.

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
    /// The name by which policies refer to the upstream.
    pub name: String,
    /// The servers in the order of the gateway file.
    pub servers: Vec<Server>,
    /// The `Host` that servers get in place of the client's; `None` if they get the client's.
    pub host: Option<String>,
    /// Whether requests use HTTP/2 instead of HTTP/1.1.
    pub uses_http2: bool,
    /// The version of the PROXY header that begins each connection; `None` for no header. A connection with a header
    /// serves one request, and never uses HTTP/2.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// How the next server is chosen.
    pub balance_method: BalanceMethod,
    /// The health checks; `None` if servers are not checked.
    pub health_check: Option<HealthCheck>,
    /// When a server is ejected; `None` if servers are never ejected.
    pub ejection: Option<Ejection>,
    /// The time in which a new or returning server reaches its full weight; `None` if it has its full weight at once.
    pub slow_start: Option<Duration>,
    /// The bounds on concurrent requests.
    pub bounds: Bounds,
    /// Whether load reports of servers are used; `None` if not. The inner value is the name of a custom metric that
    /// counts, or `None` for the standard metrics.
    pub load_metric: Option<Option<String>>,
    /// How the pressure is measured; `None` if no elastic limit and no priority depends on it.
    pub pressure: Option<pressure::Settings>,
    /// The timeout for one attempt to connect, TLS included, or to look up a name.
    pub connect_timeout: Duration,
    /// The longest time in which the server may neither accept a byte of the request nor send its final head. It also
    /// bounds each silence within the response's body.
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
    /// The server gets requests in proportion to its weight among those of all servers; 1 to 256.
    pub weight: u32,
}

/// The location of a server. Shown as `host:port`, with an IPv6 address in brackets, or as `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A host name or an address without brackets, and a port.
    Host(String, u16),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Location {
    /// The address to connect to; `None` for a host name, which must be looked up.
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
    /// The `Host` for requests that have none: the location, or `localhost` for a Unix socket.
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

/// How the server for the next request is chosen: see [`balancer`](super::balancer).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceMethod {
    /// One server after another, by weight.
    #[default]
    RoundRobin,
    /// Of two servers drawn at random, the one with fewer open requests.
    LeastRequests,
    /// By a hash of these identities; round robin for a client that has none of them.
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
    /// The duration of the first ejection in a row. The n-th lasts n times as long, up to five minutes, or always as long
    /// as the first if that lasts longer.
    pub first_duration: Duration,
}

/// The bounds on the concurrent requests of all workers together; `None` for no bound. A request above a bound fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of forwarded requests whose responses have not ended.
    pub open: Option<u32>,
    /// Maximum number of requests that wait for a connection.
    pub pending: Option<u32>,
}
