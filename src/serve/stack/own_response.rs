//! The response to an admitted request whose route the gateway answers by itself: a fixed response, a redirect, or what the
//! caller has left of its limits. No upstream is touched, and the body of the request stays unread.

use http::Method;

use super::body::AdmittedBody;
use super::refusal::{Refusal, RefusalCause};
use super::refusal_document::redirect_response;
use super::stages::Identified;
use super::usage;
use crate::http::head::{Fields, Head, Response, ResponseHead};
use crate::route::{FixedResponse, PathChange, Redirect, RouteAction};

/// Why a request is refused if a redirect cannot name its host.
pub(super) const UNKNOWN_HOST: &str =
    "it names no host, or no path, and is redirected to the same one";

/// The response that the route has in place of an upstream.
///
/// # Errors
///
/// A redirect depends on the host, and the client has named none; or the route has an upstream after all. So is a response
/// that a proxy that asks would take for an admission. What a caller has
/// left of its limits is an error too, so that the request has an outcome of its own.
pub(super) fn respond(identified: &Identified) -> Result<Response<AdmittedBody>, Refusal> {
    let routed = &identified.routed;
    let head = &routed.arrival.head;
    let is_check = routed.arrival.context.peer.is_check();
    let response = match &routed.route().action {
        // The proxy would take these for an admission, and send the request to a server.
        RouteAction::Usage(_) if is_check => None,
        RouteAction::Respond(response) if is_check && response.status.is_success() => None,
        // The check itself is no HEAD, so its response has a body.
        RouteAction::Respond(response) if is_check => Some(fixed_response(response, &Method::GET)),
        RouteAction::Respond(response) => Some(fixed_response(response, &head.method)),
        RouteAction::Redirect(redirect) => {
            let path_change = routed.route().path_change.as_deref();
            self::redirect(redirect, path_change, head)
        }
        RouteAction::Usage(list) => return Err(usage::respond(identified, list)),
        RouteAction::Forward(_) | RouteAction::Admit if is_check => Some(Response {
            head: ResponseHead::default(),
            body: AdmittedBody::Check,
        }),
        RouteAction::Forward(_) | RouteAction::Admit | RouteAction::Decide(_) => None,
    };
    response.ok_or_else(|| {
        let cause = match is_check {
            true => RefusalCause::NotServed,
            false => RefusalCause::Bad(UNKNOWN_HOST),
        };
        Refusal::unsent(cause, &head.fields)
    })
}

fn fixed_response(response: &FixedResponse, method: &Method) -> Response<AdmittedBody> {
    let mut fields = Fields::default();
    if !response.body.is_empty() {
        fields.add("content-type", response.content_type.as_bytes());
    }
    let mut body = response.body.clone();
    if *method == Method::HEAD && !body.is_empty() {
        fields.add("content-length", body.len().to_string().as_bytes());
        body.clear();
    }
    Response {
        head: ResponseHead {
            status: response.status,
            fields,
            ..ResponseHead::default()
        },
        body: AdmittedBody::own(body),
    }
}

/// The redirect of a request with this head; `None` if [`find_location`] finds none.
fn redirect(
    redirect: &Redirect,
    path_change: Option<&PathChange>,
    head: &Head,
) -> Option<Response<AdmittedBody>> {
    let location = find_location(redirect, path_change, head)?;
    let response = redirect_response(redirect.status, &location);
    Some(response.map(AdmittedBody::own))
}

/// The `Location` of a request with this head; `None` if it depends on the host, and the client has named none.
pub(super) fn find_location(
    redirect: &Redirect,
    path_change: Option<&PathChange>,
    head: &Head,
) -> Option<String> {
    let path = head.uri.path();
    // A path with an unsafe rest was refused when its route was found.
    let rest = match path_change {
        Some(path_change) => path_change.rest(path).ok()?,
        None => path,
    };
    let host = head.fields.text("host");
    redirect.target.location(host, rest, head.uri.query())
}
