//! Compiles the routes of `usage`, where callers see what they have left of their limits: one for each pattern of hosts, so
//! that no broad policy of a host hides the path. Each lists the limits of the routes that its hosts may have.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::decode::GatewayConfig;
use super::super::settings::UnroutedLimits;
use crate::identity;
use crate::limit::{AccessLists, CountMode, Disclose, Identity, IdentitySet, Rule, UserSources};
use crate::route::{
    ErrorPages, HostPattern, ListedLimit, OwnResponseRules, Pattern, Route, RouteAction,
    RouteReads, UsageList,
};

/// The routes of `usage`, which follow `routes`; none without the field. `access` are the lists that every route has.
pub(super) fn compile_usage(
    gateway: &GatewayConfig,
    routes: &[Route],
    identity: &identity::Settings,
    unrouted: &UnroutedLimits,
    access: &AccessLists,
    error_pages: Option<&Arc<ErrorPages>>,
) -> Vec<Route> {
    let Some(pattern) = &gateway.usage else {
        return Vec::new();
    };
    let mut hosts = vec![&HostPattern::Any];
    let mut routes_by_host: HashMap<&HostPattern, Vec<&Route>> = HashMap::new();
    for route in routes.iter().filter(|route| route.is_for_http()) {
        let host = route.pattern.host();
        let host_routes = routes_by_host.entry(host).or_default();
        if host_routes.is_empty() && *host != HostPattern::Any {
            hosts.push(host);
        }
        host_routes.push(route);
    }
    let broad_hosts: Vec<&HostPattern> = hosts
        .iter()
        .copied()
        .filter(|host| !matches!(host, HostPattern::Exact(_)))
        .collect();
    let mut limits_by_routes: HashMap<Vec<usize>, HostLimits> = HashMap::new();
    let usage_routes = hosts.iter().enumerate().map(|(position, host)| {
        let wider_hosts = broad_hosts
            .iter()
            .filter(|wider| *wider != host && wider.is_superset_of(host));
        let reachable = std::iter::once(host).chain(wider_hosts);
        let mut reachable: Vec<&Route> = reachable
            .filter_map(|host| routes_by_host.get(host))
            .flatten()
            .copied()
            .collect();
        reachable.sort_by_key(|route| route.index);
        let route_indexes = reachable.iter().map(|route| route.index).collect();
        // Hosts that may have the same routes share a list.
        let host_limits = limits_by_routes.entry(route_indexes);
        let build = || HostLimits {
            list: Arc::new(UsageListBuilder::new(identity, unrouted).build(&reachable)),
            own_response_rules: find_guess_limits(&reachable, identity, unrouted),
        };
        usage_route(
            routes.len() + position,
            pattern.value.clone().with_host((*host).clone()),
            host_limits.or_insert_with(build).clone(),
            gateway,
            unrouted,
            access,
            error_pages,
        )
    });
    usage_routes.collect()
}

/// What the route of `usage` has for one pattern of hosts.
#[derive(Clone)]
struct HostLimits {
    list: Arc<UsageList>,
    own_response_rules: OwnResponseRules,
}

/// Maximum number of limits of policies that count guesses. One is enough to bound guesses, and all of them are looked at
/// before a credential is verified.
const MAX_GUESS_LIMITS: usize = 32;

/// The limits that count guesses of credentials: those without a route, and those by ip of routes that depend on
/// credentials. Otherwise guesses that these routes count could be tried here for free.
fn find_guess_limits(
    routes: &[&Route],
    identity: &identity::Settings,
    unrouted: &UnroutedLimits,
) -> OwnResponseRules {
    let is_proven = |proven: &Identity| identity.needs_proof(*proven);
    let proven: Vec<Identity> = Identity::all().filter(is_proven).collect();
    let mut rules = unrouted.rules.to_vec();
    let mut known: HashSet<usize> = rules.iter().map(|rule| rule.index).collect();
    let guessable = routes
        .iter()
        .filter(|route| proven.iter().any(|identity| route.depends_on(*identity)));
    let guess_limits = guessable
        .flat_map(|route| route.rules.iter())
        .filter(|rule| rule.key.is_only(Identity::Ip) && counts_guesses(rule))
        .filter(|rule| known.insert(rule.index))
        .take(MAX_GUESS_LIMITS);
    rules.extend(guess_limits.cloned());
    OwnResponseRules::new(&rules, &[])
}

/// Whether the limit counts the 401 to a guess, and may refuse the next one.
fn counts_guesses(rule: &Rule) -> bool {
    let counts_status = match rule.count {
        CountMode::Status { from, to } => (from..=to).contains(&401),
        _ => true,
    };
    counts_status && rule.counts_own_responses() && !rule.shadow
}

/// The route with these limits. None counts what it answers, except guessed credentials.
fn usage_route(
    index: usize,
    pattern: Pattern,
    HostLimits {
        list,
        own_response_rules,
    }: HostLimits,
    gateway: &GatewayConfig,
    unrouted: &UnroutedLimits,
    access: &AccessLists,
    error_pages: Option<&Arc<ErrorPages>>,
) -> Route {
    let reads = RouteReads::new(&[], &[], access);
    let is_custom = |identity: &Identity| matches!(identity, Identity::Custom(_));
    let custom = Identity::all().filter(is_custom);
    let listed_custom: IdentitySet = custom
        .filter(|identity| list.identities.contains(*identity))
        .collect();
    Route {
        name: pattern.path_text().into(),
        index,
        pattern,
        other_patterns: Vec::new(),
        listeners: Arc::default(),
        action: RouteAction::Usage(list),
        rules: Vec::new().into_iter().collect(),
        own_response_rules,
        access: access.clone(),
        require: Vec::new(),
        user_sources: UserSources::ALL,
        reads: RouteReads {
            custom: reads.custom.union(listed_custom),
            ..reads
        },
        max_body_bytes: None,
        codings: Arc::default(),
        cors: unrouted.cors.clone(),
        priority: None,
        headers: gateway.headers,
        keeps_slashes: false,
        path_change: None,
        back_mapping: None,
        request_changes: None,
        response_changes: None,
        error_pages: error_pages.cloned(),
        may_share_server: false,
    }
}

/// Collects the limits of routes, each once.
struct UsageListBuilder<'i> {
    identity: &'i identity::Settings,
    unrouted: &'i UnroutedLimits,
    list: UsageList,
    /// The position in the list of each limit, by its index.
    positions: HashMap<usize, usize>,
}

impl<'i> UsageListBuilder<'i> {
    /// An empty list, which depends on the credentials of limits that hold without a route.
    fn new(identity: &'i identity::Settings, unrouted: &'i UnroutedLimits) -> UsageListBuilder<'i> {
        let mut builder = UsageListBuilder {
            identity,
            unrouted,
            list: UsageList {
                is_complete: true,
                ..UsageList::default()
            },
            positions: HashMap::new(),
        };
        for rule in unrouted.rules.iter() {
            builder.add_identities(rule);
        }
        builder
    }

    fn build(mut self, routes: &[&Route]) -> UsageList {
        // Limits that several policies may have come first.
        for is_of_policy in [false, true] {
            for route in routes {
                let rules = route.rules.iter();
                let rules = rules.filter(|rule| policy_of(rule, route).is_some() == is_of_policy);
                for rule in rules {
                    self.add_limit(rule, route);
                }
            }
        }
        for route in routes {
            let listed = route.access.identities();
            let proven: Vec<Identity> = listed.chain(route.require.iter().copied()).collect();
            for identity in proven {
                self.add_identity(identity);
            }
        }
        self.list
    }

    fn add_limit(&mut self, rule: &Arc<Rule>, route: &Route) {
        self.add_identities(rule);
        let mut identities = rule.key.identities().chain(rule.clients.identities());
        let is_shown = rule.disclose == Disclose::All
            && !rule.shadow
            && identities.all(|identity| self.is_in_heads(identity));
        if !is_shown {
            return;
        }
        if let Some(position) = self.positions.get(&rule.index) {
            let route_indexes = &mut self.list.limits[*position].route_indexes;
            if route_indexes.len() < ListedLimit::MAX_ROUTES {
                route_indexes.push(route.index);
            }
            return;
        }
        if self.list.limits.len() == UsageList::MAX_LIMITS {
            self.list.is_complete = false;
            return;
        }
        self.positions.insert(rule.index, self.list.limits.len());
        self.list.limits.push(ListedLimit {
            rule: rule.clone(),
            route_indexes: vec![route.index],
            route_name: policy_of(rule, route),
            holds_everywhere: (self.unrouted.rules.iter()).any(|other| other.index == rule.index),
        });
    }

    fn add_identities(&mut self, rule: &Rule) {
        for identity in rule.key.identities().chain(rule.clients.identities()) {
            self.add_identity(identity);
        }
        if rule.plans {
            self.add_identity(Identity::Plan);
        }
    }

    fn add_identity(&mut self, identity: Identity) {
        if self.is_in_heads(identity) {
            self.list.identities.insert(identity);
        }
    }

    /// Whether a request to any path has the identity in its head, if it has it at all.
    fn is_in_heads(&self, identity: Identity) -> bool {
        !self.identity.is_in_body(identity) && !self.identity.is_in_path(identity)
    }
}

/// The policy of `route`, if the limit is its own; `None` if several policies may have the limit.
fn policy_of(rule: &Rule, route: &Route) -> Option<Arc<str>> {
    let policy = rule
        .limit_scope()
        .strip_suffix(rule.name.as_str())?
        .strip_suffix('/')?;
    (*policy == *route.name).then(|| route.name.clone())
}
