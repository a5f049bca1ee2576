//! Finds the route of a request by its head, or of the request that a preflight asks about. `target.rs` looks up the routes.

use super::matched_route::MatchedRoute;
use super::refusal::RefusalCause;
use super::target::{RequestTarget, find_route_by_head};
use crate::http::head::Head;
use crate::identity::preflight;
use crate::policy::Ruleset;
use crate::route::{PathChangeError, RouteTable};

/// The route of a request by its head.
pub struct FoundRoute {
    /// The route. That of a preflight with a response of the gateway is the route of the request that it asks about.
    pub matched_route: MatchedRoute,
    /// Whether the request is such a preflight.
    pub is_preflight: bool,
}

impl FoundRoute {
    /// The route that serves the request itself.
    pub fn serving(matched_route: MatchedRoute) -> FoundRoute {
        FoundRoute {
            matched_route,
            is_preflight: false,
        }
    }
}

/// Finds the route of a request by its head. A preflight has the route of the method that it asks about, if that has
/// `cors` or if no route takes `OPTIONS`.
///
/// # Errors
///
/// The request is refused before it has a route: 400, 404 or 405.
pub fn find_route(
    head: &Head,
    may_have_body: bool,
    host: Option<&str>,
    table: &RouteTable,
    ruleset: &Ruleset,
) -> Result<FoundRoute, RefusalCause> {
    let own_route = find_route_by_head(head, host, table, ruleset);
    // Over HTTP/2 the head does not tell.
    let requested_method = preflight::requested_method(head).filter(|_| !may_have_body);
    let Some(requested_method) = requested_method else {
        return own_route.map(FoundRoute::serving);
    };
    let target = RequestTarget::new(head, host, table)?;
    let requested_route = target.find_route(&requested_method, ruleset);
    match (own_route, requested_route) {
        (_, Ok(matched_route)) if matched_route.route(ruleset).cors.is_some() => Ok(FoundRoute {
            matched_route,
            is_preflight: true,
        }),
        (Err(RefusalCause::WrongMethod(_)), requested_route) => {
            requested_route.map(FoundRoute::serving)
        }
        (own_route, _) => own_route.map(FoundRoute::serving),
    }
}

/// Refuses a path that the route cannot change safely before it is forwarded, with 400.
#[inline]
pub fn check_path_change(
    head: &Head,
    matched_route: &MatchedRoute,
    ruleset: &Ruleset,
) -> Result<(), RefusalCause> {
    let Some(path_change) = &matched_route.route(ruleset).path_change else {
        return Ok(());
    };
    let rest = path_change.rest(head.uri.path());
    rest.map(|_| ()).map_err(|error| {
        RefusalCause::Bad(match error {
            PathChangeError::OtherSpelling => {
                "its path does not begin with the prefix that the policy strips, letter by letter: send it without escapes and doubled slashes, and in the case of the policy"
            }
            PathChangeError::DotSegment => {
                "its path has a dot segment, perhaps escaped, and the policy changes the path: send the path that it leads to"
            }
            PathChangeError::DoubledSlash => {
                "behind the prefix that the policy strips its path begins with two slashes: send one"
            }
        })
    })
}
