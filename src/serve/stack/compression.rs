//! Decides whether the response of an upstream is compressed, and changes its header fields accordingly (RFC 9110
//! sections 8.4 and 12.5.3). `observe.rs` calls this file last, so that it sees what policies have changed;
//! `body/compressed_body.rs` does the work.

use http::{Method, StatusCode, Version};
use http_body::Body;

use super::body::{DIGEST_FIELDS, ResponseBody};
use super::request_context::RequestContext;
use super::vary;
use crate::http::content_coding::ContentCoding;
use crate::http::head::{Fields, Head, Response, ResponseHead};

/// Shorter content is not compressed: it fits one packet anyway.
const MIN_CONTENT_BYTES: u64 = 1024;

/// Media types whose content is text, beside those with a suffix and `text/*`.
const TEXT_TYPES: [&str; 13] = [
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/json-seq",
    "application/jsonl",
    "application/ndjson",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
];

/// Suffixes of media types whose content is text: RFC 6839, RFC 8091 and RFC 9512.
const TEXT_SUFFIXES: [&str; 4] = ["+json", "+json-seq", "+xml", "+yaml"];

/// Compresses the response to this request if its route, the response and the client allow it.
pub(super) fn compress(context: &RequestContext, response: &mut Response<ResponseBody>) {
    let (Some(route_index), Some(request)) = (context.route_index.get(), context.head.as_deref())
    else {
        return;
    };
    let codings = &context.generation.ruleset.routes[route_index].codings;
    if codings.is_empty() || !context.is_from_upstream() {
        return;
    }
    let Response { head, body } = response;
    if head.status == StatusCode::NOT_MODIFIED {
        weaken_validated(request, head);
    } else if is_compressible(head, content_length(request, head, body)) {
        vary::add_name(&mut head.fields, "accept-encoding");
        let accepted = request.fields.all("accept-encoding");
        if let Some(coding) = ContentCoding::choose(accepted, codings)
            && allows_change(request, &head.fields)
            && body.compress(coding)
        {
            describe_compressed(&mut head.fields, coding);
        }
    }
}

/// The length of the content in bytes, or of the content that the response to GET would have; `None` if it is unknown.
fn content_length(request: &Head, head: &ResponseHead, body: &ResponseBody) -> Option<u64> {
    let stated_length = head.fields.text("content-length");
    match stated_length.and_then(|length| length.parse().ok()) {
        None if request.method != Method::HEAD => body.size_hint().exact(),
        length => length,
    }
}

/// Whether a response's content is worth compressing, and may be compressed for some client.
fn is_compressible(head: &ResponseHead, content_length: Option<u64>) -> bool {
    let status = head.status;
    let has_content = status.as_u16() >= 200
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::RESET_CONTENT;
    has_content
        && content_length.is_none_or(|bytes| bytes >= MIN_CONTENT_BYTES)
        && head.fields.first("content-type").is_some_and(is_text)
        && !forbids_change(&head.fields)
}

/// Whether the content of this type is text, but no stream of events. Events are short, and clients wait for each.
fn is_text(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    let begins_with = |beginning: &str| {
        let start = essence.get(..beginning.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
    };
    let ends_with = |suffix: &&str| {
        let end = essence.len().checked_sub(suffix.len());
        end.is_some_and(|start| essence[start..].eq_ignore_ascii_case(suffix.as_bytes()))
    };
    if begins_with("text/") {
        return !essence.eq_ignore_ascii_case(b"text/event-stream");
    }
    // gRPC compresses each message by itself, and its types may end with a suffix too.
    let is_known = |name: &&str| essence.eq_ignore_ascii_case(name.as_bytes());
    !begins_with("application/grpc")
        && (TEXT_TYPES.iter().any(is_known) || TEXT_SUFFIXES.iter().any(ends_with))
}

/// Whether `Cache-Control` says that nobody may change the content on its way.
fn forbids_change(fields: &Fields) -> bool {
    let mut directives = fields
        .all("cache-control")
        .flat_map(|value| value.split(|byte| *byte == b','));
    directives.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

/// Whether this response may be compressed for this request. A part of the content must stay a part of what the client has,
/// and a digest must stay right. Content of HTTP/1.0 would end with the connection, so that a client could not tell
/// whether it is whole.
fn allows_change(request: &Head, fields: &Fields) -> bool {
    let mut obstacles = ["content-encoding", "content-range"]
        .iter()
        .chain(&DIGEST_FIELDS);
    request.version >= Version::HTTP_11
        && !forbids_change(&request.fields)
        && !obstacles.any(|name| fields.contains(name))
}

/// Changes the fields of a response whose content is compressed.
fn describe_compressed(fields: &mut Fields, coding: ContentCoding) {
    fields.add("content-encoding", coding.as_str().as_bytes());
    fields.remove("content-length");
    fields.remove("accept-ranges");
    // The same bytes will not come out of every version of an encoder.
    weaken_entity_tag(fields);
}

/// Makes a strong `ETag` weak.
fn weaken_entity_tag(fields: &mut Fields) {
    if let Some(weak_tag) = fields.first("etag").and_then(weak_form) {
        fields.set("etag", &weak_tag);
    }
}

/// The weak form of a strong entity tag; `None` if the tag is weak already.
fn weak_form(entity_tag: &[u8]) -> Option<Vec<u8>> {
    let is_weak = entity_tag.starts_with(b"W/");
    (!is_weak).then(|| [b"W/", entity_tag].concat())
}

/// Has a 304 name the tag under which the client keeps the compressed content. Caches compare strong tags as they stand
/// (RFC 9111 section 4.3.4), so the upstream's own would be another one.
fn weaken_validated(request: &Head, head: &mut ResponseHead) {
    let Some(weak_tag) = head.fields.first("etag").and_then(weak_form) else {
        return;
    };
    let mut kept_tags = request.fields.all("if-none-match");
    if kept_tags.any(|tags| memchr::memmem::find(tags, &weak_tag).is_some()) {
        head.fields.set("etag", &weak_tag);
        vary::add_name(&mut head.fields, "accept-encoding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_known_by_its_type() {
        for (content_type, expected) in [
            ("text/html", true),
            ("TEXT/Plain; charset=utf-8", true),
            ("text/event-stream", false),
            ("Text/Event-Stream;charset=utf-8", false),
            ("application/json", true),
            ("application/json ; charset=utf-8", true),
            ("application/problem+json", true),
            ("application/vnd.api+JSON", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("application/grpc", false),
            ("application/grpc+json", false),
            ("application/grpc-web-text", false),
            ("application/octet-stream", false),
            ("image/png", false),
            ("font/woff2", false),
            ("application/jsonp", false),
            ("multipart/form-data", false),
            ("json", false),
            ("", false),
        ] {
            assert_eq!(is_text(content_type.as_bytes()), expected, "{content_type}");
        }
    }
}
