//! Checks `limits` of policies and of the defaults of folders: which limits they define, share and switch off.

use std::collections::{HashMap, HashSet};

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, LimitConfig, LimitUse, PolicyConfig};
use super::super::shared_limits::{SharedLimit, SharedLimits, is_in_folder};
use super::super::tree::{Located, SourceLocation};
use super::candidate::check_limit_with_candidate;
use super::routes::MAX_LISTED_NAMES;
use crate::base::suggest::{list_words, nearest_word};

/// Maximum number of limits of a route, which bounds the work for each request.
pub const MAX_LIMITS_PER_ROUTE: usize = 32;

/// Checks the limits `uses` of the policy or of the folder called `owner`.
pub(super) fn check_limit_uses(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    shared: &SharedLimits<'_>,
    owner: &str,
    uses: &[LimitUse],
) {
    for used in uses {
        match used {
            LimitUse::Own(limit) => {
                check_limit_with_candidate(cx, gateway, limit);
                check_unique_name(cx, shared, owner, limit);
            }
            LimitUse::Shared(name) => {
                find_shared_limit(cx, shared, owner, name);
            }
            LimitUse::Off(name) => {
                if let Some(limit) = find_shared_limit(cx, shared, owner, name) {
                    check_off(cx, shared, owner, name, &limit);
                }
            }
        }
    }
    check_repeated_uses(cx, uses);
}

/// Reports limits of files above that `uses` shares twice.
fn check_repeated_uses(cx: &mut LoadContext, uses: &[LimitUse]) {
    let mut earlier_locations: HashMap<&str, SourceLocation> = HashMap::new();
    for used in uses {
        if let LimitUse::Shared(name) = used
            && let Some(earlier) = earlier_locations.insert(&name.value, name.location)
        {
            let help = format!("it is already on line {}; remove one of them", earlier.line);
            let message = format!("`{}` is listed twice", name.value);
            cx.error(name.location, message, Some(help));
        }
    }
}

/// Checks that a limit does not have the name of a limit of a file above.
fn check_unique_name(
    cx: &mut LoadContext,
    shared: &SharedLimits<'_>,
    owner: &str,
    limit: &LimitConfig,
) {
    let name = &limit.name;
    if let Some(other) = find_above(shared, owner, name.value.as_str()) {
        let message = format!(
            "the limit `{}` is already defined at {}",
            name.value,
            cx.sources.origin(other.limit.name.location)
        );
        let help = format!(
            "choose another name, or write `{0}: ~` to share that one, or `{0}: off` to switch it off here",
            name.value
        );
        cx.error(name.location, message, Some(help));
    }
}

/// The limit of that name in the files above `owner`; `None` if there is none, which is reported.
fn find_shared_limit<'c>(
    cx: &mut LoadContext,
    shared: &SharedLimits<'c>,
    owner: &str,
    name: &Located<String>,
) -> Option<SharedLimit<'c>> {
    let shared_limit = find_above(shared, owner, &name.value);
    if shared_limit.is_some() {
        return shared_limit;
    }
    let names: Vec<&str> = shared
        .above(owner)
        .map(|above| above.limit.name.value.as_str())
        .collect();
    let help = match nearest_word(&name.value, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "write the limit here: `{ key: ip, rate: 10/s }`".into(),
        None => format!(
            "the limits above are {}",
            list_words(names.into_iter().take(MAX_LISTED_NAMES))
        ),
    };
    let message = format!(
        "neither the gateway file nor a `_defaults.yaml` above has a limit `{}`",
        name.value
    );
    cx.error(name.location, message, Some(help));
    None
}

/// The limit of that name in the files above the policy or folder `owner`.
fn find_above<'c>(shared: &SharedLimits<'c>, owner: &str, name: &str) -> Option<SharedLimit<'c>> {
    let mut above = shared.above(owner);
    above.find(|above| above.limit.name.value.as_str() == name)
}

/// Reports a limit that holds only where it is listed, and is switched off although no file above lists it.
fn check_off(
    cx: &mut LoadContext,
    shared: &SharedLimits<'_>,
    owner: &str,
    name: &Located<String>,
    limit: &SharedLimit<'_>,
) {
    if limit.limit.routes.is_only_listed() && !shared.holds_above(owner, limit) {
        let message = format!("`{}` holds only on routes that list it", name.value);
        cx.error(name.location, message, Some("remove it here".into()));
    }
}

/// Checks that each route of a policy has at most [`MAX_LIMITS_PER_ROUTE`] limits. A limit counts once for each plan
/// with an entry of its own in `rate`. So do its candidate rates, which the route counts as well.
pub(super) fn check_limit_count(
    cx: &mut LoadContext,
    shared: &SharedLimits<'_>,
    policy: &PolicyConfig,
) {
    let from_above: Vec<&LimitConfig> = shared
        .of_policy(policy)
        .map(|shared| shared.limit)
        .collect();
    let own = policy.limits.iter().filter_map(LimitUse::own);
    let all = from_above.iter().copied().chain(own);
    // Rates by plan become a rule for each plan.
    let candidate_count = |limit: &LimitConfig| {
        (limit.tried.as_ref()).map_or(0, |tried| tried.value.by_plan.len().max(1))
    };
    let count: usize = all
        .map(|limit| limit.rates.by_plan.len().max(1) + candidate_count(limit))
        .sum();
    if count <= MAX_LIMITS_PER_ROUTE {
        return;
    }
    let location = match policy.limits.last() {
        Some(LimitUse::Own(limit)) => limit.name.location,
        Some(LimitUse::Shared(name) | LimitUse::Off(name)) => name.location,
        // All limits come from files above, so the last of these limits is the mistake.
        None => match from_above.last() {
            Some(limit) => limit.name.location,
            None => return,
        },
    };
    let message = format!(
        "a route has at most {MAX_LIMITS_PER_ROUTE} limits; those of the gateway file and of `_defaults.yaml`, each plan with rates of its own, and candidate rates count"
    );
    cx.error(
        location,
        message,
        Some("join limits of the same key into one with several rates".into()),
    );
}

/// Warns of limits by which nothing is counted: no policy lists them although they hold only there, or all policies to which
/// they could belong are about descriptors.
pub(super) fn warn_of_unlisted_limits(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    shared: &SharedLimits<'_>,
    policies: &[PolicyConfig],
) {
    let gets_requests = gateway.gets_requests();
    let asked = policies
        .iter()
        .filter(|policy| gets_requests || policy.domain.is_some());
    let used = asked.flat_map(|policy| shared.of_policy(policy));
    let used_indexes: HashSet<usize> = used.map(|limit| limit.index).collect();
    let unused = shared.all().iter();
    for limit in unused.filter(|limit| !used_indexes.contains(&limit.index)) {
        let name = limit.limit.name.value.as_str();
        let location = limit.limit.name.location;
        if !gets_requests || has_only_descriptors(limit, policies) {
            let message = format!(
                "nothing is counted by `{name}`: only descriptors could be, and no policy with `domain` lists it"
            );
            let help = format!("write `limits: [{name}]` in such a policy, or remove it here");
            cx.warn(location, message, Some(help));
        } else if limit.limit.routes.is_only_listed() {
            let message = format!("no policy lists the limit `{name}`: it applies nowhere");
            let help = format!("write `limits: [{name}]` in a policy");
            cx.warn(location, message, Some(help));
        }
    }
}

/// Whether a folder defines the limit, and has policies of descriptors only.
fn has_only_descriptors(limit: &SharedLimit<'_>, policies: &[PolicyConfig]) -> bool {
    let Some(folder) = limit.folder else {
        return false;
    };
    let mut below = policies
        .iter()
        .filter(|policy| is_in_folder(&policy.name, folder))
        .peekable();
    below.peek().is_some() && below.all(|policy| policy.domain.is_some())
}
