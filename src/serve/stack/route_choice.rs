//! Chooses between two routes that servers may take one request for: the route whose limits alone are strict enough.
//!
//! `target.rs` finds the routes and calls these functions. Where they return `None`, the limits of both routes count.

use crate::policy::Ruleset;

/// The index of the route that is strict enough for two readings of one path; `None` if both routes must count.
///
/// A route with all limits of the other is enough. Otherwise one pattern must be broader than the other; then the route
/// that is as strict as the other is enough, by preference the one with the more specific pattern.
pub(super) fn strict_enough_route(
    first_index: usize,
    second_index: usize,
    ruleset: &Ruleset,
) -> Option<usize> {
    route_with_all_limits(first_index, second_index, ruleset).or_else(|| {
        let [first_pattern, second_pattern] =
            [first_index, second_index].map(|index| &ruleset.routes[index].pattern);
        if second_pattern.is_broader_than(first_pattern) {
            route_as_strict(first_index, second_index, ruleset)
        } else if first_pattern.is_broader_than(second_pattern) {
            route_as_strict(second_index, first_index, ruleset)
        } else {
            None
        }
    })
}

/// The index of the route whose limits include all limits of the other route; the first, if both do. `None` if neither
/// does, or if the routes are not on one upstream.
pub(super) fn route_with_all_limits(
    first_index: usize,
    second_index: usize,
    ruleset: &Ruleset,
) -> Option<usize> {
    let first = &ruleset.routes[first_index];
    let second = &ruleset.routes[second_index];
    match (
        first.server_group() == second.server_group(),
        second.has_limits_beyond(first),
    ) {
        (true, false) => Some(first_index),
        (true, true) if !first.has_limits_beyond(second) => Some(second_index),
        _ => None,
    }
}

/// The index of the route that admits no client more than the other route on the same upstream does; the first, if that
/// holds for both. `None` if it holds for neither.
pub(super) fn route_as_strict(
    first_index: usize,
    second_index: usize,
    ruleset: &Ruleset,
) -> Option<usize> {
    let first = &ruleset.routes[first_index];
    let second = &ruleset.routes[second_index];
    match (first.is_as_strict_as(second), second.is_as_strict_as(first)) {
        (true, _) => Some(first_index),
        (false, true) => Some(second_index),
        (false, false) => None,
    }
}
