//! What the files say, before it is known whether it fits together. A field that could not be read
//! has its default here; the mistake is on record, and nothing is compiled then.

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
    /// All upstreams.
    pub upstreams: Vec<UpstreamConfig>,
    /// Who asks.
    pub identity: IdentityConfig,
    /// All plans.
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
    /// Where what happens is kept.
    pub record: Option<RecordConfig>,
    /// Which rate-limit headers answers carry.
    pub headers: Option<HeaderStyle>,
    /// Which spellings of a path a route takes.
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
    /// Where it is.
    pub address: Address,
    /// The permissions of the file of a Unix socket; [`Listen::MODE`] when absent.
    ///
    /// [`Listen::MODE`]: super::settings::Listen::MODE
    pub mode: Option<u32>,
    /// Where its certificates come from; none where bytes are sent as they are.
    pub tls: Vec<CertificateConfig>,
    /// The file of who vouches for certificates that clients may show.
    pub client_roots: Option<Located<String>>,
    /// Peers that speak the PROXY protocol.
    pub proxies: Vec<PeerNetwork>,
}

/// Where a listener's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// From files.
    Files(CertificateFiles),
    /// From a directory.
    Acme(AcmeConfig),
}

/// A certificate that a directory issues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The host names.
    pub names: Vec<Located<String>>,
    /// The URL of the directory, or that of Let's Encrypt.
    pub directory: Option<String>,
    /// An email address.
    pub contact: Option<String>,
    /// The folder of what is kept.
    pub dir: Option<String>,
    /// How names are proven.
    pub challenge: Located<Challenge>,
    /// The file of whom to believe; the system's when absent.
    pub roots: Option<Located<String>>,
}

impl AcmeConfig {
    /// Whether both ask for the same.
    pub fn is(&self, other: &AcmeConfig) -> bool {
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
    /// Here; what is not said is absent.
    On {
        /// Address and port.
        address: Option<Located<SocketAddr>>,
        /// The file of the token that operators must send.
        token_file: Option<Located<String>>,
        /// Address and port of what needs no token.
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
    /// What policies call it.
    pub name: Located<String>,
    /// Its servers.
    pub servers: Vec<Located<ServerConfig>>,
    /// How those that speak TLS are spoken to.
    pub tls: Option<Located<ServerTlsConfig>>,
    /// They are spoken to in HTTP/2.
    pub http2: bool,
    /// How they are told where the client is, before the first request of a connection.
    pub proxy: Option<Located<Version>>,
    /// Which of them is next.
    pub balance: Option<Located<Balance>>,
    /// How they are asked whether they are well.
    pub health: Option<HealthConfig>,
    /// When one is left alone.
    pub eject: EjectConfig,
    /// In what time one that comes back gets its full share.
    pub slow_start: Option<Duration>,
    /// Most requests at a time.
    pub bounds: Bounds,
    /// What its servers' reports on their load may do.
    pub load_report: Option<LoadReportConfig>,
    /// How long things may take with it.
    pub timeouts: UpstreamTimeouts,
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, Default)]
pub struct HealthConfig {
    /// For what; a connection is enough when absent.
    pub path: Option<String>,
    /// How often.
    pub every: Option<Duration>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Failures in a row that take a server out.
    pub fall: Option<u32>,
    /// Successes in a row that bring it back.
    pub rise: Option<u32>,
}

/// When a server is left alone.
#[derive(Clone, Copy, Debug)]
pub enum EjectConfig {
    /// Never.
    Off,
    /// When requests to it fail; what is not said is absent.
    On {
        /// Failures in a row.
        after: Option<u32>,
        /// For how long the first time.
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
    /// Its share beside those of the others.
    pub weight: u32,
}

impl ServerConfig {
    /// Whether both are the same server, whatever their weights.
    pub fn is(&self, other: &ServerConfig) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// How servers are spoken to under TLS.
#[derive(Clone, Debug, Default)]
pub struct ServerTlsConfig {
    /// The file of whom to believe; the system's when absent.
    pub roots: Option<Located<String>>,
    /// The name that servers prove; their host when absent.
    pub name: Option<Located<String>>,
    /// What the gateway shows of itself.
    pub own: Option<CertificateFiles>,
}

/// How the gateway knows who asks.
#[derive(Clone, Debug, Default)]
pub struct IdentityConfig {
    /// The client's address.
    pub ip: crate::identity::ip::Settings,
    /// Who the request proves to be.
    pub user: Option<Located<UserConfig>>,
    /// What becomes of a request whose credential does not verify.
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
    /// What stands behind a scheme in a header.
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
    /// Most bytes of a body that are held back.
    pub max: usize,
    /// What of an address is folded.
    pub fold: crate::identity::mailbox::Fold,
}

/// Where a plan is found.
#[derive(Clone, Debug, Default)]
pub struct PlanSourceConfig {
    /// From where.
    pub from: Option<PlanFrom>,
    /// The plan of requests without one.
    pub default: Option<Located<String>>,
}

/// From where a plan comes.
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

/// What servers' reports on their load may do.
#[derive(Clone, Debug)]
pub struct LoadReportConfig {
    /// How far they are believed.
    pub trust: Trust,
    /// The metric of theirs that says it.
    pub metric: Option<String>,
}

/// One plan.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// Its name.
    pub name: String,
    /// What limits with `plans: true` are multiplied by.
    pub multiply: u32,
    /// What is shed last, where the policy does not say.
    pub priority: Option<Priority>,
}

/// A policy file.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// The file's name without `.yaml`.
    pub name: String,
    /// Which requests it is for.
    pub pattern: Option<Located<Pattern>>,
    /// On which hosts.
    pub host: Option<Located<HostPattern>>,
    /// Which upstream serves it.
    pub upstream: Option<Located<String>>,
    /// Its limits.
    pub limits: Vec<LimitUse>,
    /// Identities without which a request gets 401.
    pub require: Vec<Located<Identity>>,
    /// What is shed last.
    pub priority: Option<Priority>,
    /// Which rate-limit headers answers carry.
    pub headers: Option<HeaderStyle>,
    /// `%2F` is part of a segment.
    pub keeps_slashes: bool,
}

impl PolicyConfig {
    /// Which requests it is for, the host included.
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
