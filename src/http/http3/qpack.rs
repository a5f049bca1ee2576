//! Decodes and encodes blocks of fields: RFC 9204.
//!
//! Neither direction has a dynamic table. So no block depends on another one or waits for it, and a few bytes never stand
//! for a long field. The price is some bytes in each head.

use super::Code;
use super::qpack_table::{STATIC_TABLE, StaticField};
use crate::http::http2::hpack::{DecodedField, FieldKind, integer, read_text};

/// The error of a block that cannot be decoded. It ends the connection: RFC 9204 section 2.2.
const UNDECODABLE: Code = Code::QPACK_DECOMPRESSION_FAILED;

/// The prefix of every block that refers to no dynamic table: section 4.5.1.
const EMPTY_PREFIX: [u8; 2] = [0, 0];

/// Calls `on_field` with each field of a block. One byte stands for at most 80 bytes, those of a static field.
///
/// # Errors
///
/// The block is malformed, or refers to a dynamic table. Fields before the error were passed on.
pub fn decode(block: &[u8], mut on_field: impl FnMut(DecodedField<'_>)) -> Result<(), Code> {
    let mut remaining = block;
    // The number of entries that the dynamic table must have.
    if integer::read_number(&mut remaining, 8) != Some(0) {
        return Err(UNDECODABLE);
    }
    // The base counts entries of the dynamic table, so no field refers to it.
    integer::read_number(&mut remaining, 7).ok_or(UNDECODABLE)?;
    let mut huffman_text = Vec::new();
    while let Some(first) = remaining.first() {
        huffman_text.clear();
        let field = read_field(*first, &mut remaining, &mut huffman_text);
        on_field(field.ok_or(UNDECODABLE)?);
    }
    Ok(())
}

/// Takes a field off the front of `remaining`, whose first byte is `first`: section 4.5. Decoded text is appended to
/// `huffman_text`. `None` if the field is malformed, or refers to a dynamic table.
fn read_field<'a, 'block: 'a>(
    first: u8,
    remaining: &mut &'block [u8],
    huffman_text: &'a mut Vec<u8>,
) -> Option<DecodedField<'a>> {
    let (name_kind, name) = match first {
        // An indexed field of the static table: its first bits are 11.
        0xc0.. => {
            let field = read_static_field(remaining, 6)?;
            return Some(DecodedField {
                kind: field.kind,
                name: field.name.as_bytes(),
                value: field.value.as_bytes(),
            });
        }
        // A literal field with a name of the static table: its first bits are 01, and the fourth is 1.
        0x50..0x60 | 0x70..0x80 => {
            let field = read_static_field(remaining, 4)?;
            (Some(field.kind), Some(field.name.as_bytes()))
        }
        // A literal field with a literal name: its first bits are 001.
        0x20..0x40 => (None, read_text(remaining, 3, huffman_text)?),
        _ => return None,
    };
    let name_length = huffman_text.len();
    let value = read_text(remaining, 7, huffman_text)?;
    let (huffman_name, huffman_value) = huffman_text.split_at(name_length);
    let (name, value) = (name.unwrap_or(huffman_name), value.unwrap_or(huffman_value));
    let name_kind = name_kind.unwrap_or_else(|| FieldKind::of(name));
    let kind = name_kind.with_value(value);
    Some(DecodedField { kind, name, value })
}

/// Takes an index of the static table off the front of `remaining`. `None` if it is malformed or too large.
fn read_static_field(remaining: &mut &[u8], prefix_bits: u32) -> Option<&'static StaticField> {
    STATIC_TABLE.get(integer::read_number(remaining, prefix_bits)?)
}

/// Begins a block.
pub fn begin_block(out: &mut Vec<u8>) {
    out.extend_from_slice(&EMPTY_PREFIX);
}

/// Appends the pseudo-header field `:status`. The status must have three digits.
pub fn write_status(out: &mut Vec<u8>, status: u16) {
    let digits = [status / 100, status / 10 % 10, status % 10];
    write_field(out, b":status", &digits.map(|digit| b'0' + digit as u8));
}

/// Appends a field, with its name in lower case.
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let has_name = |field: &StaticField| field.name.as_bytes().eq_ignore_ascii_case(name);
    let mut same_name = (0..)
        .zip(&STATIC_TABLE)
        .filter(|(_, field)| has_name(field));
    let first = same_name.next();
    let is_same = |(_, field): &(usize, &StaticField)| field.value.as_bytes() == value;
    let same_field = first.into_iter().chain(same_name).find(is_same);
    if let Some((index, _)) = same_field {
        return integer::write_number(out, 0xc0, 6, index);
    }
    match first {
        Some((index, _)) => integer::write_number(out, 0x50, 4, index),
        None => {
            integer::write_number(out, 0x20, 3, name.len());
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        }
    }
    integer::write_number(out, 0x00, 7, value.len());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(block: &[u8]) -> Result<Vec<(String, String)>, Code> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut fields = Vec::new();
        decode(block, |field| {
            fields.push((text(field.name), text(field.value)));
        })?;
        Ok(fields)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    /// The first example of RFC 9204 appendix B.1.
    #[test]
    fn a_literal_field_with_a_static_name() {
        let block = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(decoded(block), Ok(vec![pair(":path", "/index.html")]));
    }

    #[test]
    fn encoded_fields_are_decoded_again() {
        let mut block = Vec::new();
        begin_block(&mut block);
        write_status(&mut block, 200);
        write_status(&mut block, 429);
        write_field(&mut block, b"Content-Type", b"text/plain");
        write_field(&mut block, b"X-Very-Long-Name-Of-A-Field", b"v");
        let expected = vec![
            pair(":status", "200"),
            pair(":status", "429"),
            pair("content-type", "text/plain"),
            pair("x-very-long-name-of-a-field", "v"),
        ];
        assert_eq!(decoded(&block), Ok(expected));
    }

    #[test]
    fn references_to_a_dynamic_table_are_an_error() {
        // A required entry; an indexed field; a name; and both after the base.
        let blocks: [&[u8]; 5] = [
            b"\x01\x00",
            b"\x00\x00\x80",
            b"\x00\x00\x40\x01a",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x01a",
        ];
        for block in blocks {
            assert_eq!(decoded(block), Err(UNDECODABLE), "{block:?}");
        }
    }

    #[test]
    fn incomplete_blocks_are_an_error() {
        let mut block = Vec::new();
        begin_block(&mut block);
        write_field(&mut block, b"some-name", b"some value");
        for length in (0..2).chain(3..block.len()) {
            assert_eq!(decoded(&block[..length]), Err(UNDECODABLE), "{length}");
        }
    }
}
