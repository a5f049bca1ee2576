//! Positions of fields in the text of a head.
//!
//! The text has two parts: the bytes that were received, and behind them the bytes of fields that were added. A position
//! counts through both, as if they were one.

use std::ops::Range;

/// The position of a field in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpan {
    pub(crate) tag: Tag,
    /// Where the name begins.
    pub(crate) name: u32,
    /// Where the value begins.
    pub(crate) value: u32,
    pub(crate) value_length: u32,
}

/// A short summary of a name: its length, and its first and last byte in lower case. Different names seldom share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Tag {
        let lower = |byte: Option<&u8>| u32::from(byte.map_or(0, |byte| byte | 0x20));
        let ends = lower(name.first()) << 24 | lower(name.last()) << 16;
        Tag(ends | u32::from(name.len() as u16))
    }

    /// The bit of this tag in a filter of 64 bits: if the bit is not set, no field has the name.
    #[inline]
    pub(crate) fn filter_bit(self) -> u64 {
        1 << (self.0.wrapping_mul(0x9e37_79b9) >> (u32::BITS - 6))
    }

    /// The length of the name.
    #[inline]
    pub(crate) fn length(self) -> u32 {
        self.0 & 0xffff
    }
}

/// The text of a head: the received bytes, and the added ones.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) &'a [u8], pub(crate) &'a [u8]);

impl<'a> Text<'a> {
    /// The value of the first field of this name.
    #[inline]
    pub(crate) fn first(self, spans: &[FieldSpan], name: &str) -> Option<&'a [u8]> {
        let tag = Tag::of(name.as_bytes());
        for span in spans {
            if span.tag == tag && self.name(span).eq_ignore_ascii_case(name.as_bytes()) {
                return Some(self.value(span));
            }
        }
        None
    }

    /// Where the line of a field ends, if the text has it in the form in which it would be written.
    pub(crate) fn line_end(self, span: &FieldSpan) -> Option<usize> {
        let Text(head, added) = self;
        let name_end = span.name as usize + span.tag.length() as usize;
        let value = span.value as usize;
        let value_end = value + span.value_length as usize;
        let (part, part_start) = match name_end.checked_sub(head.len()) {
            None => (head, 0),
            Some(_) => (added, head.len()),
        };
        let has_at = |position: usize, expected: &[u8]| {
            position
                .checked_sub(part_start)
                .and_then(|start| part.get(start..start + 2))
                .is_some_and(|bytes| bytes == expected)
        };
        let is_line =
            value == name_end + 2 && has_at(name_end, b": ") && has_at(value_end, b"\r\n");
        is_line.then_some(value_end + 2)
    }

    /// The name of the field at this position.
    pub(crate) fn name(self, span: &FieldSpan) -> &'a [u8] {
        self.slice(span.name, span.tag.length())
    }

    /// The value of the field at this position.
    pub(crate) fn value(self, span: &FieldSpan) -> &'a [u8] {
        self.slice(span.value, span.value_length)
    }

    fn slice(self, start: u32, length: u32) -> &'a [u8] {
        let (start, length) = (start as usize, length as usize);
        self.bytes(&(start..start + length))
    }

    /// The bytes of a range, which must not cross from the received into the added part.
    pub(crate) fn bytes(self, range: &Range<usize>) -> &'a [u8] {
        let Text(head, added) = self;
        match range.start.checked_sub(head.len()) {
            None => &head[range.clone()],
            Some(start) => &added[start..start + range.len()],
        }
    }
}
