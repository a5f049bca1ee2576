//! Orders and describes the routes of a configuration, and finds routes by which a client may evade the limits of another route.

use std::cmp::Ordering;

use http::HeaderName;

use super::super::load::LoadedConfig;
use crate::route::pattern::Segment;
use crate::route::{ErrorPages, FieldChanges, HostPattern, Pattern, Route};

/// Finds a route on the same upstream that lacks a limit or a required identity of `route`, and matches other spellings
/// of its path. If the gateway answers the requests of `route`, any upstream will do. A route that is stricter than `route` all the same does not count. Of several, the most specific is
/// returned. `None` if there is none, or if the path of `route` has no fixed text that could be spelled otherwise.
pub(super) fn find_broader_route<'l>(loaded: &'l LoadedConfig, route: &Route) -> Option<&'l Route> {
    let is_literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
    if !route.pattern.segments().iter().any(is_literal) {
        return None;
    }
    let routes = loaded.ruleset.routes.iter().map(AsRef::as_ref);
    let broader_routes = routes.filter(|other: &&Route| {
        other.pattern.is_broader_than(&route.pattern)
            && route.shares_listener_with(other)
            && route.has_limits_beyond(other)
            && (route.is_as_strict_as(other) || !other.is_as_strict_as(route))
    });
    broader_routes.min_by(|left, right| compare_specificity(&left.pattern, &right.pattern))
}

/// Finds a route for every host, on the same upstream, that lacks a limit or a required identity of `route`. It can
/// match the same path, so a client reaches it by naming another host. `None` if there is none, or if `route` is for
/// every host itself or has no upstream.
pub(super) fn find_route_with_other_host<'l>(
    loaded: &'l LoadedConfig,
    route: &Route,
) -> Option<&'l Route> {
    if *route.pattern.host() == HostPattern::Any || route.server_group().is_none() {
        return None;
    }
    let mut routes = loaded.ruleset.routes.iter().map(AsRef::as_ref);
    routes.find(|other: &&Route| {
        *other.pattern.host() == HostPattern::Any
            && other.pattern.may_share_path(&route.pattern)
            && route.shares_listener_with(other)
            && route.has_limits_beyond(other)
    })
}

/// The names of changed header fields: `sets x-user, removes cookie`.
pub(super) fn describe_field_changes(changes: &FieldChanges) -> String {
    let is_added = |name: &HeaderName| changes.added.iter().any(|field| field.name == *name);
    let added = changes.added.iter().map(|field| {
        let verb = match changes.removed.contains(&field.name) {
            true => "sets",
            false => "adds",
        };
        format!("{verb} {}", field.name)
    });
    let removed = changes.removed.iter().filter(|name| !is_added(name));
    let removed = removed.map(|name| format!("removes {name}"));
    added.chain(removed).collect::<Vec<_>>().join(", ")
}

/// The files of bodies of refusals that are not those of `above`: `429 errors/429.html, 503 errors/503.json`.
pub(super) fn describe_error_pages(pages: &ErrorPages, above: &ErrorPages) -> String {
    let own_pages = pages
        .0
        .iter()
        .filter(|(status, page)| above.find(*status) != Some(page));
    let texts = own_pages.map(|(status, page)| {
        let files: Vec<&str> = page.files().collect();
        format!("{status} {}", files.join(" and "))
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The routes, the most specific first, which is the order in which they match. Equal ones are ordered by name.
pub(super) fn sort_by_specificity(loaded: &LoadedConfig) -> Vec<&Route> {
    let mut routes: Vec<&Route> = loaded.ruleset.routes.iter().map(AsRef::as_ref).collect();
    routes.sort_by(|left, right| {
        compare_specificity(&left.pattern, &right.pattern).then_with(|| left.name.cmp(&right.name))
    });
    routes
}

/// Orders the more specific pattern first, as [`crate::route::RouteTable`] prefers it. Patterns that are equally
/// specific are ordered by their texts, so that the order is always the same.
fn compare_specificity(left: &Pattern, right: &Pattern) -> Ordering {
    let host_rank = |pattern: &Pattern| match pattern.host() {
        HostPattern::Exact(_) => (0, 0),
        // The longer name is more specific.
        HostPattern::Below(name) => (1, usize::MAX - name.len()),
        HostPattern::Any => (2, 0),
    };
    let segment_rank = |segment: &Segment| match segment {
        Segment::Literal(_) => 0,
        Segment::One(_) => 1,
        Segment::Rest => 2,
    };
    let literal_text = |segment: &Segment| match segment {
        Segment::Literal(text) => text.clone(),
        Segment::One(_) | Segment::Rest => "".into(),
    };
    let compare_segments = || {
        for (left_segment, right_segment) in left.segments().iter().zip(right.segments()) {
            let order = segment_rank(left_segment)
                .cmp(&segment_rank(right_segment))
                .then_with(|| literal_text(left_segment).cmp(&literal_text(right_segment)));
            if order != Ordering::Equal {
                return order;
            }
        }
        // The longer path is more specific, but `/a` comes before `/a/**`.
        let left_length = left.segments().len();
        let right_length = right.segments().len();
        let left_rest = left.segments().get(right_length);
        let right_rest = right.segments().get(left_length);
        match (left_rest, right_rest) {
            (Some(Segment::Rest), _) => Ordering::Greater,
            (_, Some(Segment::Rest)) => Ordering::Less,
            _ => right_length.cmp(&left_length),
        }
    };
    let has_any_method = |pattern: &Pattern| pattern.methods().is_any();
    host_rank(left)
        .cmp(&host_rank(right))
        .then_with(compare_segments)
        .then_with(|| has_any_method(left).cmp(&has_any_method(right)))
}
