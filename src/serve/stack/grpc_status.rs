//! Responses of the gateway to gRPC calls that it refuses: the gRPC status for an HTTP status.

use bytes::Bytes;
use http::StatusCode;

use crate::http::head::Response;
use crate::throttle::reject;

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
