//! Finds changed paths that lead around a guard: a policy that strips or prefixes paths may forward those which another
//! policy of the same upstream keeps for clients that it requires or admits.

use super::super::context::LoadContext;
use super::super::decode::PolicyConfig;
use super::super::settings::Ruleset;
use crate::route::pattern::{Segment, have_common_path};
use crate::route::{PathChange, Route};

/// Warns of each policy that forwards paths of another one under a changed name, without what that one requires.
pub(super) fn warn_of_ways_around(
    cx: &mut LoadContext,
    ruleset: &Ruleset,
    policies: &[PolicyConfig],
) {
    let routes = ruleset.routes.iter();
    let guarded_routes: Vec<_> = routes
        .filter(|route| !route.require.is_empty() || !route.access.is_empty())
        .collect();
    for route in &ruleset.routes {
        // A redirect forwards nothing.
        if route.path_change.is_none() || route.server_group().is_none() {
            continue;
        }
        let forwarded = forwarded_segments(route);
        let mut guarded_routes = guarded_routes.iter();
        let guarded = guarded_routes.find(|other| {
            other.server_group() == route.server_group()
                && !has_guards_of(route, other)
                && have_common_path(&forwarded, &forwarded_segments(other))
        });
        let policy = policies.iter().find(|policy| *policy.name == *route.name);
        if let (Some(guarded), Some(policy)) = (guarded, policy)
            && let Some(changed) = policy.strip.as_ref().or(policy.prefix.as_ref())
        {
            let message = format!(
                "behind this, clients reach paths of the policy `{}` without what it requires or denies",
                guarded.name
            );
            let help = "require and deny the same here, or match fewer paths";
            cx.warn(changed.location, message, Some(help.into()));
        }
    }
}

/// Whether `route` refuses every client that `other` refuses for who it is.
fn has_guards_of(route: &Route, other: &Route) -> bool {
    route.requires_all_of(other) && route.access.covers(&other.access)
}

/// The segments of the paths that the upstream gets.
fn forwarded_segments(route: &Route) -> Vec<Segment> {
    let segments = route.pattern.segments();
    let Some(PathChange { strip, prefix }) = route.path_change.as_deref() else {
        return segments.to_vec();
    };
    // Each pattern begins with the segments that are stripped: `check/forwarding.rs`.
    let kept = segments.iter().skip(path_segments(strip).count());
    let prefix = path_segments(prefix).map(|text| Segment::Literal(text.into()));
    prefix.chain(kept.cloned()).collect()
}

/// The segments of a prefix such as `/api/v1`.
fn path_segments(prefix: &str) -> impl Iterator<Item = &str> {
    prefix.split('/').skip(1)
}
