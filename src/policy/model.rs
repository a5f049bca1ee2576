//! The model of the configuration: what the files say, before anything checks whether their parts fit together. A field
//! that could not be read has its default here; its mistake is reported, and then nothing is compiled.

mod limit;
mod record;
mod store;
mod user;

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;

use super::connections::Connections;
use super::timeouts::{Timeouts, UpstreamTimeouts};
use super::tree::SourceLocation;
use crate::limit::Identity;
use crate::limit::pressure::Trust;
use crate::net::proxy_protocol::ProxyProtocolVersion;
use crate::net::tls::acme::Challenge;
use crate::net::{Address, PeerNetwork};
use crate::route::{HeaderStyle, HostPattern, PathMatching, Pattern, Priority};
use crate::upstream::{BalanceMethod, Bounds, Location};

pub use super::tree::Located;
pub use limit::{KeyPartConfig, LimitConfig, LimitRoutes, ThrottleConfig};
pub use record::{AccessLogConfig, PushConfig, RecordConfig};
pub use store::{StoreAddress, StoreConfig};
pub use user::{KeyFormat, KeySource, UserConfig};

/// The gateway file.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// The number of worker threads; one per core when absent.
    pub workers: Option<usize>,
    /// The listeners for clients.
    pub listen: Vec<Located<ListenerConfig>>,
    /// The listeners for operators and orchestrators.
    pub admin: AdminConfig,
    /// The folder of policies, relative to the gateway file; `policies` when absent.
    pub policies: Option<Located<String>>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<UpstreamConfig>,
    /// How clients are identified.
    pub identity: IdentityConfig,
    /// The plans, in the order of the file.
    pub plans: Vec<Located<PlanConfig>>,
    /// The timeouts of connections and requests.
    pub timeouts: Timeouts,
    /// The bounds on connections of clients.
    pub connections: Connections,
    /// Limits of every route, or of the routes that list them.
    pub limits: Vec<LimitConfig>,
    /// The store of the counts.
    pub store: StoreConfig,
    /// Which requests are logged, and where.
    pub access_log: Option<AccessLogConfig>,
    /// Whether there is a record, and where it is kept.
    pub record: Option<RecordConfig>,
    /// The style of the rate-limit header fields in responses.
    pub headers: Option<HeaderStyle>,
    /// The spellings of its path that a route accepts.
    pub paths: Option<PathMatching>,
}

impl GatewayConfig {
    /// The largest factor by which a plan multiplies this limit, at least 1.
    pub fn max_multiply(&self, limit: &LimitConfig) -> u32 {
        if !limit.plans.is_some_and(|plans| plans.value) {
            return 1;
        }
        let multipliers = self.plans.iter().map(|plan| plan.value.multiply);
        multipliers.max().unwrap_or(1).max(1)
    }
}

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address that the listener binds.
    pub address: Address,
    /// The permissions of the file of a Unix socket; [`DEFAULT_MODE`] when absent.
    ///
    /// [`DEFAULT_MODE`]: super::settings::BindSettings::DEFAULT_MODE
    pub mode: Option<u32>,
    /// The certificates; empty without TLS.
    pub tls: Vec<CertificateConfig>,
    /// The file of the authorities that verify client certificates.
    pub client_roots: Option<Located<String>>,
    /// Peers that speak the PROXY protocol.
    pub proxies: Vec<PeerNetwork>,
}

/// The source of a listener's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// The certificate is read from files.
    Files(CertificateFiles),
    /// An ACME directory issues the certificate.
    Acme(AcmeConfig),
}

/// A certificate that an ACME directory issues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The host names that the certificate is for.
    pub names: Vec<Located<String>>,
    /// The URL of the directory; that of Let's Encrypt when absent.
    pub directory: Option<String>,
    /// The email address of the operator.
    pub contact: Option<String>,
    /// The folder of the account and the certificates.
    pub dir: Option<String>,
    /// How the gateway proves that it owns the names.
    pub challenge: Located<Challenge>,
    /// The file of the trusted authorities; those of the system when absent.
    pub roots: Option<Located<String>>,
}

impl AcmeConfig {
    /// Whether both describe the same certificate.
    pub fn is_same_certificate(&self, other: &AcmeConfig) -> bool {
        let names = |acme: &AcmeConfig| -> Vec<String> {
            acme.names.iter().map(|name| name.value.clone()).collect()
        };
        let roots = |acme: &AcmeConfig| acme.roots.as_ref().map(|roots| roots.value.clone());
        names(self) == names(other)
            && self.challenge.value == other.challenge.value
            && (&self.directory, &self.contact, &self.dir)
                == (&other.directory, &other.contact, &other.dir)
            && roots(self) == roots(other)
    }
}

/// A certificate and its key in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file of the certificate chain.
    pub cert: Located<String>,
    /// The file of its private key.
    pub key: Located<String>,
}

/// The listeners for operators and orchestrators.
#[derive(Clone, Debug)]
pub enum AdminConfig {
    /// There are none.
    Off,
    /// They bind these addresses.
    On {
        /// The address for operators; [`DEFAULT_ADMIN`] when absent.
        ///
        /// [`DEFAULT_ADMIN`]: super::settings::Endpoints::DEFAULT_ADMIN
        address: Option<Located<SocketAddr>>,
        /// The file of the token that operators must send.
        token_file: Option<Located<String>>,
        /// The address for probes, which need no token; without it there are no probes of their own.
        probes: Option<Located<SocketAddr>>,
    },
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        AdminConfig::On {
            address: None,
            token_file: None,
            probes: None,
        }
    }
}

/// One upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The name that policies use.
    pub name: Located<String>,
    /// The servers of the upstream.
    pub servers: Vec<Located<ServerConfig>>,
    /// How the gateway connects to servers with TLS.
    pub tls: Option<Located<ServerTlsConfig>>,
    /// Whether requests are forwarded in HTTP/2.
    pub http2: bool,
    /// The version of the PROXY header that begins each connection.
    pub proxy: Option<Located<ProxyProtocolVersion>>,
    /// How a server is chosen for a request.
    pub balance: Option<Located<BalanceMethod>>,
    /// How the health of the servers is checked; never when absent.
    pub health: Option<HealthConfig>,
    /// When a server is ejected.
    pub eject: EjectConfig,
    /// How long a returning server takes to reach its full share.
    pub slow_start: Option<Duration>,
    /// The bounds on open and waiting requests.
    pub bounds: Bounds,
    /// How load reports of the servers are used; they are ignored when absent.
    pub load_report: Option<LoadReportConfig>,
    /// Timeouts that differ from those of the gateway file.
    pub timeouts: UpstreamTimeouts,
}

/// How the health of servers is checked.
#[derive(Clone, Debug, Default)]
pub struct HealthConfig {
    /// The path of the request; a check only connects when it is absent.
    pub path: Option<String>,
    /// The time between two checks.
    pub every: Option<Duration>,
    /// How long a check may take.
    pub timeout: Option<Duration>,
    /// The number of failures in a row that take a server out.
    pub fall: Option<u32>,
    /// The number of successes in a row that bring a server back.
    pub rise: Option<u32>,
}

/// When a server is ejected.
#[derive(Clone, Copy, Debug)]
pub enum EjectConfig {
    /// No server is ejected.
    Off,
    /// A server is ejected when requests to it fail.
    On {
        /// The number of failures in a row.
        after: Option<u32>,
        /// How long the first ejection lasts.
        span: Option<Duration>,
    },
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// The network address of the server.
    pub location: Location,
    /// Whether the gateway connects with TLS.
    pub tls: bool,
    /// The share of the requests, relative to the other servers.
    pub weight: u32,
}

impl ServerConfig {
    /// Whether both are the same server, whatever their weights.
    pub fn is_same_server(&self, other: &ServerConfig) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// How the gateway connects to servers with TLS.
#[derive(Clone, Debug, Default)]
pub struct ServerTlsConfig {
    /// The file of the trusted authorities; those of the system when absent.
    pub roots: Option<Located<String>>,
    /// The name in the servers' certificates; the host of each server when absent.
    pub name: Option<Located<String>>,
    /// The certificate that the gateway presents.
    pub own: Option<CertificateFiles>,
}

/// How the gateway identifies clients.
#[derive(Clone, Debug, Default)]
pub struct IdentityConfig {
    /// How the address of a client is found and grouped.
    pub ip: crate::identity::ip::Settings,
    /// The proof of the user of a request.
    pub user: Option<Located<UserConfig>>,
    /// The treatment of a request whose credential does not verify.
    pub unverified: crate::identity::user::OnUnverified,
    /// The part of a request that holds its credential.
    pub token: Option<Located<TokenConfig>>,
    /// The field of a body that holds an email address.
    pub email: Option<Located<EmailConfig>>,
    /// How the plan of a request is found.
    pub plan: Option<Located<PlanSourceConfig>>,
}

/// The part of a request that holds its credential.
#[derive(Clone, Debug)]
pub enum TokenConfig {
    /// The value of this header field.
    Header(HeaderName),
    /// The text behind this scheme in this header field.
    Scheme(HeaderName, String),
    /// The text behind `Bearer` in the field `Authorization`.
    Bearer,
    /// The value of this query parameter.
    Query(String),
    /// The value of this cookie.
    Cookie(String),
}

/// The field of a body that holds an email address.
#[derive(Clone, Debug)]
pub struct EmailConfig {
    /// The path of the field in the body.
    pub field: String,
    /// Maximum number of bytes of a body that are buffered to find the field.
    pub max: usize,
    /// The differences between addresses that are ignored.
    pub fold: crate::identity::mailbox::Fold,
}

/// How the plan of a request is found.
#[derive(Clone, Debug, Default)]
pub struct PlanSourceConfig {
    /// The source that names the plan of a request.
    pub from: Option<PlanFrom>,
    /// The plan of requests that name none.
    pub default: Option<Located<String>>,
}

/// The source that names the plan of a request.
#[derive(Clone, Debug)]
pub enum PlanFrom {
    /// A claim of the verified token.
    Claim(Located<String>),
    /// A header field that trusted peers set.
    Header {
        /// The name of the header field.
        name: HeaderName,
        /// The trusted peers.
        from: Vec<PeerNetwork>,
    },
    /// The file of API keys. The location is that of the field.
    ApiKeys(SourceLocation),
}

/// How load reports of servers are used.
#[derive(Clone, Debug)]
pub struct LoadReportConfig {
    /// How far reports are trusted.
    pub trust: Trust,
    /// The named metric that holds the load.
    pub metric: Option<String>,
}

/// One plan.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// The name of the plan.
    pub name: String,
    /// The factor for limits with `plans: true`.
    pub multiply: u32,
    /// The priority of its requests, where the policy has none.
    pub priority: Option<Priority>,
}

/// A policy file, which describes one route.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// The file's name without `.yaml`, which is the name of the route.
    pub name: String,
    /// The methods and the path that the route matches.
    pub pattern: Option<Located<Pattern>>,
    /// The hosts that the route matches; every host when absent.
    pub host: Option<Located<HostPattern>>,
    /// The name of the upstream that receives the requests.
    pub upstream: Option<Located<String>>,
    /// The limits that the policy defines or lists.
    pub limits: Vec<LimitUse>,
    /// Identities without which a request gets 401.
    pub require: Vec<Located<Identity>>,
    /// The priority of its requests.
    pub priority: Option<Priority>,
    /// The style of the rate-limit header fields in responses.
    pub headers: Option<HeaderStyle>,
    /// Whether `%2F` is part of a segment.
    pub keeps_slashes: bool,
}

impl PolicyConfig {
    /// The methods, the path and the host that the route matches.
    pub fn pattern_with_host(&self) -> Option<Pattern> {
        let pattern = self.pattern.as_ref()?.value.clone();
        Some(match &self.host {
            Some(host) => pattern.with_host(host.value.clone()),
            None => pattern,
        })
    }
}

/// A limit of a policy.
#[derive(Clone, Debug)]
pub enum LimitUse {
    /// A limit that the policy defines.
    Own(Box<LimitConfig>),
    /// The name of a limit of the gateway file.
    Shared(Located<String>),
}
