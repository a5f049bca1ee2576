//! Decides which requests the admin listener serves. If operators have tokens, all requests but those for public paths must
//! carry one, and `rights.rs` checks what it allows. If there are none, `Host` must name this machine.
//!
//! Requests that a browser sends for pages of other sites are refused, except for a link to the dashboard. Old browsers
//! do not tell for which page they send a `GET`.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::audit::Refusals;
use super::connections::AdminPeer;
use super::control::Control;
use super::operator::{TokenGuesses, TokenRefusal, find_operator};
use super::problem::problem_response;

/// Fields of all responses that have none of this name. No page may show the listener in a frame, and nothing of it is
/// taken for a script or kept.
const PROTECTIVE_FIELDS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// What [`authorize`] needs.
#[derive(Clone)]
pub(super) struct Entrance {
    pub(super) gateway: Arc<dyn Control>,
    /// The paths that need no token.
    pub(super) public_paths: Arc<HashSet<&'static str>>,
    pub(super) guesses: Arc<TokenGuesses>,
    pub(super) refusals: Arc<Refusals>,
}

/// Passes a request on with its operator, and refuses one of nobody. All responses get [`PROTECTIVE_FIELDS`].
pub(super) async fn authorize(
    State(entrance): State<Entrance>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match entrance.admit(request) {
        Ok(request) => next.run(request).await,
        Err(response) => *response,
    };
    for (name, value) in PROTECTIVE_FIELDS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

impl Entrance {
    /// Adds its operator to a request. The error is the response.
    fn admit(&self, mut request: Request) -> Result<Request, Box<Response>> {
        let path = request.uri().path();
        let is_public = self.public_paths.contains(path);
        let headers = request.headers();
        let peer = request.extensions().get::<AdminPeer>().copied();
        let peer = peer.unwrap_or(AdminPeer {
            address: Ipv4Addr::UNSPECIFIED.into(),
            is_local_loopback: false,
        });
        let needs_token = self.gateway.running().ruleset.operators.is_some();
        let mut operator = find_operator(&*self.gateway, headers, peer.address);
        // A foreign page can point a name of its own at 127.0.0.1 (DNS rebinding), but then its requests carry that name.
        // Without tokens the listener is on loopback. A foreign page has no token, but could guess in this machine's name.
        let is_foreign = (!needs_token || peer.is_local_loopback) && !is_host_loopback(headers);
        if is_foreign && (!needs_token || (operator.is_err() && !is_public)) {
            return Err(Box::new(problem_response(
                StatusCode::FORBIDDEN,
                "the Host field does not name this machine; use localhost or a loopback address",
            )));
        }
        if let Err(refusal) = &mut operator
            && !is_foreign
        {
            *refusal = self.count_refusal(*refusal, request.method(), peer.address);
        }
        if let Err(refusal) = &operator
            && !is_public
        {
            return Err(Box::new(refusal.to_response()));
        }
        // A foreign page cannot read the responses, but its requests would cost work. It may link to the dashboard.
        let is_read_only = matches!(*request.method(), Method::GET | Method::HEAD);
        let must_refuse = match is_read_only {
            true => path != "/" && declared_cross_site(headers) == Some(true),
            false => is_cross_site(headers),
        };
        if must_refuse {
            return Err(Box::new(problem_response(
                StatusCode::FORBIDDEN,
                "the admin listener refuses requests from pages of other sites",
            )));
        }
        if let Ok(operator) = operator {
            request.extensions_mut().insert(operator);
        }
        Ok(request)
    }

    /// Counts and records a token that lets nobody in. Returns what the client is told.
    fn count_refusal(&self, refusal: TokenRefusal, method: &Method, peer: IpAddr) -> TokenRefusal {
        let result = match refusal {
            TokenRefusal::Unknown => "wrong token",
            TokenRefusal::Expired => "expired token",
            _ => return refusal,
        };
        let method = method_name(method);
        self.refusals
            .record_stranger(&*self.gateway, peer, method, result);
        let now = self.gateway.clock().now();
        match refusal == TokenRefusal::Unknown && !self.guesses.take(peer, now) {
            true => TokenRefusal::TooMany,
            false => refusal,
        }
    }
}

/// The name of a method that clients use, or `other`: a client may send any text as its method.
fn method_name(method: &Method) -> &'static str {
    const METHODS: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
    ];
    let mut methods = METHODS.into_iter();
    let known = methods.find(|known| *known == method.as_str());
    known.unwrap_or("other")
}

/// Whether `Host` names `localhost` or a loopback address.
fn is_host_loopback(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let host_name = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    host_name.eq_ignore_ascii_case("localhost")
        || host_name
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether `Sec-Fetch-Site` says that a page of another origin sent the request; `None` without that field.
fn declared_cross_site(headers: &HeaderMap) -> Option<bool> {
    let site = headers.get("sec-fetch-site")?;
    Some(!matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// Whether a page of another origin sent the request, by `Sec-Fetch-Site` or, from older browsers, by `Origin`. False
/// if the request has neither field, because then no browser sent it.
fn is_cross_site(headers: &HeaderMap) -> bool {
    if let Some(is_cross_site) = declared_cross_site(headers) {
        return is_cross_site;
    }
    let Some(origin) = headers
        .get(header::ORIGIN)
        .and_then(|origin| origin.to_str().ok())
    else {
        return false;
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let origin_host = origin.split_once("://").map(|(_, origin_host)| origin_host);
    origin_host != host
}
