//! Finds the route of a request, or refuses a request that cannot be matched safely. Reads ahead in a body only where it
//! may name a method or a path that leads to another route.

use std::borrow::Cow;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Method, Version};
use tower::{Layer, Service};

use super::body::MAX_AHEAD;
use super::ending::Ending;
use super::matched::MatchedRoute;
use super::overrides::{self, InBody};
use super::refusal::{BoxedOutcome, Refusal, RefusalCause};
use super::stages::{Arrival, Routed};
use super::target::{RequestTarget, match_route};
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::body::is_stream;
use crate::policy::Ruleset;
use crate::route::host;

/// What a service answers to a request with a route.
type RoutedResponse<S> = <S as Service<Routed>>::Response;

/// Puts [`Routing`] around a service.
#[derive(Clone, Copy, Debug)]
pub struct RouteLayer;

impl<S> Layer<S> for RouteLayer {
    type Service = Routing<S>;

    fn layer(&self, inner: S) -> Routing<S> {
        Routing { inner }
    }
}

/// See [`RouteLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Routing<S> {
    inner: S,
}

impl<S> Service<Arrival> for Routing<S>
where
    S: Service<Routed, Error = Refusal>
        + Service<Ending, Response = RoutedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    type Response = RoutedResponse<S>;
    type Error = Refusal;
    type Future = Either<
        <S as Service<Routed>>::Future,
        Either<<S as Service<Ending>>::Future, BoxedOutcome<RoutedResponse<S>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Routed>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, mut arrival: Arrival) -> Self::Future {
        match repeated_route(&arrival)
            .map_or_else(|| route_arrival(&mut arrival), |route| Ok(route.into()))
        {
            Ok(matched) => match routes_by_body(&arrival, &matched) {
                None => {
                    let now = arrival.note.at;
                    Either::Left(self.inner.call(routed(arrival, matched, now)))
                }
                Some(others) => {
                    Either::Right(Either::Right(self.read_body(arrival, matched, others)))
                }
            },
            Err(why) => {
                let now = arrival.note.at;
                let ending = Ending::unrouted(arrival, why, now);
                Either::Right(Either::Left(self.inner.call(ending)))
            }
        }
    }
}

impl<S> Routing<S>
where
    S: Service<Routed, Error = Refusal>
        + Service<Ending, Response = RoutedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    /// Routes a request by the method and the path that its body names too.
    fn read_body(
        &mut self,
        mut arrival: Arrival,
        matched: MatchedRoute,
        others: OtherRoutes,
    ) -> BoxedOutcome<RoutedResponse<S>> {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let matched = read_body(&mut arrival, matched, others).await;
            let now = arrival.note.generation.clock.now();
            match matched {
                Ok(matched) => inner.call(routed(arrival, matched, now)).await,
                Err(why) => inner.call(Ending::unrouted(arrival, why, now)).await,
            }
        })
    }
}

fn routed(arrival: Arrival, matched: MatchedRoute, now: Nanos) -> Routed {
    arrival.note.route.set(Some(matched.index));
    arrival.note.generation.routes[matched.index]
        .started
        .increment(1);
    Routed {
        arrival,
        matched,
        now,
    }
}

/// The other routes that a body may lead to.
struct OtherRoutes {
    /// By a method in the body.
    by_method: Vec<MatchedRoute>,
    /// A path in the body may lead to others.
    by_path: bool,
}

/// See [`other_routes`]; none where the body is not looked at.
fn routes_by_body(arrival: &Arrival, matched: &MatchedRoute) -> Option<OtherRoutes> {
    let ruleset = &arrival.note.generation.ruleset;
    let reads = matched.route(ruleset).reads;
    if arrival.body.is_empty() || !(reads.method_in_body || reads.path_in_body) {
        return None;
    }
    let host = arrival.head.fields.text("host");
    other_routes(&arrival.head, host, matched, ruleset)
}

async fn read_body(
    arrival: &mut Arrival,
    matched: MatchedRoute,
    others: OtherRoutes,
) -> Result<MatchedRoute, RefusalCause> {
    let Arrival {
        head, body, note, ..
    } = arrival;
    let is_stream = is_stream(&head.fields);
    let may_name = |begin: &[u8], whole| {
        let method = overrides::may_name_method(head, begin, whole);
        match method {
            Some(false) if others.by_path => overrides::may_name_path(head, begin, whole),
            may => may,
        }
    };
    if !is_stream && !body.begins(may_name).await? {
        return Ok(matched);
    }
    let ruleset = &note.generation.ruleset;
    let host = head.fields.text("host");
    if is_stream || overrides::hides_body(&head.fields) {
        return by_body((head, host), None, matched, others, ruleset);
    }
    let peeked = body.peek(MAX_AHEAD).await?;
    let text = Some((&*peeked.ahead, peeked.whole));
    let matched = by_body((head, host), text, matched, others, ruleset);
    body.put_back(peeked.ahead, peeked.trailers);
    matched
}

/// What counts a request by its body too, of which `text` is as much as is there and whether that is all; none where it
/// cannot be searched.
fn by_body(
    (head, host): (&Head, Option<&str>),
    text: Option<(&[u8], bool)>,
    mut matched: MatchedRoute,
    others: OtherRoutes,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let target = RequestTarget::of(head, host)?;
    if !others.by_method.is_empty() {
        let in_body = text.map_or(InBody::Unclear, |(text, whole)| {
            overrides::in_body(head, text, whole)
        });
        matched = target.by_body(&in_body, matched, others.by_method, ruleset)?;
    }
    if !others.by_path {
        return Ok(matched);
    }
    let path = text.map_or(FieldValue::Ambiguous, |(text, whole)| {
        overrides::path_in_body(head, text, whole)
    });
    target.by_path_in_body(&head.method, &path, matched, ruleset)
}

/// The routes to which the body may lead, without those whose limits all count already; none if there are none, or if no
/// framework looks there.
#[inline(never)]
fn other_routes(
    head: &Head,
    host: Option<&str>,
    matched: &MatchedRoute,
    ruleset: &Ruleset,
) -> Option<OtherRoutes> {
    if !overrides::may_be_in_body(head) {
        return None;
    }
    let reads = matched.route(ruleset).reads;
    let by_path = reads.path_in_body;
    if !reads.method_in_body {
        let by_method = Vec::new();
        return by_path.then_some(OtherRoutes { by_method, by_path });
    }
    let target = RequestTarget::of(head, host).ok()?;
    // A method that no pattern names stands for all of them.
    let unnamed = Method::from_bytes(b"_").ok();
    let methods = ruleset.table.methods().iter().chain(&unnamed);
    let others = methods.filter_map(|method| target.look_up(method, ruleset).ok());
    let by_method: Vec<_> = others
        .filter(|other| !matched.counts(other, ruleset))
        .collect();
    (by_path || !by_method.is_empty()).then_some(OtherRoutes { by_method, by_path })
}

/// A request that ends before it has a route.
impl<S: Service<Ending>> Service<Ending> for Routing<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ending: Ending) -> S::Future {
        self.inner.call(ending)
    }
}

/// The route, if the last request of the connection had the same head.
fn repeated_route(arrival: &Arrival) -> Option<usize> {
    let repeated = arrival.repeated.as_ref()?;
    repeated.route(&arrival.head, &arrival.note.generation)
}

fn route_arrival(arrival: &mut Arrival) -> Result<MatchedRoute, RefusalCause> {
    is_served(&arrival.head)?;
    settle_host(arrival)?;
    let ruleset = &arrival.note.generation.ruleset;
    let host = arrival.head.fields.text("host");
    if !host.is_none_or(|host| arrival.note.peer.serves(host)) {
        return Err(RefusalCause::Misdirected);
    }
    let matched = match_route(&arrival.head, host, ruleset)?;
    if let Some((repeated, route)) = arrival.repeated.as_ref().zip(matched.alone()) {
        repeated.remember_route(&arrival.head, &arrival.note.generation, route);
    }
    Ok(matched)
}

/// The route of a request, as the gateway finds it. Changes and counts nothing.
///
/// # Errors
///
/// Why the request is refused before it has a route: 400, 404 or 405.
pub fn find_route(
    head: &Head,
    body: &[u8],
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    is_served(head)?;
    let host = read_host(head)?;
    let matched = match_route(head, host.as_deref(), ruleset)?;
    let reads = matched.route(ruleset).reads;
    if body.is_empty() || !(reads.method_in_body || reads.path_in_body) {
        return Ok(matched);
    }
    let host = host.as_deref();
    let Some(others) = other_routes(head, host, &matched, ruleset) else {
        return Ok(matched);
    };
    let is_searched = !is_stream(&head.fields) && !overrides::hides_body(&head.fields);
    let text = is_searched.then_some((body, body.len() <= MAX_AHEAD));
    by_body((head, host), text, matched, others, ruleset)
}

fn is_served(head: &Head) -> Result<(), RefusalCause> {
    if head.method == Method::CONNECT {
        return Err(RefusalCause::Bad("CONNECT is not served here"));
    }
    // Some servers take `get` for GET, and a policy for GET would not: RFC 9110 section 9.1.
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

/// Leaves exactly one `Host`, in its canonical form: that of an absolute target, else the one that the client
/// sent. So the upstream, and what is said to it of the host, name the host that the route was found by.
fn settle_host(arrival: &mut Arrival) -> Result<(), RefusalCause> {
    let head = &arrival.head;
    let absolute = head.uri.authority().is_some();
    let repeated = arrival.repeated.as_ref();
    if !absolute && repeated.is_some_and(|repeated| repeated.has_canonical_host.get()) {
        return Ok(());
    }
    let other = match read_host(head)? {
        Some(Cow::Owned(host)) => Some(host),
        Some(Cow::Borrowed(host)) if head.fields.text("host") != Some(host) => {
            Some(host.to_owned())
        }
        _ => None,
    };
    if let Some(host) = other {
        Rc::make_mut(&mut arrival.head)
            .fields
            .set("host", host.as_bytes());
        // The fields are no longer those that the connection remembers.
        arrival.repeated = None;
    } else if absolute {
        arrival.repeated = None;
    } else if let Some(repeated) = repeated {
        repeated.has_canonical_host.set(true);
    }
    Ok(())
}

/// The host that a request is for, canonical; only HTTP/1.0 may name none.
fn read_host(head: &Head) -> Result<Option<Cow<'_, str>>, RefusalCause> {
    let mut hosts = head.fields.all("host");
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = std::str::from_utf8(host).ok().and_then(host::canonical);
            Some(host.ok_or(RefusalCause::Bad("the Host field is malformed"))?)
        }
        (None, _) if head.version < Version::HTTP_11 => None,
        (None, _) => return Err(RefusalCause::Bad("the Host field is missing")),
        (Some(_), Some(_)) => return Err(RefusalCause::Bad("there is more than one Host field")),
    };
    let Some(authority) = head.uri.authority() else {
        return Ok(named);
    };
    let of_http = matches!(head.uri.scheme_str(), Some("http" | "https"));
    let host = host::canonical(authority.as_str()).filter(|_| of_http);
    host.map(Some)
        .ok_or(RefusalCause::Bad("the target is not an HTTP URL"))
}
