//! Checks whether the parts of the configuration fit together, over all files.

use std::collections::HashMap;

use super::collect::Cx;
use super::model::{
    AdminConfig, GatewayConfig, LimitConfig, LimitUse, Located, PlanFrom, PolicyConfig, UserConfig,
};
use super::settings::Endpoints;
use super::tree::SourcePlace;
use crate::base::suggest::{listed, nearest};
use crate::limit::Identity;
use crate::net::Address;
use crate::route::pattern::Segment;
use crate::route::{Pattern, RouteTable};
use crate::upstream::Balance;

mod identity;
mod limit;
mod sharing;
mod tls;

use identity::check_identity;
use limit::check_limit;

/// Most policies of one host and path, which differ in their methods.
const MAX_ALIKE: usize = 64;
/// Most limits of one route.
const MAX_PER_ROUTE: usize = 32;

/// Reports everything that does not fit together.
pub fn check(cx: &mut Cx, gateway: &GatewayConfig, policies: &[PolicyConfig]) {
    check_sockets(cx, gateway);
    tls::check(cx, gateway);
    sharing::check_labels(cx, gateway);
    check_plans(cx, gateway);
    for limit in &gateway.limits {
        check_limit(cx, gateway, limit);
    }
    for policy in policies {
        check_policy(cx, gateway, policy);
    }
    check_conflicts(cx, policies);
    // Last: what is unused is reported only if there is no mistake.
    check_upstreams(cx, gateway, policies);
    warn_unlisted(cx, gateway, policies);
}

fn check_sockets(cx: &mut Cx, gateway: &GatewayConfig) {
    let mut seen: HashMap<Address, SourcePlace> = HashMap::new();
    let by_default = matches!(gateway.admin, AdminConfig::On { address: None, .. });
    let mut take = |cx: &mut Cx, address: &Address, place: SourcePlace| {
        if by_default && *address == Address::Tcp(Endpoints::ADMIN) {
            let message = format!("`{address}` is listened on twice");
            let help = "it is the default of `admin`; choose another port, or write another one as `admin: { address: … }`";
            cx.error(place, message, Some(help.into()));
        }
        // Port 0 is a fresh port each time.
        let fresh = address.tcp().is_some_and(|address| address.port() == 0);
        match seen.insert(address.clone(), place) {
            Some(first) if !fresh => {
                let what = if address.tcp().is_some() {
                    "port"
                } else {
                    "path"
                };
                let help = format!("it is taken on line {}; choose another {what}", first.line);
                cx.error(
                    place,
                    format!("`{address}` is listened on twice"),
                    Some(help),
                );
            }
            _ => {}
        }
    };
    for listener in &gateway.listen {
        take(cx, &listener.value.address, listener.place);
    }
    if let AdminConfig::On {
        probes: Some(probes),
        ..
    } = &gateway.admin
    {
        take(cx, &probes.value.into(), probes.place);
    }
    if let AdminConfig::On {
        address: Some(address),
        token_file,
        ..
    } = &gateway.admin
    {
        take(cx, &address.value.into(), address.place);
        if !address.value.ip().to_canonical().is_loopback() && token_file.is_none() {
            let message = format!(
                "`{}` is not loopback: whoever reaches it could run the gateway",
                address.value
            );
            let help = format!(
                "write `127.0.0.1:{0}`, or `{{ address: {1}, token_file: admin.token }}`",
                address.value.port(),
                address.value
            );
            cx.error(address.place, message, Some(help));
        }
    }
}

fn check_upstreams(cx: &mut Cx, gateway: &GatewayConfig, policies: &[PolicyConfig]) {
    for upstream in &gateway.upstreams {
        for (index, server) in upstream.servers.iter().enumerate() {
            if upstream.servers[..index.min(256)]
                .iter()
                .any(|other| other.value.is_same_server(&server.value))
            {
                let message = format!("upstream `{}` has this server twice", upstream.name.value);
                cx.warn(server.place, message, Some("remove one of them".into()));
            }
        }
        if let Some(Located {
            value: Balance::Hash(identities),
            place,
        }) = &upstream.balance
        {
            for &value in identities {
                let place = *place;
                check_identity(cx, gateway, &Located { value, place });
            }
        }
    }
    let known: HashMap<&str, SourcePlace> = gateway
        .upstreams
        .iter()
        .map(|up| (up.name.value.as_str(), up.name.place))
        .collect();
    let mut used: HashMap<&str, ()> = HashMap::new();
    for policy in policies {
        let Some(upstream) = &policy.upstream else {
            continue;
        };
        used.insert(&upstream.value, ());
        if known.contains_key(upstream.value.as_str()) || known.is_empty() {
            continue;
        }
        let names = gateway.upstreams.iter().map(|up| up.name.value.as_str());
        let help = match nearest(&upstream.value, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the gateway file has {}", listed(names.take(20))),
        };
        cx.error(
            upstream.place,
            format!("there is no upstream `{}`", upstream.value),
            Some(help),
        );
    }
    if cx.failed() {
        return;
    }
    for upstream in &gateway.upstreams {
        if !used.contains_key(upstream.name.value.as_str()) {
            let message = format!("no policy uses the upstream `{}`", upstream.name.value);
            cx.warn(upstream.name.place, message, None);
        }
    }
}

fn check_plans(cx: &mut Cx, gateway: &GatewayConfig) {
    let identity = &gateway.identity;
    let Some(source) = &identity.plan else { return };
    if let Some(default) = &source.value.default {
        if !gateway
            .plans
            .iter()
            .any(|plan| plan.value.name == default.value)
        {
            let names = gateway.plans.iter().map(|plan| plan.value.name.as_str());
            let help = match nearest(&default.value, names.clone()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if gateway.plans.is_empty() => {
                    format!(
                        "add for instance `plans: {{ {}: {{ multiply: 1 }} }}`",
                        default.value
                    )
                }
                None => format!("the plans are {}", listed(names)),
            };
            let message = format!("there is no plan `{}`", default.value);
            cx.error(default.place, message, Some(help));
        }
    } else if gateway.plans.is_empty() {
        let message = "`plan` says how a plan is known, but there are no plans";
        let help = "add for instance `plans: { free: { multiply: 1 } }`";
        cx.error(source.place, message, Some(help.into()));
    }
    let user = identity.user.as_ref().map(|user| &user.value);
    match &source.value.from {
        Some(PlanFrom::Claim(claim)) if !matches!(user, Some(UserConfig::Jwt { .. })) => {
            let message = "a plan in a token's claim needs a user that is proven by a token";
            let help = "add for instance `user: { jwt: sub, jwks: jwks.json }`";
            cx.error(claim.place, message, Some(help.into()));
        }
        Some(PlanFrom::ApiKeys(place)) if !matches!(user, Some(UserConfig::ApiKeys(_))) => {
            let message = "a plan in the file of API keys needs `user: { api_keys: FILE }`";
            cx.error(
                *place,
                message,
                Some("add for instance `user: { api_keys: keys.yaml }`".into()),
            );
        }
        _ => {}
    }
}

fn check_policy(cx: &mut Cx, gateway: &GatewayConfig, policy: &PolicyConfig) {
    for require in &policy.require {
        if require.value == Identity::Plan {
            let help = "require `user`, `token`, `ip` or `email`";
            cx.error(
                require.place,
                "a plan cannot be required",
                Some(help.into()),
            );
        } else {
            check_identity(cx, gateway, require);
        }
    }
    let mut listed_here: HashMap<&str, SourcePlace> = HashMap::new();
    for used in &policy.limits {
        match used {
            LimitUse::Own(limit) => {
                check_limit(cx, gateway, limit);
                check_unique_name(cx, gateway, limit);
            }
            LimitUse::Shared(name) => {
                if let Some(first) = listed_here.insert(&name.value, name.place) {
                    let help = format!("it is already on line {}; remove one of them", first.line);
                    cx.error(
                        name.place,
                        format!("`{}` is listed twice", name.value),
                        Some(help),
                    );
                }
                check_shared_limit(cx, gateway, name);
            }
        }
    }
    let everywhere = gateway
        .limits
        .iter()
        .filter(|limit| !limit.routes.is_only_listed())
        .count();
    if let Some(last) = policy
        .limits
        .last()
        .filter(|_| everywhere + policy.limits.len() > MAX_PER_ROUTE)
    {
        let place = match last {
            LimitUse::Own(limit) => limit.name.place,
            LimitUse::Shared(name) => name.place,
        };
        let message = format!(
            "a route has at most {MAX_PER_ROUTE} limits, those of the gateway file included"
        );
        cx.error(
            place,
            message,
            Some("join limits of the same key into one with several rates".into()),
        );
    }
}

/// A policy's own limit must not be called as one of the gateway file.
fn check_unique_name(cx: &mut Cx, gateway: &GatewayConfig, limit: &LimitConfig) {
    let name = &limit.name;
    if let Some(other) = gateway
        .limits
        .iter()
        .find(|other| other.name.value == name.value)
    {
        let message = format!(
            "the limit `{}` is already defined at {}",
            name.value,
            cx.sources.origin(other.name.place)
        );
        let help = format!(
            "choose another name, or write `{}: ~` to share that one",
            name.value
        );
        cx.error(name.place, message, Some(help));
    }
}

fn check_shared_limit(cx: &mut Cx, gateway: &GatewayConfig, name: &Located<String>) {
    if gateway
        .limits
        .iter()
        .any(|limit| limit.name.value.as_str() == name.value)
    {
        return;
    }
    let names = gateway.limits.iter().map(|limit| limit.name.value.as_str());
    let help = match nearest(&name.value, names.clone()) {
        Some(known) => format!("did you mean `{known}`?"),
        None if gateway.limits.is_empty() => {
            "write the limit here: `{ key: ip, rate: 10/s }`".into()
        }
        None => format!("the gateway file has {}", listed(names.take(20))),
    };
    cx.error(
        name.place,
        format!("the gateway file has no limit `{}`", name.value),
        Some(help),
    );
}

/// Limits that are only for routes that list them, and no route does.
fn warn_unlisted(cx: &mut Cx, gateway: &GatewayConfig, policies: &[PolicyConfig]) {
    if cx.failed() {
        return;
    }
    for limit in gateway
        .limits
        .iter()
        .filter(|limit| limit.routes.is_only_listed())
    {
        let name = limit.name.value.as_str();
        let lists = |used: &LimitUse| matches!(used, LimitUse::Shared(at) if at.value == name);
        if !policies
            .iter()
            .any(|policy| policy.limits.iter().any(lists))
        {
            let message = format!("no policy lists the limit `{name}`: it applies nowhere");
            cx.warn(
                limit.name.place,
                message,
                Some(format!("write `limits: [{name}]` in a policy")),
            );
        }
    }
}

/// Routes that take the same requests.
fn check_conflicts(cx: &mut Cx, policies: &[PolicyConfig]) {
    let mut alike: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::new();
    for policy in policies {
        let (Some(pattern), Some(at)) = (policy.pattern_with_host(), &policy.pattern) else {
            continue;
        };
        // Each pair of routes in conflict is told, and of n alike there are n * n pairs.
        let many = alike.entry(path_of(&pattern)).or_default();
        *many += 1;
        if *many > MAX_ALIKE {
            let message = format!("more than {MAX_ALIKE} policies take this path");
            cx.error(at.place, message, Some("join them".into()));
        } else {
            routes.push((policy, pattern));
        }
    }
    let Err(conflicts) = RouteTable::build(routes.iter().map(|(_, pattern)| pattern)) else {
        return;
    };
    for conflict in conflicts {
        let (Some((first, _)), Some((second, _))) =
            (routes.get(conflict.first), routes.get(conflict.second))
        else {
            continue;
        };
        let (Some(one), Some(other)) = (&first.pattern, &second.pattern) else {
            continue;
        };
        let message = format!(
            "`{}` takes the same requests as `{}` at {}",
            other.value,
            one.value,
            cx.sources.origin(one.place)
        );
        let help = "make one of them more specific, or join the two policies";
        cx.error(other.place, message, Some(help.into()));
    }
}

/// Host and path without the names of segments.
fn path_of(pattern: &Pattern) -> String {
    let segments = pattern.segments().iter().map(|segment| match segment {
        Segment::Literal(text) => text,
        Segment::One(_) => "*",
        Segment::Rest => "**",
    });
    segments.fold(pattern.host().to_string(), |path, segment| {
        path + "/" + segment
    })
}
