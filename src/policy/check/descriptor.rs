//! Checks policies of descriptors: that no two match the same ones, and that their limits count by what descriptors have.

use super::super::context::LoadContext;
use super::super::decode::{
    DefaultsConfig, GatewayConfig, LimitConfig, LimitUse, PolicyConfig, ThrottleConfig,
};
use super::super::shared_limits::{SharedLimits, is_in_folder};
use super::super::tree::SourceLocation;
use super::limit_uses::{check_limit_count, check_limit_uses};
use crate::base::suggest::list_words;
use crate::identity::ADDRESS_KEYS;
use crate::limit::{Algorithm, CountMode, Identity};
use crate::route::{Conflict, DescriptorPattern, DescriptorTable};

/// Checks one policy of descriptors that match `pattern`.
pub(super) fn check_descriptor_policy(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    shared: &SharedLimits<'_>,
    policy: &PolicyConfig,
    pattern: &DescriptorPattern,
) {
    // A mistake may be the reason why no proxy can ask.
    if !cx.has_errors()
        && gateway.decide.grpc.is_none()
        && let Some(domain) = &policy.domain
    {
        let message = "no proxy can ask by descriptors, so this policy holds nowhere";
        let help = "add for instance `decide: { grpc: 127.0.0.1:8081 }` to the gateway file";
        cx.warn(domain.location, message, Some(help.into()));
    }
    cx.checks_descriptors = true;
    check_limit_uses(cx, gateway, shared, &policy.name, &policy.limits);
    for limit in policy.limits.iter().filter_map(LimitUse::own) {
        check_limit(cx, gateway, pattern, limit, limit.name.location);
    }
    for limit in shared.of_policy(policy) {
        let name = limit.limit.name.value.as_str();
        let mut uses = policy.limits.iter();
        let location = uses.find_map(|used| match used {
            LimitUse::Shared(listed) if listed.value == name => Some(listed.location),
            _ => None,
        });
        check_limit(
            cx,
            gateway,
            pattern,
            limit.limit,
            location.unwrap_or_default(),
        );
    }
    cx.checks_descriptors = false;
    check_limit_count(cx, shared, policy);
}

/// Checks a limit that counts descriptors. `location` is where the policy defines or lists it.
fn check_limit(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    pattern: &DescriptorPattern,
    limit: &LimitConfig,
    location: SourceLocation,
) {
    let key = limit.key.iter().flat_map(|part| part.value.identities());
    let conditions = limit.clients.conditions();
    let conditions = conditions.iter().map(|condition| &condition.value.identity);
    for identity in key.chain(conditions) {
        let has_default_plan =
            (gateway.identity.plan.as_ref()).is_some_and(|plan| plan.value.default.is_some());
        if *identity == Identity::Plan && !has_default_plan {
            let message = format!(
                "`{}` counts by `plan`, and entries may name plans that there are not",
                limit.name.value
            );
            let help = "give the entry another key, or add a default: `plan: { default: free }`";
            cx.error(location, message, Some(help.into()));
        }
        let is_entry = match identity {
            Identity::Ip => ADDRESS_KEYS.iter().any(|key| pattern.has_open_entry(key)),
            other => pattern.has_open_entry(other.as_str()),
        };
        if !is_entry {
            let open = pattern.entries().iter().map(|entry| &*entry.key);
            let open: Vec<&str> = open.filter(|key| pattern.has_open_entry(key)).collect();
            let message = format!(
                "`{}` counts by `{}`, which is no entry with several values here",
                limit.name.value,
                identity.as_str()
            );
            let help = match open.is_empty() {
                true => "write `key: everyone`: the policy is for one set of values".to_owned(),
                false => format!("the entries with several values are {}", list_words(open)),
            };
            cx.error(location, message, Some(help));
        }
    }
    let is_elastic = limit
        .throttle
        .is_some_and(|throttle| throttle.value == ThrottleConfig::Elastic);
    let is_leaky = limit
        .algorithm
        .is_some_and(|algorithm| matches!(algorithm.value, Algorithm::LeakyBucket { .. }));
    let counts_less = (limit.count.as_ref()).is_some_and(|count| count.value != CountMode::All);
    let unfit = [
        (
            limit.concurrent.is_some(),
            "`concurrent`",
            "when requests end is not known",
        ),
        (
            is_elastic,
            "`throttle: elastic`",
            "the servers are not known",
        ),
        (is_leaky, "`leaky-bucket`", "nothing is held back"),
        (
            counts_less,
            "`count`",
            "responses are not seen, and the proxy says how many units",
        ),
    ];
    for (_, field, reason) in unfit.into_iter().filter(|(is_written, ..)| *is_written) {
        let message = format!("{field} is not for descriptors: {reason}");
        let help = "write a `rate` or a `quota` that counts every descriptor";
        cx.error(location, message, Some(help.into()));
    }
}

/// Reports policies that match the same descriptors.
pub(super) fn check_descriptor_conflicts(cx: &mut LoadContext, policies: &[PolicyConfig]) {
    let patterns: Vec<_> = policies
        .iter()
        .filter_map(|policy| Some((policy.domain.as_ref()?, policy.descriptor_pattern()?)))
        .collect();
    let numbered = patterns.iter().map(|(_, pattern)| pattern).enumerate();
    let conflicts = DescriptorTable::build(numbered).err().unwrap_or_default();
    for Conflict {
        first_index,
        second_index,
    } in conflicts
    {
        let (Some((first, _)), Some((second, pattern))) =
            (patterns.get(first_index), patterns.get(second_index))
        else {
            continue;
        };
        let message = format!(
            "`{pattern}` matches the same descriptors as the policy at {}",
            cx.sources.origin(first.location)
        );
        let help = "remove one of them, or join the two";
        cx.error(second.location, message, Some(help.into()));
    }
}

/// Warns where proxies may ask and no policy is for them, and of policies that hold nowhere.
pub(super) fn warn_of_unasked_policies(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
) {
    let has_descriptors = policies.iter().any(|policy| policy.domain.is_some());
    if let Some(grpc) = &gateway.decide.grpc
        && !has_descriptors
    {
        let message = "no policy has a `domain`, so every call is admitted";
        let help =
            "add for instance `domain: edge` and `entries: { remote_address: any }` to a policy";
        cx.warn(grpc.location, message, Some(help.into()));
    }
    if let Some(grpc) = &gateway.decide.grpc
        && let Some(address) = grpc.value.tcp()
        && address.ip().to_canonical().is_unspecified()
    {
        let message = format!(
            "`{}` is every address of this machine, and whoever can connect may ask",
            grpc.value
        );
        let help = format!(
            "write an address that only proxies reach, for instance `127.0.0.1:{}`",
            address.port()
        );
        cx.warn(grpc.location, message, Some(help));
    }
    if !gateway.gets_requests() {
        let pattern = policies.iter().find_map(|policy| policy.patterns.first());
        if let Some(pattern) = pattern {
            let message = "nothing sends requests by HTTP, so this policy holds nowhere";
            let help = "add `listen`, or `decide: { http: 127.0.0.1:8082 }`";
            cx.warn(pattern.location, message, Some(help.into()));
        }
    }
}

/// Warns, once, where `deny` or `allow` stands above policies of descriptors, for which such lists do not hold.
pub(super) fn warn_of_client_lists(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
    defaults: &[DefaultsConfig],
) {
    let has_descriptors_in = |folder: &str| {
        let mut policies = policies.iter().filter(|policy| policy.domain.is_some());
        policies.any(|policy| is_in_folder(&policy.name, folder))
    };
    let of_gateway = has_descriptors_in("").then_some([&gateway.deny, &gateway.allow]);
    let of_folders = defaults
        .iter()
        .filter(|defaults| has_descriptors_in(&defaults.name.value))
        .map(|defaults| [&defaults.deny, &defaults.allow]);
    let lists = of_gateway.into_iter().chain(of_folders).flatten();
    if let Some(list) = lists.flatten().next() {
        let message = "lists of clients do not hold for descriptors, and policies with `domain` are below this one";
        let help = "refuse these clients in the proxy, or ban them: bans hold for descriptors too";
        cx.warn(list.location, message, Some(help.into()));
    }
}
