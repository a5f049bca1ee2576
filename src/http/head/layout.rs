//! Where fields stand: in the bytes that they came in, or behind them in what was added.

use std::ops::Range;

/// Where a field is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpan {
    pub(crate) tag: Tag,
    pub(crate) name: u32,
    pub(crate) value: u32,
    pub(crate) value_length: u32,
}

/// A name's length and its first and last byte without case: names seldom share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Tag {
        let lower = |byte: Option<&u8>| u32::from(byte.map_or(0, |byte| byte | 0x20));
        let ends = lower(name.first()) << 24 | lower(name.last()) << 16;
        Tag(ends | u32::from(name.len() as u16))
    }

    /// One bit, the same for equal tags.
    #[inline]
    pub(crate) fn mark(self) -> u64 {
        1 << (self.0.wrapping_mul(0x9e37_79b9) >> (u32::BITS - 6))
    }

    /// Of the name.
    #[inline]
    pub(crate) fn length(self) -> u32 {
        self.0 & 0xffff
    }
}

/// What fields came in, and what was added to it.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) &'a [u8], pub(crate) &'a [u8]);

impl<'a> Text<'a> {
    /// The value of the first field of this name.
    #[inline]
    pub(crate) fn first(self, places: &[FieldSpan], name: &str) -> Option<&'a [u8]> {
        let tag = Tag::of(name.as_bytes());
        for place in places {
            if place.tag == tag && self.name(place).eq_ignore_ascii_case(name.as_bytes()) {
                return Some(self.value(place));
            }
        }
        None
    }

    /// Where a field's line ends, if it stands there as it would be written.
    pub(crate) fn line_end(self, place: &FieldSpan) -> Option<usize> {
        let Text(head, added) = self;
        let name_end = place.name as usize + place.tag.length() as usize;
        let value = place.value as usize;
        let value_end = value + place.value_length as usize;
        let (whole, shift) = match name_end.checked_sub(head.len()) {
            None => (head, 0),
            Some(_) => (added, head.len()),
        };
        let is = |at: usize, text: &[u8]| {
            at.checked_sub(shift)
                .and_then(|at| whole.get(at..at + 2))
                .is_some_and(|found| found == text)
        };
        let stands = value == name_end + 2 && is(name_end, b": ") && is(value_end, b"\r\n");
        stands.then_some(value_end + 2)
    }

    pub(crate) fn name(self, place: &FieldSpan) -> &'a [u8] {
        self.part(place.name, place.tag.length())
    }

    pub(crate) fn value(self, place: &FieldSpan) -> &'a [u8] {
        self.part(place.value, place.value_length)
    }

    pub(crate) fn part(self, start: u32, length: u32) -> &'a [u8] {
        let (start, length) = (start as usize, length as usize);
        self.bytes(&(start..start + length))
    }

    pub(crate) fn bytes(self, place: &Range<usize>) -> &'a [u8] {
        let Text(head, added) = self;
        match place.start.checked_sub(head.len()) {
            None => &head[place.clone()],
            Some(start) => &added[start..start + place.len()],
        }
    }
}
