//! Whether a body may have a field, before all of it is there.

use super::field::BodyField;
use super::hidden::is_coded;
use super::media::Media;
use super::sniff;
use crate::http::head::Fields;

/// Whether `field` may stand in a body that begins so, of which `is_whole` says that it ends there too; none where more
/// must be seen to say so. However a body is cut, the answer is the same.
///
/// Frameworks look for fields in forms, parts and JSON, and in a body without a type; some take any text for a form. There
/// are readers to whom a body of any other type is JSON, so of those it depends on the first bytes.
pub fn may_have_field(
    field: &BodyField,
    fields: &Fields,
    begin: &[u8],
    is_whole: bool,
) -> Option<bool> {
    // What is coded cannot be seen.
    if may_have_fields(fields) || is_coded(fields) {
        return Some(true);
    }
    sniff::may_have_field(field, begin).or(is_whole.then_some(true))
}

/// Whether the body is a stream of messages whose client may wait for the response before it sends the first: gRPC and
/// Connect, but for their JSON, which Laravel takes for JSON.
pub fn is_stream(fields: &Fields) -> bool {
    let essence = fields.text("content-type").unwrap_or_default();
    let essence = essence.split(';').next().unwrap_or_default();
    let essence = essence.to_ascii_lowercase();
    ENVELOPES.iter().any(|kind| essence.starts_with(kind)) && !essence.contains("json")
}

/// Whether a body of this type may have fields whatever it begins with. Of others only the body itself shows it.
fn may_have_fields(fields: &Fields) -> bool {
    let typed = fields.text("content-type").filter(|text| !text.is_empty());
    let Some(lower) = typed.map(str::to_ascii_lowercase) else {
        return true;
    };
    let essence = lower.split(';').next().unwrap_or_default();
    let has = |part: &&str| essence.contains(*part);
    match Media::of(fields.all("content-type"), b"") {
        _ if essence.trim_start().starts_with("text/") => true,
        Media::Json => !LINES.iter().chain(&ENVELOPES).any(has),
        Media::Plain | Media::Other => false,
        Media::Form | Media::Multipart(_) | Media::Unclear => true,
    }
}

/// What the types of messages with a head of their own begin with.
const ENVELOPES: [&str; 2] = ["application/grpc", "application/connect+"];

/// What the types of lines of JSON have in their names.
const LINES: [&str; 5] = ["ndjson", "jsonl", "json-l", "json-seq", "ldjson"];
