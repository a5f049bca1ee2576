//! One field of a request's body, read as every upstream reads it: JSON, a form, `multipart/form-data`.
//!
//! The type that the client writes decides only as far as it does for upstreams: many look at the bytes
//! instead. Where two of them could see different values the field is ambiguous, and a body that cannot be
//! looked at hides it. XML and other formats have no fields here.

mod json;
mod media;
mod multipart;
mod name;
mod sniff;

use std::sync::LazyLock;

use memchr::memmem;

pub(super) use media::is_read_as_utf8;
pub use name::Name;
pub(super) use name::is_blank;

use super::form::{self, FieldValue};
use crate::http::head::Fields;
use media::Media;

/// A field of bodies. A dotted path reaches into nested objects: `user.email` is `{"user":{"email":…}}`,
/// `user[email]=…` and `user.email=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: Name,
    path: Vec<Name>,
}

impl Field {
    /// The field at a dotted path.
    pub fn new(path: &str) -> Field {
        Field {
            name: Name::new(path),
            path: path.split('.').map(Name::new).collect(),
        }
    }

    /// Its path as one name, as forms and queries have it.
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl From<Name> for Field {
    fn from(name: Name) -> Field {
        Field {
            path: vec![name.clone()],
            name,
        }
    }
}

impl From<&str> for Field {
    fn from(path: &str) -> Field {
        Field::new(path)
    }
}

/// The value of `field` in a complete body, of which `types` are the values of `Content-Type`.
pub fn find<'t, 'b>(
    field: &Field,
    types: impl Iterator<Item = &'t [u8]>,
    body: &'b [u8],
) -> FieldValue<'b> {
    let bare = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let start = start(bare);
    if start.is_empty() && !bare.contains(&0) {
        return FieldValue::Absent;
    }
    // NUL may be half a character of UTF-16.
    if start.is_empty() || is_wide(bare) {
        return FieldValue::Ambiguous;
    }
    let form = || match form::field(body, &CHARSET) {
        FieldValue::One(charset) if !charset.eq_ignore_ascii_case(b"utf-8") => {
            FieldValue::Ambiguous
        }
        FieldValue::Ambiguous => FieldValue::Ambiguous,
        _ => form::field(body, &field.name),
    };
    let json = || json::find(field, bare);
    match Media::of(types, body) {
        Media::Unclear => FieldValue::Ambiguous,
        // There are readers to whom every body is a form.
        Media::Multipart(boundary) => multipart::find(&boundary, &field.name, body).or(form()),
        Media::Json => json().or(form()),
        _ if is_multipart(start) => FieldValue::Ambiguous,
        // What a form says in the comment of another format is not what that format says.
        Media::Other if form() != FieldValue::Absent => FieldValue::Ambiguous,
        _ if is_json(start) => form().or(json()),
        _ => form(),
    }
}

/// Shows each value of `field` in a body, or as much of it as is there, that is read as JSON whatever its type says: its
/// text, or none where the path leads to no text. Spellings that some upstream takes for the field are shown too.
///
/// False where an upstream may see other values: the body is not one document of RFC 8259 in UTF-8 without a byte order
/// mark, it is coded, or its type or its bytes say that it could be a form.
pub fn each_in_json(
    field: &Field,
    fields: &Fields,
    body: &[u8],
    see: &mut dyn FnMut(Option<String>),
) -> bool {
    let bare = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let strict = json::each(field, bare, see);
    let may_be_form = match Media::of(fields.all("content-type"), body) {
        Media::Json => false,
        Media::Plain | Media::Other => form::field(body, &field.name) != FieldValue::Absent,
        Media::Form | Media::Multipart(_) | Media::Unclear => true,
    };
    let plain = bare.len() == body.len() && std::str::from_utf8(body).is_ok();
    strict && plain && !may_be_form && !is_coded(fields)
}

/// Whether `field` may stand in a body that begins so, of which `is_whole` says that it ends there too; none where more
/// must be seen to say so. However a body is cut, the answer is the same.
///
/// Frameworks look for fields in forms, parts and JSON, and in a body without a type; some take any text for a form. There
/// are readers to whom a body of any other type is JSON, so of those it depends on the first bytes.
pub fn may_have_field(
    field: &Field,
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

/// Whether no field can be looked for in the body: it is compressed, or said to be longer than this.
pub fn hides_fields(fields: &Fields, most: usize) -> bool {
    is_coded(fields) || is_longer(fields, most)
}

/// Whether the body has a `Content-Encoding`. Some frameworks unpack it.
pub(super) fn is_coded(fields: &Fields) -> bool {
    let plain = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"identity");
    !fields.all("content-encoding").all(plain)
}

/// Whether the body is said to have more bytes than this.
pub(super) fn is_longer(fields: &Fields, most: usize) -> bool {
    let length = fields.text("content-length");
    let length = length.and_then(|text| text.parse::<usize>().ok());
    length.is_some_and(|length| length > most)
}

/// What the types of messages with a head of their own begin with.
const ENVELOPES: [&str; 2] = ["application/grpc", "application/connect+"];

/// What the types of lines of JSON have in their names.
const LINES: [&str; 5] = ["ndjson", "jsonl", "json-l", "json-seq", "ldjson"];

/// The field by which a form says what it is written in.
static CHARSET: LazyLock<Name> = LazyLock::new(|| Name::new("_charset_"));

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The body from the first byte that some reader would not skip.
fn start(mut body: &[u8]) -> &[u8] {
    loop {
        body = match body {
            [..=b' ', rest @ ..] => rest,
            _ => match body.strip_prefix(BYTE_ORDER_MARK) {
                Some(rest) => rest,
                None => return body,
            },
        };
    }
}

/// Whether it is UTF-16 or UTF-32, which JSON readers know by its first bytes.
fn is_wide(body: &[u8]) -> bool {
    body.starts_with(b"\xff\xfe")
        || body.starts_with(b"\xfe\xff")
        || body.iter().take(4).any(|byte| *byte == 0)
}

/// Whether it begins as JSON does. A lenient reader takes comments before it.
fn is_json(body: &[u8]) -> bool {
    matches!(body, [b'{' | b'[', ..] | [b'/', b'/' | b'*', ..])
}

/// Whether it has parts, though its type does not say so.
fn is_multipart(body: &[u8]) -> bool {
    body.starts_with(b"--")
        && memmem::find(&body.to_ascii_lowercase(), b"content-disposition").is_some()
}

#[cfg(test)]
mod tests;
