//! Finds the route of a request by host, method and path. This file defines and compares the routes themselves.
//!
//! Routes match a normalised copy of the path, so that no spelling of a path escapes its policy. The upstream gets the
//! path as the client wrote it, unless the policy strips a prefix of it or puts one before it.
//!
//! | module | what it is |
//! |---|---|
//! | `back_mapping` | URLs and cookies of responses, mapped back to the client's view |
//! | `canonical_host` | the one form of a host |
//! | `cors` | the pages of other origins that may read a route's responses |
//! | `descriptor` | the descriptors of other proxies that a policy matches |
//! | `error_page` | the bodies that operators write for refusals |
//! | `field_changes` | the header fields that a policy changes |
//! | `path` | the normal form of a path, and the other readings of it |
//! | `path_matching` | which spellings of their paths routes take |
//! | `path_change` | the path that the upstream gets, if a policy changes it |
//! | `pattern` | the requests that a route takes, as policies write them |
//! | `priority` | what is shed last under pressure |
//! | `route_action`, `redirect` | what becomes of admitted requests; where a redirect leads |
//! | `table` | the search for the route of a request |
//! | `usage` | the limits that callers may see |

pub mod back_mapping;
pub mod canonical_host;
pub mod cors;
pub mod descriptor;
pub mod error_page;
pub mod field_changes;
pub mod path;
pub mod path_change;
mod path_matching;
pub mod pattern;
pub mod priority;
pub mod redirect;
mod route_action;
pub mod table;
pub mod usage;

use std::sync::Arc;

use http::Method;
use http::header::CONTENT_LENGTH;

pub use back_mapping::{BackMapping, ForwardedPlace, ServerOrigin};
pub use cors::{AllowedOrigins, Cors, OriginPattern};
pub use descriptor::{DescriptorPattern, DescriptorTable, EntryPattern, ValuePattern};
pub use error_page::{ErrorPage, ErrorPages, PagePart, PageTemplate, PageVariable, ValueForm};
pub use field_changes::{AddedField, FieldChanges, TemplatePart, TlsFact, ValueTemplate, Variable};
pub use path::{
    PathError, literal_readings, normalise, path_after_authority, with_encoded_slashes,
};
pub use path_change::{PathChange, PathChangeError};
pub use path_matching::PathMatching;
pub use pattern::{
    HostPattern, MethodSet, Pattern, PatternError, PatternErrorKind, Segment, is_standard_method,
};
pub use priority::Priority;
pub use redirect::{Redirect, RedirectTarget};
pub use route_action::{FixedResponse, RouteAction};
pub use table::{Conflict, RouteMatch, RouteTable, is_common_spelling};
pub use usage::{ListedLimit, UsageList};

pub use crate::limit::HeaderStyle;

use crate::http::content_coding::ContentCoding;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{
    AccessLists, CountMode, CustomIdentity, Identity, IdentitySet, IdentityTest, ReserveSource,
    Rule, Rules, UserSources,
};

/// One route of the running policies.
#[derive(Clone, Debug)]
pub struct Route {
    /// The route's name in logs and metrics: the policy file's name without `.yaml`.
    pub name: Arc<str>,
    /// Index among the routes of the running policies.
    pub index: usize,
    /// The requests that the route takes.
    pub pattern: Pattern,
    /// The patterns of the routes that were combined with this one; empty for a route as policies define it.
    pub other_patterns: Vec<Pattern>,
    /// The names of the listeners that the route holds on; empty if it holds on all.
    pub listeners: Arc<[Arc<str>]>,
    /// What the route does with the requests that its limits admit.
    pub action: RouteAction,
    /// The limits of every request on this route, those of the gateway file first.
    pub rules: Rules,
    /// The limits that count requests to which the gateway responds itself.
    pub own_response_rules: OwnResponseRules,
    /// The lists of clients that are refused here, without those of the gateway file by address, which hold before the
    /// route is known.
    pub access: AccessLists,
    /// The identities without which a request gets 401.
    pub require: Vec<Identity>,
    /// The sources of which one must have verified the user; others' users get 403. If not all, the user is required.
    pub user_sources: UserSources,
    /// The parts of requests and responses that the route's limits and identities read.
    pub reads: RouteReads,
    /// Maximum size of a request's body in bytes; `None` for no bound. Tunnels have no body.
    pub max_body_bytes: Option<u64>,
    /// The codings by which the upstream's responses are compressed, the preferred one first; empty if they are not.
    pub codings: Arc<[ContentCoding]>,
    /// Which pages of other origins may read responses; `None` if the upstream decides. Preflights get their response here.
    pub cors: Option<Arc<Cors>>,
    /// The route's priority under pressure; `None` if the priority of the client's plan holds.
    pub priority: Option<Priority>,
    /// The rate-limit header fields that responses get.
    pub headers: HeaderStyle,
    /// Whether the upstream takes `%2F` for a part of a segment, not for a slash.
    pub keeps_slashes: bool,
    /// How the path of requests is changed before they are forwarded; `None` if it is not.
    pub path_change: Option<Arc<PathChange>>,
    /// How responses of the upstream are mapped back to the client's view; `None` if they are not.
    pub back_mapping: Option<Arc<BackMapping>>,
    /// How the fields of requests are changed before they are forwarded; `None` if they are not.
    pub request_changes: Option<Arc<FieldChanges>>,
    /// How the fields of final responses are changed; `None` if they are not.
    pub response_changes: Option<Arc<FieldChanges>>,
    /// The bodies of the gateway's own refusals; `None` if all of them are problem documents.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// Whether the servers of all routes may be the same, because other proxies ask and send requests where they like.
    pub may_share_server: bool,
}

/// The limits of a route that count a request to which the gateway responds itself.
#[derive(Clone, Debug, Default)]
pub struct OwnResponseRules {
    /// All such limits of the route.
    pub all: Rules,
    /// The limits that depend on no identity but ip. They decide before a credential is checked.
    pub by_ip: Rules,
    /// For each identity that the route requires, in the order of [`Route::require`]: the limits whose keys do not need
    /// it. They apply to a request without that identity, which lacks a part of the other limits' keys.
    pub without: Box<[Rules]>,
    /// The limits that are `for: { preflight: present }`. Only they count a preflight whose response is the gateway's.
    pub for_preflights: Rules,
}

impl OwnResponseRules {
    /// Selects the limits that count such requests, among all limits of a route that requires these identities.
    pub fn new(rules: &[Arc<Rule>], require: &[Identity]) -> OwnResponseRules {
        let counting_rules = rules.iter().filter(|rule| rule.counts_own_responses());
        let without = |identity: &Identity| {
            let independent_rules = counting_rules
                .clone()
                .filter(|rule| !rule.key.needs(*identity));
            independent_rules.cloned().collect()
        };
        let rules_by_ip = counting_rules.clone().filter(|rule| {
            rule.key.is_only(Identity::Ip)
                && !rule
                    .clients
                    .identities()
                    .any(|identity| identity != Identity::Ip)
        });
        let preflight = CustomIdentity::find(PREFLIGHT).map(Identity::Custom);
        let is_for_preflights = |rule: &&Arc<Rule>| {
            let mut conditions = rule.clients.conditions.iter();
            conditions.any(|condition| {
                Some(condition.identity) == preflight && condition.test == IdentityTest::Present
            })
        };
        OwnResponseRules {
            for_preflights: counting_rules
                .clone()
                .filter(is_for_preflights)
                .cloned()
                .collect(),
            by_ip: rules_by_ip.cloned().collect(),
            without: require.iter().map(without).collect(),
            all: counting_rules.clone().cloned().collect(),
        }
    }
}

/// The parts of requests and responses that the limits and identities of a route read. They are computed once per
/// route, because each request needs them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteReads {
    /// An email address, which may stand in the request's body.
    pub email: bool,
    /// A custom identity that is a field of the query or the request's body.
    pub parameter: bool,
    /// A custom identity that is a field of the request's body. Then even a body that streams messages is searched.
    pub body_field: bool,
    /// A custom identity that is a part of the path, which the route's pattern names.
    pub path_part: bool,
    /// Whether the request is the preflight of a browser (CORS).
    pub preflight: bool,
    /// The custom identities that the route requires, or that its limits or the fields that it changes depend on.
    pub custom: IdentitySet,
    /// The number of units that the request says it costs or may cost, in its head or body.
    pub reserve: bool,
    /// The number of units that the request says in its body.
    pub reserve_in_body: bool,
    /// A cost in the response's body.
    pub cost_in_body: bool,
    /// A cost that is the response's length.
    pub cost_by_length: bool,
    /// The bytes of the request's body, counted as they pass.
    pub bytes_in: bool,
    /// The messages that a client sends over a WebSocket.
    pub messages: bool,
    /// Another method in the request's body, which may lead to a route with more limits.
    pub method_in_body: bool,
    /// A path of WordPress' REST API in the request's body, which may lead to a route with more limits.
    pub path_in_body: bool,
    /// The credential of the query, which may stand in the request's body.
    pub token_in_body: bool,
}

impl RouteReads {
    /// Whether, after the choice of the route, the beginning of a request's body may have to be read before its limits
    /// decide.
    pub fn may_need_body(&self) -> bool {
        self.email | self.parameter | self.reserve_in_body | self.token_in_body
    }

    /// The parts that these limits, required identities and lists read. The caller sets `parameter`, `body_field`,
    /// `path_part`, `preflight`, `method_in_body`, `path_in_body` and `token_in_body`, because they depend on other
    /// routes and on the settings of identities. It also adds to `custom` the identities that changed fields need.
    pub fn new(rules: &[Arc<Rule>], require: &[Identity], access: &AccessLists) -> RouteReads {
        let counts_by_email = |rule: &Arc<Rule>| rule.depends_on(Identity::Email);
        let has_cost_in_body = |rule: &Arc<Rule>| matches!(rule.count, CountMode::CostJson(_));
        let has_cost_by_length = |rule: &Arc<Rule>| matches!(&rule.count, CountMode::CostHeader(name) if *name == CONTENT_LENGTH);
        let counts_bytes_in = |rule: &Arc<Rule>| matches!(rule.count, CountMode::CostBytes(direction) if direction.has_requests());
        let reserves = rules.iter().filter_map(|rule| rule.reserve.as_ref());
        let mut sources = reserves.filter_map(|reserve| reserve.source.as_ref());
        let rule_identities = rules
            .iter()
            .flat_map(|rule| rule.key.identities().chain(rule.clients.identities()));
        let identities = rule_identities
            .chain(require.iter().copied())
            .chain(access.identities());
        RouteReads {
            custom: identities
                .filter(|identity| matches!(identity, Identity::Custom(_)))
                .collect(),
            email: require.contains(&Identity::Email)
                || rules.iter().any(counts_by_email)
                || access
                    .identities()
                    .any(|identity| identity == Identity::Email),
            reserve: sources.clone().next().is_some(),
            reserve_in_body: sources.any(ReserveSource::is_in_body),
            cost_in_body: rules.iter().any(has_cost_in_body),
            cost_by_length: rules.iter().any(has_cost_by_length),
            bytes_in: rules.iter().any(counts_bytes_in),
            messages: rules
                .iter()
                .any(|rule| rule.count == CountMode::CostMessages),
            ..RouteReads::default()
        }
    }
}

impl Route {
    /// Whether the route holds on the listener of this name. `None` stands for all listeners that no policy names.
    pub fn holds_on(&self, listener: Option<&str>) -> bool {
        let mut listeners = self.listeners.iter();
        self.is_for_http()
            && (self.listeners.is_empty() || listeners.any(|name| listener == Some(name)))
    }

    /// Whether the route takes HTTP requests, not descriptors of other proxies.
    pub fn is_for_http(&self) -> bool {
        !matches!(self.action, RouteAction::Decide(_))
    }

    /// Whether some listener has both routes.
    pub fn shares_listener_with(&self, other: &Route) -> bool {
        let mut listeners = self.listeners.iter();
        let are_for_http = self.is_for_http() && other.is_for_http();
        are_for_http
            && (self.listeners.is_empty()
                || other.listeners.is_empty()
                || listeners.any(|name| other.holds_on(Some(name))))
    }

    /// The index of the upstream among those of the running policies; `None` if there is none.
    #[inline]
    pub fn upstream_index(&self) -> Option<usize> {
        self.action.upstream_index()
    }

    /// A number that routes have in common if one server may get the requests of both; `None` if the gateway answers by
    /// itself.
    pub fn server_group(&self) -> Option<usize> {
        match (&self.action, self.may_share_server) {
            (RouteAction::Admit, _) | (RouteAction::Forward(_), true) => Some(usize::MAX),
            (action, _) => action.upstream_index(),
        }
    }

    /// Whether this route and `other` forward requests to different upstreams. Then neither may serve requests of the other,
    /// though their limits may count together.
    pub fn forwards_elsewhere_than(&self, other: &Route) -> bool {
        let upstreams = self.upstream_index().zip(other.upstream_index());
        upstreams.is_some_and(|(own, theirs)| own != theirs)
    }

    /// Whether the gateway answers requests of this route by itself, and those of `other` go to a server.
    pub fn answers_in_place_of(&self, other: &Route) -> bool {
        self.server_group().is_none() && other.server_group().is_some()
    }

    /// Whether a request that `other` takes must be held to this route too, if a server may read it as one of this route.
    ///
    /// That is so if both are on one upstream, and `other` has not all that [`Route::has_all_limits_of`] asks for. It is also
    /// so if the gateway would answer instead of a server, unless this route is the broader one. The route of `usage` takes
    /// its own path only.
    pub fn has_limits_beyond(&self, other: &Route) -> bool {
        match (self.server_group(), other.server_group()) {
            // No server reads the request.
            (_, None) => false,
            (None, Some(_)) => {
                !self.action.is_usage() && !self.pattern.is_broader_than(&other.pattern)
            }
            (own, theirs) => own == theirs && !other.has_all_limits_of(self),
        }
    }

    /// Whether this route has every limit, list and required identity of `other`, and takes no larger bodies. It also makes
    /// the changes of requests that `other` makes, and lets no other pages read responses. If `other` counts by parts of the
    /// path, both patterns must have the same segments.
    pub fn has_all_limits_of(&self, other: &Route) -> bool {
        let has_rule = |rule: &Arc<Rule>| {
            self.rules
                .iter()
                .any(|own_rule| own_rule.index == rule.index)
        };
        self.has_path_parts_of(other)
            && self.takes_no_larger_body_than(other)
            && self.has_cors_of(other)
            && self.has_request_changes_of(other)
            && self.access.covers(&other.access)
            && other.rules.iter().all(has_rule)
            && self.requires_all_of(other)
    }

    /// Whether this route is on the same upstream as `other`, has every list and requires every identity that `other`
    /// does, and takes no larger bodies. It must make the same changes of requests, and let the same pages read responses.
    /// For each limit of `other` it must have the same one, or one that admits no more. If `other` counts by parts of the
    /// path, both patterns must have the same segments. A route that the gateway answers by itself is stricter than any
    /// upstream's, because no server gets its requests.
    pub fn is_as_strict_as(&self, other: &Route) -> bool {
        let has_rule_for = |other_rule: &Arc<Rule>| {
            self.rules
                .iter()
                .any(|own_rule| own_rule.is_as_strict_as(other_rule))
        };
        match (self.server_group(), other.server_group()) {
            (None, Some(_)) => true,
            (own, theirs) if own != theirs => false,
            _ => {
                self.has_path_parts_of(other)
                    && self.takes_no_larger_body_than(other)
                    && self.cors == other.cors
                    && self.request_changes == other.request_changes
                    && self.access.covers(&other.access)
                    && self.requires_all_of(other)
                    && other.rules.iter().all(has_rule_for)
            }
        }
    }

    /// The route's own pattern, and those of the routes that were combined with it.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        std::iter::once(&self.pattern).chain(&self.other_patterns)
    }

    /// Whether this route requires every identity that `other` requires, and accepts users of no other sources.
    pub fn requires_all_of(&self, other: &Route) -> bool {
        let mut required = other.require.iter();
        required.all(|identity| self.require.contains(identity))
            && self.user_sources.is_within(other.user_sources)
    }

    fn takes_no_larger_body_than(&self, other: &Route) -> bool {
        other
            .max_body_bytes
            .is_none_or(|theirs| self.max_body_bytes.is_some_and(|own| own <= theirs))
    }

    /// Whether no page may read responses of this route that may not read those of `other`.
    fn has_cors_of(&self, other: &Route) -> bool {
        self.cors == other.cors || self.cors.as_ref().is_some_and(|cors| cors.is_for_no_page())
    }

    /// Whether this route makes the changes of requests that both routes combined make.
    fn has_request_changes_of(&self, other: &Route) -> bool {
        match (&self.request_changes, &other.request_changes) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(theirs)) => own.covers(theirs),
        }
    }

    /// Whether `other` counts by no part of the path, or both patterns have the same segments.
    fn has_path_parts_of(&self, other: &Route) -> bool {
        !other.reads.path_part || self.pattern.segments() == other.pattern.segments()
    }

    /// This route with the limits, required identities, lists and changes of requests of `other` as well. It has the smaller
    /// of both bounds on bodies, and [`priority::lower_priority`] of both. Where they let different pages read responses, no page may.
    pub fn combined_with(&self, other: &Route) -> Route {
        let mut rules = self.rules.to_vec();
        for rule in other.rules.iter() {
            if !rules.iter().any(|own_rule| own_rule.index == rule.index) {
                rules.push(rule.clone());
            }
        }
        let mut require = self.require.clone();
        for identity in &other.require {
            if !require.contains(identity) {
                require.push(*identity);
            }
        }
        let request_changes = match (&self.request_changes, &other.request_changes) {
            (Some(own), Some(others)) if own != others => Some(Arc::new(own.combined_with(others))),
            (own, others) => own.clone().or_else(|| others.clone()),
        };
        let access = self.access.combined_with(&other.access);
        // Many readings of a path may lead to one route.
        let mut other_patterns = self.other_patterns.clone();
        for pattern in other.patterns() {
            if !self.patterns().any(|own_pattern| own_pattern == pattern) {
                other_patterns.push(pattern.clone());
            }
        }
        Route {
            own_response_rules: OwnResponseRules::new(&rules, &require),
            request_changes,
            reads: RouteReads {
                custom: self.reads.custom.union(other.reads.custom),
                method_in_body: self.reads.method_in_body,
                path_in_body: self.reads.path_in_body,
                token_in_body: self.reads.token_in_body || other.reads.token_in_body,
                parameter: self.reads.parameter || other.reads.parameter,
                body_field: self.reads.body_field || other.reads.body_field,
                path_part: self.reads.path_part || other.reads.path_part,
                preflight: self.reads.preflight || other.reads.preflight,
                ..RouteReads::new(&rules, &require, &access)
            },
            access,
            other_patterns,
            rules: rules.into_iter().collect(),
            require,
            user_sources: self.user_sources.intersection(other.user_sources),
            max_body_bytes: [self.max_body_bytes, other.max_body_bytes]
                .into_iter()
                .flatten()
                .min(),
            cors: match self.has_cors_of(other) {
                true => self.cors.clone(),
                false => Some(Arc::new(Cors::for_no_page())),
            },
            priority: priority::lower_priority(self.priority, other.priority),
            ..self.clone()
        }
    }

    /// Whether this route takes requests to WordPress' REST API with POST.
    pub fn is_wordpress_api(&self) -> bool {
        let first = self.pattern.segments().first();
        matches!(first, Some(Segment::Literal(name)) if name.eq_ignore_ascii_case("wp-json"))
            && self.pattern.methods().contains(&Method::POST)
    }

    /// Whether this route requires the identity, or has a limit or a list that depends on it.
    pub fn needs(&self, identity: Identity) -> bool {
        self.require.contains(&identity)
            || self.rules.iter().any(|rule| rule.depends_on(identity))
            || self.access.identities().any(|listed| listed == identity)
            || matches!(&self.action, RouteAction::Usage(list) if list.identities.contains(identity))
    }

    /// Whether a decision about a request depends on the identity: the route needs it, or it is the plan, which changes
    /// one of the route's limits.
    pub fn depends_on(&self, identity: Identity) -> bool {
        self.needs(identity)
            || (identity == Identity::Plan && self.rules.iter().any(|rule| rule.plans))
    }
}
