//! What the other side says: RFC 7541 sections 3 and 6.

use super::huffman;
use super::integer::read_number;
use super::kind::FieldKind;
use super::table::{DYNAMIC_TABLE_SIZE, DynamicTable, ENTRY_OVERHEAD, STATIC_TABLE, TableEntry};
use crate::http::http1::MAX_HEAD;
use crate::http::http2::{Fatal, Reason};

/// A field as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedField<'a> {
    /// What it is.
    pub kind: FieldKind,
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Most bytes that a block may say, decoded, with [`ENTRY_OVERHEAD`] for each field: four times the largest head, so that one
/// which is merely too large does not end its connection. A field of two bytes may say what a table keeps of 4 KiB.
const MOST: usize = 4 * MAX_HEAD;

const UNREADABLE: Fatal = Fatal(Reason::COMPRESSION_ERROR);

/// The other side's table. It keeps at most [`DYNAMIC_TABLE_SIZE`] bytes.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// What of a field came in Huffman's code.
    text: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            table: DynamicTable::new(DYNAMIC_TABLE_SIZE),
            text: Vec::new(),
        }
    }
}

impl Decoder {
    /// Hands on each field of a block.
    ///
    /// # Errors
    ///
    /// When it cannot be read or says more than [`MOST`] bytes; then none can be read that comes after.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(DecodedField<'_>),
    ) -> Result<(), Fatal> {
        let mut rest = block;
        let mut begun = false;
        let mut left = MOST;
        let mut hand_on = |said: DecodedField<'_>| {
            let size = said.name.len() + said.value.len() + ENTRY_OVERHEAD;
            let after = left.checked_sub(size);
            left = after.ok_or(Fatal(Reason::ENHANCE_YOUR_CALM))?;
            field(said);
            Ok(())
        };
        while let Some(first) = rest.first() {
            match first {
                0x80.. => {
                    let index = read_number(&mut rest, 7).ok_or(UNREADABLE)?;
                    let (_, said) = indexed(&self.table, index).ok_or(UNREADABLE)?;
                    hand_on(said)?;
                }
                0x20..0x40 => {
                    let size = read_number(&mut rest, 5).ok_or(UNREADABLE)?;
                    if begun || size > DYNAMIC_TABLE_SIZE {
                        return Err(UNREADABLE);
                    }
                    self.table.resize(size);
                    continue;
                }
                _ => self.literal(*first, &mut rest, &mut hand_on)?,
            }
            begun = true;
        }
        Ok(())
    }

    fn literal(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        hand_on: &mut impl FnMut(DecodedField<'_>) -> Result<(), Fatal>,
    ) -> Result<(), Fatal> {
        let Decoder { table, text } = self;
        text.clear();
        let learn = first & 0x40 != 0;
        let index = read_number(rest, if learn { 6 } else { 4 }).ok_or(UNREADABLE)?;
        let (named, name) = match index {
            0 => (None, read_text(rest, text).ok_or(UNREADABLE)?),
            _ => {
                let (named, known) = indexed(table, index).ok_or(UNREADABLE)?;
                (Some(named), Some(known.name))
            }
        };
        let length = text.len();
        let value = read_text(rest, text).ok_or(UNREADABLE)?;
        let (coded_name, coded_value) = text.split_at(length);
        let (name, value) = (name.unwrap_or(coded_name), value.unwrap_or(coded_value));
        let named = named.unwrap_or_else(|| FieldKind::of(name));
        let kind = named.with(value);
        hand_on(DecodedField { kind, name, value })?;
        if learn {
            let mut entry = TableEntry::new(kind, name, value);
            entry.named = named;
            table.add(entry);
        }
        Ok(())
    }

    /// Gives up what is not needed between two blocks.
    pub fn rest(&mut self) {
        self.text = Vec::new();
    }
}

/// What a field's name says by itself, and the field.
fn indexed(table: &DynamicTable, index: usize) -> Option<(FieldKind, DecodedField<'_>)> {
    let before = match STATIC_TABLE.get(index.checked_sub(1)?) {
        Some((name, value, kind)) => {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let kind = *kind;
            return Some((kind, DecodedField { kind, name, value }));
        }
        None => index - 1 - STATIC_TABLE.len(),
    };
    let entry = table.get(before)?;
    let field = DecodedField {
        kind: entry.kind,
        name: entry.name(),
        value: entry.value(),
    };
    Some((entry.named, field))
}

/// A text from the front of `rest`: section 5.2. One in Huffman's code is appended to `text`, and then there is no
/// other.
fn read_text<'a>(rest: &mut &'a [u8], text: &mut Vec<u8>) -> Option<Option<&'a [u8]>> {
    let coded = rest.first()? & 0x80 != 0;
    let length = read_number(rest, 7)?;
    let (bytes, others) = rest.split_at_checked(length)?;
    *rest = others;
    if coded {
        huffman::decode(bytes, text)?;
        return Some(None);
    }
    Some(Some(bytes))
}
