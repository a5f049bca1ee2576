//! The layer that finds the route of a request, after it has refused addresses that are denied or banned. It checks the
//! method, and replaces the host by its canonical form. Where servers could take the request for different routes, the
//! limits of these routes count it together. A request without a route or without a safe reading is handed on as unserved.
//!
//! `target.rs` looks up the routes, and `body_routes.rs` those that a body may lead to; this file decides when. It refuses
//! paths that the route cannot change, and changes none.

use std::borrow::Cow;
use std::future::ready;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Method, Version};
use tower::{Layer, Service};

use super::body::{BodyStart, MAX_READ_AHEAD_BYTES};
use super::body_routes::{
    BodyRoutes, body_routes_of, find_body_routes, hold_to_body, read_and_hold_to_body,
};
use super::found_route::{FoundRoute, check_path_change, find_route};
use super::matched_route::MatchedRoute;
use super::objection::find_size_objection;
use super::own_response::UNKNOWN_HOST;
use super::refusal::{BoxedOutcome, RareOutcome, Refusal, RefusalCause};
use super::screening;
use super::stages::{Arrival, Routed};
use super::target::RequestTarget;
use super::unserved::Unserved;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::body::{is_stream, is_unsearchable};
use crate::policy::Ruleset;
use crate::route::{Redirect, RouteTable, canonical_host};

/// The response of a service to a request with a route.
type RoutedResponse<S> = <S as Service<Routed>>::Response;

/// The layer that wraps a service in [`Routing`].
#[derive(Clone, Copy, Debug)]
pub struct RoutingLayer;

impl<S> Layer<S> for RoutingLayer {
    type Service = Routing<S>;

    fn layer(&self, inner: S) -> Routing<S> {
        Routing { inner }
    }
}

/// The service that finds the route, and hands the request on as [`Routed`] or [`Unserved`].
#[derive(Clone, Copy, Debug)]
pub struct Routing<S> {
    inner: S,
}

impl<S> Service<Arrival> for Routing<S>
where
    S: Service<Routed, Error = Refusal>
        + Service<Unserved, Response = RoutedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    type Response = RoutedResponse<S>;
    type Error = Refusal;
    type Future = Either<
        <S as Service<Routed>>::Future,
        Either<<S as Service<Unserved>>::Future, RareOutcome<RoutedResponse<S>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Routed>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, mut arrival: Arrival) -> Self::Future {
        let ruleset = &arrival.context.generation.ruleset;
        let objection = match ruleset.unrouted.access.is_empty() {
            true => None,
            false => screening::screen_address(&arrival, &ruleset.unrouted.access),
        };
        let objection = objection.or_else(|| screening::screen_banned_address(&arrival));
        if let Some(cause) = objection {
            return Either::Right(self.refuse_address(arrival, cause));
        }
        let found_route = match remembered_route_index(&arrival) {
            Some(route_index) => Ok(FoundRoute::serving(route_index.into())),
            None => find_and_remember_route(&mut arrival),
        };
        let now = arrival.context.arrived_at;
        match found_route {
            Ok(found_route) => match body_routes_of(&arrival, &found_route) {
                None => Either::Left(self.inner.call(start_routed(arrival, found_route, now))),
                Some(body_routes) => {
                    let matched_route = found_route.matched_route;
                    let outcome = self.route_by_body(arrival, matched_route, body_routes);
                    Either::Right(Either::Right(Either::Left(outcome)))
                }
            },
            Err(cause) => {
                let unserved = Unserved::unrouted(arrival, cause, now);
                Either::Right(Either::Left(self.inner.call(unserved)))
            }
        }
    }
}

impl<S> Routing<S>
where
    S: Service<Routed, Error = Refusal>
        + Service<Unserved, Response = RoutedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    /// Refuses a request for its client's address, before anything else is read in it.
    #[cold]
    fn refuse_address(
        &mut self,
        arrival: Arrival,
        cause: RefusalCause,
    ) -> Either<<S as Service<Unserved>>::Future, RareOutcome<RoutedResponse<S>>> {
        if cause.is_about_client() {
            let refusal = screening::deny(cause, &arrival);
            return Either::Right(Either::Right(ready(Err(refusal))));
        }
        let now = arrival.context.arrived_at;
        Either::Left(self.inner.call(Unserved::unrouted(arrival, cause, now)))
    }

    /// Routes a request by the method and the path that its body names too, and hands it on.
    fn route_by_body(
        &mut self,
        mut arrival: Arrival,
        matched_route: MatchedRoute,
        body_routes: BodyRoutes,
    ) -> BoxedOutcome<RoutedResponse<S>> {
        let inner_clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, inner_clone);
        Box::pin(async move {
            let matched_route =
                read_and_hold_to_body(&mut arrival, matched_route, body_routes).await;
            let ruleset = &arrival.context.generation.ruleset;
            let matched_route = matched_route.and_then(|matched_route| {
                check_path_change(&arrival.head, &matched_route, ruleset)?;
                Ok(matched_route)
            });
            let now = arrival.context.generation.clock.now();
            match matched_route {
                Ok(matched_route) => {
                    let found_route = FoundRoute::serving(matched_route);
                    inner.call(start_routed(arrival, found_route, now)).await
                }
                Err(cause) => inner.call(Unserved::unrouted(arrival, cause, now)).await,
            }
        })
    }
}

/// Counts a request as started on its route, and makes the type that the next layer takes.
#[inline(always)]
fn start_routed(arrival: Arrival, found_route: FoundRoute, now: Nanos) -> Routed {
    let FoundRoute {
        matched_route,
        is_preflight,
    } = found_route;
    let context = &arrival.context;
    context.route_index.set(Some(matched_route.route_index));
    let ruleset = &context.generation.ruleset;
    if ruleset.uses_cors
        && let (Some(extra), Some(cors)) = (&context.extra, &matched_route.route(ruleset).cors)
    {
        let _ = extra.cors.set(cors.clone());
    }
    arrival.context.generation.counters_by_route[matched_route.route_index]
        .started_requests
        .increment(1);
    Routed {
        arrival,
        matched_route,
        is_preflight,
        now,
    }
}

/// Passes on a request whose head could not be read.
impl<S: Service<Unserved>> Service<Unserved> for Routing<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, unserved: Unserved) -> S::Future {
        self.inner.call(unserved)
    }
}

/// The index of the route, if the last request of the connection had the same head; `None` otherwise.
fn remembered_route_index(arrival: &Arrival) -> Option<usize> {
    let repeated_fields = arrival.repeated_fields.as_ref()?;
    repeated_fields.route_index(&arrival.head, &arrival.context.generation)
}

/// Finds the route of a request by its head, and makes the connection remember it for the next request with the same head.
/// Replaces the host by its canonical form.
///
/// # Errors
///
/// The request is refused before it has a route: 400, 404, 405 or 421.
fn find_and_remember_route(arrival: &mut Arrival) -> Result<FoundRoute, RefusalCause> {
    check_method(&arrival.head)?;
    canonicalize_host(arrival)?;
    let ruleset = &arrival.context.generation.ruleset;
    let host = arrival.head.fields.text("host");
    if !host.is_none_or(|host| arrival.context.peer.covers_host(host)) {
        return Err(RefusalCause::Misdirected);
    }
    let table = arrival.context.table();
    let listener = arrival.context.listener();
    if let Some(redirect) = listener.and_then(|listener| listener.redirect.as_ref()) {
        return Err(redirect_all(redirect, &arrival.head, host, table));
    }
    // A preflight that is served here would look like an admission to a proxy that asks.
    let may_have_body = !arrival.body.is_empty() || arrival.context.peer.is_check();
    let found_route = find_route(&arrival.head, may_have_body, host, table, ruleset)?;
    check_path_change(&arrival.head, &found_route.matched_route, ruleset)?;
    let route_index = found_route.matched_route.single_route_index();
    let route_index = route_index.filter(|_| !found_route.is_preflight);
    if let Some((fields, route_index)) = arrival.repeated_fields.as_ref().zip(route_index) {
        fields.remember_route(&arrival.head, &arrival.context.generation, route_index);
    }
    Ok(found_route)
}

/// What becomes of a request at a listener that redirects all. A request without a safe reading is refused there too.
fn redirect_all(
    redirect: &Redirect,
    head: &Head,
    host: Option<&str>,
    table: &RouteTable,
) -> RefusalCause {
    if let Err(cause) = RequestTarget::new(head, host, table) {
        return cause;
    }
    match redirect
        .target
        .location(host, head.uri.path(), head.uri.query())
    {
        Some(location) => RefusalCause::Redirected(location),
        None => RefusalCause::Bad(UNKNOWN_HOST),
    }
}

/// The route that the layer would find for a request at a listener with the routes in `table`, or with this redirect. For
/// `explain`: the request is neither changed nor counted.
///
/// # Errors
///
/// Why the request is refused before it has a route: 400, 404 or 405.
pub fn find_route_by_head_and_body(
    head: &Head,
    body: &[u8],
    (table, redirect): (&RouteTable, Option<&Redirect>),
    ruleset: &Ruleset,
) -> Result<FoundRoute, RefusalCause> {
    check_method(head)?;
    let host = read_host(head)?;
    if let Some(redirect) = redirect {
        return Err(redirect_all(redirect, head, host.as_deref(), table));
    }
    let found_route = find_route(head, !body.is_empty(), host.as_deref(), table, ruleset)?;
    let matched_route = &found_route.matched_route;
    check_path_change(head, matched_route, ruleset)?;
    let reads = matched_route.route(ruleset).reads;
    let may_lead_elsewhere = reads.method_in_body || reads.path_in_body;
    let is_too_large =
        find_size_objection(matched_route.route(ruleset), head, body.len() as u64).is_some();
    if body.is_empty() || found_route.is_preflight || is_too_large || !may_lead_elsewhere {
        return Ok(found_route);
    }
    let host = host.as_deref();
    let Some(body_routes) = find_body_routes(head, host, matched_route, table, ruleset) else {
        return Ok(found_route);
    };
    let is_searchable =
        !is_stream(&head.fields) && !is_unsearchable(&head.fields, MAX_READ_AHEAD_BYTES);
    let body_start = is_searchable.then_some(BodyStart {
        bytes: body,
        is_whole: body.len() <= MAX_READ_AHEAD_BYTES,
    });
    let target = RequestTarget::new(head, host, table)?;
    let matched_route = hold_to_body(
        head,
        &target,
        body_start,
        found_route.matched_route,
        body_routes,
        ruleset,
    )?;
    check_path_change(head, &matched_route, ruleset)?;
    Ok(FoundRoute::serving(matched_route))
}

/// Refuses methods that the gateway does not serve, with 400.
fn check_method(head: &Head) -> Result<(), RefusalCause> {
    if head.method == Method::CONNECT {
        return Err(RefusalCause::Bad("CONNECT is not served here"));
    }
    // Methods are case-sensitive (RFC 9110 section 9.1), but some servers take `get` for GET, which a policy for GET does
    // not.
    if head
        .method
        .as_str()
        .bytes()
        .any(|byte| byte.is_ascii_lowercase())
    {
        return Err(RefusalCause::Bad("its method must be in upper case"));
    }
    Ok(())
}

/// Replaces the `Host` field by one in canonical form, from an absolute target or else from the client's own field. So
/// the upstream reads the same host by which the route is found.
///
/// # Errors
///
/// The host is missing, malformed or ambiguous: 400.
fn canonicalize_host(arrival: &mut Arrival) -> Result<(), RefusalCause> {
    let head = &arrival.head;
    let is_absolute = head.uri.authority().is_some();
    let repeated_fields = arrival.repeated_fields.as_ref();
    if !is_absolute && repeated_fields.is_some_and(|fields| fields.has_canonical_host.get()) {
        return Ok(());
    }
    let changed_host = match read_host(head)? {
        Some(Cow::Owned(host)) => Some(host),
        Some(Cow::Borrowed(host)) if head.fields.text("host") != Some(host) => {
            Some(host.to_owned())
        }
        _ => None,
    };
    if let Some(host) = changed_host {
        Rc::make_mut(&mut arrival.head)
            .fields
            .set("host", host.as_bytes());
        // The fields are no longer those that the connection remembers.
        arrival.repeated_fields = None;
    } else if is_absolute {
        arrival.repeated_fields = None;
    } else if let Some(fields) = repeated_fields {
        fields.has_canonical_host.set(true);
    }
    Ok(())
}

/// The host of a request in canonical form, by its absolute target or else its `Host` field. `None` if a request of
/// HTTP/1.0 names no host.
///
/// # Errors
///
/// The host is missing, malformed or ambiguous, or the target is not an HTTP URL: 400.
pub(super) fn read_host(head: &Head) -> Result<Option<Cow<'_, str>>, RefusalCause> {
    let mut hosts = head.fields.all("host");
    let host_field = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = std::str::from_utf8(host)
                .ok()
                .and_then(canonical_host::canonical_host);
            Some(host.ok_or(RefusalCause::Bad("the Host field is malformed"))?)
        }
        (None, _) if head.version < Version::HTTP_11 => None,
        (None, _) => return Err(RefusalCause::Bad("the Host field is missing")),
        (Some(_), Some(_)) => return Err(RefusalCause::Bad("there is more than one Host field")),
    };
    let Some(authority) = head.uri.authority() else {
        return Ok(host_field);
    };
    let is_http = matches!(head.uri.scheme_str(), Some("http" | "https"));
    let host = canonical_host::canonical_host(authority.as_str()).filter(|_| is_http);
    host.map(Some)
        .ok_or(RefusalCause::Bad("the target is not an HTTP URL"))
}
