//! Reads header fields of HTTP/1.1 from parsed lines, and writes lines of header fields and trailers.

use bytes::BytesMut;
use http::HeaderMap;

use super::error::Malformed;
use super::framing::FramingFields;
use crate::http::head::Fields;

/// Number of fields for which memory is reserved beyond those received, because the gateway adds some before it
/// forwards a message. It may add more.
const ADDED_FIELDS: usize = 6;

/// The fields of a head that was parsed from `input`, and what they say about its body and the connection.
///
/// The fields refer to positions in `input`, from its front. Once the head is split off `input`, the caller must pass
/// it to [`Fields::attach_text`].
///
/// # Errors
///
/// The framing of the message is malformed or stated twice, or `Connection` lists too many options.
pub fn read_fields(
    input: &BytesMut,
    parsed: &[httparse::Header<'_>],
) -> Result<(Fields, FramingFields), Malformed> {
    let mut fields = Fields::with_capacity(parsed.len() + ADDED_FIELDS);
    let mut framing_fields = FramingFields::default();
    for field in parsed {
        let name = field.name.as_bytes();
        let value = framing_fields.record_field(name, field.value)?;
        let (name_start, value_start) = (offset_in(input, name), offset_in(input, value));
        fields.add_span(name, name_start, value_start, value.len());
    }
    Ok((fields, framing_fields))
}

/// The position of `part` in `input`. A part that is not empty must be a slice of `input`. An empty one may come from
/// elsewhere, so its position is 0.
pub fn offset_in(input: &BytesMut, part: &[u8]) -> usize {
    if part.is_empty() {
        return 0;
    }
    part.as_ptr() as usize - input.as_ptr() as usize
}

/// Appends a field line, for a head or for trailers.
#[inline]
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line whose value is a number.
#[inline]
pub fn write_number_field(out: &mut Vec<u8>, name: &[u8], value: u64) {
    write_field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a line for each of `fields`.
pub fn write_fields(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        write_field(out, name.as_str().as_bytes(), value.as_bytes());
    }
}
