//! Encodes blocks of fields: RFC 7541 sections 3 and 6.
//!
//! A field is added to the dynamic table when it is sent again while the encoder remembers it. Then it needs one or two
//! bytes until it is evicted. So a field whose value differs each time is never added. Texts are never Huffman-coded:
//! that would save less in bytes than it costs in time.

use super::field_kind::FieldKind;
use super::integer::write_number;
use super::table::{DYNAMIC_TABLE_BYTES, DynamicTable, STATIC_TABLE, StaticEntry, TableEntry};

/// Number of recently sent fields that are remembered by their hash. It is a power of two, so that some bits of the
/// hash are the index.
const REMEMBERED_FIELDS: usize = 64;

/// First byte of a change of the table size (section 6.3), and the bits of its prefix.
const TABLE_RESIZE_FLAGS: u8 = 0x20;
const TABLE_RESIZE_PREFIX_BITS: u32 = 5;

/// First byte of an indexed field (section 6.1), and the bits of its prefix.
const INDEXED_FLAGS: u8 = 0x80;
const INDEXED_PREFIX_BITS: u32 = 7;

/// Bits of the prefix of a text's length (section 5.2). The other bit says whether the text is Huffman-coded.
const TEXT_LENGTH_PREFIX_BITS: u32 = 7;

/// Longest value that is added to the table, in bytes. Longer ones would evict many other fields.
const MAX_INDEXED_VALUE_BYTES: usize = 256;

/// Encodes the fields of one connection, and tracks the peer's dynamic table.
#[derive(Debug)]
pub struct Encoder {
    /// The same entries as in the table of the peer's decoder.
    table: DynamicTable,
    /// The last sent fields. A field is at the index `hash % REMEMBERED_FIELDS`, and replaces the one before it there.
    remembered: Box<[SentField]>,
    /// The number of fields added to the table since the connection began. At the largest number nothing is added any
    /// more.
    added_count: u32,
    /// A change of the table size that the next block must announce; `None` if the size has not changed.
    resize: Option<TableResize>,
}

/// A field that was sent, by its hash.
#[derive(Clone, Copy, Debug, Default)]
struct SentField {
    /// The result of [`hash_field`].
    hash: u64,
    /// The field's number among those added to the table, from 1; 0 if it was not added.
    added_number: u32,
}

/// Table sizes that the peer has set since the last block.
#[derive(Clone, Copy, Debug)]
struct TableResize {
    /// The smallest size in bytes, which evicts the most entries.
    smallest: usize,
    /// The size in bytes that holds from now on.
    last: usize,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            table: DynamicTable::new(DYNAMIC_TABLE_BYTES),
            remembered: [SentField::default(); REMEMBERED_FIELDS].into(),
            added_count: 0,
            resize: None,
        }
    }
}

impl Encoder {
    /// Changes the table to the size that the peer allows, but at most to [`DYNAMIC_TABLE_BYTES`]. The next block
    /// announces the change.
    pub fn resize(&mut self, allowed_bytes: usize) {
        let size = allowed_bytes.min(DYNAMIC_TABLE_BYTES);
        self.resize = Some(TableResize {
            smallest: self
                .resize
                .map_or(size, |earlier| earlier.smallest.min(size)),
            last: size,
        });
        self.table.resize(size);
    }

    /// Begins a block, and appends the changes of the table size since the last block: section 4.2.
    pub fn begin_block(&mut self, out: &mut Vec<u8>) {
        if let Some(TableResize { smallest, last }) = self.resize.take() {
            if smallest < last {
                write_number(out, TABLE_RESIZE_FLAGS, TABLE_RESIZE_PREFIX_BITS, smallest);
            }
            write_number(out, TABLE_RESIZE_FLAGS, TABLE_RESIZE_PREFIX_BITS, last);
        }
    }

    /// Appends the pseudo-header field `:status`. The status must have three digits.
    pub fn write_status(&mut self, out: &mut Vec<u8>, status: u16) {
        // The indexes of these statuses in the static table.
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = [status / 100, status / 10 % 10, status % 10];
                let text = digits.map(|digit| b'0' + digit as u8);
                return self.write_field(out, b":status", &text);
            }
        };
        out.push(INDEXED_FLAGS | index);
    }

    /// Appends a field, with its name in lower case. [`Encoder::begin_block`] must have been called for this block.
    pub fn write_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let hash = hash_field(name, value);
        let slot = hash as usize % REMEMBERED_FIELDS;
        let sent = self.remembered[slot];
        let is_repeated = sent.hash == hash;
        if is_repeated && sent.added_number > 0 {
            let index = (self.added_count - sent.added_number) as usize;
            let entry = self.table.get(index);
            if entry.is_some_and(|entry| is_entry_for(entry, name, value)) {
                let table_index = STATIC_TABLE.len() + 1 + index;
                return write_number(out, INDEXED_FLAGS, INDEXED_PREFIX_BITS, table_index);
            }
        }
        if is_secret(name) {
            return write_literal(out, LiteralForm::NEVER_INDEXED, name, value);
        }
        if !is_repeated || value.len() > MAX_INDEXED_VALUE_BYTES || self.added_count == u32::MAX {
            self.remembered[slot] = SentField {
                hash,
                added_number: 0,
            };
            return write_literal(out, LiteralForm::WITHOUT_INDEXING, name, value);
        }
        write_literal(out, LiteralForm::INDEXED, name, value);
        let name = name.to_ascii_lowercase();
        // The peer's table evicts the same entries.
        let fits = self
            .table
            .add(TableEntry::new(FieldKind::Regular, &name, value));
        self.added_count += u32::from(fits);
        let added_number = if fits { self.added_count } else { 0 };
        self.remembered[slot] = SentField { hash, added_number };
    }
}

/// Whether the entry is this field. It must be checked, because different fields may have the same hash.
fn is_entry_for(entry: &TableEntry, name: &[u8], value: &[u8]) -> bool {
    entry.value() == value && entry.name().eq_ignore_ascii_case(name)
}

/// Whether the field must never be in a table, where an attacker could guess its value: section 7.1.3. Of the fields of
/// responses, only cookies are such secrets.
fn is_secret(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"set-cookie")
}

/// A hash of a field that ignores the case of its name. Different fields may have the same hash.
fn hash_field(name: &[u8], value: &[u8]) -> u64 {
    // 2^64 times the fractional part of the golden ratio, as in Fibonacci hashing: odd, with evenly spread bits.
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // The bit by which upper and lower case differ, in each byte.
    const CASE_BITS: u64 = 0x2020_2020_2020_2020;
    let mix = |hash: u64, part: u64| (hash.rotate_left(23) ^ part).wrapping_mul(MULTIPLIER);
    let mut hash = mix(name.len() as u64, value.len() as u64);
    for (text, case_bits) in [(name, CASE_BITS), (value, 0)] {
        let (words, remainder) = text.as_chunks();
        for word in words {
            hash = mix(hash, u64::from_le_bytes(*word) | case_bits);
        }
        let mut last_word = [0; 8];
        last_word[..remainder.len()].copy_from_slice(remainder);
        hash = mix(hash, u64::from_le_bytes(last_word) | case_bits);
    }
    hash ^ (hash >> 32)
}

/// A representation of literal fields: section 6.2.
struct LiteralForm {
    /// The upper bits of the first byte.
    flags: u8,
    /// The other bits of the first byte, which begin the index of the name.
    prefix_bits: u32,
}

impl LiteralForm {
    /// The peer adds the field to its table.
    const INDEXED: LiteralForm = LiteralForm {
        flags: 0x40,
        prefix_bits: 6,
    };
    /// The peer does not add the field to its table.
    const WITHOUT_INDEXING: LiteralForm = LiteralForm {
        flags: 0x00,
        prefix_bits: 4,
    };
    /// No proxy on the way may add the field to a table.
    const NEVER_INDEXED: LiteralForm = LiteralForm {
        flags: 0x10,
        prefix_bits: 4,
    };
}

/// Appends a field as text. Its name is an index if the static table has it.
fn write_literal(out: &mut Vec<u8>, literal: LiteralForm, name: &[u8], value: &[u8]) {
    match static_index(name) {
        Some(index) => write_number(out, literal.flags, literal.prefix_bits, index),
        None => {
            out.push(literal.flags);
            write_number(out, 0, TEXT_LENGTH_PREFIX_BITS, name.len());
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        }
    }
    write_number(out, 0, TEXT_LENGTH_PREFIX_BITS, value.len());
    out.extend_from_slice(value);
}

/// The index of a name in the static table; `None` if the table does not have it. Names of pseudo-header fields of
/// requests are not searched.
fn static_index(name: &[u8]) -> Option<usize> {
    // The position of `:status`, the first name that a response can have.
    const FIRST_POSITION: usize = 7;
    let candidates = &STATIC_TABLE[FIRST_POSITION..];
    let has_name = |entry: &StaticEntry| {
        entry.name.len() == name.len() && entry.name.as_bytes().eq_ignore_ascii_case(name)
    };
    candidates
        .iter()
        .position(has_name)
        .map(|position| position + FIRST_POSITION + 1)
}
