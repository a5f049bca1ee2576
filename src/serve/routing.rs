//! Finds a request's route, or refuses what cannot be matched safely.

use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, err};
use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, Version};
use tower::{Layer, Service};

use super::answer::{Refusal, Why};
use super::body::ReplyBody;
use super::record::Arrival;
use crate::route::{Found, Route, normalise};

/// A request and the route it takes.
pub struct Routed {
    /// The request.
    pub arrival: Box<Arrival>,
    /// Its route's place among the running policies' routes.
    pub index: usize,
}

impl Routed {
    /// The route.
    pub fn route(&self) -> &Route {
        &self.arrival.generation.ruleset.routes[self.index]
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

impl<S> Service<Box<Arrival>> for Routing<S>
where
    S: Service<Routed, Response = Response<ReplyBody>, Error = Refusal>,
{
    type Response = Response<ReplyBody>;
    type Error = Refusal;
    type Future = Either<S::Future, Ready<Result<Response<ReplyBody>, Refusal>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut arrival: Box<Arrival>) -> Self::Future {
        let found = framing(&arrival.head)
            .and_then(|()| settle_host(&mut arrival.head))
            .and_then(|()| find(&arrival));
        match found {
            Ok(index) => {
                arrival.note.route.set(Some(index));
                Either::Left(self.inner.call(Routed { arrival, index }))
            }
            Err(why) => Either::Right(err(Refusal::new(why, &arrival.head.headers))),
        }
    }
}

fn find(arrival: &Arrival) -> Result<usize, Why> {
    let head = &arrival.head;
    let path = normalise(head.uri.path())
        .map_err(|_| Why::Bad("the path cannot be read in one way only"))?;
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let table = &arrival.generation.ruleset.table;
    match table.find(host, &head.method, &path) {
        Found::Route(index) => Ok(index),
        Found::OtherMethod => Err(Why::WrongMethod(table.allow(host, &path))),
        Found::None => Err(Why::NoRoute),
    }
}

/// Refuses what two readers of HTTP could take for different messages.
fn framing(head: &Parts) -> Result<(), Why> {
    if head.method == Method::CONNECT {
        return Err(Why::Bad("CONNECT is not served here"));
    }
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Why::Bad(
            "the only transfer coding served here is one `chunked`",
        )),
    }
}

/// Leaves exactly one valid `Host`: that of an absolute target, else the one the client sent.
fn settle_host(head: &mut Parts) -> Result<(), Why> {
    if let Some(authority) = head.uri.authority() {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|_| Why::Bad("the target has no host"))?;
        head.headers.insert(HOST, host);
        return Ok(());
    }
    match one_host(&head.headers) {
        Ok(Some(host)) if is_host(host) => Ok(()),
        Ok(None) if head.version < Version::HTTP_11 => Ok(()),
        Ok(None) => Err(Why::Bad("the Host field is missing")),
        Ok(Some(_)) => Err(Why::Bad("the Host field is not a host")),
        Err(()) => Err(Why::Bad("there is more than one Host field")),
    }
}

fn one_host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, ()> {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        Err(())
    } else {
        Ok(first)
    }
}

fn is_host(host: &HeaderValue) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    !host.is_empty() && host.len() <= 255 && host.as_bytes().iter().all(allowed)
}
