//! The 429: RFC 9457 problem details with the problem types of the rate-limit header draft, or a
//! trailers-only gRPC answer.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use smallvec::SmallVec;

use crate::admission::Verdict;
use crate::head::{Answer, AnswerHead, Fields, Lookup};
use crate::limit::{Disclose, Rule};
use crate::route::HeaderStyle;

use super::headers::{Line, Text};

/// The media type of problem details.
pub const PROBLEM_JSON: &[u8] = b"application/problem+json";

const RESOURCE_EXHAUSTED: u16 = 8;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Whether a request is a gRPC call, by its content type.
pub fn is_grpc(fields: &impl Lookup) -> bool {
    let value = fields.lookup("content-type");
    value.is_some_and(|value| {
        value
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

/// The answer to a refused request.
pub fn answer(
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    style: HeaderStyle,
    grpc: bool,
) -> Answer<Bytes> {
    let refusing = verdict.refusing(rules);
    let told = refusing
        .iter()
        .filter(|rule| rule.disclose == Disclose::All);
    let names: SmallVec<[&str; 4]> = told.map(|rule| rule.name.as_str()).collect();
    let wait = verdict.retry_after(rules);
    let mut answer = if grpc {
        let mut detail = Text::with_capacity(128);
        describe(&mut detail, &names, wait);
        grpc_answer(RESOURCE_EXHAUSTED, &detail.finish())
    } else {
        problem(&names, wait)
    };
    let fields = &mut answer.head.fields;
    if let Some(seconds) = wait {
        let mut digits = itoa::Buffer::new();
        fields.add("retry-after", digits.format(seconds).as_bytes());
    }
    for (name, value) in Line::new(verdict, rules, style).iter() {
        fields.add(name.as_str(), value);
    }
    answer
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
        Some(seconds) => text.add("; try again in ").number(seconds).add(" s."),
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
fn problem(names: &[&str], wait: Option<u64>) -> Answer<Bytes> {
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
    let mut fields = Fields::with_capacity(5);
    fields.add("content-type", PROBLEM_JSON);
    Answer {
        head: AnswerHead {
            status: StatusCode::TOO_MANY_REQUESTS,
            reason: None,
            fields,
        },
        body: body.finish().into(),
    }
}

/// gRPC reads the status from headers when there is no body; the HTTP status is always 200.
pub fn grpc_answer(code: u16, detail: &[u8]) -> Answer<Bytes> {
    let mut head = AnswerHead::default();
    let mut digits = itoa::Buffer::new();
    head.fields.add("content-type", b"application/grpc");
    head.fields.add("content-length", b"0");
    let code = digits.format(code);
    head.fields.add("grpc-status", code.as_bytes());
    // Nothing that the gateway says has a character that would need percent-encoding.
    head.fields.add("grpc-message", detail);
    Answer {
        head,
        body: Bytes::new(),
    }
}
