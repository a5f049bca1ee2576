//! Decides which requests the admin listener serves. If a token is set, all requests but those for `/healthz` and the
//! dashboard's assets must carry it. If none is set, `Host` must name this machine.
//!
//! Requests that a browser sends for pages of other sites are refused, except for a link to the dashboard. Old browsers
//! do not tell for which page they send a `GET`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::control::Control;
use super::dashboard;
use super::problem::problem_response;
use super::token::has_token;

/// Passes an authorized request on, and refuses any other with 401 or 403.
pub async fn authorize(
    State(gateway): State<Arc<dyn Control>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let path = request.uri().path();
    let is_public = path == "/healthz" || dashboard::is_asset(path);
    match gateway.token() {
        Some(token) if !is_public && !has_token(headers, token) => {
            return problem_response(
                StatusCode::UNAUTHORIZED,
                "send the token as `Authorization: Bearer TOKEN`",
            );
        }
        // Without a token the listener is on loopback. A foreign page can point a name of its own at 127.0.0.1 (DNS
        // rebinding), but then its requests carry that name.
        None if !is_host_loopback(headers) => {
            return problem_response(
                StatusCode::FORBIDDEN,
                "the Host field does not name this machine; use localhost or a loopback address",
            );
        }
        _ => {}
    }
    // A foreign page cannot read the responses, but its requests would cost work. It may link to the dashboard.
    let is_read_only = matches!(*request.method(), Method::GET | Method::HEAD);
    let must_refuse = match is_read_only {
        true => path != "/" && declared_cross_site(headers) == Some(true),
        false => is_cross_site(headers),
    };
    if must_refuse {
        return problem_response(
            StatusCode::FORBIDDEN,
            "the admin listener refuses requests from pages of other sites",
        );
    }
    next.run(request).await
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
