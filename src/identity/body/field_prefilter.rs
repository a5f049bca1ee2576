//! Decides from the head and the first bytes whether a body may have a field, so that most bodies need not be read. Also
//! decides from the head alone whether a body is a stream of messages.
//!
//! The decision on a field is no only if no framework that was examined finds the field in the body. If all bytes leave it
//! open, it is yes.

use super::body_field::BodyField;
use super::body_format::BodyFormat;
use super::json_prefix;
use super::search_limits::has_content_coding;
use crate::http::head::Fields;

/// Prefixes of the media types whose messages begin with a binary header: flags and a length.
const ENVELOPED_TYPE_PREFIXES: [&str; 2] = ["application/grpc", "application/connect+"];

/// Parts of the names of media types whose bodies are JSON documents in a row. Their first bytes decide, as for types that
/// are not JSON.
const JSON_LINES_NAMES: [&str; 5] = ["ndjson", "jsonl", "json-l", "json-seq", "ldjson"];

/// Whether `field` may stand in the body that begins with `prefix`; `None` if more bytes are needed to decide.
/// `is_whole` says that `prefix` is the whole body. A longer prefix never changes a yes or a no.
///
/// Frameworks look for fields in forms, multipart bodies, JSON, and bodies without a type; some take a body of any type
/// `text/…` for a form. Some frameworks read bodies of other types as JSON, so for those types the first bytes decide.
pub fn may_have_field(
    field: &BodyField,
    fields: &Fields,
    prefix: &[u8],
    is_whole: bool,
) -> Option<bool> {
    // A compressed body cannot be searched, so it may have any field.
    if has_type_with_fields(fields) || has_content_coding(fields) {
        return Some(true);
    }
    json_prefix::may_have_field(field, prefix).or(is_whole.then_some(true))
}

/// Whether the body is a stream of gRPC or Connect messages, whose client may await the response before it sends the
/// first message. Their JSON variants are no streams here, because Laravel reads them as JSON.
pub fn is_stream(fields: &Fields) -> bool {
    let mut content_types = fields.all("content-type");
    let first_type = content_types.next().unwrap_or_default();
    let is_only_type = content_types.next().is_none();
    let content_type = first_type.to_ascii_lowercase();
    let has_prefix = |prefix: &&str| content_type.starts_with(prefix.as_bytes());
    is_only_type
        && ENVELOPED_TYPE_PREFIXES.iter().any(has_prefix)
        && memchr::memmem::find(&content_type, b"json").is_none()
}

/// Whether the body's type alone says that it may have fields. For any other type the first bytes decide.
fn has_type_with_fields(fields: &Fields) -> bool {
    let content_type = fields.text("content-type").filter(|text| !text.is_empty());
    let Some(content_type) = content_type.map(str::to_ascii_lowercase) else {
        return true;
    };
    let essence = content_type.split(';').next().unwrap_or_default();
    let is_in_essence = |name: &&str| essence.contains(*name);
    match BodyFormat::parse(fields.all("content-type"), b"") {
        _ if essence.trim_start().starts_with("text/") => true,
        BodyFormat::Json => !JSON_LINES_NAMES
            .iter()
            .chain(&ENVELOPED_TYPE_PREFIXES)
            .any(is_in_essence),
        BodyFormat::Untyped | BodyFormat::Other => false,
        BodyFormat::Form | BodyFormat::Multipart(_) | BodyFormat::Ambiguous => true,
    }
}
