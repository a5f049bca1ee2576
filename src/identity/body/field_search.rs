//! Finds the value of a field in a complete body, and all values of a field in a body that is read as JSON.

use std::sync::LazyLock;

use super::body_field::BodyField;
use super::body_format::BodyFormat;
use super::field_name::FieldName;
use super::first_bytes::{
    BYTE_ORDER_MARK, begins_like_json, begins_like_multipart, is_utf16_or_utf32, trim_start,
};
use super::multipart::NamedFiles;
use super::search_limits::has_content_coding;
use super::{json, multipart};
use crate::http::head::Fields;
use crate::identity::{FieldValue, form};

/// The field by which a form names its charset, as in browsers (HTML, section 4.10.5.1.1).
static CHARSET_FIELD: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("_charset_"));

/// The value of `field` in a complete body without a content coding. `content_types` are the values of `Content-Type`.
pub fn find_field<'t, 'b>(
    field: &BodyField,
    content_types: impl Iterator<Item = &'t [u8]>,
    body: &'b [u8],
) -> FieldValue<'b> {
    let without_mark = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let trimmed = trim_start(without_mark);
    if trimmed.is_empty() && !without_mark.contains(&0) {
        return FieldValue::Absent;
    }
    // The bytes that were trimmed include NUL, which may be half a character of UTF-16.
    if trimmed.is_empty() || is_utf16_or_utf32(without_mark) {
        return FieldValue::Ambiguous;
    }
    let find_as_form = || find_in_form(&field.name, body);
    let find_as_json = || json::find_in_json(field, without_mark);
    // The type decides first, and the first bytes decide where the type names no format.
    match BodyFormat::parse(content_types, body) {
        BodyFormat::Ambiguous => FieldValue::Ambiguous,
        // Some readers read a body of any type as a form, so each format is also searched as one.
        BodyFormat::Multipart(boundary) => {
            multipart::find_in_multipart(&boundary, &field.name, NamedFiles::Ambiguous, body)
                .combine(find_as_form())
        }
        BodyFormat::Json => find_as_json().combine(find_as_form()),
        _ if begins_like_multipart(trimmed) => FieldValue::Ambiguous,
        // In another format, the bytes of a form's field may mean something else, such as a comment.
        BodyFormat::Other if find_as_form() != FieldValue::Absent => FieldValue::Ambiguous,
        _ if begins_like_json(trimmed) => find_as_form().combine(find_as_json()),
        _ => find_as_form(),
    }
}

/// Whether the body is certainly of a format in which [`find_field`] looks for fields: its type says so, it begins like
/// JSON, or it is empty. Other bodies are searched too, but a field that is missing in one may stand there in another
/// format.
pub fn has_searchable_format<'t>(
    content_types: impl Iterator<Item = &'t [u8]>,
    body: &[u8],
) -> bool {
    let trimmed = trim_start(body);
    let has_searchable_type = || match BodyFormat::parse(content_types, body) {
        BodyFormat::Form | BodyFormat::Json | BodyFormat::Multipart(_) => true,
        BodyFormat::Untyped | BodyFormat::Other | BodyFormat::Ambiguous => false,
    };
    trimmed.is_empty() || begins_like_json(trimmed) || has_searchable_type()
}

/// The value of the field `name` in a form; ambiguous if the form names another charset than UTF-8, or several.
pub(super) fn find_in_form<'b>(name: &FieldName, body: &'b [u8]) -> FieldValue<'b> {
    match form::find_field(body, &CHARSET_FIELD) {
        FieldValue::Single(charset) if !charset.eq_ignore_ascii_case(b"utf-8") => {
            FieldValue::Ambiguous
        }
        FieldValue::Ambiguous => FieldValue::Ambiguous,
        _ => form::find_field(body, name),
    }
}

/// Calls `on_value` with each value of `field` in a body that is read as JSON, whatever its type says. The callback
/// gets the value's text, or `None` where the path leads to no text. Members that some upstream takes for the field
/// count too. `body` may be the beginning of a longer one.
///
/// Returns whether all upstreams see these values. That is false if the body is compressed, or if its type or bytes
/// could be those of a form. It is also false unless the body is one document of RFC 8259 in UTF-8 without a byte order
/// mark.
pub fn visit_json_values(
    field: &BodyField,
    header_fields: &Fields,
    body: &[u8],
    on_value: &mut dyn FnMut(Option<String>),
) -> bool {
    let without_mark = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let is_one_document = json::visit_values(field, without_mark, on_value);
    let may_be_form = match BodyFormat::parse(header_fields.all("content-type"), body) {
        BodyFormat::Json => false,
        BodyFormat::Untyped | BodyFormat::Other => {
            form::find_field(body, &field.name) != FieldValue::Absent
        }
        BodyFormat::Form | BodyFormat::Multipart(_) | BodyFormat::Ambiguous => true,
    };
    let is_plain_utf8 = without_mark.len() == body.len() && std::str::from_utf8(body).is_ok();
    is_one_document && is_plain_utf8 && !may_be_form && !has_content_coding(header_fields)
}

#[cfg(test)]
mod tests;
