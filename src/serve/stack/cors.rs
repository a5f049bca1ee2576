//! Writes the header fields by which browsers let pages of other origins read a response, or send a request (CORS; Fetch
//! standard, section 3.3). `found_route.rs` finds the route that a preflight asks about, and `observe.rs` calls this file.

use http::{Method, StatusCode};

use super::request_context::RequestContext;
use super::vary;
use crate::http::head::{Fields, Head, ResponseHead};
use crate::identity::preflight;
use crate::route::{AllowedOrigins, Cors, HeaderStyle};

/// Maximum bytes of the field names that a preflight asks for, if the policy allows any.
const MAX_REQUESTED_FIELDS_BYTES: usize = 1024;

/// The fields by which an upstream would decide itself. They are dropped, because a browser refuses two decisions.
const UPSTREAM_FIELDS: &[u8] = b"access-control-";

/// Sets the fields of a response to this request. Those of the upstream are dropped. Does nothing on a route without
/// `cors`, and after a switch of protocols. The response of an upstream to a preflight stays as it is too.
pub(super) fn set_fields(context: &RequestContext, response: &mut ResponseHead) {
    let Some(cors) = context.cors() else { return };
    let head = context.head.as_deref();
    let requested_method = head.and_then(preflight::requested_method);
    let is_of_upstream = context.is_from_upstream() && requested_method.is_some();
    if is_of_upstream || response.status == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let fields = &mut response.fields;
    fields.retain(|name| {
        let beginning = name.get(..UPSTREAM_FIELDS.len());
        !beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(UPSTREAM_FIELDS))
    });
    if cors.origins != AllowedOrigins::Any {
        vary::add_name(fields, "origin");
    }
    if requested_method.is_some() {
        let names = b"access-control-request-method, access-control-request-headers";
        fields.add("vary", names);
    }
    let origin = head.and_then(find_origin);
    let allowed_origin = match (&cors.origins, origin) {
        (AllowedOrigins::Any, _) => "*",
        (AllowedOrigins::Listed(_), Some(origin)) if cors.origins.contains(origin) => origin,
        (AllowedOrigins::Listed(_), _) => return,
    };
    fields.add("access-control-allow-origin", allowed_origin.as_bytes());
    if cors.allows_credentials {
        fields.add("access-control-allow-credentials", b"true");
    }
    match (requested_method, head) {
        (Some(method), Some(head)) => allow_request(fields, cors, &method, head),
        _ => fields.add_with("access-control-expose-headers", |value| {
            value.extend_from_slice(exposed_limit_fields(context.header_style()).as_bytes());
            value.extend_from_slice(cors.exposed_fields.as_bytes());
        }),
    }
}

/// Whether pages of the origin that a preflight names may send requests.
pub(super) fn allows_preflight(cors: &Cors, head: &Head) -> bool {
    find_origin(head).is_some_and(|origin| cors.origins.contains(origin))
}

/// The origin of the page that sends a request; `None` if the request names none, or several.
fn find_origin(head: &Head) -> Option<&str> {
    let mut origins = head.fields.all("origin");
    let origin = origins.next().filter(|_| origins.next().is_none())?;
    std::str::from_utf8(origin).ok()
}

/// Allows the request that a preflight asks about. Its method is that of the route.
fn allow_request(fields: &mut Fields, cors: &Cors, method: &Method, head: &Head) {
    fields.add("access-control-allow-methods", method.as_str().as_bytes());
    let requested_fields = head.fields.first("access-control-request-headers");
    match (&cors.allowed_fields, requested_fields) {
        (Some(names), _) => fields.add("access-control-allow-headers", names.as_bytes()),
        (None, Some(names)) if is_list_of_names(names) => {
            fields.add("access-control-allow-headers", names);
        }
        (None, _) => {}
    }
    fields.add_with("access-control-max-age", |value| {
        value.extend_from_slice(cors.max_age_seconds.to_string().as_bytes());
    });
}

/// Whether a text may be sent back as a list of field names.
fn is_list_of_names(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    text.len() <= MAX_REQUESTED_FIELDS_BYTES && text.iter().all(is_part)
}

/// The fields of limits that pages may read, by the style in which responses have them.
fn exposed_limit_fields(style: HeaderStyle) -> &'static str {
    match style {
        HeaderStyle::Ietf => "retry-after, ratelimit, ratelimit-policy",
        HeaderStyle::Legacy => {
            "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
        }
        HeaderStyle::Both => {
            "retry-after, ratelimit, ratelimit-policy, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
        }
        HeaderStyle::None => "retry-after",
    }
}
