//! The draft that every format becomes: what a gateway file and its policies will say. Texts in it are the words of
//! tollgate's files. `settle` makes names unique and drops what two policies cannot both say.

use super::files::{NeededFile, NeededKind};
use super::names::UniqueNames;
use super::report::Origin;
use crate::base::clock::Nanos;
use crate::limit::Rate;

mod descriptor;
mod identities;
mod settle;

pub use descriptor::{DescriptorDraft, EntryDraft};
pub use identities::{IdentityDrafts, IdentityPlace, UserDraft};

/// A configuration that is being imported.
#[derive(Clone, Debug, Default)]
pub struct ImportDraft {
    /// Where clients connect. Without one the gateway file has 127.0.0.1:8080.
    pub listeners: Vec<ListenerDraft>,
    /// Where Envoy asks about descriptors.
    pub decide_grpc: Option<String>,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<String>,
    /// Who asks.
    pub identities: IdentityDrafts,
    /// The servers behind, by name.
    pub upstreams: Vec<UpstreamDraft>,
    /// Limits of the gateway file. Routes refer to them by their index.
    pub limits: Vec<LimitDraft>,
    /// Clients that get 403 on every route: identities of the gateway file with their values.
    pub deny: ClientsDraft,
    /// The only clients that are served on any route.
    pub allow: ClientsDraft,
    /// The routes.
    pub routes: Vec<RouteDraft>,
    /// Comments at the end of the gateway file, for instance lines to be completed by hand. One line each.
    pub comments: Vec<String>,
}

/// Identities with their values, as `deny`, `allow` and `for` have them: `ip` with networks, `user` with names or the
/// single value `absent`.
pub type ClientsDraft = Vec<(String, Vec<String>)>;

/// Where clients connect.
#[derive(Clone, Debug, Default)]
pub struct ListenerDraft {
    /// The name by which routes refer to it; empty if none does.
    pub name: String,
    /// An IP address and a port, or `unix:/PATH`.
    pub address: String,
    /// The paths of a certificate chain and its key, of each certificate.
    pub certificates: Vec<(String, String)>,
    /// Peers that must begin each connection with a header of the PROXY protocol.
    pub proxy_protocol: Vec<String>,
    /// Where it stands in the input.
    pub origin: Origin,
}

/// Servers that can stand in for each other.
#[derive(Clone, Debug, Default)]
pub struct UpstreamDraft {
    /// Its name, unique and valid; see [`UniqueNames`].
    pub name: String,
    /// URLs such as `http://192.0.2.1:80`, each with its weight from 1 to 256.
    pub servers: Vec<(String, u32)>,
    /// `upstream`, or the host that servers get; `None` for the client's.
    pub host: Option<String>,
    /// Flow YAML of `balance`, such as `least_requests` or `{ hash: ip }`; empty for the default.
    pub balance: String,
    /// Whether servers are spoken to in HTTP/2.
    pub http2: bool,
    /// Further fields in flow YAML with their values, such as `("max_requests", "100")`.
    pub fields: Vec<(&'static str, String)>,
    /// Where it stands in the input.
    pub origin: Origin,
}

/// One policy.
#[derive(Clone, Debug, Default)]
pub struct RouteDraft {
    /// A text from which the name is made; [`ImportDraft::settle`] makes it unique.
    pub name: String,
    /// Where it stands in the input.
    pub origin: Origin,
    /// What stands there, for a comment.
    pub source: String,
    /// The descriptors that it is for, in place of a match and an action.
    pub descriptor: Option<DescriptorDraft>,
    /// Methods in capital letters; empty for any.
    pub methods: Vec<String>,
    /// Paths of `match`, such as `/api/**`.
    pub paths: Vec<String>,
    /// Hosts, such as `*.example.com`; empty for any.
    pub hosts: Vec<String>,
    /// Names of listeners; empty for all.
    pub listeners: Vec<String>,
    /// What becomes of its requests.
    pub action: ActionDraft,
    /// The upstream that it would have if what refuses its clients were imported.
    pub withheld_upstream: Option<String>,
    /// Its limits.
    pub limits: Vec<LimitUseDraft>,
    /// Clients that get 403.
    pub deny: ClientsDraft,
    /// The only clients that are served.
    pub allow: ClientsDraft,
    /// Identities without which a request gets 401.
    pub require: Vec<String>,
    /// The largest body of a request in bytes.
    pub max_body: Option<u64>,
    /// Taken off the path before it is forwarded.
    pub strip: Option<String>,
    /// Put before the path that is forwarded.
    pub prefix: Option<String>,
    /// Further fields with their values in flow YAML, such as `("cors", "{ origins: \"*\" }")`.
    pub fields: Vec<(&'static str, String)>,
    /// Comments before the first field, one line each.
    pub comments: Vec<String>,
}

impl RouteDraft {
    /// Answers 503 in place of the route's upstream, whose name stays in a comment.
    pub fn withhold(&mut self, what: &str) {
        if let ActionDraft::Upstream(upstream) = &self.action {
            self.withheld_upstream = Some(upstream.clone());
        }
        self.refuse(what);
    }

    /// Answers 503 in place of what the route would do.
    pub fn refuse(&mut self, what: &str) {
        self.action = ActionDraft::not_imported(what);
        self.strip = None;
        self.prefix = None;
        self.max_body = None;
        self.fields.clear();
    }
}

/// What becomes of the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionDraft {
    /// They are forwarded to the upstream of this name.
    Upstream(String),
    /// Clients are sent elsewhere: `https`, a URL or a path; with 301, 302, 307 or 308.
    Redirect {
        /// The target.
        to: String,
        /// The status.
        status: u16,
    },
    /// The gateway answers itself.
    Respond {
        /// The status, 200 to 599.
        status: u16,
        /// The body; empty for none.
        body: String,
        /// The media type; empty for plain text.
        content_type: String,
    },
}

impl Default for ActionDraft {
    fn default() -> ActionDraft {
        ActionDraft::not_imported("")
    }
}

impl ActionDraft {
    /// A response of the gateway with this status and no body.
    pub fn respond(status: u16) -> ActionDraft {
        ActionDraft::Respond {
            status,
            body: String::new(),
            content_type: String::new(),
        }
    }

    /// A response of 503 in place of what has no counterpart, so that its requests reach no other route.
    pub fn not_imported(what: &str) -> ActionDraft {
        ActionDraft::Respond {
            status: 503,
            body: format!("This part of the configuration is not imported: {what}\n"),
            content_type: String::new(),
        }
    }
}

/// A limit of a route.
#[derive(Clone, Debug)]
pub enum LimitUseDraft {
    /// Its own.
    Own(LimitDraft),
    /// The limit of the gateway file with this index.
    Shared(usize),
    /// Switches off the limit of the gateway file with this index.
    Off(usize),
}

/// A limit.
#[derive(Clone, Debug, Default)]
pub struct LimitDraft {
    /// A text from which the name is made; [`ImportDraft::settle`] makes it unique.
    pub name: String,
    /// Where its parts stand in the input.
    pub origins: Vec<Origin>,
    /// Parts of its key: `ip`, `user or ip`, `everyone`, `route`, or a word of [`IdentityDrafts`].
    pub key: Vec<String>,
    /// The clients that it is for; empty for all.
    pub clients: ClientsDraft,
    /// How much it admits.
    pub amount: AmountDraft,
    /// How it counts.
    pub algorithm: AlgorithmDraft,
    /// Whether it only reports.
    pub is_shadow: bool,
    /// Networks that it does not count.
    pub exempt: Vec<String>,
    /// For a limit of the gateway file, which routes have it and how they count.
    pub scope: ScopeDraft,
    /// Further fields with their values in flow YAML, such as `("count", "status 401")`.
    pub fields: Vec<(&'static str, String)>,
}

/// How much a limit admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmountDraft {
    /// Every rate holds; their windows differ.
    Rates(Vec<RateDraft>),
    /// Open requests, at least 1.
    Concurrent(u32),
    /// Units of each window of the calendar: `day`, `week`, `month`, `quarter` or `year`.
    Quota(u32, &'static str),
}

impl Default for AmountDraft {
    fn default() -> AmountDraft {
        AmountDraft::Rates(Vec::new())
    }
}

/// A rate that tollgate can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateDraft {
    units: u32,
    seconds: u64,
}

impl RateDraft {
    /// `units` in each window of `seconds`. `None` if a gateway could not count it: see [`Rate::new`].
    pub fn new(units: u64, seconds: u64) -> Option<RateDraft> {
        let units = u32::try_from(units).ok()?;
        let nanos = seconds.checked_mul(1_000_000_000)?;
        Rate::new(units, Nanos(nanos)).ok()?;
        Some(RateDraft { units, seconds })
    }

    /// The units of a window.
    pub fn units(self) -> u32 {
        self.units
    }

    /// The length of the window in seconds.
    pub fn seconds(self) -> u64 {
        self.seconds
    }
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlgorithmDraft {
    /// Exactly, in any window that slides.
    #[default]
    Sliding,
    /// In windows that stand still; `true` for those of the clock.
    FixedWindow(bool),
    /// So many units at once, and then one each interval.
    Gcra {
        /// At least 1.
        burst: u32,
    },
    /// One each interval; earlier requests wait.
    LeakyBucket {
        /// The longest wait in milliseconds, 1 to 60,000.
        delay_millis: u64,
    },
}

/// Which routes have a limit of the gateway file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeDraft {
    /// Every route, and requests without one; all count together.
    #[default]
    All,
    /// Every route, each for itself.
    Each,
    /// Routes that use it, together.
    Listed,
    /// Routes that use it, each for itself.
    EachListed,
}

impl ImportDraft {
    /// Adds a limit of the gateway file, and returns its index.
    pub fn add_limit(&mut self, limit: LimitDraft) -> usize {
        self.limits.push(limit);
        self.limits.len() - 1
    }

    /// Adds an upstream if no equal one is there, and returns its name. `hint` is a text from which the name is made.
    pub fn add_upstream(&mut self, hint: &str, upstream: UpstreamDraft) -> String {
        let is_same = |other: &&UpstreamDraft| {
            other.servers == upstream.servers
                && other.host == upstream.host
                && other.balance == upstream.balance
                && other.http2 == upstream.http2
                && other.fields == upstream.fields
        };
        if let Some(same) = self.upstreams.iter().find(is_same) {
            return same.name.clone();
        }
        let mut names = UniqueNames::default();
        for other in &self.upstreams {
            names.name(&other.name, "upstream");
        }
        let name = names.name(hint, "upstream");
        self.upstreams.push(UpstreamDraft {
            name: name.clone(),
            ..upstream
        });
        name
    }

    /// The files that the output refers to and that the import does not write.
    pub fn needed_files(&self) -> Vec<NeededFile> {
        let mut files: Vec<NeededFile> = Vec::new();
        let mut add = |path: &str, kind| {
            if !files.iter().any(|file| file.path == path) {
                files.push(NeededFile {
                    path: path.to_owned(),
                    kind,
                });
            }
        };
        for (certificate, key) in self
            .listeners
            .iter()
            .flat_map(|listener| &listener.certificates)
        {
            add(certificate, NeededKind::Certificate);
            add(key, NeededKind::PrivateKey);
        }
        if let Some(key_set) = self.identities.key_set_file() {
            add(key_set, NeededKind::KeySet);
        }
        files
    }

    /// Which limits of the gateway file are written, by their index: routes use them, or all routes have them.
    pub fn written_limits(&self) -> Vec<bool> {
        let holds_everywhere =
            |limit: &LimitDraft| matches!(limit.scope, ScopeDraft::All | ScopeDraft::Each);
        let mut written: Vec<bool> = self.limits.iter().map(holds_everywhere).collect();
        for used in self.routes.iter().flat_map(|route| &route.limits) {
            if let LimitUseDraft::Shared(index) = used
                && let Some(is_written) = written.get_mut(*index)
            {
                *is_written = true;
            }
        }
        written
    }

    /// How much is written of the routes and upstreams from these indexes on: their values, where a text of more than 32
    /// bytes counts as several.
    pub fn written_since(&self, first_route: usize, first_upstream: usize) -> usize {
        let pieces = |text: &str| text.len() / 32;
        let routes = self.routes.iter().skip(first_route).map(|route| {
            let clients = route.allow.iter().chain(&route.deny);
            let fields = route.fields.iter().map(|(_, text)| pieces(text));
            let texts = route.paths.iter().chain(&route.hosts);
            let body = match &route.action {
                ActionDraft::Respond { body, .. } => pieces(body),
                _ => 0,
            };
            clients.map(|(_, values)| values.len()).sum::<usize>()
                + fields.sum::<usize>()
                + texts.map(|text| 1 + pieces(text)).sum::<usize>()
                + route.limits.len()
                + body
        });
        let upstreams = self.upstreams.iter().skip(first_upstream);
        routes.sum::<usize>()
            + upstreams
                .map(|upstream| upstream.servers.len())
                .sum::<usize>()
    }
}
