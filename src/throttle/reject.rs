//! The 429: RFC 9457 problem details with the problem types of the rate-limit header draft, or a
//! trailers-only gRPC answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;

use crate::admission::Verdict;
use crate::limit::{Disclose, Rule};
use crate::route::HeaderStyle;

use super::headers::{Line, Text};

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
    let names: SmallVec<[&str; 4]> = told.map(|rule| rule.name.as_str()).collect();
    let wait = verdict
        .retry_after(rules)
        .map(|wait| wait.header_secs().max(1));
    let mut response = if grpc {
        let mut detail = Text::with_capacity(128);
        describe(&mut detail, &names, wait);
        grpc_answer(RESOURCE_EXHAUSTED, &detail.finish())
    } else {
        problem(&names, wait)
    };
    let headers = response.headers_mut();
    if let Some(seconds) = wait {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Line::new(verdict, rules, style).write(headers);
    response
}

fn describe(text: &mut Text, names: &[&str], wait: Option<u64>) {
    text.add("The request exceeds ");
    text.add(match names.len() {
        0 => "a limit",
        1 => "the limit ",
        _ => "the limits ",
    });
    list(text, names, "");
    match wait {
        Some(seconds) => text
            .add("; it will be admitted in ")
            .number(seconds)
            .add(" s."),
        None => text.add("; it costs more than the limit can ever admit."),
    };
}

fn list(text: &mut Text, names: &[&str], quote: &str) {
    for (place, name) in names.iter().enumerate() {
        text.add(if place == 0 { "" } else { ", " });
        text.add(quote).add(name).add(quote);
    }
}

/// Written by hand: nothing in it needs escaping, for limits are called by plain words.
fn problem(names: &[&str], wait: Option<u64>) -> Response<Bytes> {
    let mut body = Text::with_capacity(384);
    body.add("{\"type\":\"").add(QUOTA_EXCEEDED);
    body.add("\",\"title\":\"Request quota exceeded\",\"status\":429,\"detail\":\"");
    describe(&mut body, names, wait);
    body.add("\"");
    if !names.is_empty() {
        body.add(",\"violated-policies\":[");
        list(&mut body, names, "\"");
        body.add("]");
    }
    body.add("}");
    let mut response = Response::new(body.finish());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response
}

/// gRPC reads the status from headers when there is no body; the HTTP status is always 200.
pub fn grpc_answer(code: u16, detail: &[u8]) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers.insert("grpc-status", HeaderValue::from(code));
    // Nothing that the gateway says has a character that would need percent-encoding.
    if let Ok(message) = HeaderValue::from_bytes(detail) {
        headers.insert("grpc-message", message);
    }
    response
}
