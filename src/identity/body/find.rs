//! The value of a field in a body that has been read to its end.

use std::sync::LazyLock;

use super::field::BodyField;
use super::first_bytes::{BYTE_ORDER_MARK, is_json, is_multipart, is_wide, start};
use super::hidden::is_coded;
use super::media::Media;
use super::name::FieldName;
use super::{json, multipart};
use crate::http::head::Fields;
use crate::identity::{FieldValue, form};

/// The value of `field` in a complete body, of which `types` are the values of `Content-Type`.
pub fn find<'t, 'b>(
    field: &BodyField,
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
/// False where an upstream may see other values: the body is coded; it is not one document of RFC 8259 in UTF-8
/// without a byte order mark; or its type or bytes could be those of a form.
pub fn each_in_json(
    field: &BodyField,
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

/// The field by which a form says what it is written in.
static CHARSET: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("_charset_"));

#[cfg(test)]
mod tests;
