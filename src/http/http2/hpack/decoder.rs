//! Decodes blocks of fields: RFC 7541 sections 3 and 6.
//!
//! A few bytes may stand for many fields, so a block decodes to at most [`MAX_DECODED_BYTES`]. The decoder determines
//! the [`FieldKind`] of each field, and does not refuse any.

use super::field_kind::FieldKind;
use super::integer::read_number;
use super::table::{
    DYNAMIC_TABLE_BYTES, DynamicTable, ENTRY_OVERHEAD_BYTES, STATIC_TABLE, TableEntry,
};
use super::text::read_text;
use crate::http::http1::MAX_HEAD_BYTES;
use crate::http::http2::{ConnectionError, Reason};

/// A field of a decoded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedField<'a> {
    /// What the field means to HTTP/2.
    pub kind: FieldKind,
    /// The name of the field.
    pub name: &'a [u8],
    /// The value of the field.
    pub value: &'a [u8],
}

/// Maximum bytes that a block decodes to, with [`ENTRY_OVERHEAD_BYTES`] for each field: one byte may refer to a field
/// of almost 4 KiB. It is four times the largest head, so that a head which is merely too large does not end its
/// connection.
const MAX_DECODED_BYTES: usize = 4 * MAX_HEAD_BYTES;

/// The error of a block that cannot be decoded. The decoder's table then differs from the peer's, so the connection
/// must end.
const UNDECODABLE: ConnectionError = ConnectionError(Reason::COMPRESSION_ERROR);

/// Decodes the fields of one connection. Its table holds at most [`DYNAMIC_TABLE_BYTES`] bytes.
#[derive(Debug)]
pub struct Decoder {
    /// The fields that the peer has added.
    table: DynamicTable,
    /// Scratch space: the name and the value of one field as far as they were Huffman-coded, decoded one after the
    /// other.
    huffman_text: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            table: DynamicTable::new(DYNAMIC_TABLE_BYTES),
            huffman_text: Vec::new(),
        }
    }
}

impl Decoder {
    /// Calls `on_field` with each field of a block.
    ///
    /// # Errors
    ///
    /// The block is malformed, or decodes to more than [`MAX_DECODED_BYTES`]. Fields before the error were passed on.
    /// No later block can be decoded then.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut on_field: impl FnMut(DecodedField<'_>),
    ) -> Result<(), ConnectionError> {
        let mut remaining = block;
        // A change of the table size may only come before the first field: section 4.2.
        let mut has_fields = false;
        let mut allowed_bytes = MAX_DECODED_BYTES;
        // Passes a field on, unless the block has become too large.
        let mut emit = |field: DecodedField<'_>| {
            let size = field.name.len() + field.value.len() + ENTRY_OVERHEAD_BYTES;
            allowed_bytes = allowed_bytes
                .checked_sub(size)
                .ok_or(ConnectionError(Reason::ENHANCE_YOUR_CALM))?;
            on_field(field);
            Ok(())
        };
        while let Some(first) = remaining.first() {
            match first {
                // An indexed field, whose first bit is 1: section 6.1.
                0x80.. => {
                    let index = read_number(&mut remaining, 7).ok_or(UNDECODABLE)?;
                    let (_, field) = indexed_field(&self.table, index).ok_or(UNDECODABLE)?;
                    emit(field)?;
                }
                // A change of the table size, whose first bits are 001: section 6.3.
                0x20..0x40 => {
                    let size = read_number(&mut remaining, 5).ok_or(UNDECODABLE)?;
                    if has_fields || size > DYNAMIC_TABLE_BYTES {
                        return Err(UNDECODABLE);
                    }
                    self.table.resize(size);
                    continue;
                }
                _ => self.decode_literal(*first, &mut remaining, &mut emit)?,
            }
            has_fields = true;
        }
        Ok(())
    }

    /// Removes a literal field (section 6.2) from the front of `remaining`, whose first byte is `first`. Passes it to
    /// `emit`, and adds it to the table if its form says so.
    fn decode_literal(
        &mut self,
        first: u8,
        remaining: &mut &[u8],
        emit: &mut impl FnMut(DecodedField<'_>) -> Result<(), ConnectionError>,
    ) -> Result<(), ConnectionError> {
        let Decoder {
            table,
            huffman_text,
        } = self;
        huffman_text.clear();
        let is_added_to_table = first & 0x40 != 0;
        let prefix_bits = if is_added_to_table { 6 } else { 4 };
        let index = read_number(remaining, prefix_bits).ok_or(UNDECODABLE)?;
        let (name_kind, name) = match index {
            0 => (
                None,
                read_text(remaining, 7, huffman_text).ok_or(UNDECODABLE)?,
            ),
            _ => {
                let (name_kind, field) = indexed_field(table, index).ok_or(UNDECODABLE)?;
                (Some(name_kind), Some(field.name))
            }
        };
        let name_length = huffman_text.len();
        let value = read_text(remaining, 7, huffman_text).ok_or(UNDECODABLE)?;
        let (huffman_name, huffman_value) = huffman_text.split_at(name_length);
        let (name, value) = (name.unwrap_or(huffman_name), value.unwrap_or(huffman_value));
        let name_kind = name_kind.unwrap_or_else(|| FieldKind::of(name));
        let kind = name_kind.with_value(value);
        emit(DecodedField { kind, name, value })?;
        if is_added_to_table {
            let mut entry = TableEntry::new(kind, name, value);
            entry.name_kind = name_kind;
            table.add(entry);
        }
        Ok(())
    }

    /// Frees the buffer, which is not needed between two blocks.
    pub fn free_buffer(&mut self) {
        self.huffman_text = Vec::new();
    }
}

/// The kind that the name alone has, and the field, at this index. The indexes of the dynamic table follow those of the
/// static one, from 1. `None` if neither table has the index.
fn indexed_field(table: &DynamicTable, index: usize) -> Option<(FieldKind, DecodedField<'_>)> {
    let dynamic_index = match STATIC_TABLE.get(index.checked_sub(1)?) {
        Some(entry) => {
            let field = DecodedField {
                kind: entry.kind,
                name: entry.name.as_bytes(),
                value: entry.value.as_bytes(),
            };
            return Some((entry.kind, field));
        }
        None => index - 1 - STATIC_TABLE.len(),
    };
    let entry = table.get(dynamic_index)?;
    let field = DecodedField {
        kind: entry.kind,
        name: entry.name(),
        value: entry.value(),
    };
    Some((entry.name_kind, field))
}
