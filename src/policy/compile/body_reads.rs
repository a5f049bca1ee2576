//! Decides for each route where custom identities are looked for: in the query, the body, the path or a preflight. Also
//! decides whether bodies are searched for a method, a path or a credential. Servers may take these three from bodies,
//! so that other limits apply.

use std::sync::Arc;

use http::Method;

use crate::identity::custom::{self, Source};
use crate::identity::{Settings, user};
use crate::limit::Identity;
use crate::route::{PathMatching, Route};

/// Sets for each route which parts of requests are read, in [`Route::reads`].
pub(super) fn set_body_reads(routes: &mut [Route], identity: &Settings, paths: PathMatching) {
    // Computed once, because the search for overrides compares each route with all others.
    let has_methods = |route: &Route| !route.pattern.methods().is_any();
    let may_override = paths == PathMatching::Fold && routes.iter().any(has_methods);
    let reads_method: Vec<bool> = routes
        .iter()
        .map(|route| may_override && must_read_method(route, routes))
        .collect();
    let reads_path: Vec<bool> = routes
        .iter()
        .map(|route| must_read_path(route, routes, paths))
        .collect();
    for ((route, reads_method), reads_path) in routes.iter_mut().zip(reads_method).zip(reads_path) {
        route.reads.method_in_body = reads_method;
        route.reads.path_in_body = reads_path;
        route.reads.token_in_body = must_read_token(route, identity);
        set_custom_reads(route, identity);
    }
}

/// Whether `_method` in the body of a POST may lead to a route with limits, required identities or a bound on bodies that
/// `route` lacks.
fn must_read_method(route: &Route, routes: &[Route]) -> bool {
    routes.iter().any(|other| may_override_to(route, other))
}

/// Sets where the custom identities of the route are looked for.
fn set_custom_reads(route: &mut Route, identity: &Settings) {
    let is_read = |custom: &&custom::Settings| {
        custom.is_always_read
            || route
                .reads
                .custom
                .contains(Identity::Custom(custom.identity))
    };
    let sources = identity.custom.iter().filter(is_read);
    for source in sources.map(|custom| &custom.source) {
        match source {
            Source::Query(_) => route.reads.parameter = true,
            Source::Body(_) => {
                route.reads.parameter = true;
                route.reads.body_field = true;
            }
            Source::PathPart(name) => {
                route.reads.path_part |= route.pattern.segment_index(name).is_some();
            }
            Source::Preflight => route.reads.preflight = true,
            _ => {}
        }
    }
}

/// Whether a path in the body, which WordPress reads, may lead to a route of the same upstream. Only routes with limits,
/// required identities or a bound on bodies that `route` lacks count.
fn must_read_path(route: &Route, routes: &[Route], paths: PathMatching) -> bool {
    let counts_more = |other: &Route| other.is_wordpress_api() && other.has_limits_beyond(route);
    paths == PathMatching::Fold && routes.iter().any(counts_more)
}

/// Whether the route depends on a credential in the query, which many frameworks read from forms as well: by token, or
/// by a user or plan that an API key proves.
fn must_read_token(route: &Route, identity: &Settings) -> bool {
    let is_token_in_query = identity.has_token_in_query();
    let proves_user = identity
        .user_sources
        .iter()
        .any(|user| matches!(user, user::Settings::ApiKeys(_)));
    let depends_on_user = || route.needs(Identity::User) || route.depends_on(Identity::Plan);
    is_token_in_query && (route.needs(Identity::Token) || (proves_user && depends_on_user()))
}

/// Whether a method in the body may turn a POST on `route` into a request of another route. Only a route that shares a
/// path with `route`, and has limits, required identities or a bound on bodies that `route` lacks, counts. The reads of
/// `route` must be set.
pub(in crate::policy) fn may_be_overridden(route: &Route, routes: &[Arc<Route>]) -> bool {
    let may_override = |other: &Arc<Route>| {
        may_override_to(route, other) && route.pattern.may_share_path(&other.pattern)
    };
    let accepts_post = route.pattern.methods().contains(&Method::POST);
    accepts_post && route.reads.method_in_body && routes.iter().any(may_override)
}

/// Whether a method in the body of a POST on `route` may lead to `other`. That must have limits, required identities or a
/// bound on bodies that `route` lacks, or be answered by the gateway instead of an upstream. Whether a path matches both routes is decided for each request.
fn may_override_to(route: &Route, other: &Route) -> bool {
    let accepts_post = other.pattern.methods().contains(&Method::POST);
    // If `other` accepts POST too, `route` has the POST because it is more specific. If it also accepts every method, it
    // keeps the request.
    let differs_by_method = !route.pattern.methods().is_any() || !accepts_post;
    let has_more = !route.has_all_limits_of(other) || other.answers_in_place_of(route);
    differs_by_method && route.shares_listener_with(other) && has_more
}
