//! The configuration as the files write it, before anything checks whether its parts fit together. A field that
//! could not be read has its default here. The mistake is on record, and then nothing is compiled.

mod limit;
mod record;
mod store;
mod user;

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;

use super::connections::Connections;
use super::timeouts::{Timeouts, UpstreamTimeouts};
use super::tree::SourcePlace;
use crate::limit::Identity;
use crate::limit::pressure::Trust;
use crate::net::proxy::Version;
use crate::net::tls::acme::Challenge;
use crate::net::{Address, PeerNetwork};
use crate::route::{HeaderStyle, HostPattern, Paths, Pattern, Priority};
use crate::upstream::{Balance, Bounds, Location};

pub use super::tree::Located;
pub use limit::{LimitConfig, LimitRoutes, ThrottleConfig};
pub use record::{AccessLogConfig, PushConfig, RecordConfig};
pub use store::{StoreAddress, StoreConfig};
pub use user::{KeyFile, UserConfig};

/// The gateway file.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// Worker threads.
    pub workers: Option<usize>,
    /// Where clients connect.
    pub listen: Vec<Located<ListenerConfig>>,
    /// Where operators connect.
    pub admin: AdminConfig,
    /// The folder of policies.
    pub policies: Option<Located<String>>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<UpstreamConfig>,
    /// How clients are identified.
    pub identity: IdentityConfig,
    /// The plans, in the order of the file.
    pub plans: Vec<Located<PlanConfig>>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How many connections clients may have.
    pub connections: Connections,
    /// Limits of every route, or of those that list them.
    pub limits: Vec<LimitConfig>,
    /// Where counts live.
    pub store: StoreConfig,
    /// Where requests are logged.
    pub access_log: Option<AccessLogConfig>,
    /// Where the record is kept.
    pub record: Option<RecordConfig>,
    /// Which rate-limit header fields responses carry.
    pub headers: Option<HeaderStyle>,
    /// Which spellings of its path a route accepts.
    pub paths: Option<Paths>,
}

impl GatewayConfig {
    /// The largest multiplier that a request may bring to this limit.
    pub fn max_multiply(&self, limit: &LimitConfig) -> u32 {
        if !limit.plans.is_some_and(|plans| plans.value) {
            return 1;
        }
        let multipliers = self.plans.iter().map(|plan| plan.value.multiply);
        multipliers.max().unwrap_or(1).max(1)
    }
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address it listens on.
    pub address: Address,
    /// The permissions of the file of a Unix socket; [`Listen::MODE`] when absent.
    ///
    /// [`Listen::MODE`]: super::settings::Listen::MODE
    pub mode: Option<u32>,
    /// Where its certificates come from; empty without TLS.
    pub tls: Vec<CertificateConfig>,
    /// The file of the authorities that verify client certificates.
    pub client_roots: Option<Located<String>>,
    /// Peers that speak the PROXY protocol.
    pub proxies: Vec<PeerNetwork>,
}

/// Where a listener's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// From files.
    Files(CertificateFiles),
    /// From an ACME directory.
    Acme(AcmeConfig),
}

/// A certificate that an ACME directory issues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The host names.
    pub names: Vec<Located<String>>,
    /// The URL of the directory, or that of Let's Encrypt.
    pub directory: Option<String>,
    /// An email address.
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
    /// The certificate chain.
    pub cert: Located<String>,
    /// Its private key.
    pub key: Located<String>,
}

/// Where operators connect.
#[derive(Clone, Debug)]
pub enum AdminConfig {
    /// Nowhere.
    Off,
    /// On these addresses; absent ones have their defaults.
    On {
        /// Address and port.
        address: Option<Located<SocketAddr>>,
        /// The file of the token that operators must send.
        token_file: Option<Located<String>>,
        /// Address and port of the probes, which need no token.
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
    /// Its servers.
    pub servers: Vec<Located<ServerConfig>>,
    /// How the gateway connects to servers under TLS.
    pub tls: Option<Located<ServerTlsConfig>>,
    /// Requests are forwarded in HTTP/2.
    pub http2: bool,
    /// The version of the PROXY header that begins each connection.
    pub proxy: Option<Located<Version>>,
    /// How a server is chosen.
    pub balance: Option<Located<Balance>>,
    /// How their health is checked.
    pub health: Option<HealthConfig>,
    /// When a server is ejected.
    pub eject: EjectConfig,
    /// How long a returning server takes to reach its full share.
    pub slow_start: Option<Duration>,
    /// The most requests at a time.
    pub bounds: Bounds,
    /// How reports of its servers on their load are used.
    pub load_report: Option<LoadReportConfig>,
    /// How long things may take with it.
    pub timeouts: UpstreamTimeouts,
}

/// How the health of servers is checked.
#[derive(Clone, Debug, Default)]
pub struct HealthConfig {
    /// The path to request; a connection is enough when absent.
    pub path: Option<String>,
    /// The time between two checks.
    pub every: Option<Duration>,
    /// How long a check may take.
    pub timeout: Option<Duration>,
    /// Failures in a row that take a server out.
    pub fall: Option<u32>,
    /// Successes in a row that bring it back.
    pub rise: Option<u32>,
}

/// When a server is ejected.
#[derive(Clone, Copy, Debug)]
pub enum EjectConfig {
    /// Never.
    Off,
    /// When requests to it fail.
    On {
        /// Failures in a row.
        after: Option<u32>,
        /// How long the first ejection lasts.
        span: Option<Duration>,
    },
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// Where it is.
    pub location: Location,
    /// Whether TLS is spoken to it.
    pub tls: bool,
    /// Its share of the requests, relative to other servers.
    pub weight: u32,
}

impl ServerConfig {
    /// Whether both are the same server, whatever their weights.
    pub fn is_same_server(&self, other: &ServerConfig) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// How the gateway connects to servers under TLS.
#[derive(Clone, Debug, Default)]
pub struct ServerTlsConfig {
    /// The file of the trusted authorities; those of the system when absent.
    pub roots: Option<Located<String>>,
    /// The name in their certificates; the host of each server when absent.
    pub name: Option<Located<String>>,
    /// The certificate that the gateway presents.
    pub own: Option<CertificateFiles>,
}

/// How the gateway identifies clients.
#[derive(Clone, Debug, Default)]
pub struct IdentityConfig {
    /// The client's address.
    pub ip: crate::identity::ip::Settings,
    /// What proves the user of a request.
    pub user: Option<Located<UserConfig>>,
    /// What happens to a request whose credential does not verify.
    pub unverified: crate::identity::user::OnUnverified,
    /// Where a credential is found.
    pub token: Option<Located<TokenConfig>>,
    /// Where an email address is found.
    pub email: Option<Located<EmailConfig>>,
    /// Where a plan is found.
    pub plan: Option<Located<PlanSourceConfig>>,
}

/// Where a credential is found.
#[derive(Clone, Debug)]
pub enum TokenConfig {
    /// A header.
    Header(HeaderName),
    /// The text behind a scheme in a header.
    Scheme(HeaderName, String),
    /// `Authorization: Bearer`.
    Bearer,
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
}

/// Where an email address is found.
#[derive(Clone, Debug)]
pub struct EmailConfig {
    /// The field of the body.
    pub field: String,
    /// The most bytes of a body that are held back.
    pub max: usize,
    /// Which differences between addresses do not count.
    pub fold: crate::identity::mailbox::Fold,
}

/// Where a plan is found.
#[derive(Clone, Debug, Default)]
pub struct PlanSourceConfig {
    /// Where it comes from.
    pub from: Option<PlanFrom>,
    /// The plan of requests without one.
    pub default: Option<Located<String>>,
}

/// Where a plan comes from.
#[derive(Clone, Debug)]
pub enum PlanFrom {
    /// A claim of the verified token.
    Claim(Located<String>),
    /// A header that trusted peers set.
    Header {
        /// The header.
        name: HeaderName,
        /// The peers.
        from: Vec<PeerNetwork>,
    },
    /// The file of API keys.
    ApiKeys(SourcePlace),
}

/// How reports of servers on their load are used.
#[derive(Clone, Debug)]
pub struct LoadReportConfig {
    /// How far they are trusted.
    pub trust: Trust,
    /// The metric that holds the load.
    pub metric: Option<String>,
}

/// One plan.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// Its name.
    pub name: String,
    /// The factor for limits with `plans: true`.
    pub multiply: u32,
    /// The priority of its requests, where the policy has none.
    pub priority: Option<Priority>,
}

/// A policy file.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// The file's name without `.yaml`.
    pub name: String,
    /// The method and path that it matches.
    pub pattern: Option<Located<Pattern>>,
    /// The hosts that it matches; every host when absent.
    pub host: Option<Located<HostPattern>>,
    /// The upstream that serves it.
    pub upstream: Option<Located<String>>,
    /// Its limits.
    pub limits: Vec<LimitUse>,
    /// Identities without which a request gets 401.
    pub require: Vec<Located<Identity>>,
    /// The priority of its requests.
    pub priority: Option<Priority>,
    /// Which rate-limit header fields responses carry.
    pub headers: Option<HeaderStyle>,
    /// `%2F` is part of a segment.
    pub keeps_slashes: bool,
}

impl PolicyConfig {
    /// Which requests the policy matches, the host included.
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
    /// Written here.
    Own(Box<LimitConfig>),
    /// Written in the gateway file.
    Shared(Located<String>),
}
