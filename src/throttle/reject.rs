//! The response to a request that a limit refuses: a 429 with RFC 9457 problem details and the problem types of the
//! rate-limit header draft, or a trailers-only gRPC response. It never names a limit that the policy does not disclose.
//! Other refusals of the gateway use parts of this file.

use bytes::Bytes;
use http::StatusCode;
use smallvec::SmallVec;

use super::admission::{Remedy, Verdict};
use crate::http::head::{Fields, Lookup, Response, ResponseHead};
use crate::limit::{Disclose, HeaderStyle, Rules};

use super::headers::{RateLimitHeaders, push_number, push_text};

/// The media type of problem details.
pub const PROBLEM_JSON: &[u8] = b"application/problem+json";

/// The problem type of a request that is shed although its limits admit it.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The problem type of the refusal of a banned client, from the draft that defines the RateLimit fields.
pub const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// The gRPC status code of a refusal by a limit: `RESOURCE_EXHAUSTED`.
const GRPC_RESOURCE_EXHAUSTED: u16 = 8;

/// The problem document up to its detail (RFC 9457, section 3).
const PROBLEM_PREFIX: &str = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
    \"title\":\"Request quota exceeded\",\"status\":429,\"detail\":\"";

/// Whether a request is a gRPC call, by its content type: `application/grpc` in lower case, also with a suffix or
/// parameters.
pub fn is_grpc(fields: &impl Lookup) -> bool {
    let content_type = fields.lookup("content-type");
    content_type.is_some_and(|media_type| {
        media_type
            .strip_prefix(b"application/grpc")
            .is_some_and(|suffix| matches!(suffix.first(), None | Some(b'+' | b';')))
    })
}

/// The response to a request that a limit refuses. A gRPC call gets status 200, with the error in the header fields.
pub fn refusal(
    verdict: &Verdict,
    rules: &Rules,
    style: HeaderStyle,
    is_grpc: bool,
) -> Response<Bytes> {
    let refusing = verdict.refusing_rules(rules);
    let disclosed = refusing
        .iter()
        .filter(|rule| rule.disclose == Disclose::All);
    let names: SmallVec<[&str; 4]> = disclosed.map(|rule| rule.name.as_str()).collect();
    let remedy = verdict.remedy(rules);
    let mut response = if is_grpc {
        let mut detail = Vec::with_capacity(128);
        write_detail(&mut detail, &names, remedy);
        grpc_response(GRPC_RESOURCE_EXHAUSTED, &detail)
    } else {
        problem_response(&names, remedy)
    };
    let fields = &mut response.head.fields;
    match remedy.wait_secs() {
        Some(seconds) => add_retry_after(fields, seconds, is_grpc),
        None if is_grpc => fields.add(GRPC_PUSHBACK, b"-1"),
        None => {}
    }
    RateLimitHeaders::new(verdict, rules, style).write(fields, rules);
    response
}

/// The field that tells gRPC clients after how many milliseconds to retry; a negative number forbids it (gRFC A6).
const GRPC_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Adds `Retry-After` with these `seconds`, and for gRPC clients the same time in milliseconds, at most `i32::MAX`.
pub fn add_retry_after(fields: &mut Fields, seconds: u64, is_grpc: bool) {
    fields.add_with("retry-after", |value| push_number(value, seconds));
    if is_grpc {
        let millis = seconds.saturating_mul(1000).min(i32::MAX as u64);
        fields.add_with(GRPC_PUSHBACK, |value| push_number(value, millis));
    }
}

/// Writes the sentence for people.
fn write_detail(text: &mut Vec<u8>, names: &[&str], remedy: Remedy) {
    push_text(
        text,
        match names.len() {
            0 => "The request exceeds a limit",
            1 => "The request exceeds the limit ",
            _ => "The request exceeds the limits ",
        },
    );
    write_names(text, names, "");
    match remedy {
        Remedy::Wait(seconds) => {
            push_text(text, "; try again in ");
            push_number(text, seconds);
            push_text(text, " s.");
        }
        Remedy::Credits => push_text(text, "; too few credits are left."),
        Remedy::Hidden => push_text(text, "."),
        Remedy::Nothing => push_text(text, "; it costs more than the limit can ever admit."),
    }
}

/// Writes the names with commas between them, and `quote` around each.
fn write_names(text: &mut Vec<u8>, names: &[&str], quote: &str) {
    for (index, name) in names.iter().enumerate() {
        push_text(text, if index == 0 { "" } else { ", " });
        for part in [quote, name, quote] {
            push_text(text, part);
        }
    }
}

/// The 429 with problem details. It needs no JSON library: names of limits are plain words, so nothing needs escaping.
fn problem_response(names: &[&str], remedy: Remedy) -> Response<Bytes> {
    let mut body = Vec::with_capacity(384);
    push_text(&mut body, PROBLEM_PREFIX);
    write_detail(&mut body, names, remedy);
    if names.is_empty() {
        push_text(&mut body, "\"}");
    } else {
        push_text(&mut body, "\",\"violated-policies\":[");
        write_names(&mut body, names, "\"");
        push_text(&mut body, "]}");
    }
    let mut fields = Fields::with_capacity(6);
    fields.add("content-type", PROBLEM_JSON);
    // A cache would keep refusing the client, and others.
    fields.add("cache-control", b"no-store");
    Response {
        head: ResponseHead {
            status: StatusCode::TOO_MANY_REQUESTS,
            reason: None,
            fields,
        },
        body: body.into(),
    }
}

/// A trailers-only gRPC response with this gRPC status code and message. gRPC reads both from the header fields when there
/// is no body. The HTTP status is always 200.
pub fn grpc_response(code: u16, detail: &[u8]) -> Response<Bytes> {
    let mut head = ResponseHead::default();
    let mut digits = itoa::Buffer::new();
    head.fields.add("content-type", b"application/grpc");
    head.fields.add("content-length", b"0");
    let code = digits.format(code);
    head.fields.add("grpc-status", code.as_bytes());
    // No message of the gateway has a character that needs percent-encoding.
    head.fields.add("grpc-message", detail);
    Response {
        head,
        body: Bytes::new(),
    }
}
