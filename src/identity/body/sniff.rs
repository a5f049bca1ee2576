//! Whether a field may stand in a body of a type that says nothing of fields, by its first bytes.
//!
//! Every verdict holds for all bodies that begin so: more bytes never change it.

use super::field::BodyField;
use super::first_bytes::BYTE_ORDER_MARK;
use super::json;

/// See [`super::may_have_field`].
pub(super) fn may_have_field(field: &BodyField, begin: &[u8]) -> Option<bool> {
    let mut letters = Letters::of(begin)?.filter(|c| !is_skipped(*c));
    match letters.next()? {
        '{' => match letters.next()? {
            '"' => {
                let bare = begin.strip_prefix(BYTE_ORDER_MARK).unwrap_or(begin);
                // What stands behind the first document is not looked for by readers of one.
                json::begins_without(field, bare).then_some(false)
            }
            // RTF begins so too.
            '\\' => Some(letters.next()? == 'u'),
            // JSON5.
            c => Some(matches!(c, '\'' | '_' | '$' | '/') || c.is_alphabetic()),
        },
        _ => Some(false),
    }
}

/// What readers of JSON skip, or find an object behind. A byte order mark and a blank beyond ASCII are some bytes of UTF-8.
fn is_skipped(c: char) -> bool {
    let in_mark = matches!(c, '\u{a0}' | '\u{bb}' | '\u{bf}' | '\u{c2}' | '\u{ef}');
    c <= ' ' || matches!(c, '[' | '\u{feff}') || in_mark
}

/// The characters of a text in UTF-8, UTF-16 or UTF-32, of which those beyond ASCII are not told apart in UTF-8. It ends
/// where it is no text.
struct Letters<'b> {
    rest: &'b [u8],
    width: usize,
    is_little: bool,
}

impl<'b> Letters<'b> {
    /// As readers of JSON tell them (RFC 4627, section 3); none where too few bytes are there.
    fn of(begin: &'b [u8]) -> Option<Letters<'b>> {
        let &[a, b, c, d, ..] = begin else {
            // Two bytes of ASCII tell that it is UTF-8.
            let plain = |byte: &u8| (1..0x80).contains(byte);
            let is_plain = begin.len() > 1 && begin.iter().all(plain);
            return is_plain.then_some(Letters {
                rest: begin,
                width: 1,
                is_little: false,
            });
        };
        let (width, is_little) = match (a, b, c, d) {
            (0, 0, _, _) => (4, false),
            (0xff, 0xfe, 0, 0) => (4, true),
            (0xfe, 0xff, _, _) | (0, _, _, _) => (2, false),
            (0xff, 0xfe, _, _) => (2, true),
            (_, 0, 0, 0) => (4, true),
            (_, 0, _, _) => (2, true),
            _ => (1, false),
        };
        Some(Letters {
            rest: begin.strip_prefix(BYTE_ORDER_MARK).unwrap_or(begin),
            width,
            is_little,
        })
    }
}

impl Iterator for Letters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let (unit, rest) = self.rest.split_at_checked(self.width)?;
        self.rest = rest;
        let join = |all: u32, byte: &u8| all << 8 | u32::from(*byte);
        let code = match self.is_little {
            true => unit.iter().rev().fold(0, join),
            false => unit.iter().fold(0, join),
        };
        // Anything but a character is the end of what could be JSON.
        let other = '\u{fffd}';
        Some(char::from_u32(code).filter(|c| *c != '\0').unwrap_or(other))
    }
}

#[cfg(test)]
mod tests;
