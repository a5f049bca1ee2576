//! The 429: RFC 9457 problem details with the problem types of the rate-limit header draft, or a
//! trailers-only gRPC answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::admission::Verdict;
use crate::limit::{Disclose, Rule};
use crate::route::HeaderStyle;

use super::headers::Line;

/// The media type of problem details.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

const RESOURCE_EXHAUSTED: u16 = 8;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Whether a request is a gRPC call, by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    value.is_some_and(|value| {
        value
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

/// The answer to a refused request.
pub fn response(
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    style: HeaderStyle,
    grpc: bool,
) -> Response<Bytes> {
    let refusing = verdict.refusing(rules);
    let told = refusing
        .iter()
        .filter(|rule| rule.disclose == Disclose::All);
    let names: Vec<&str> = told.map(|rule| rule.name.as_str()).collect();
    let wait = verdict
        .retry_after(rules)
        .map(|wait| wait.header_secs().max(1));
    let detail = detail(&names, wait);
    let mut response = if grpc {
        grpc_answer(RESOURCE_EXHAUSTED, &detail)
    } else {
        problem(&detail, &names)
    };
    let headers = response.headers_mut();
    if let Some(seconds) = wait {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Line::new(verdict, rules, style).write(headers);
    response
}

fn detail(names: &[&str], wait: Option<u64>) -> String {
    let what = match names {
        [] => "The request exceeds a limit".to_owned(),
        [one] => format!("The request exceeds the limit {one}"),
        many => format!("The request exceeds the limits {}", many.join(", ")),
    };
    match wait {
        Some(seconds) => format!("{what}; it will be admitted in {seconds} s."),
        None => format!("{what}; it costs more than the limit can ever admit."),
    }
}

fn problem(detail: &str, names: &[&str]) -> Response<Bytes> {
    let mut body = json!({
        "type": QUOTA_EXCEEDED,
        "title": "Request quota exceeded",
        "status": 429,
        "detail": detail,
    });
    if !names.is_empty() {
        body["violated-policies"] = json!(names);
    }
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response
}

/// gRPC reads the status from headers when there is no body; the HTTP status is always 200.
pub fn grpc_answer(code: u16, detail: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert("grpc-status", HeaderValue::from(code));
    if let Ok(message) = HeaderValue::from_str(&detail.replace('%', "%25")) {
        headers.insert("grpc-message", message);
    }
    response
}
