//! Finds the value of a field in a complete body, and all values of a field in a body that is read as JSON.

use std::sync::LazyLock;

use super::field::BodyField;
use super::first_bytes::{BYTE_ORDER_MARK, is_json, is_multipart, is_wide, trim_start};
use super::hidden::has_content_coding;
use super::media::Media;
use super::name::FieldName;
use super::{json, multipart};
use crate::http::head::Fields;
use crate::identity::{FieldValue, form};

/// The field by which a form names its charset, as in browsers (HTML, section 4.10.5.1.1).
static CHARSET: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("_charset_"));

/// The value of `field` in a complete body. `content_types` are the values of `Content-Type`.
pub fn find_field<'t, 'b>(
    field: &BodyField,
    content_types: impl Iterator<Item = &'t [u8]>,
    body: &'b [u8],
) -> FieldValue<'b> {
    let bare = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let trimmed = trim_start(bare);
    if trimmed.is_empty() && !bare.contains(&0) {
        return FieldValue::Absent;
    }
    // A NUL may be half a character of UTF-16.
    if trimmed.is_empty() || is_wide(bare) {
        return FieldValue::Ambiguous;
    }
    let form = || find_in_form(field, body);
    let json = || json::find_field(field, bare);
    match Media::parse(content_types, body) {
        Media::Unclear => FieldValue::Ambiguous,
        // Some readers take every body for a form.
        Media::Multipart(boundary) => {
            multipart::find_field(&boundary, &field.name, body).or(form())
        }
        Media::Json => json().or(form()),
        _ if is_multipart(trimmed) => FieldValue::Ambiguous,
        // What reads as a form's field may be part of a comment in the other format.
        Media::Other if form() != FieldValue::Absent => FieldValue::Ambiguous,
        _ if is_json(trimmed) => form().or(json()),
        _ => form(),
    }
}

/// The value of `field` in a form, ambiguous if the form names another charset than UTF-8.
fn find_in_form<'b>(field: &BodyField, body: &'b [u8]) -> FieldValue<'b> {
    match form::find_field(body, &CHARSET) {
        FieldValue::One(charset) if !charset.eq_ignore_ascii_case(b"utf-8") => {
            FieldValue::Ambiguous
        }
        FieldValue::Ambiguous => FieldValue::Ambiguous,
        _ => form::find_field(body, &field.name),
    }
}

/// Calls `on_value` with each value of `field` in a body that is read as JSON whatever its type says: with its text, or
/// with none where the path leads to no text. Members that some upstream takes for the field count too. `body` may be
/// the beginning of a longer one.
///
/// False if an upstream may see other values: the body is compressed; it is not one document of RFC 8259 in UTF-8
/// without a byte order mark; or its type or bytes could be those of a form.
pub fn visit_json_values(
    field: &BodyField,
    fields: &Fields,
    body: &[u8],
    on_value: &mut dyn FnMut(Option<String>),
) -> bool {
    let bare = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let is_one_document = json::visit_values(field, bare, on_value);
    let may_be_form = match Media::parse(fields.all("content-type"), body) {
        Media::Json => false,
        Media::Plain | Media::Other => form::find_field(body, &field.name) != FieldValue::Absent,
        Media::Form | Media::Multipart(_) | Media::Unclear => true,
    };
    let is_plain_utf8 = bare.len() == body.len() && std::str::from_utf8(body).is_ok();
    is_one_document && is_plain_utf8 && !may_be_form && !has_content_coding(fields)
}

#[cfg(test)]
mod tests;
