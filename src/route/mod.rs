//! Finds the route of a request by host, method and path. It matches a normalised copy of the path, so that no
//! spelling of a path slips past its policy. The path is forwarded as the client wrote it.

pub mod host;
pub mod path;
pub mod pattern;
pub mod table;

use std::sync::Arc;

use http::Method;
use http::header::CONTENT_LENGTH;

pub use path::{PathError, behind_authority, literal_readings, normalise, with_encoded_slashes};
pub use pattern::{HostPattern, MethodSet, Pattern, PatternError, PatternErrorKind};
pub use table::{Conflict, RouteMatch, RouteTable, is_usual};

use self::pattern::Segment;
use crate::limit::{CountMode, Identity, ReserveSource, Rule, Rules};

/// One route of the running policies.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name in logs and metrics: the policy file's name without `.yaml`.
    pub name: Arc<str>,
    /// Its index among the routes of the running policies.
    pub index: usize,
    /// Which requests it takes.
    pub pattern: Pattern,
    /// Its upstream, by index among the upstreams of the running policies.
    pub upstream: usize,
    /// The limits of every request on this route, those of the gateway file first.
    pub rules: Rules,
    /// Those of them that count requests which the gateway answers itself.
    pub own: OwnRules,
    /// Identities without which a request gets 401.
    pub require: Vec<Identity>,
    /// What its limits read beyond heads.
    pub reads: Reads,
    /// Its priority under pressure; that of the plan when absent.
    pub priority: Option<Priority>,
    /// Which rate-limit header fields responses carry.
    pub headers: HeaderStyle,
    /// `%2F` is part of a segment, as the upstream reads it.
    pub keeps_slashes: bool,
}

/// The limits of a route that count a request which the gateway answers itself.
#[derive(Clone, Debug, Default)]
pub struct OwnRules {
    /// All of them.
    pub all: Rules,
    /// Those by ip alone, which decide before a credential is checked.
    pub by_ip: Rules,
    /// For each identity that the route requires: the same but for limits that count by it. Where it is absent, a part
    /// of their key is.
    pub without: Box<[Rules]>,
}

impl OwnRules {
    /// Of a route with these limits.
    pub fn of(rules: &[Arc<Rule>], require: &[Identity]) -> OwnRules {
        let own = rules.iter().filter(|rule| rule.counts_own_responses());
        let without = |identity: &Identity| {
            let others = own.clone().filter(|rule| !rule.key.contains(identity));
            others.cloned().collect()
        };
        let by_ip = own.clone().filter(|rule| rule.key == [Identity::Ip]);
        OwnRules {
            by_ip: by_ip.cloned().collect(),
            without: require.iter().map(without).collect(),
            all: own.clone().cloned().collect(),
        }
    }
}

/// What the limits of a route read beyond the identities in heads. Computed once per route, since each request needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// An email address, which may stand in the request's body.
    pub email: bool,
    /// How many units the request says it may cost.
    pub reserve: bool,
    /// The same, where it stands in the request's body.
    pub reserve_in_body: bool,
    /// A cost in the response's body.
    pub cost_in_body: bool,
    /// A cost that is the response's length.
    pub cost_by_length: bool,
    /// Another method that a request's body may name, for it may lead to a route that counts more.
    pub method_in_body: bool,
    /// A path of WordPress' REST API that a request's body may name, for the same reason.
    pub path_in_body: bool,
    /// The credential of the query, which may stand in the request's body.
    pub token_in_body: bool,
}

impl Reads {
    /// Of a route with these limits, but for what depends on other routes and on identities.
    pub fn of(rules: &[Arc<Rule>], require: &[Identity]) -> Reads {
        let email = |rule: &Arc<Rule>| rule.key.contains(&Identity::Email);
        let costs = |rule: &Arc<Rule>| matches!(rule.count, CountMode::CostJson(_));
        let by_length = |rule: &Arc<Rule>| matches!(&rule.count, CountMode::CostHeader(name) if *name == CONTENT_LENGTH);
        let sources = rules.iter().filter_map(|rule| rule.reserve.as_ref());
        let mut sources = sources.filter_map(|reserve| reserve.source.as_ref());
        Reads {
            email: require.contains(&Identity::Email) || rules.iter().any(email),
            reserve: sources.clone().next().is_some(),
            reserve_in_body: sources.any(|source| matches!(source, ReserveSource::Json(_))),
            cost_in_body: rules.iter().any(costs),
            cost_by_length: rules.iter().any(by_length),
            ..Reads::default()
        }
    }
}

/// How much a route matters under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Shed first.
    Low,
    /// The usual.
    #[default]
    Normal,
    /// Shed last.
    Critical,
}

/// The lower of two priorities. An absent one is up to the plan.
fn lower(one: Option<Priority>, other: Option<Priority>) -> Option<Priority> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (said, None) | (None, said) => said.filter(|said| *said != Priority::Critical),
    }
}

/// Which rate-limit header fields responses carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
    /// Both.
    Both,
    /// Neither.
    None,
}

/// Whether a route matches other spellings of its path that frameworks accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Paths {
    /// It also takes methods that bodies name, and paths that frameworks read as its own
    /// ([`RouteTable::find_folded`]). The latter only where no more than a broader route on the same upstream takes
    /// the spelling.
    #[default]
    Fold,
    /// Its own path, normalised, and no method in a body.
    Exact,
}

impl Route {
    /// Whether it holds requests to a limit or an identity that `other` does not ask for on the same upstream.
    pub fn holds_more_than(&self, other: &Route) -> bool {
        self.upstream == other.upstream && !other.counts_all_of(self)
    }

    /// Whether it holds requests to every limit and identity that `other` asks for.
    pub fn counts_all_of(&self, other: &Route) -> bool {
        let has = |rule: &Arc<Rule>| self.rules.iter().any(|own| own.index == rule.index);
        other.rules.iter().all(has) && other.require.iter().all(|part| self.require.contains(part))
    }

    /// Whether it holds requests to whatever `other` holds them to on the same upstream, by the same limits or by ones that
    /// leave nobody more.
    pub fn is_as_strict_as(&self, other: &Route) -> bool {
        let holds = |theirs: &Arc<Rule>| self.rules.iter().any(|rule| rule.is_as_strict_as(theirs));
        self.upstream == other.upstream
            && other.require.iter().all(|part| self.require.contains(part))
            && other.rules.iter().all(holds)
    }

    /// This route, held to whatever `other` is held to as well.
    pub fn combined_with(&self, other: &Route) -> Route {
        let mut rules = self.rules.to_vec();
        for rule in other.rules.iter() {
            if !rules.iter().any(|own| own.index == rule.index) {
                rules.push(rule.clone());
            }
        }
        let mut require = self.require.clone();
        for part in &other.require {
            if !require.contains(part) {
                require.push(*part);
            }
        }
        Route {
            own: OwnRules::of(&rules, &require),
            reads: Reads {
                method_in_body: self.reads.method_in_body,
                path_in_body: self.reads.path_in_body,
                token_in_body: self.reads.token_in_body || other.reads.token_in_body,
                ..Reads::of(&rules, &require)
            },
            rules: rules.into_iter().collect(),
            require,
            priority: lower(self.priority, other.priority),
            ..self.clone()
        }
    }

    /// Whether it takes paths of WordPress' REST API and POST.
    pub fn is_rest_api(&self) -> bool {
        let first = self.pattern.segments().first();
        matches!(first, Some(Segment::Literal(name)) if name.eq_ignore_ascii_case("wp-json"))
            && self.pattern.methods().contains(&Method::POST)
    }

    /// Whether the decision about a request depends on this identity.
    pub fn needs(&self, identity: Identity) -> bool {
        self.require.contains(&identity)
            || self.rules.iter().any(|rule| rule.key.contains(&identity))
    }

    /// The same, or whether a plan multiplies a limit.
    pub fn depends_on(&self, identity: Identity) -> bool {
        self.needs(identity)
            || (identity == Identity::Plan && self.rules.iter().any(|rule| rule.plans))
    }
}
