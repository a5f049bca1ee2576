//! Refusals of the admin listener, as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A response with this status and a body of problem details.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let kind = [(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    )];
    (status, kind, body.to_string()).into_response()
}
