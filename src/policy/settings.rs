//! The settings that the files compile to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::connections::Connections;
use super::timeouts::Timeouts;
use crate::limit::{Rule, Rules};
use crate::net::tls::acme;
use crate::net::{Address, Certificate, PeerNetwork, Roots};
use crate::record::push;
use crate::route::{HeaderStyle, Paths, Route, RouteTable};
use crate::store::{shared, snapshot};
use crate::{identity, record, upstream};

/// Everything that a reload may change, swapped as a whole.
#[derive(Debug)]
pub struct Ruleset {
    /// Finds a request's route.
    pub table: RouteTable,
    /// Which spellings of a path a route takes.
    pub paths: Paths,
    /// In some route's paths `%2F` is part of a segment.
    pub keeps_slashes: bool,
    /// All routes; `Route::index` points here, and so do the answers of `table`.
    pub routes: Vec<Arc<Route>>,
    /// All limits; `Rule::index` points here.
    pub rules: Vec<Arc<Rule>>,
    /// The limits of requests without a route.
    pub unrouted: Unrouted,
    /// How clients are identified.
    pub identity: identity::Settings,
    /// The servers behind.
    pub upstreams: Vec<upstream::Settings>,
    /// The listeners, in the order of the file.
    pub listeners: Vec<ListenerSettings>,
    /// How many connections clients may have.
    pub connections: Connections,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The files that this came from, as they were read: path as messages name it, and text.
    pub files: Vec<(String, String)>,
}

/// The limits of requests without a route. The gateway answers these requests itself.
#[derive(Clone, Debug)]
pub struct Unrouted {
    /// The limits of the gateway file that hold on every route, as far as they count such requests.
    pub rules: Rules,
    /// Whether one of them depends on what a credential proves.
    pub by_credential: bool,
    /// Which rate-limit headers their refusals carry.
    pub headers: HeaderStyle,
}

/// Settings that are fixed when the process starts. A reload reports changes of them and does not apply them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Worker threads.
    pub workers: usize,
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Where operators connect.
    pub admin: Option<SocketAddr>,
    /// The bearer token of operators; required unless `admin` is loopback.
    pub admin_token: Option<String>,
    /// Where orchestrators and scrapers ask, without a token.
    pub probes: Option<SocketAddr>,
    /// Most bytes of counts in memory.
    pub store_budget: usize,
    /// The store that several gateways share, if they do.
    pub shared: Option<shared::Settings>,
    /// Where counts are kept when the process ends.
    pub snapshots: Option<snapshot::Settings>,
    /// Where requests are logged.
    pub access_log: AccessLog,
    /// Where what happens is recorded, if it is.
    pub record: Option<record::Settings>,
    /// Where what is recorded is pushed.
    pub push: Vec<push::Settings>,
}

impl Process {
    /// The settings in which `other` differs, as the gateway file names them.
    pub fn differences(&self, other: &Process) -> Vec<&'static str> {
        let checks = [
            ("workers", self.workers != other.workers),
            ("listen", self.listen != other.listen),
            (
                "admin",
                self.admin != other.admin
                    || self.admin_token != other.admin_token
                    || self.probes != other.probes,
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
                        .all(|(a, b)| a.is_same_destination(b)),
            ),
        ];
        checks
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| name)
            .collect()
    }
}

/// The addresses of a running gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// By clients.
    pub listen: Vec<Address>,
    /// By operators.
    pub admin: Option<SocketAddr>,
    /// The bearer token of operators.
    pub admin_token: Option<String>,
    /// By orchestrators, without a token.
    pub probes: Option<SocketAddr>,
}

impl Endpoints {
    /// Where operators connect where no file says otherwise.
    pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address of a TCP port, or the path of a Unix socket.
    pub address: Address,
    /// The permissions of the file of a Unix socket.
    pub mode: u32,
    /// Whether TLS is spoken there.
    pub tls: bool,
}

impl Listen {
    /// The permissions where no file says others: the user of the gateway and its group may connect.
    pub const MODE: u32 = 0o660;
}

/// The protocol of a listener, and the peers and authorities that it trusts.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// Where it is.
    pub address: Address,
    /// Its certificates, if it speaks TLS. The first serves clients whose host no other certificate names.
    pub certificates: Vec<CertificateSource>,
    /// The authorities that verify client certificates.
    pub client_roots: Option<Roots>,
    /// Peers that begin each connection by saying where it comes from.
    pub proxies: Vec<PeerNetwork>,
}

/// A certificate of a listener.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// One from files.
    Files(Certificate),
    /// One that a directory issues.
    Acme(acme::Settings),
}

/// Where requests are logged, as JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Which requests.
    pub requests: Logged,
    /// Where to.
    pub to: LogTo,
}

/// Where lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file.
    File {
        /// Resolved against the folder of the gateway file.
        path: PathBuf,
        /// When the gateway itself puts it aside.
        rotate: Option<Rotate>,
    },
}

/// When a file is put aside, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotate {
    /// Most bytes of the file, but for a piece that is larger.
    pub size: u64,
    /// How many files are kept beside it.
    pub keep: u32,
}

/// Which requests are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// Every one.
    All,
    /// Those that a limit refused or marked, and those that failed.
    Refused,
    /// None.
    Off,
}
