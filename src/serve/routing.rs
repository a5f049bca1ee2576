//! Finds a request's route, or refuses what cannot be matched safely.

use std::net::Ipv6Addr;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, err};
use http::Method;
use tower::{Layer, Service};

use super::answer::{Refusal, Why};
use super::record::Arrival;
use crate::head::Head;
use crate::route::{Found, Route, normalise};

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
    S: Service<Routed, Error = Refusal>,
{
    type Response = S::Response;
    type Error = Refusal;
    type Future = Either<S::Future, Ready<Result<S::Response, Refusal>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut arrival: Arrival) -> Self::Future {
        match known(&arrival).map_or_else(|| look(&mut arrival), Ok) {
            Ok(index) => {
                arrival.note.route.set(Some(index));
                arrival.note.generation.routes[index].started.increment(1);
                Either::Left(self.inner.call(Routed { arrival, index }))
            }
            Err(why) => Either::Right(err(Refusal::new(why, &arrival.head.fields))),
        }
    }
}

/// The route, where the last request of the connection was the same.
fn known(arrival: &Arrival) -> Option<usize> {
    let known = arrival.known.as_ref()?;
    known.route(&arrival.head, &arrival.note.generation)
}

fn look(arrival: &mut Arrival) -> Result<usize, Why> {
    served(&arrival.head)?;
    settle_host(arrival)?;
    let route = find(arrival)?;
    if let Some(known) = &arrival.known {
        known.takes(&arrival.head, &arrival.note.generation, route);
    }
    Ok(route)
}

fn find(arrival: &Arrival) -> Result<usize, Why> {
    let head = &arrival.head;
    let path = normalise(head.uri.path())
        .map_err(|_| Why::Bad("the path cannot be read in one way only"))?;
    let host = head.fields.text("host");
    let table = &arrival.note.generation.ruleset.table;
    match table.find(host, &head.method, &path) {
        Found::Route(index) => Ok(index),
        Found::OtherMethod => Err(Why::WrongMethod(table.allow(host, &path))),
        Found::None => Err(Why::NoRoute),
    }
}

fn served(head: &Head) -> Result<(), Why> {
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

/// Leaves exactly one valid `Host`: that of an absolute target, else the one the client sent.
fn settle_host(arrival: &mut Arrival) -> Result<(), Why> {
    let head = &mut arrival.head;
    let known = arrival.known.as_ref();
    if known.is_none_or(|known| !known.hosted.get()) {
        one_host(head)?;
        if let Some(known) = known {
            known.hosted.set(true);
        }
    }
    if let Some(authority) = head.uri.authority() {
        let host = authority.as_str().as_bytes();
        if !matches!(head.uri.scheme_str(), Some("http" | "https")) || !is_host(host) {
            return Err(Why::Bad("the target is not one of HTTP"));
        }
        let host = host.to_vec();
        Rc::make_mut(head).fields.set("host", &host);
        // They are not the same any more.
        arrival.known = None;
    }
    Ok(())
}

fn one_host(head: &Head) -> Result<(), Why> {
    let mut hosts = head.fields.all("host");
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(()),
        (None, _) if !head.newer => Ok(()),
        (None, _) => Err(Why::Bad("the Host field is missing")),
        (Some(_), None) => Err(Why::Bad("the Host field is not a host")),
        (Some(_), Some(_)) => Err(Why::Bad("there is more than one Host field")),
    }
}

/// Whether this can be the value of `Host`: a name or an address, and perhaps a port. Names with escapes
/// are none that anybody has.
pub fn is_host(host: &[u8]) -> bool {
    let bracket = host.iter().rposition(|byte| *byte == b']').map(|at| at + 1);
    let colon = || host.iter().position(|byte| *byte == b':');
    let (name, port) = host.split_at(bracket.or_else(colon).unwrap_or(host.len()));
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte);
    let named = match name {
        [b'[', six @ .., b']'] => {
            std::str::from_utf8(six).is_ok_and(|six| six.parse::<Ipv6Addr>().is_ok())
        }
        name => !name.is_empty() && name.iter().all(plain),
    };
    let ported = match port {
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        other => other.is_empty(),
    };
    named && ported && host.len() <= 255
}
