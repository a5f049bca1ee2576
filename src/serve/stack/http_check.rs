//! The HTTP check: a proxy asks whether it may serve a request, and describes it in header fields. This file reads the
//! described request, which then passes the stack as any other, and says how the response differs.
//!
//! A proxy writes one of two families of fields: `X-Forwarded-Method` and `-Uri`, as Traefik and Caddy do, or
//! `X-Original-Method` and `-URI` or `-URL`, as is usual with nginx. Clients may send the other family, which proxies pass
//! on. So exactly one may be there.

use std::rc::Rc;

use bytes::Bytes;
use http::{Method, StatusCode, Uri};

use super::body::ResponseBody;
use super::peer::Peer;
use super::refusal::RefusalCause;
use super::request_context::{AskedReply, RequestContext};
use super::request_outcome::RequestOutcome;
use super::stages::FreshRequest;
use super::unreadable_request::{FirstLine, UnreadableRequest};
use crate::http::head::{Fields, Head, Response};
use crate::http::http1::MAX_TARGET_BYTES;
use crate::identity::Identifier;
use crate::identity::ip::{FORWARDED, X_FORWARDED_FOR};
use crate::identity::strip::{ROUTING_FIELDS, is_alike};
use crate::serve::worker::asked_tickets::AskedTicket;
use crate::serve::worker::generation::Generation;
use crate::throttle::reject;

const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";
const FORWARDED_HOST: &str = "x-forwarded-host";
const ORIGINAL_METHOD: &str = "x-original-method";
const ORIGINAL_URI: &str = "x-original-uri";
const ORIGINAL_URL: &str = "x-original-url";

/// The field with the status that another one replaces.
const STATUS_FIELD: &str = "tollgate-status";
/// The field with the number by which the proxy may say how an admitted request ended.
const TICKET_FIELD: &str = "tollgate-ticket";

/// Replaces a request that asks by the one that it asks about. That is unreadable if the proxy is not trusted, or if the
/// description is not clear: 400. Returns what the response is like; `None` if that is nothing particular.
#[cold]
pub fn replace_by_asked(request: &mut FreshRequest) -> Option<AskedReply> {
    // What the connection remembers is of the request that asks.
    request.repeated_fields = None;
    let received = request.head.as_ref().ok()?;
    let identifier = &request.generation.identifier;
    let reply = match identifier.is_trusted_proxy(request.peer.remote) {
        true => read_reply(received.uri.query()),
        false => Err(RefusalCause::Bad(
            "only proxies in `trusted_proxies` may ask here",
        )),
    };
    let (head, reply) = match reply {
        Ok(reply) => (read_head(received, identifier), reply),
        Err(cause) => (Err(cause), AskedReply::default()),
    };
    request.head = head.map_err(|cause| {
        Box::new(UnreadableRequest {
            cause,
            first_line: FirstLine::default(),
            gets_no_response: false,
        })
    });
    Some(reply).filter(|reply| *reply != AskedReply::default())
}

/// Reads the request that a trusted proxy describes.
///
/// # Errors
///
/// The description is not clear: 400.
fn read_head(received: &Head, identifier: &Identifier) -> Result<Rc<Head>, RefusalCause> {
    let fields = &received.fields;
    if !fields.contains(X_FORWARDED_FOR) && !fields.contains(FORWARDED) {
        return Err(RefusalCause::Bad(
            "it names no client: X-Forwarded-For or Forwarded is missing",
        ));
    }
    if fields.names().any(|name| is_unclear(name, identifier)) {
        return Err(RefusalCause::Bad(
            "it has a field that servers may read as another path, host or identity",
        ));
    }
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
    // A gRPC call gets status 200 with its error, which would look like an admission.
    if reject::is_grpc(&fields) {
        fields.remove("content-type");
    }
    Ok(Rc::new(Head {
        method,
        uri,
        version: received.version,
        upgrade: None,
        fields,
    }))
}

/// Whether servers may take a field for another path, host, method or identity than those that the check describes. The
/// proxy passes it on to the server, where tollgate would have removed it.
fn is_unclear(name: &[u8], identifier: &Identifier) -> bool {
    let describes = [ORIGINAL_URI, ORIGINAL_URL]
        .iter()
        .any(|field| name.eq_ignore_ascii_case(field.as_bytes()));
    let is_routing_field = || ROUTING_FIELDS.iter().any(|field| is_alike(name, field));
    !describes && (is_routing_field() || identifier.is_other_spelling(name))
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

/// What the query of the check's own URL asks for: `status=403`, `ticket`, or both.
fn read_reply(query: Option<&str>) -> Result<AskedReply, RefusalCause> {
    let mut reply = AskedReply::default();
    for parameter in query.unwrap_or_default().split('&') {
        match parameter {
            // No other status: proxies may take a failure of the gateway for an admission.
            "status=401" => reply.refused_status = Some(StatusCode::UNAUTHORIZED),
            "status=403" => reply.refused_status = Some(StatusCode::FORBIDDEN),
            "ticket" => reply.wants_ticket = true,
            "" => {}
            _ => {
                return Err(RefusalCause::Bad(
                    "the query of a check may only be `status=403`, `status=401` and `ticket`, and the proxy must take off that of the client",
                ));
            }
        }
    }
    Ok(reply)
}

/// Makes the response what the proxy has asked for: see [`AskedReply`]. A refusal never looks like an admission, whatever its
/// cause.
pub(super) fn adapt(context: &RequestContext, response: &mut Response<ResponseBody>) {
    let is_refused = context.outcome() != RequestOutcome::Admitted;
    if is_refused && response.head.status.is_success() {
        response.head.status = StatusCode::FORBIDDEN;
    }
    let Some(reply) = context.extra.as_ref().and_then(|extra| extra.asked_reply) else {
        return;
    };
    if reply.wants_ticket
        && let Some((ticket, clock)) = response.body.take_ticket()
        && let Some(number) = context
            .peer
            .worker
            .asked_tickets
            .keep(AskedTicket { ticket, clock })
    {
        let number = format!("{number:032x}");
        response.head.fields.set(TICKET_FIELD, number.as_bytes());
    }
    if let Some(refused_status) = reply.refused_status {
        replace_status(response, refused_status);
    }
}

/// Settles the ticket of a request that a proxy has served. The query says how it ended, as in
/// `settle=NUMBER&status=200&bytes_in=0&bytes_out=512`; header fields may state costs. `None` for another request, such as
/// a check. No limit counts what a trusted proxy says.
#[cold]
pub fn settle(head: &Head, peer: &Peer, generation: &Generation) -> Option<StatusCode> {
    let query = head
        .uri
        .query()
        .filter(|query| query.starts_with("settle="))?;
    if !generation.identifier.is_trusted_proxy(peer.remote) {
        return Some(StatusCode::BAD_REQUEST);
    }
    let Some(report) = read_report(query) else {
        return Some(StatusCode::BAD_REQUEST);
    };
    let Some(mut asked) = peer.worker.asked_tickets.take(report.number) else {
        return Some(StatusCode::NOT_FOUND);
    };
    let now = asked.clock.now();
    asked
        .ticket
        .settle_reported((report.status, &head.fields), report.bytes, now);
    Some(StatusCode::NO_CONTENT)
}

/// How a request ended.
struct Report {
    number: u128,
    status: u16,
    /// The bytes of the request's body, and of the response's.
    bytes: [usize; 2],
}

/// Reads what a proxy says of a request; `None` if a part is missing, malformed or unknown.
fn read_report(query: &str) -> Option<Report> {
    let (mut number, mut status, mut bytes) = (None, None, [0; 2]);
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=')?;
        match name {
            "settle" if value.len() == 32 => number = u128::from_str_radix(value, 16).ok(),
            "status" => {
                status = value
                    .parse()
                    .ok()
                    .filter(|status| (100..600).contains(status))
            }
            "bytes_in" => bytes[0] = value.parse().ok()?,
            "bytes_out" => bytes[1] = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(Report {
        number: number?,
        status: status?,
        bytes,
    })
}

/// Replaces the status of a refusal for proxies that understand only 401 and 403, and adds a field with the status itself.
fn replace_status<B>(response: &mut Response<B>, refused_status: StatusCode) {
    let status = response.head.status;
    if status.is_success() {
        return;
    }
    let fields = &mut response.head.fields;
    fields.set(STATUS_FIELD, status.as_str().as_bytes());
    if ![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) {
        response.head.status = refused_status;
        response.head.reason = None;
        // Without its status a redirect is none, and nginx fails on fields that are too long for its buffer.
        response.head.fields.remove("location");
    }
}
