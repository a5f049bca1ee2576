//! Checks whether the parts of the configuration fit together, over all files. The checks read only the model: nothing
//! on the disk or the network.
//!
//! | file | what it checks |
//! |---|---|
//! | this one | addresses, plans, upstreams, hosts, required identities, unused parts |
//! | `limit`, `candidate`, `concurrent` | the fields of one limit; its candidate rates; of a limit on open requests |
//! | `credits` | whether the store keeps the counts of credits |
//! | `descriptor` | policies of descriptors |
//! | `forwarding` | what policies change of requests and responses |
//! | `identity` | identities that limits and routes use |
//! | `limit_uses` | limits that policies and folders define, share and switch off |
//! | `logged_fields` | the names in `fields` of the access log |
//! | `quota` | the fields of a limit by the calendar |
//! | `redirect` | redirects to HTTPS and of subtrees |
//! | `routes` | listeners that policies name, conflicts of routes, and the path of `usage` |
//! | `sharing` | what gateways share by a store |
//! | `tls` | certificates of listeners |

use std::collections::{BTreeSet, HashMap, HashSet};

use super::context::LoadContext;
use super::decode::{
    ClientListConfig, DefaultsConfig, GatewayConfig, LimitConfig, LimitUse, NetworksItem,
    PolicyConfig, PolicyFiles, RequiredIdentity, UserConfig, find_user_sources, requirable_sources,
};
use super::settings::Endpoints;
use super::shared_limits::SharedLimits;
use super::tree::{Located, SourceLocation};
use crate::base::suggest::{list_words, nearest_word};
use crate::limit::Identity;
use crate::net::Address;
use crate::upstream::BalanceMethod;

mod candidate;
mod concurrent;
mod credits;
mod descriptor;
mod forwarding;
mod identity;
mod limit;
mod limit_uses;
mod logged_fields;
mod quota;
mod redirect;
mod routes;
mod sharing;
mod tls;

use candidate::check_limit_with_candidate;
use descriptor::{check_descriptor_conflicts, check_descriptor_policy};
use forwarding::{check_changed_fields, check_changes};
use identity::{
    check_condition, check_condition_on_path, check_custom_sources, check_identity,
    check_path_part, check_request_id_field,
};
pub(super) use identity::{check_issuer_of_name, check_value_of_path_part};
pub(super) use limit::check_override;
pub use limit_uses::MAX_LIMITS_PER_ROUTE;
use limit_uses::{check_limit_count, check_limit_uses, warn_of_unlisted_limits};
use logged_fields::check_logged_fields;
use redirect::{
    check_is_reached, check_listener_redirects, check_redirect, check_stripped_redirect,
};
pub use routes::MAX_PATTERNS_PER_POLICY;
use routes::{MAX_LISTED_NAMES, check_conflicts, check_listeners, check_usage_path};

/// Each server is compared with at most this many servers of its upstream, the first ones, so that checks stay fast.
const MAX_COMPARED_SERVERS: usize = 256;

/// Reports everything that does not fit together.
pub fn check(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    PolicyFiles { policies, defaults }: &PolicyFiles,
    shared: &SharedLimits<'_>,
) {
    check_addresses(cx, gateway);
    tls::check_tls(cx, gateway);
    check_listener_redirects(cx, gateway);
    sharing::check_push_labels(cx, gateway);
    check_plans(cx, gateway);
    check_custom_sources(cx, gateway, policies);
    check_client_lists(cx, gateway, [&gateway.deny, &gateway.allow]);
    check_request_id_field(cx, gateway);
    check_logged_fields(cx, gateway);
    for limit in &gateway.limits {
        check_limit_with_candidate(cx, gateway, limit);
    }
    for defaults in defaults {
        check_client_lists(cx, gateway, [&defaults.deny, &defaults.allow]);
        check_required(cx, gateway, &defaults.require);
        check_changed_fields(cx, gateway, [&defaults.request, &defaults.response]);
        check_limit_uses(cx, gateway, shared, &defaults.name.value, &defaults.limits);
    }
    for policy in policies {
        match policy.descriptor_pattern() {
            Some(pattern) => check_descriptor_policy(cx, gateway, shared, policy, &pattern),
            None if policy.domain.is_some() => {}
            None => check_policy(cx, gateway, shared, policy),
        }
    }
    check_descriptor_conflicts(cx, policies);
    let listen_of_defaults = defaults.iter().map(|defaults| &defaults.listen);
    let listen = listen_of_defaults.chain(policies.iter().map(|policy| &policy.listen));
    // The search for conflicts reads all routes once for each name, so names that no listener has would slow it.
    if check_listeners(cx, gateway, listen) {
        check_conflicts(cx, policies);
    }
    check_usage_path(cx, gateway, policies);
    check_upstreams(cx, gateway);
    let upstreams_of_defaults = defaults.iter().map(|defaults| &defaults.upstream);
    let upstreams = upstreams_of_defaults.chain(policies.iter().map(|policy| &policy.upstream));
    check_upstream_uses(cx, gateway, upstreams.flatten());
    // Unused parts are reported only without mistakes, because a mistake may be the reason why a part seems unused.
    if !cx.has_errors() {
        descriptor::warn_of_unasked_policies(cx, gateway, policies);
        descriptor::warn_of_client_lists(cx, gateway, policies, defaults);
        warn_of_unused_upstreams(cx, gateway, policies);
        warn_of_unlisted_limits(cx, gateway, shared, policies);
        warn_of_unused_defaults(cx, policies, defaults);
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
        address_check.add_address(cx, &address.value, address.location);
    }
    for (address, _) in gateway.decide.addresses() {
        address_check.add_address(cx, &address.value, address.location);
    }
    if let Some(http) = &gateway.decide.http
        && (gateway.identity.users.iter()).any(|user| user.value.header.is_some())
    {
        let message = "proxies that ask pass on what clients send, so that clients choose the user of `header`";
        let help = "let these proxies remove the field of clients, or set it themselves";
        cx.warn(http.location, message, Some(help.into()));
    }
    if let Some(http) = &gateway.decide.http
        && gateway.identity.ip.trusted_proxies.is_empty()
    {
        let message = "only proxies in `trusted_proxies` may ask, and there are none";
        let help = "add for instance `identity: { ip: { trusted_proxies: [127.0.0.1] } }`";
        cx.error(http.location, message, Some(help.into()));
    }
    if let Some(probes) = admin.and_then(|admin| admin.probes) {
        address_check.add_address(cx, &probes.value.into(), probes.location);
    }
    let has_token = admin.is_some_and(|admin| admin.token_file.is_some() || admin.tokens.is_some());
    if let Some(admin) = admin.and_then(|admin| admin.address) {
        address_check.add_address(cx, &admin.value.into(), admin.location);
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
    fn add_address(&mut self, cx: &mut LoadContext, address: &Address, location: SourceLocation) {
        let message = format!("`{address}` is listened on twice");
        if self.is_default_admin && *address == Address::Tcp(Endpoints::DEFAULT_ADMIN) {
            let help = "it is the default of `admin`; choose another port, or write another one as `admin: { address: … }`";
            cx.error(location, message.clone(), Some(help.into()));
        }
        let earlier_location = self.earlier_locations.insert(address.clone(), location);
        // Port 0 stands for a free port, another one each time.
        let is_any_port = address.tcp().is_some_and(|address| address.port() == 0);
        if let Some(earlier) = earlier_location.filter(|_| !is_any_port) {
            let kind = if address.tcp().is_some() {
                "port"
            } else {
                "path"
            };
            let help = format!(
                "it is taken on line {}; choose another {kind}",
                earlier.line
            );
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

/// Checks that the gateway file has each upstream in `used`, the upstreams that policies and defaults name.
fn check_upstream_uses<'c>(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    used: impl Iterator<Item = &'c Located<String>>,
) {
    let defined_names: HashSet<&str> = gateway
        .upstreams
        .iter()
        .map(|upstream| upstream.name.value.as_str())
        .collect();
    // A gateway file that lacks upstreams is a mistake of its own.
    if defined_names.is_empty() && !gateway.is_served_by_others() {
        return;
    }
    for upstream in used {
        if defined_names.contains(upstream.value.as_str()) {
            continue;
        }
        let names = gateway
            .upstreams
            .iter()
            .map(|upstream| upstream.name.value.as_str());
        let help = match nearest_word(&upstream.value, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if defined_names.is_empty() => {
                "leave it out: without `listen`, proxies that ask serve the requests".into()
            }
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
    let used_names: HashSet<&str> = policies
        .iter()
        .filter_map(|policy| policy.upstream.as_ref())
        .map(|upstream| upstream.value.as_str())
        .collect();
    for upstream in &gateway.upstreams {
        if !used_names.contains(upstream.name.value.as_str()) {
            let message = format!("no policy uses the upstream `{}`", upstream.name.value);
            cx.warn(upstream.name.location, message, None);
        }
    }
}

/// Warns of defaults that no policy can inherit, because none is in their folder or below.
fn warn_of_unused_defaults(
    cx: &mut LoadContext,
    policies: &[PolicyConfig],
    defaults: &[DefaultsConfig],
) {
    let names: BTreeSet<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    for defaults in defaults {
        // Names are sorted, so those below the folder follow its own.
        let prefix = match defaults.name.value.as_str() {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let first = names.range(prefix.as_str()..).next();
        if !first.is_some_and(|name| name.starts_with(&prefix)) {
            let message = "no policy is in this folder or below: these defaults hold nowhere";
            let help = "put the policies into this folder, or remove the file";
            cx.warn(defaults.name.location, message, Some(help.into()));
        }
    }
}

/// Checks that there are plans, that the default plan exists, and that a user is proven by what the plan is read from:
/// a token or an API key.
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
        && !identity.has_user(UserConfig::has_api_keys)
    {
        let message = "a plan of API keys needs `user: { api_keys: FILE }`";
        let help = "add for instance `user: { api_keys: keys.yaml }`";
        cx.error(api_keys.location, message, Some(help.into()));
    }
}

/// Checks that the route has the parts of the path by which one of its own limits counts or chooses its clients. Checks also
/// the values that it chooses.
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
    for (value, location) in key_identities {
        check_path_part(cx, gateway, policy, &Located { value, location });
    }
    for condition in limit.clients.conditions() {
        check_condition_on_path(cx, gateway, policy, &condition);
    }
}

/// Checks the identities that a policy or a file of defaults requires.
fn check_required(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    required_identities: &[RequiredIdentity],
) {
    let mut has_sources = false;
    for RequiredIdentity { identity, sources } in required_identities {
        if identity.value == Identity::Plan {
            let help = "require `user`, `token`, `ip` or `email`";
            cx.error(
                identity.location,
                "a plan cannot be required",
                Some(help.into()),
            );
            continue;
        }
        check_identity(cx, gateway, identity);
        if !sources.is_empty() && std::mem::replace(&mut has_sources, true) {
            let message = "a user is verified by one source, and this list requires two";
            let help = "write them as one list if any will do: `{ user: [https://idp.example, api_keys] }`";
            cx.error(identity.location, message, Some(help.into()));
        }
        let users = &gateway.identity.users;
        let unknown_sources = sources.iter().filter(|source| {
            // An absent user is a mistake of its own.
            !users.is_empty() && find_user_sources(users, &source.value).is_none()
        });
        for source in unknown_sources {
            let message = format!("no source of `user` is `{}`", source.value);
            let names = requirable_sources(users);
            let help = match nearest_word(&source.value, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the gateway file has {}", list_words(names)),
            };
            cx.error(source.location, message, Some(help));
        }
    }
}

/// Checks the identities in `deny` and `allow`. Warns where `deny` names all addresses of one version of IP.
fn check_client_lists(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    lists @ [deny, _]: [&Option<ClientListConfig>; 2],
) {
    for condition in lists
        .into_iter()
        .flatten()
        .flat_map(|list| list.value.conditions())
    {
        check_condition(cx, gateway, &condition);
    }
    let denied_networks = deny.as_ref().and_then(|deny| deny.value.networks.as_ref());
    let Some(networks) = denied_networks else {
        return;
    };
    for item in &networks.value {
        if let NetworksItem::Network(network) = item
            && network.prefix_len() == 0
        {
            let message = format!("`{network}` denies every client with such an address");
            let help = "to serve some clients only, write them into `allow`";
            cx.warn(networks.location, message, Some(help.into()));
        }
    }
}

/// Checks the identities, lists, limits, hosts and matches of one policy.
fn check_policy(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    shared: &SharedLimits<'_>,
    policy: &PolicyConfig,
) {
    check_is_reached(cx, gateway, policy);
    check_redirect(cx, gateway, policy);
    check_stripped_redirect(cx, policy);
    check_required(cx, gateway, &policy.require);
    check_changes(cx, gateway, policy);
    for require in &policy.require {
        check_path_part(cx, gateway, policy, &require.identity);
    }
    for limit in policy.limits.iter().filter_map(LimitUse::own) {
        check_path_parts(cx, gateway, policy, limit);
    }
    let lists = [&policy.deny, &policy.allow];
    check_client_lists(cx, gateway, lists);
    for condition in lists
        .into_iter()
        .flatten()
        .flat_map(|list| list.value.conditions())
    {
        check_condition_on_path(cx, gateway, policy, &condition);
    }
    check_limit_uses(cx, gateway, shared, &policy.name, &policy.limits);
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
    check_limit_count(cx, shared, policy);
}
