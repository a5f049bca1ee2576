//! Refusals and errors of the admin listener, as problem details (RFC 9457). The API in the form of Prometheus has
//! errors of its own.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A response with this status and a body of problem details.
pub(super) fn problem_response(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = HeaderValue::from_static("application/problem+json");
    let headers = [(header::CONTENT_TYPE, content_type)];
    (status, headers, body.to_string()).into_response()
}
