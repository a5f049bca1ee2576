//! The routes that a request's body may lead to: by another method that it names, or by a path of WordPress' REST API. It
//! reads ahead in a body only where such a route has further limits.

use http::Method;
use http_body::Body;

use super::body::{BodyStart, FieldPresence, MAX_READ_AHEAD_BYTES};
use super::found_route::FoundRoute;
use super::matched_route::MatchedRoute;
use super::method_override::{self, MethodInBody};
use super::objection::find_size_objection;
use super::query_path;
use super::refusal::RefusalCause;
use super::stages::Arrival;
use super::target::RequestTarget;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::body::{is_stream, is_unsearchable};
use crate::policy::Ruleset;
use crate::route::RouteTable;

/// The routes that a body may lead to, and whose limits the route of the head does not cover.
pub(super) struct BodyRoutes {
    /// Those of the routes that a method in the body may lead to.
    by_method: Vec<MatchedRoute>,
    /// Whether a path in the body may lead to other routes.
    may_differ_by_path: bool,
}

/// The routes that the body may lead to; `None` where the body need not be read. See [`find_body_routes`].
pub(super) fn body_routes_of(arrival: &Arrival, found_route: &FoundRoute) -> Option<BodyRoutes> {
    let ruleset = &arrival.context.generation.ruleset;
    let matched_route = &found_route.matched_route;
    let reads = matched_route.route(ruleset).reads;
    let may_lead_elsewhere = reads.method_in_body || reads.path_in_body;
    // A proxy that asks does not show the body.
    let has_no_body = arrival.body.is_empty() && !arrival.context.peer.is_check();
    if has_no_body || found_route.is_preflight || !may_lead_elsewhere {
        return None;
    }
    let host = arrival.head.fields.text("host");
    find_body_routes(
        &arrival.head,
        host,
        matched_route,
        arrival.context.table(),
        ruleset,
    )
}

/// Reads ahead in the body as far as needed. Then also holds the request to the routes of the method and the path that the
/// body names. The bytes stay in the body.
///
/// # Errors
///
/// The body broke off or is late, or the method or the path that it names is refused: 400, 404, 405 or 408.
pub(super) async fn read_and_hold_to_body(
    arrival: &mut Arrival,
    matched_route: MatchedRoute,
    body_routes: BodyRoutes,
) -> Result<MatchedRoute, RefusalCause> {
    let Arrival {
        head,
        body,
        context,
        ..
    } = arrival;
    let ruleset = &context.generation.ruleset;
    let route = matched_route.route(ruleset);
    // The next layer refuses a body that is too large, also one that turns out to be.
    if find_size_objection(route, head, body.size_hint().lower()).is_some() {
        return Ok(matched_route);
    }
    let max_bytes = route.max_body_bytes.map_or(MAX_READ_AHEAD_BYTES, |bytes| {
        bytes.min(MAX_READ_AHEAD_BYTES as u64) as usize
    });
    let is_hidden = is_stream(&head.fields) || context.peer.is_check();
    let look_for_route =
        |body_start: BodyStart<'_>| match method_override::may_name_method(head, body_start) {
            FieldPresence::Impossible if body_routes.may_differ_by_path => {
                query_path::may_name_path_in_body(head, body_start)
            }
            method_presence => method_presence,
        };
    if !is_hidden && !body.read_ahead_for_field(look_for_route).await? {
        return Ok(matched_route);
    }
    let host = head.fields.text("host");
    let target = RequestTarget::new(head, host, context.table())?;
    if is_hidden || is_unsearchable(&head.fields, MAX_READ_AHEAD_BYTES) {
        return hold_to_body(head, &target, None, matched_route, body_routes, ruleset);
    }
    let read_ahead = body.peek(max_bytes).await?;
    if find_size_objection(route, head, read_ahead.bytes.len() as u64).is_some() {
        body.put_back(read_ahead.bytes, read_ahead.trailers);
        return Ok(matched_route);
    }
    let body_start = Some(BodyStart {
        bytes: &read_ahead.bytes,
        is_whole: read_ahead.is_whole,
    });
    let matched_route = hold_to_body(
        head,
        &target,
        body_start,
        matched_route,
        body_routes,
        ruleset,
    );
    body.put_back(read_ahead.bytes, read_ahead.trailers);
    matched_route
}

/// Also holds a request to the routes that its body leads to. `body_start` is `None` if the body cannot be searched; then
/// all routes that it may lead to count.
///
/// # Errors
///
/// The method or the path that the body names is refused: 400, 404 or 405.
pub(super) fn hold_to_body(
    head: &Head,
    target: &RequestTarget<'_>,
    body_start: Option<BodyStart<'_>>,
    mut matched_route: MatchedRoute,
    body_routes: BodyRoutes,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    if !body_routes.by_method.is_empty() {
        let method = body_start.map_or(MethodInBody::Unclear, |body_start| {
            method_override::find_method_in_body(head, body_start)
        });
        matched_route = target.hold_to_method_in_body(
            &method,
            matched_route,
            body_routes.by_method,
            ruleset,
        )?;
    }
    if !body_routes.may_differ_by_path {
        return Ok(matched_route);
    }
    let path = body_start.map_or(FieldValue::Ambiguous, |body_start| {
        query_path::find_path_in_body(head, body_start)
    });
    target.hold_to_path_in_body(&head.method, &path, matched_route, ruleset)
}

/// The routes that the body may lead to, without routes whose limits all count already. `None` if no route remains, or if
/// frameworks do not search the body of this request. Not inlined, because most requests do not need it.
#[inline(never)]
pub(super) fn find_body_routes(
    head: &Head,
    host: Option<&str>,
    matched_route: &MatchedRoute,
    table: &RouteTable,
    ruleset: &Ruleset,
) -> Option<BodyRoutes> {
    if !method_override::is_body_searched(head) {
        return None;
    }
    let reads = matched_route.route(ruleset).reads;
    let may_differ_by_path = reads.path_in_body;
    if !reads.method_in_body {
        return may_differ_by_path.then_some(BodyRoutes {
            by_method: Vec::new(),
            may_differ_by_path,
        });
    }
    let target = RequestTarget::new(head, host, table).ok()?;
    // One method that no pattern names stands for all methods that no pattern names.
    let unnamed_method = Method::from_bytes(b"_").ok();
    let methods = table.named_methods().iter().chain(&unnamed_method);
    let routes = methods.filter_map(|method| target.find_route(method, ruleset).ok());
    let by_method: Vec<_> = routes
        .filter(|route| {
            let answers = route
                .route(ruleset)
                .answers_in_place_of(matched_route.route(ruleset));
            answers || !matched_route.covers(route, ruleset)
        })
        .collect();
    (may_differ_by_path || !by_method.is_empty()).then_some(BodyRoutes {
        by_method,
        may_differ_by_path,
    })
}
