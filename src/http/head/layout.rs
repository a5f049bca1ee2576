//! Positions of fields in the text of a head: [`FieldSpan`] is a position, [`Text`] the text, [`NameTag`] a short hash
//! of a name.
//!
//! The text has two parts: the bytes that were received, and behind them the bytes of fields that were added. A
//! position counts through both, as if they were one.

use std::ops::Range;

/// The bit that is set in lower-case letters of ASCII and not in upper-case ones.
const CASE_BIT: u8 = 0x20;

/// 2^32 times the fractional part of the golden ratio, as in Fibonacci hashing. Multiplied by it, similar tags spread
/// over the filter.
const TAG_MULTIPLIER: u32 = 0x9e37_79b9;

/// The position of a field in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpan {
    /// The tag of the name, which has the name's length.
    pub(crate) tag: NameTag,
    /// Offset of the first byte of the name.
    pub(crate) name_start: u32,
    /// Offset of the first byte of the value.
    pub(crate) value_start: u32,
    /// Length of the value, in bytes.
    pub(crate) value_length: u32,
}

/// A short summary of a name of less than 64 KiB: its length, and its first and last byte in lower case. Different
/// names seldom share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTag(u32);

impl NameTag {
    /// The tag of a name. Names that differ only in case have the same tag.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> NameTag {
        let lower_case = |byte: Option<&u8>| u32::from(byte.map_or(0, |byte| byte | CASE_BIT));
        let end_bytes = lower_case(name.first()) << 24 | lower_case(name.last()) << 16;
        NameTag(end_bytes | u32::from(name.len() as u16))
    }

    /// The bit of this tag in a filter of 64 bits. If the bit is not set in the filter of some fields, none has the
    /// name.
    #[inline]
    pub(crate) fn filter_bit(self) -> u64 {
        1 << (self.0.wrapping_mul(TAG_MULTIPLIER) >> (u32::BITS - 6))
    }

    /// The length of the name, in bytes.
    #[inline]
    pub(crate) fn name_length(self) -> u32 {
        self.0 & 0xffff
    }
}

/// The text of a head. The offsets of added bytes continue those of received ones.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    /// The bytes that were received.
    pub(crate) received: &'a [u8],
    /// The lines of fields that were added.
    pub(crate) added: &'a [u8],
}

impl<'a> Text<'a> {
    /// A text without added bytes.
    pub(crate) fn received(received: &'a [u8]) -> Text<'a> {
        Text {
            received,
            added: &[],
        }
    }

    /// The value of the first field of this name; `None` if there is none.
    #[inline]
    pub(crate) fn first_value(self, spans: &[FieldSpan], name: &str) -> Option<&'a [u8]> {
        let tag = NameTag::of(name.as_bytes());
        for span in spans {
            if span.tag == tag && self.name(span).eq_ignore_ascii_case(name.as_bytes()) {
                return Some(self.value(span));
            }
        }
        None
    }

    /// The offset after the line of a field; `None` if the text does not have the line as `name: value` with CRLF.
    pub(crate) fn line_end(self, span: &FieldSpan) -> Option<usize> {
        let Text { received, added } = self;
        let name_end = span.name_start as usize + span.tag.name_length() as usize;
        let value_start = span.value_start as usize;
        let value_end = value_start + span.value_length as usize;
        let (part, part_start) = match name_end.checked_sub(received.len()) {
            None => (received, 0),
            Some(_) => (added, received.len()),
        };
        let has_bytes_at = |position: usize, expected: &[u8; 2]| {
            position
                .checked_sub(part_start)
                .and_then(|start| part.get(start..start + 2))
                .is_some_and(|bytes| bytes == expected)
        };
        let is_line = value_start == name_end + 2
            && has_bytes_at(name_end, b": ")
            && has_bytes_at(value_end, b"\r\n");
        is_line.then_some(value_end + 2)
    }

    /// The name of the field at this position.
    pub(crate) fn name(self, span: &FieldSpan) -> &'a [u8] {
        self.slice(span.name_start, span.tag.name_length())
    }

    /// The value of the field at this position.
    pub(crate) fn value(self, span: &FieldSpan) -> &'a [u8] {
        self.slice(span.value_start, span.value_length)
    }

    /// The bytes from an offset on, which must all be in one part.
    fn slice(self, start: u32, length: u32) -> &'a [u8] {
        let (start, length) = (start as usize, length as usize);
        self.bytes(&(start..start + length))
    }

    /// The bytes of a range, which must not cross from the received into the added part.
    pub(crate) fn bytes(self, range: &Range<usize>) -> &'a [u8] {
        let Text { received, added } = self;
        match range.start.checked_sub(received.len()) {
            None => &received[range.clone()],
            Some(start) => &added[start..start + range.len()],
        }
    }
}
