//! Finds a request's route, or refuses what cannot be matched safely.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Method;
use tower::{Layer, Service};

use super::answer::{Refusal, Why};
use super::ending::Ending;
use super::overrides;
use super::record::Arrival;
use crate::head::Head;
use crate::policy::Ruleset;
use crate::route::{Found, Paths, Route, host, literal_readings, normalise};

/// Why a request is refused whose path frameworks read in two ways.
const TWO_PATHS: &str =
    "its path can be read in more than one way, and the limits of each are others";

/// Why a request is refused that names another method than its own.
const OVERRIDDEN: &str = "it names another method, whose limits are others";

/// A request and the route it takes.
pub struct Routed {
    /// The request.
    pub arrival: Arrival,
    /// Its route's place among the running policies' routes.
    pub index: usize,
}

impl Routed {
    /// The route.
    pub fn route(&self) -> &Route {
        &self.arrival.note.generation.ruleset.routes[self.index]
    }
}

/// What a service answers to a request with a route.
type Reply<S> = <S as Service<Routed>>::Response;

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
    S: Service<Routed, Error = Refusal> + Service<Ending, Response = Reply<S>, Error = Refusal>,
{
    type Response = Reply<S>;
    type Error = Refusal;
    type Future = Either<<S as Service<Routed>>::Future, <S as Service<Ending>>::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Routed>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, mut arrival: Arrival) -> Self::Future {
        match known(&arrival).map_or_else(|| look(&mut arrival), Ok) {
            Ok(index) => {
                arrival.note.route.set(Some(index));
                arrival.note.generation.routes[index].started.increment(1);
                Either::Left(self.inner.call(Routed { arrival, index }))
            }
            Err(why) => Either::Right(self.inner.call(Ending::unrouted(arrival, why))),
        }
    }
}

/// One that ends before it has a route.
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

/// The route, where the last request of the connection was the same.
fn known(arrival: &Arrival) -> Option<usize> {
    let known = arrival.known.as_ref()?;
    known.route(&arrival.head, &arrival.note.generation)
}

fn look(arrival: &mut Arrival) -> Result<usize, Why> {
    is_served(&arrival.head)?;
    settle_host(arrival)?;
    let ruleset = &arrival.note.generation.ruleset;
    let route = match_route(&arrival.head, arrival.head.fields.text("host"), ruleset)?;
    if let Some(known) = &arrival.known {
        known.takes(&arrival.head, &arrival.note.generation, route);
    }
    Ok(route)
}

/// The route of a request, by its place among the policies' routes, as the gateway finds it. Changes and counts
/// nothing.
///
/// # Errors
///
/// Why the request is refused before it has a route: 400, 404 or 405.
pub fn find_route(head: &Head, ruleset: &Ruleset) -> Result<usize, Why> {
    is_served(head)?;
    let host = read_host(head)?;
    match_route(head, host.as_deref(), ruleset)
}

fn match_route(head: &Head, host: Option<&str>, ruleset: &Ruleset) -> Result<usize, Why> {
    let path = normalise(head.uri.path())
        .map_err(|_| Why::Bad("the path cannot be read in one way only"))?;
    let target = Target {
        host,
        spelled: head.uri.path(),
        path,
    };
    let route = target.look_up(&head.method, ruleset)?;
    if !ruleset.table.looks_at_methods() {
        return Ok(route);
    }
    // The upstream takes the request's own method or another that is named in it, and nothing tells which. So all of
    // them must be allowed, and one route must count whatever the others count.
    let methods = overrides::methods(head).map_err(|_| Why::Bad(OVERRIDDEN))?;
    methods.iter().try_fold(route, |route, method| {
        let other = target.look_up(method, ruleset)?;
        stricter(route, other, ruleset).ok_or(Why::Bad(OVERRIDDEN))
    })
}

/// That of two routes on one upstream which counts whatever the other counts.
fn stricter(one: usize, two: usize, ruleset: &Ruleset) -> Option<usize> {
    let (first, second) = (&ruleset.routes[one], &ruleset.routes[two]);
    match (
        first.upstream == second.upstream,
        second.holds_more_than(first),
    ) {
        (true, false) => Some(one),
        (true, true) if !first.holds_more_than(second) => Some(two),
        _ => None,
    }
}

/// What a request is for but for its method.
struct Target<'h> {
    host: Option<&'h str>,
    /// The path as the client wrote it.
    spelled: &'h str,
    /// The same, normal.
    path: Cow<'h, str>,
}

impl Target<'_> {
    /// The route by this method; where the exact spelling only meets a broad route that counts less, the one that
    /// frameworks would take.
    fn look_up(&self, method: &Method, ruleset: &Ruleset) -> Result<usize, Why> {
        let table = &ruleset.table;
        match table.find(self.host, method, &self.path) {
            Found::Route(exact) if ruleset.paths == Paths::Exact => Ok(exact),
            Found::Route(exact) => {
                let route = self.fold(method, &self.path, exact, ruleset);
                match self.path {
                    Cow::Borrowed(_) => Ok(route),
                    Cow::Owned(_) => self.look_up_literally(method, route, ruleset),
                }
            }
            Found::OtherMethod => Err(Why::WrongMethod(table.allow(self.host, &self.path))),
            Found::None => Err(Why::NoRoute),
        }
    }

    fn fold(&self, method: &Method, path: &str, exact: usize, ruleset: &Ruleset) -> usize {
        let Ruleset { table, routes, .. } = ruleset;
        let counts = |other: usize| routes[other].holds_more_than(&routes[exact]);
        table.find_folded(self.host, method, path, exact, counts)
    }

    /// `route`, or another on its upstream that counts more and that frameworks find by the path as it is spelled. Where
    /// each has limits of its own it is the narrower one, as where [`RouteTable::find_folded`] folds.
    ///
    /// [`RouteTable::find_folded`]: crate::route::RouteTable::find_folded
    #[cold]
    fn look_up_literally(
        &self,
        method: &Method,
        route: usize,
        ruleset: &Ruleset,
    ) -> Result<usize, Why> {
        let literal = literal_readings(self.spelled).filter(|path| *path != self.path);
        let routes = literal.filter_map(|path| {
            let exact = ruleset.table.find(self.host, method, &path).route()?;
            Some(self.fold(method, &path, exact, ruleset))
        });
        let upstream = ruleset.routes[route].upstream;
        let mut routes = routes.filter(|other| ruleset.routes[*other].upstream == upstream);
        routes.try_fold(route, |route, other| {
            let narrower = || {
                let widths = [route, other].map(|at| ruleset.routes[at].pattern.breadth());
                match widths[0].cmp(&widths[1]) {
                    Ordering::Less => Some(route),
                    Ordering::Greater => Some(other),
                    Ordering::Equal => None,
                }
            };
            let route = stricter(route, other, ruleset).or_else(narrower);
            route.ok_or(Why::Bad(TWO_PATHS))
        })
    }
}

fn is_served(head: &Head) -> Result<(), Why> {
    if head.method == Method::CONNECT {
        return Err(Why::Bad("CONNECT is not served here"));
    }
    // Some servers take `get` for GET, and a policy for GET would not: RFC 9110 section 9.1.
    if head
        .method
        .as_str()
        .bytes()
        .any(|byte| byte.is_ascii_lowercase())
    {
        return Err(Why::Bad("its method has small letters"));
    }
    Ok(())
}

/// Leaves exactly one `Host`, in its canonical form: that of an absolute target, else the one that the client
/// sent. So the upstream, and what is said to it of the host, name the host that the route was found by.
fn settle_host(arrival: &mut Arrival) -> Result<(), Why> {
    let head = &arrival.head;
    let absolute = head.uri.authority().is_some();
    let known = arrival.known.as_ref();
    if !absolute && known.is_some_and(|known| known.hosted.get()) {
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
        // They are not the same any more.
        arrival.known = None;
    } else if absolute {
        arrival.known = None;
    } else if let Some(known) = known {
        known.hosted.set(true);
    }
    Ok(())
}

/// The host that a request is for, canonical; only HTTP/1.0 may name none.
fn read_host(head: &Head) -> Result<Option<Cow<'_, str>>, Why> {
    let mut hosts = head.fields.all("host");
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = std::str::from_utf8(host).ok().and_then(host::canonical);
            Some(host.ok_or(Why::Bad("the Host field is not a host"))?)
        }
        (None, _) if !head.newer => None,
        (None, _) => return Err(Why::Bad("the Host field is missing")),
        (Some(_), Some(_)) => return Err(Why::Bad("there is more than one Host field")),
    };
    let Some(authority) = head.uri.authority() else {
        return Ok(named);
    };
    let of_http = matches!(head.uri.scheme_str(), Some("http" | "https"));
    let host = host::canonical(authority.as_str()).filter(|_| of_http);
    host.map(Some)
        .ok_or(Why::Bad("the target is not one of HTTP"))
}
