//! Which routes search bodies for something that their own limits do not name.

use std::sync::Arc;

use http::Method;

use crate::identity::{Settings, token, user};
use crate::limit::Identity;
use crate::route::{Paths, Route};

/// Sets what each route searches bodies for.
pub(super) fn note(routes: &mut [Route], identity: &Settings, paths: Paths) {
    let by_method = |route: &Route| !route.pattern.methods().is_any();
    let looks = paths == Paths::Fold && routes.iter().any(by_method);
    let methods: Vec<bool> = routes
        .iter()
        .map(|route| looks && routes.iter().any(|other| may_be_taken_for(route, other)))
        .collect();
    let by_path = |route: &Route| {
        let counts_more = |other: &Route| other.is_rest_api() && other.holds_more_than(route);
        paths == Paths::Fold && routes.iter().any(counts_more)
    };
    let paths: Vec<bool> = routes.iter().map(by_path).collect();
    for ((route, method), path) in routes.iter_mut().zip(methods).zip(paths) {
        route.reads.method_in_body = method;
        route.reads.path_in_body = path;
        route.reads.token_in_body = counts_by_query(route, identity);
    }
}

/// Whether POST on some path is the route's, and by another method another route's that counts more.
pub(in crate::policy) fn may_be_overridden(route: &Route, routes: &[Arc<Route>]) -> bool {
    let concerns = |other: &Arc<Route>| {
        may_be_taken_for(route, other) && route.pattern.may_share_path(&other.pattern)
    };
    let takes_post = route.pattern.methods().contains(&Method::POST);
    takes_post && route.reads.method_in_body && routes.iter().any(concerns)
}

/// Whether a POST that `route` takes, by its own method or by another that its head names, may be one on `other`, and
/// `route` does not count all that `other` counts. Whether a path leads to both is looked up for each request.
fn may_be_taken_for(route: &Route, other: &Route) -> bool {
    let takes_post = other.pattern.methods().contains(&Method::POST);
    let by_method = !route.pattern.methods().is_any() || !takes_post;
    by_method && !route.counts_all_of(other)
}

/// Whether it depends on a credential in the query, which many frameworks read from forms as well.
fn counts_by_query(route: &Route, identity: &Settings) -> bool {
    let in_query = matches!(identity.token, Some(token::TokenSource::Query(_)));
    let proves = matches!(identity.user, Some(user::Settings::ApiKeys(_)));
    let by_owner = || route.needs(Identity::User) || route.depends_on(Identity::Plan);
    in_query && (route.needs(Identity::Token) || (proves && by_owner()))
}
