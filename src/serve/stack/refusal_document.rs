//! The responses that the gateway makes itself: problem documents, gRPC statuses and redirects.

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

use crate::http::head::{Response, ResponseHead};
use crate::throttle::reject;

/// A redirect, without a body.
pub(super) fn redirect_response<B: Default>(status: StatusCode, location: &str) -> Response<B> {
    let mut head = ResponseHead {
        status,
        ..ResponseHead::default()
    };
    head.fields.add("location", location.as_bytes());
    Response {
        head,
        body: B::default(),
    }
}

/// A response with a problem document: RFC 9457.
pub(super) fn problem_response(
    status: StatusCode,
    problem_type: &str,
    detail: &str,
) -> Response<Bytes> {
    let title = match problem_type {
        reject::REDUCED_CAPACITY => "Temporary reduced capacity",
        reject::ABNORMAL_USAGE => "Abnormal usage detected",
        _ => status.canonical_reason().unwrap_or_default(),
    };
    let body = json!({
        "type": problem_type, "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut head = ResponseHead {
        status,
        ..ResponseHead::default()
    };
    head.fields.add("content-type", reject::PROBLEM_JSON);
    Response {
        head,
        body: body.to_string().into(),
    }
}

/// A response with the gRPC status for an HTTP status, by the gRPC project's `http-grpc-status-mapping.md`. It differs
/// from that page in four points: timeouts become DEADLINE_EXCEEDED, 413 becomes RESOURCE_EXHAUSTED, 405 counts as 404, and
/// a status without a mapping becomes UNAVAILABLE.
pub(super) fn grpc_response(status: StatusCode, detail: &str) -> Response<Bytes> {
    let code = match status.as_u16() {
        400 => grpc_code::INTERNAL,
        401 => grpc_code::UNAUTHENTICATED,
        403 => grpc_code::PERMISSION_DENIED,
        404 | 405 => grpc_code::UNIMPLEMENTED,
        408 | 504 => grpc_code::DEADLINE_EXCEEDED,
        // Clients try again after UNAVAILABLE.
        413 => grpc_code::RESOURCE_EXHAUSTED,
        _ => grpc_code::UNAVAILABLE,
    };
    reject::grpc_response(code, detail.as_bytes())
}

/// The status codes of gRPC that the gateway sends, by the gRPC project's `statuscodes.md`.
mod grpc_code {
    pub(super) const DEADLINE_EXCEEDED: u16 = 4;
    pub(super) const PERMISSION_DENIED: u16 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u16 = 8;
    pub(super) const UNIMPLEMENTED: u16 = 12;
    pub(super) const INTERNAL: u16 = 13;
    pub(super) const UNAVAILABLE: u16 = 14;
    pub(super) const UNAUTHENTICATED: u16 = 16;
}
