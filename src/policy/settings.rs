//! The settings that the files compile to, in two parts: [`ProcessSettings`] are fixed when the process starts, and a
//! reload replaces the [`Ruleset`]. They hold the text of files only in [`Ruleset::files`], and a location in a file
//! only in [`Rule::origin`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderValue;

use super::connections::Connections;
use super::timeouts::Timeouts;
use crate::identity::override_table::{OverrideCache, OverrideTable};
use crate::limit::{AccessLists, CustomIdentity, Rule, Rules};
use crate::net::tls::acme;
use crate::net::{Address, Certificate, PeerNetwork, Roots};
use crate::operator::{self, BanResponse, OperatorTokens};
use crate::record::push;
use crate::route::{
    Cors, DescriptorTable, ErrorPage, ErrorPages, HeaderStyle, PathMatching, Redirect, Route,
    RouteTable,
};
use crate::store::{shared, snapshot};
use crate::trace::SampleRate;
use crate::{identity, record, trace, upstream};

/// The routes, the limits and everything else that a reload may change. A reload replaces it as a whole.
#[derive(Clone, Debug)]
pub struct Ruleset {
    /// Finds the route of a request at a listener that no policy names. The table returns indexes in `routes`.
    pub default_table: RouteTable,
    /// Whether all requests have one route, if they have any. Routes of descriptors do not count.
    pub has_one_request_route: bool,
    /// Finds the route of a descriptor. The table returns indexes in `routes`.
    pub descriptor_table: DescriptorTable,
    /// The tables of the listeners that policies name.
    pub listener_tables: Vec<ListenerRoutes>,
    /// Which spellings of its path a route with limits accepts.
    pub path_matching: PathMatching,
    /// Whether some route reads `%2F` in a path as part of a segment, and not as a slash.
    pub keeps_slashes: bool,
    /// Whether some route, or a request without a route, has `cors`.
    pub uses_cors: bool,
    /// Whether requests have an id or some route has `cors`, so that the context of each request keeps more.
    pub needs_extra_facts: bool,
    /// Whether some refusal has a body that the operator has written.
    pub has_error_pages: bool,
    /// The bodies of refusals of requests without a route; `None` if all of them are problem documents.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// Whether some response depends on the head of its request.
    pub needs_heads_in_responses: bool,
    /// Whether some response gets fields that its upstream or its refusal does not have: an id, those of policies or
    /// listeners, or those for pages of other origins; or whether some response is compressed.
    pub changes_responses: bool,
    /// All routes, by [`Route::index`].
    pub routes: Vec<Arc<Route>>,
    /// All limits, by [`Rule::index`].
    pub rules: Vec<Arc<Rule>>,
    /// The table of keys with limits of their own that was built last. Workers whose keyers have one secret share it.
    pub override_cache: Arc<OverrideCache>,
    /// The keys that have grants, by [`Rule::index`]. The files alone give none.
    pub granted_keys: Arc<OverrideTable>,
    /// The limits of requests without a route.
    pub unrouted: UnroutedLimits,
    /// What banned clients get.
    pub ban_response: BanResponse,
    /// The tokens of operators; `None` if they need none. Only an admin listener on a loopback address may have none.
    pub operators: Option<Arc<OperatorTokens>>,
    /// The gateways whose figures are shown beside those of this one.
    pub peers: Arc<PeerGateways>,
    /// How clients are identified.
    pub identity: identity::Settings,
    /// The upstreams, in the order of the gateway file.
    pub upstreams: Vec<upstream::Settings>,
    /// The listeners, in the order of the gateway file.
    pub listeners: Vec<ListenerSettings>,
    /// The bounds on connections of clients.
    pub connections: Connections,
    /// The timeouts of the gateway file; those of an upstream are in `upstreams`.
    pub timeouts: Timeouts,
    /// The share of requests that are traced, unless a trusted proxy has decided; `None` without traces.
    pub trace_sample: Option<SampleRate>,
    /// The name and the text of each configuration file that was read, with hidden secrets masked. Files of secrets are
    /// left out.
    pub files: Vec<(String, String)>,
}

/// The routes of one listener that policies name.
#[derive(Clone, Debug)]
pub struct ListenerRoutes {
    /// The name of the listener.
    pub name: Arc<str>,
    /// The routes that hold on it, those that hold on all listeners included.
    pub table: RouteTable,
}

impl Ruleset {
    /// The index among [`Ruleset::listener_tables`] of the listener of this name; `None` for a listener without a name
    /// and for one that no policy names.
    pub fn listener_table_index(&self, listener: Option<&str>) -> Option<usize> {
        let mut tables = self.listener_tables.iter();
        tables.position(|table| listener == Some(&table.name))
    }

    /// The name of the upstream of a route; `None` if the gateway answers by itself.
    pub fn upstream_name(&self, route: &Route) -> Option<&str> {
        let upstream = self.upstreams.get(route.upstream_index()?)?;
        Some(&upstream.name)
    }

    /// The body of a refusal with this status; `None` if it is a problem document. `route` is that of the request, if it has
    /// one.
    pub fn error_page<'r>(
        &'r self,
        route: Option<&'r Route>,
        status: u16,
    ) -> Option<&'r ErrorPage> {
        let pages = match route {
            Some(route) => route.error_pages.as_ref(),
            None => self.error_pages.as_ref(),
        };
        pages?.find(status).map(|page| &**page)
    }

    /// The routes of a listener, by its index among [`Ruleset::listener_tables`]; [`Ruleset::default_table`] for `None`.
    pub fn table_at(&self, index: Option<usize>) -> &RouteTable {
        let listener_routes = index.and_then(|index| self.listener_tables.get(index));
        listener_routes.map_or(&self.default_table, |routes| &routes.table)
    }
}

/// The limits and the lists of requests without a route, which no upstream receives.
#[derive(Clone, Debug)]
pub struct UnroutedLimits {
    /// The limits of the gateway file that hold on every route and count responses of the gateway itself.
    pub rules: Rules,
    /// The lists of the gateway file, which hold for requests with a route too.
    pub access: AccessLists,
    /// Whether one of these limits or lists depends on more than the client's address, so that requests must be searched
    /// for credentials.
    pub needs_credential: bool,
    /// The style of the rate-limit header fields in refusals.
    pub header_style: HeaderStyle,
    /// Which pages of other origins may read responses to such requests.
    pub cors: Option<Arc<Cors>>,
}

/// Settings that are fixed when the process starts. A reload reports changes of them and does not apply them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The number of worker threads.
    pub workers: usize,
    /// The addresses that the gateway binds for clients, in the order of the gateway file.
    pub listen: Vec<BindSettings>,
    /// The address of the admin listener; `None` if it is switched off.
    pub admin: Option<SocketAddr>,
    /// The address where orchestrators and scrapers send requests without a token; `None` if there is none.
    pub probes: Option<SocketAddr>,
    /// Maximum memory for the counts of this gateway, in bytes.
    pub store_budget: usize,
    /// The store that several gateways share; `None` if there is none.
    pub shared: Option<shared::Settings>,
    /// How snapshots of the counts are written; `None` if there are none.
    pub snapshots: Option<snapshot::Settings>,
    /// The requests that are logged, and the destination of their lines.
    pub access_log: AccessLogSettings,
    /// The folder and the size of the record; `None` if there is no record.
    pub record: Option<record::Settings>,
    /// The destinations to which the record is pushed.
    pub push: Vec<push::Settings>,
    /// The collector of traces; `None` if there is none.
    pub traces: Option<trace::Settings>,
    /// Where that is kept which operators order at run time.
    pub operator: operator::Settings,
}

impl ProcessSettings {
    /// Whether counts outlive the process, as limits with credits need it; memcached forgets counts when it is full. The check of
    /// the gateway file (`check/credits.rs`) has the same rule: a reload changes the file, but not the store that runs.
    pub fn keeps_counts(&self) -> bool {
        match &self.shared {
            Some(shared) => matches!(shared.backend, shared::Backend::Redis(..)),
            None => self.snapshots.is_some(),
        }
    }

    /// The addresses of the listeners with this role.
    fn addresses_of(&self, role: ListenerRole) -> Vec<&BindSettings> {
        let listeners = self.listen.iter();
        listeners.filter(|listen| listen.role == role).collect()
    }

    /// The fields of the gateway file in which `other` differs; `record` also stands for its `push`. The tokens and the
    /// roots of `push` and `traces` do not count, because a reload may change them. Nor does the end of traces.
    pub fn differences(&self, other: &ProcessSettings) -> Vec<&'static str> {
        let comparisons = [
            ("workers", self.workers != other.workers),
            (
                "listen",
                self.addresses_of(ListenerRole::Proxy) != other.addresses_of(ListenerRole::Proxy),
            ),
            (
                "decide",
                [ListenerRole::Check, ListenerRole::RateLimitService]
                    .iter()
                    .any(|role| self.addresses_of(*role) != other.addresses_of(*role)),
            ),
            (
                "admin",
                self.admin != other.admin || self.probes != other.probes,
            ),
            (
                "store",
                self.store_budget != other.store_budget
                    || self.snapshots != other.snapshots
                    || self.shared != other.shared,
            ),
            ("access_log", self.access_log != other.access_log),
            (
                "record",
                self.record != other.record
                    || self.push.len() != other.push.len()
                    || !self
                        .push
                        .iter()
                        .zip(&other.push)
                        .all(|(own, others)| own.is_same_destination(others)),
            ),
            ("traces", {
                let is_same = |new| {
                    let mut own = self.traces.iter();
                    own.any(|own: &trace::Settings| own.is_same_destination(new))
                };
                !other.traces.as_ref().is_none_or(is_same)
            }),
        ];
        comparisons
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| name)
            .collect()
    }
}

/// The addresses of a running gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The addresses for clients.
    pub listen: Vec<Address>,
    /// The address for operators; `None` if it is switched off.
    pub admin: Option<SocketAddr>,
    /// The tokens of operators; `None` if they need none.
    pub operators: Option<Arc<OperatorTokens>>,
    /// The text of a token that is valid now; `None` if operators need none, and if the files have only hashes.
    pub admin_token: Option<String>,
    /// The gateways whose figures are shown beside those of this one.
    pub peers: Arc<PeerGateways>,
    /// The address for orchestrators and scrapers, who need no token; `None` if there is none.
    pub probes: Option<SocketAddr>,
}

/// The admin listeners of other gateways, and how this gateway identifies itself there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerGateways {
    /// The addresses; perhaps also that of this gateway.
    pub addresses: Vec<SocketAddr>,
    /// The header field `Authorization`; `None` if no token is sent.
    pub authorization: Option<HeaderValue>,
}

impl Endpoints {
    /// The address for operators if the gateway file has none.
    pub const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);
}

/// The address that a listener binds. A reload cannot change it, as opposed to the [`ListenerSettings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindSettings {
    /// The address of a TCP port, or the path of a Unix socket.
    pub address: Address,
    /// The permissions of the file of a Unix socket, as in `chmod(2)`.
    pub mode: u32,
    /// Whether clients connect with TLS.
    pub tls: bool,
    /// Whether clients may also connect by QUIC, for HTTP/3.
    pub http3: bool,
    /// Who connects, and what the gateway does for it.
    pub role: ListenerRole,
}

/// What the gateway does with the requests of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// Clients connect, and the gateway serves them.
    Proxy,
    /// Other proxies ask by HTTP whether they may serve the request that they describe.
    Check,
    /// Other proxies ask by gRPC, as of Envoy's rate limit service.
    RateLimitService,
}

impl BindSettings {
    /// The permissions of a Unix socket by default: the user of the gateway and its group may connect.
    pub const DEFAULT_MODE: u32 = 0o660;
}

/// The protocol of a listener, and the peers and authorities that it trusts. A reload may change them.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// The name by which policies say that they hold on this listener only; `None` if the gateway file gives none.
    pub name: Option<String>,
    /// The address that the listener binds.
    pub address: Address,
    /// The certificates; empty without TLS. The first serves clients whose host no other certificate names.
    pub certificates: Vec<CertificateSource>,
    /// The authorities that verify client certificates; `None` if the listener asks clients for none.
    pub client_roots: Option<Roots>,
    /// The value of `Strict-Transport-Security` in every response; `None` if the gateway adds none.
    pub hsts: Option<Arc<str>>,
    /// Whether clients may also connect by QUIC, for HTTP/3.
    pub http3: bool,
    /// Where every request is sent before a route is looked for; `None` if the routes take them.
    pub redirect: Option<Redirect>,
    /// The peers that begin each connection with a header of the PROXY protocol.
    pub proxies: Vec<PeerNetwork>,
    /// As in [`BindSettings::role`].
    pub role: ListenerRole,
}

/// The source of a listener's certificate.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// A certificate that was read from files.
    Files(Certificate),
    /// A certificate that an ACME directory issues.
    Acme(acme::Settings),
}

/// The settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// The requests that are logged.
    pub requests: LoggedRequests,
    /// The destination of the lines.
    pub destination: LogDestination,
    /// The form of a line.
    pub format: LogFormat,
    /// The members that JSON lines have beside those that all have, each once.
    pub fields: Arc<[LoggedField]>,
}

/// The form of a line in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object.
    Json,
    /// The Combined Log Format of Apache.
    Combined,
}

/// A member that lines of the access log have only if the gateway file lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedField {
    /// The host that the client names.
    Host,
    /// The field `User-Agent`.
    UserAgent,
    /// The field `Referer`.
    Referer,
    /// The version of HTTP.
    Protocol,
    /// The version of TLS.
    Tls,
    /// The name of the upstream of the request's route.
    Upstream,
    /// Milliseconds until the head of the upstream's response had come.
    UpstreamMillis,
    /// Bytes of the request's body that came.
    BytesIn,
    /// The value of an identity that the gateway file defines.
    Identity(CustomIdentity),
}

impl LoggedField {
    /// The fields that every gateway may log, without identities.
    pub const BUILT_IN: [LoggedField; 8] = [
        LoggedField::Host,
        LoggedField::UserAgent,
        LoggedField::Referer,
        LoggedField::Protocol,
        LoggedField::Tls,
        LoggedField::Upstream,
        LoggedField::UpstreamMillis,
        LoggedField::BytesIn,
    ];

    /// The name of the member in lines and in the gateway file.
    pub fn as_str(self) -> &'static str {
        match self {
            LoggedField::Host => "host",
            LoggedField::UserAgent => "user_agent",
            LoggedField::Referer => "referer",
            LoggedField::Protocol => "protocol",
            LoggedField::Tls => "tls",
            LoggedField::Upstream => "upstream",
            LoggedField::UpstreamMillis => "upstream_ms",
            LoggedField::BytesIn => "bytes_in",
            LoggedField::Identity(identity) => identity.as_str(),
        }
    }
}

/// The destination of the lines of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// The standard output of the process.
    Stdout,
    /// The standard error of the process.
    Stderr,
    /// A file on the disk.
    File {
        /// The path, resolved against the folder of the gateway file.
        path: PathBuf,
        /// When the gateway rotates the file; `None` if it never does.
        rotation: Option<LogRotation>,
    },
}

/// When a log file is rotated, and how many old files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// Maximum size of the file in bytes. Only a single write that is larger exceeds it.
    pub max_bytes: u64,
    /// The number of old files that are kept.
    pub kept_files: u32,
}

/// The requests that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedRequests {
    /// Every request is logged.
    All,
    /// All requests but those that an upstream served within every limit.
    Refused,
    /// No request is logged.
    Off,
}
