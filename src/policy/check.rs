//! Checks whether the parts of the configuration fit together, over all files. The checks read only the model: nothing
//! on the disk or the network.
//!
//! | file | what it checks |
//! |---|---|
//! | this one | addresses, plans, upstreams, hosts, required identities, unused parts |
//! | `limit`, `concurrent` | the fields of one limit; of a limit on open requests |
//! | `identity` | identities that limits and routes use |
//! | `limit_uses` | limits that policies and folders define, share and switch off |
//! | `routes` | listeners that policies name, and conflicts of routes |
//! | `sharing` | what gateways share by a store |
//! | `tls` | certificates of listeners |

use std::collections::{HashMap, HashSet};

use super::context::LoadContext;
use super::decode::{GatewayConfig, LimitConfig, LimitUse, PolicyConfig};
use super::settings::Endpoints;
use super::tree::{Located, SourceLocation};
use crate::base::suggest::{list_words, nearest_word};
use crate::limit::Identity;
use crate::net::Address;
use crate::route::pattern::Segment;
use crate::route::{Pattern, RouteTable};
use crate::upstream::BalanceMethod;

mod concurrent;
mod identity;
mod limit;
mod sharing;
mod tls;

use identity::{check_custom_sources, check_identity, check_path_part};
use limit::check_limit;

/// Maximum number of policies with the same host and path. They can differ in their methods only.
const MAX_POLICIES_PER_PATH: usize = 64;
/// Maximum number of matches of a policy, times that of its hosts.
const MAX_PATTERNS_PER_POLICY: usize = 64;
/// Maximum number of limits of a route, which bounds the work for each request.
const MAX_LIMITS_PER_ROUTE: usize = 32;
/// Maximum number of names that a help text lists.
const MAX_LISTED_NAMES: usize = 20;
/// Maximum number of servers with which one server is compared, so that checking many servers stays fast.
const MAX_COMPARED_SERVERS: usize = 256;

/// Reports everything that does not fit together.
pub fn check(cx: &mut LoadContext, gateway: &GatewayConfig, policies: &[PolicyConfig]) {
    check_addresses(cx, gateway);
    tls::check_tls(cx, gateway);
    sharing::check_push_labels(cx, gateway);
    check_plans(cx, gateway);
    check_custom_sources(cx, gateway, policies);
    for limit in &gateway.limits {
        check_limit(cx, gateway, limit);
    }
    for policy in policies {
        check_policy(cx, gateway, policy);
    }
    check_conflicts(cx, policies);
    check_upstreams(cx, gateway);
    check_upstream_uses(cx, gateway, policies);
    // Unused parts are reported only if there is no mistake, which may be the reason why they seem unused.
    if !cx.has_errors() {
        warn_of_unused_upstreams(cx, gateway, policies);
        warn_of_unlisted_limits(cx, gateway, policies);
    }
}

/// Checks that each address is bound once, and that an admin listener without a token is on a loopback address.
fn check_addresses(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let admin = gateway.admin.as_ref();
    let mut address_check = AddressCheck {
        is_default_admin: admin.is_some_and(|admin| admin.address.is_none()),
        earlier_locations: HashMap::new(),
    };
    let listeners = gateway.listen.iter();
    for address in listeners.filter_map(|listener| listener.address.as_ref()) {
        address_check.add(cx, &address.value, address.location);
    }
    if let Some(probes) = admin.and_then(|admin| admin.probes) {
        address_check.add(cx, &probes.value.into(), probes.location);
    }
    let has_token = admin.is_some_and(|admin| admin.token_file.is_some());
    if let Some(admin) = admin.and_then(|admin| admin.address) {
        address_check.add(cx, &admin.value.into(), admin.location);
        if !admin.value.ip().to_canonical().is_loopback() && !has_token {
            let message = format!(
                "`{}` is not loopback: whoever reaches it could run the gateway",
                admin.value
            );
            let help = format!(
                "write `127.0.0.1:{0}`, or `{{ address: {1}, token_file: admin.token }}`",
                admin.value.port(),
                admin.value
            );
            cx.error(admin.location, message, Some(help));
        }
    }
}

/// Finds addresses that are bound twice.
struct AddressCheck {
    /// Whether the admin listener binds its default address, which no file names.
    is_default_admin: bool,
    /// The location of each address; the last one if the address is bound several times.
    earlier_locations: HashMap<Address, SourceLocation>,
}

impl AddressCheck {
    /// Adds an address, and reports it if it was added before.
    fn add(&mut self, cx: &mut LoadContext, address: &Address, location: SourceLocation) {
        let message = format!("`{address}` is listened on twice");
        if self.is_default_admin && *address == Address::Tcp(Endpoints::DEFAULT_ADMIN) {
            let help = "it is the default of `admin`; choose another port, or write another one as `admin: { address: … }`";
            cx.error(location, message.clone(), Some(help.into()));
        }
        let earlier_location = self.earlier_locations.insert(address.clone(), location);
        // Port 0 stands for a free port, another one each time.
        let is_any_port = address.tcp().is_some_and(|address| address.port() == 0);
        if let Some(first) = earlier_location.filter(|_| !is_any_port) {
            let kind = if address.tcp().is_some() {
                "port"
            } else {
                "path"
            };
            let help = format!("it is taken on line {}; choose another {kind}", first.line);
            cx.error(location, message, Some(help));
        }
    }
}

/// Checks the servers of each upstream, and the identities by which a server is chosen.
fn check_upstreams(cx: &mut LoadContext, gateway: &GatewayConfig) {
    for upstream in &gateway.upstreams {
        for (index, server) in upstream.servers.iter().enumerate() {
            if upstream.servers[..index.min(MAX_COMPARED_SERVERS)]
                .iter()
                .any(|other| other.value.is_same_server(&server.value))
            {
                let message = format!("upstream `{}` has this server twice", upstream.name.value);
                cx.warn(server.location, message, Some("remove one of them".into()));
            }
        }
        if let Some(Located {
            value: BalanceMethod::Hash(identities),
            location,
        }) = &upstream.balance
        {
            for &value in identities {
                let location = *location;
                check_identity(cx, gateway, &Located { value, location });
            }
        }
    }
}

/// Checks that the upstream of each policy exists.
fn check_upstream_uses(cx: &mut LoadContext, gateway: &GatewayConfig, policies: &[PolicyConfig]) {
    let defined_names: HashSet<&str> = gateway
        .upstreams
        .iter()
        .map(|upstream| upstream.name.value.as_str())
        .collect();
    // A gateway file without upstreams is a mistake of its own.
    if defined_names.is_empty() {
        return;
    }
    for upstream in policies
        .iter()
        .filter_map(|policy| policy.upstream.as_ref())
    {
        if defined_names.contains(upstream.value.as_str()) {
            continue;
        }
        let names = gateway.upstreams.iter().map(|up| up.name.value.as_str());
        let help = match nearest_word(&upstream.value, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!(
                "the gateway file has {}",
                list_words(names.take(MAX_LISTED_NAMES))
            ),
        };
        let message = format!("there is no upstream `{}`", upstream.value);
        cx.error(upstream.location, message, Some(help));
    }
}

fn warn_of_unused_upstreams(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
) {
    let used: HashSet<&str> = policies
        .iter()
        .filter_map(|policy| policy.upstream.as_ref())
        .map(|upstream| upstream.value.as_str())
        .collect();
    for upstream in &gateway.upstreams {
        if !used.contains(upstream.name.value.as_str()) {
            let message = format!("no policy uses the upstream `{}`", upstream.name.value);
            cx.warn(upstream.name.location, message, None);
        }
    }
}

/// Checks how the plan of a request is found, and that the default plan exists.
fn check_plans(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let identity = &gateway.identity;
    let Some(source) = &identity.plan else { return };
    if let Some(default) = &source.value.default {
        if !gateway
            .plans
            .iter()
            .any(|plan| plan.name.value == default.value)
        {
            let names = gateway.plans.iter().map(|plan| plan.name.value.as_str());
            cx.report_unknown_plan(default.location, &default.value, names);
        }
    } else if gateway.plans.is_empty() {
        let message = "`plan` says how a plan is known, but there are no plans";
        let help = "add for instance `plans: { free: { multiply: 1 } }`";
        cx.error(source.location, message, Some(help.into()));
    }
    if let Some(claim) = &source.value.jwt {
        if !identity.has_user(|user| user.jwt.is_some()) {
            let message = "a plan in a token's claim needs a user that is proven by a token";
            let help = "add for instance `user: { jwt: sub, jwks: jwks.json }`";
            cx.error(claim.location, message, Some(help.into()));
        }
    } else if let Some(api_keys) = source.value.api_keys
        && !identity.has_user(|user| user.api_keys.is_some())
    {
        let message = "a plan in the file of API keys needs `user: { api_keys: FILE }`";
        let help = "add for instance `user: { api_keys: keys.yaml }`";
        cx.error(api_keys.location, message, Some(help.into()));
    }
}

/// Checks that the route has the parts of the path by which one of its own limits counts or chooses its clients.
fn check_path_parts(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
    limit: &LimitConfig,
) {
    let key_identities = limit.key.iter().flat_map(|part| {
        let identities = part.value.identities().iter();
        identities.map(|value| (*value, part.location))
    });
    let conditions = limit.clients.conditions().into_iter();
    let condition_identities =
        conditions.map(|condition| (condition.value.identity, condition.location));
    for (value, location) in key_identities.chain(condition_identities) {
        check_path_part(cx, gateway, policy, &Located { value, location });
    }
}

/// Checks the identities and the limits of one policy.
fn check_policy(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    for require in &policy.require {
        if require.value == Identity::Plan {
            let help = "require `user`, `token`, `ip` or `email`";
            cx.error(
                require.location,
                "a plan cannot be required",
                Some(help.into()),
            );
        } else {
            check_identity(cx, gateway, require);
            check_path_part(cx, gateway, policy, require);
        }
    }
    for used in &policy.limits {
        match used {
            LimitUse::Own(limit) => {
                check_limit(cx, gateway, limit);
                check_path_parts(cx, gateway, policy, limit);
                check_unique_name(cx, gateway, limit);
            }
            LimitUse::Shared(name) => check_shared_limit(cx, gateway, name),
            LimitUse::Off(name) => {
                check_shared_limit(cx, gateway, name);
                check_off(cx, gateway, name);
            }
        }
    }
    check_repeated_uses(cx, policy);
    for (index, host) in policy.hosts.iter().enumerate() {
        if policy.hosts[..index]
            .iter()
            .any(|other| other.value == host.value)
        {
            let message = format!("the host `{}` is here twice", host.value);
            cx.error(host.location, message, Some("remove one of them".into()));
        }
    }
    let patterns = policy.patterns_with_hosts();
    if let Some(pattern) = patterns.get(MAX_PATTERNS_PER_POLICY) {
        let message =
            format!("a policy has at most {MAX_PATTERNS_PER_POLICY} pairs of a match and a host");
        let help = "write several policies, or a broader match";
        cx.error(pattern.location, message, Some(help.into()));
    }
    check_limit_count(cx, gateway, policy);
}

/// Reports limits of the gateway file that a policy lists twice.
fn check_repeated_uses(cx: &mut LoadContext, policy: &PolicyConfig) {
    let mut earlier_locations: HashMap<&str, SourceLocation> = HashMap::new();
    for used in &policy.limits {
        if let LimitUse::Shared(name) = used
            && let Some(first) = earlier_locations.insert(&name.value, name.location)
        {
            let help = format!("it is already on line {}; remove one of them", first.line);
            let message = format!("`{}` is listed twice", name.value);
            cx.error(name.location, message, Some(help));
        }
    }
}

/// Checks that the route of a policy has at most [`MAX_LIMITS_PER_ROUTE`] limits.
fn check_limit_count(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    // Rates by plan make a rule for each plan.
    let rule_count = |limit: &LimitConfig| limit.rates.by_plan.len().max(1);
    let of_gateway = gateway
        .limits
        .iter()
        .filter(|limit| policy.has_gateway_limit(limit));
    let own = policy.limits.iter().filter_map(|used| match used {
        LimitUse::Own(limit) => Some(&**limit),
        LimitUse::Shared(_) | LimitUse::Off(_) => None,
    });
    let count: usize = of_gateway.chain(own).map(rule_count).sum();
    if let Some(last) = policy
        .limits
        .last()
        .filter(|_| count > MAX_LIMITS_PER_ROUTE)
    {
        let location = match last {
            LimitUse::Own(limit) => limit.name.location,
            LimitUse::Shared(name) | LimitUse::Off(name) => name.location,
        };
        let message = format!(
            "a route has at most {MAX_LIMITS_PER_ROUTE} limits; those of the gateway file and each plan with rates of its own count"
        );
        cx.error(
            location,
            message,
            Some("join limits of the same key into one with several rates".into()),
        );
    }
}

/// Checks that a limit of a policy does not have the name of a limit of the gateway file.
fn check_unique_name(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let name = &limit.name;
    if let Some(other) = gateway
        .limits
        .iter()
        .find(|other| other.name.value == name.value)
    {
        let message = format!(
            "the limit `{}` is already defined at {}",
            name.value,
            cx.sources.origin(other.name.location)
        );
        let help = format!(
            "choose another name, or write `{0}: ~` to share that one, or `{0}: off` to switch it off here",
            name.value
        );
        cx.error(name.location, message, Some(help));
    }
}

/// Checks that the gateway file has a limit that a policy lists.
fn check_shared_limit(cx: &mut LoadContext, gateway: &GatewayConfig, name: &Located<String>) {
    if gateway
        .limits
        .iter()
        .any(|limit| limit.name.value.as_str() == name.value)
    {
        return;
    }
    let names = gateway.limits.iter().map(|limit| limit.name.value.as_str());
    let help = match nearest_word(&name.value, names.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if gateway.limits.is_empty() => {
            "write the limit here: `{ key: ip, rate: 10/s }`".into()
        }
        None => format!(
            "the gateway file has {}",
            list_words(names.take(MAX_LISTED_NAMES))
        ),
    };
    cx.error(
        name.location,
        format!("the gateway file has no limit `{}`", name.value),
        Some(help),
    );
}

/// Checks that a limit which a policy switches off would hold otherwise.
fn check_off(cx: &mut LoadContext, gateway: &GatewayConfig, name: &Located<String>) {
    let mut limits = gateway.limits.iter();
    let limit = limits.find(|limit| limit.name.value.as_str() == name.value);
    if limit.is_some_and(|limit| limit.routes.is_only_listed()) {
        let message = format!("`{}` holds only on routes that list it", name.value);
        cx.error(name.location, message, Some("remove it here".into()));
    }
}

/// Warns of limits that hold only on routes that list them, if no route does.
fn warn_of_unlisted_limits(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
) {
    for limit in gateway
        .limits
        .iter()
        .filter(|limit| limit.routes.is_only_listed())
    {
        let name = limit.name.value.as_str();
        let is_listed =
            |used: &LimitUse| matches!(used, LimitUse::Shared(listed) if listed.value == name);
        if !policies
            .iter()
            .any(|policy| policy.limits.iter().any(is_listed))
        {
            let message = format!("no policy lists the limit `{name}`: it applies nowhere");
            cx.warn(
                limit.name.location,
                message,
                Some(format!("write `limits: [{name}]` in a policy")),
            );
        }
    }
}

/// Reports routes that match the same requests.
fn check_conflicts(cx: &mut LoadContext, policies: &[PolicyConfig]) {
    let mut policies_per_path: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::new();
    let patterns_of = |policy: &PolicyConfig| {
        let patterns = policy.patterns_with_hosts().into_iter();
        patterns.take(MAX_PATTERNS_PER_POLICY)
    };
    for Located { value, location } in policies.iter().flat_map(patterns_of) {
        // Each pair of conflicting routes is reported, so many equal routes would have too many pairs.
        let count = policies_per_path.entry(host_and_path(&value)).or_default();
        *count += 1;
        if *count > MAX_POLICIES_PER_PATH {
            let message = format!("more than {MAX_POLICIES_PER_PATH} policies take this path");
            cx.error(location, message, Some("join them".into()));
        } else {
            routes.push(Located { value, location });
        }
    }
    let Err(conflicts) = RouteTable::build(routes.iter().map(|at| &at.value)) else {
        return;
    };
    for conflict in conflicts {
        let (Some(first), Some(second)) = (
            routes.get(conflict.first_index),
            routes.get(conflict.second_index),
        ) else {
            continue;
        };
        let message = format!(
            "`{}` takes the same requests as `{}` at {}",
            second.value,
            first.value,
            cx.sources.origin(first.location)
        );
        let help = match first.location.file == second.location.file {
            true => "remove one of them, or make it more specific",
            false => "make one of them more specific, or join the two policies",
        };
        cx.error(second.location, message, Some(help.into()));
    }
}

/// The host and the path of a pattern, without the names of its segments.
fn host_and_path(pattern: &Pattern) -> String {
    let segments = pattern.segments().iter().map(|segment| match segment {
        Segment::Literal(text) => text,
        Segment::One(_) => "*",
        Segment::Rest => "**",
    });
    segments.fold(pattern.host().to_string(), |path, segment| {
        path + "/" + segment
    })
}
