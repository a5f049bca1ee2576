//! The HTTP check: a proxy asks whether it may serve a request, and describes it in header fields. This file reads the
//! described request, which then passes the stack as any other, and says how the response differs.
//!
//! A proxy writes one of two families of fields: `X-Forwarded-Method` and `-Uri`, as Traefik and Caddy do, or
//! `X-Original-Method` and `-URI` or `-URL`, as is usual with nginx. Clients may send the other family, which proxies pass
//! on. So exactly one may be there.

use std::rc::Rc;

use bytes::Bytes;
use http::{Method, StatusCode, Uri};

use super::refusal::RefusalCause;
use super::stages::FreshRequest;
use super::unreadable_request::{FirstLine, UnreadableRequest};
use crate::http::head::{Fields, Head, Response};
use crate::http::http1::MAX_TARGET_BYTES;

const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";
const FORWARDED_HOST: &str = "x-forwarded-host";
const ORIGINAL_METHOD: &str = "x-original-method";
const ORIGINAL_URI: &str = "x-original-uri";
const ORIGINAL_URL: &str = "x-original-url";

/// The field with the status that another one replaces.
const STATUS_FIELD: &str = "tollgate-status";

/// A request that a proxy asks about.
struct AskedRequest {
    /// The head of the client's request.
    head: Rc<Head>,
    /// See [`replace_by_asked`].
    refused_status: Option<StatusCode>,
}

/// Replaces a request that asks by the one that it asks about. That is unreadable if the proxy is not trusted, or if the
/// description is not clear: 400. Returns the status of refusals other than 401 and 403, for proxies that understand only
/// these; `None` if each keeps its own.
#[cold]
pub fn replace_by_asked(request: &mut FreshRequest) -> Option<StatusCode> {
    // What the connection remembers is of the request that asks.
    request.repeated_fields = None;
    let received = request.head.as_ref().ok()?;
    let identifier = &request.generation.identifier;
    let asked = match identifier.is_trusted_proxy(request.peer.remote) {
        true => read_trusted(received),
        false => Err(RefusalCause::Bad(
            "only proxies in `trusted_proxies` may ask here",
        )),
    };
    match asked {
        Ok(asked) => {
            request.head = Ok(asked.head);
            asked.refused_status
        }
        Err(cause) => {
            request.head = Err(Box::new(UnreadableRequest {
                cause,
                first_line: FirstLine::default(),
                gets_no_response: false,
            }));
            None
        }
    }
}

/// Reads the request that a trusted proxy describes.
///
/// # Errors
///
/// The description is not clear: 400.
fn read_trusted(received: &Head) -> Result<AskedRequest, RefusalCause> {
    let refused_status = read_refused_status(received.uri.query())?;
    let fields = &received.fields;
    let [forwarded, original] = [
        [FORWARDED_METHOD, FORWARDED_URI].as_slice(),
        &[ORIGINAL_METHOD, ORIGINAL_URI, ORIGINAL_URL],
    ]
    .map(|names| names.iter().any(|name| fields.contains(name)));
    let (method, target, host) = match (forwarded, original) {
        (true, false) => {
            let target = required(fields, FORWARDED_URI)?;
            let host = single(fields, FORWARDED_HOST)?;
            (required(fields, FORWARDED_METHOD)?, target, host)
        }
        (false, true) => {
            let (target, host) = original_target(fields)?;
            (required(fields, ORIGINAL_METHOD)?, target, host)
        }
        (true, true) => {
            return Err(RefusalCause::Bad(
                "it has both X-Forwarded-Method or -Uri and X-Original-Method, -URI or -URL, and a client may have sent one of them",
            ));
        }
        (false, false) => {
            return Err(RefusalCause::Bad(
                "it describes no request: X-Forwarded-Method and X-Forwarded-Uri, or X-Original-Method and X-Original-URI, are missing",
            ));
        }
    };
    let method = Method::from_bytes(method)
        .map_err(|_| RefusalCause::Bad("the method that it asks about is malformed"))?;
    let uri = parse_target(target, &method)?;
    let mut fields = fields.clone();
    if let Some(host) = host {
        let host = host.to_vec();
        fields.set("host", &host);
    }
    Ok(AskedRequest {
        head: Rc::new(Head {
            method,
            uri,
            version: received.version,
            upgrade: None,
            fields,
        }),
        refused_status,
    })
}

/// The target and the host in the fields of the family `X-Original-`; `None` as the host if `Host` has it.
fn original_target(fields: &Fields) -> Result<(&[u8], Option<&[u8]>), RefusalCause> {
    const BOTH: RefusalCause = RefusalCause::Bad("it has both X-Original-URI and X-Original-URL");
    const NO_URL: RefusalCause = RefusalCause::Bad("X-Original-URL is not an HTTP URL with a path");
    match (single(fields, ORIGINAL_URI)?, single(fields, ORIGINAL_URL)?) {
        (Some(_), Some(_)) => Err(BOTH),
        (Some(target), None) => Ok((target, None)),
        (None, None) => Err(RefusalCause::Bad("X-Original-URI is missing")),
        (None, Some(url)) => {
            let mut schemes = [b"http://".as_slice(), b"https://"].into_iter();
            let rest = schemes
                .find_map(|scheme| url.strip_prefix(scheme))
                .ok_or(NO_URL)?;
            let path_start = rest
                .iter()
                .position(|byte| *byte == b'/')
                .filter(|start| *start > 0)
                .ok_or(NO_URL)?;
            let (host, target) = rest.split_at(path_start);
            Ok((target, Some(host)))
        }
    }
}

/// Parses a target as if a client had sent it: a path with a query, or `*` of OPTIONS.
fn parse_target(target: &[u8], method: &Method) -> Result<Uri, RefusalCause> {
    if target.len() > MAX_TARGET_BYTES {
        return Err(RefusalCause::LongTarget);
    }
    let is_path = target.starts_with(b"/") || (*method == Method::OPTIONS && target == b"*");
    // Servers cut a fragment off, and disagree on what is left: CVE-2023-45539.
    let has_fragment = target.contains(&b'#');
    Uri::from_maybe_shared(Bytes::copy_from_slice(target))
        .ok()
        .filter(|_| is_path && !has_fragment)
        .ok_or(RefusalCause::Bad(
            "the path that it asks about is malformed",
        ))
}

/// The value of a field that is there once at most.
fn single<'f>(fields: &'f Fields, name: &str) -> Result<Option<&'f [u8]>, RefusalCause> {
    let mut values = fields.all(name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(RefusalCause::Bad(
            "a field that describes the request is there twice, and a client may have sent one of them",
        )),
    }
}

fn required<'f>(fields: &'f Fields, name: &str) -> Result<&'f [u8], RefusalCause> {
    single(fields, name)?.ok_or(RefusalCause::Bad(
        "it describes a request without its method or its URI",
    ))
}

/// The status in the query of the check's own URL: `status=403`.
fn read_refused_status(query: Option<&str>) -> Result<Option<StatusCode>, RefusalCause> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    // No other status: proxies may take a failure of the gateway for an admission.
    match query {
        "status=401" => Ok(Some(StatusCode::UNAUTHORIZED)),
        "status=403" => Ok(Some(StatusCode::FORBIDDEN)),
        _ => Err(RefusalCause::Bad(
            "the query of a check may only be `status=403` or `status=401`, and the proxy must take off that of the client",
        )),
    }
}

/// Replaces the status of a refusal for proxies that understand only 401 and 403, and adds a field with the status itself.
pub fn replace_status<B>(response: &mut Response<B>, refused_status: StatusCode) {
    let status = response.head.status;
    if status.is_success() {
        return;
    }
    let fields = &mut response.head.fields;
    fields.set(STATUS_FIELD, status.as_str().as_bytes());
    if ![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) {
        response.head.status = refused_status;
        response.head.reason = None;
    }
}
