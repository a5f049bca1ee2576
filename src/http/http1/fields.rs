//! Header fields of HTTP/1.1 from bytes and to bytes.

use bytes::BytesMut;
use http::HeaderMap;

use super::error::Malformed;
use super::framing::FramingFields;
use crate::http::head::Fields;

/// The fields of a head that was parsed from `input`, before it is cut off the input, and what they say
/// of its framing. [`Fields::settle`] is to be called with the head.
pub fn read(
    input: &BytesMut,
    parsed: &[httparse::Header<'_>],
) -> Result<(Fields, FramingFields), Malformed> {
    // Some fields will be added on the way.
    let mut fields = Fields::with_capacity(parsed.len() + 6);
    let mut said = FramingFields::default();
    for field in parsed {
        let name = field.name.as_bytes();
        let value = said.note(name, field.value)?;
        fields.place(name, offset(input, name), offset(input, value), value.len());
    }
    Ok((fields, said))
}

/// Where in `input` a part of it begins. An empty one may be no part of it.
pub fn offset(input: &BytesMut, part: &[u8]) -> usize {
    if part.is_empty() {
        return 0;
    }
    part.as_ptr() as usize - input.as_ptr() as usize
}

/// Appends a field as it stands in a head or in trailers.
#[inline]
pub fn write(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The same for a number.
#[inline]
pub fn write_number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    write(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// The same for all of `fields`.
pub fn write_map(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        write(out, name.as_str().as_bytes(), value.as_bytes());
    }
}
