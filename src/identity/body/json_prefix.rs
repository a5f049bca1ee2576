//! Decides from the first bytes of a body whether a reader could find a field in it as JSON. It is for bodies whose type
//! alone does not say that they may have fields, because some frameworks read them as JSON all the same.
//!
//! A decision holds for all bodies that begin with these bytes: more bytes never change it.

use super::body_field::BodyField;
use super::first_bytes::BYTE_ORDER_MARK;
use super::json;

/// Whether `field` may stand in a body that begins with `prefix`; `None` if more bytes are needed to decide.
pub(super) fn may_have_field(field: &BodyField, prefix: &[u8]) -> Option<bool> {
    let mut characters = Characters::detect(prefix)?.filter(|c| !is_skipped(*c));
    match characters.next()? {
        '{' => match characters.next()? {
            '"' => {
                let without_mark = prefix.strip_prefix(BYTE_ORDER_MARK).unwrap_or(prefix);
                // Strict readers do not look beyond the first document.
                json::begins_without(field, without_mark).then_some(false)
            }
            // `{\u…` is JSON5 with an escaped name, `{\rtf` is RTF.
            '\\' => Some(characters.next()? == 'u'),
            // JSON5 allows names without quotes, single quotes and comments.
            c => Some(matches!(c, '\'' | '_' | '$' | '/') || c.is_alphabetic()),
        },
        _ => Some(false),
    }
}

/// Whether a JSON reader skips this character, or may find an object behind it. [`Characters`] gives the bytes of a
/// UTF-8 byte order mark or of a no-break space as characters of their own, so they are listed too.
fn is_skipped(c: char) -> bool {
    let is_utf8_byte = matches!(c, '\u{a0}' | '\u{bb}' | '\u{bf}' | '\u{c2}' | '\u{ef}');
    c <= ' ' || matches!(c, '[' | '\u{feff}') || is_utf8_byte
}

/// The characters of a text in UTF-8, UTF-16 or UTF-32, which are distinguished as by JSON readers (RFC 4627, section 3).
/// In UTF-8 each byte beyond ASCII counts as one character: only ASCII matters here.
struct Characters<'b> {
    remaining: &'b [u8],
    /// Number of bytes of one code unit: 1, 2 or 4.
    unit_bytes: usize,
    byte_order: ByteOrder,
}

/// The order of the bytes in a code unit of several bytes.
#[derive(Clone, Copy)]
enum ByteOrder {
    Big,
    Little,
}

impl<'b> Characters<'b> {
    /// Detects the encoding of a text from its first four bytes; `None` if there are fewer and they could be of several
    /// encodings.
    fn detect(prefix: &'b [u8]) -> Option<Characters<'b>> {
        use ByteOrder::{Big, Little};
        let &[first, second, third, fourth, ..] = prefix else {
            // UTF-16 and UTF-32 have a NUL among the first two bytes of ASCII text.
            let is_ascii = |byte: &u8| (1..0x80).contains(byte);
            let is_utf8 = prefix.len() > 1 && prefix.iter().all(is_ascii);
            return is_utf8.then_some(Characters {
                remaining: prefix,
                unit_bytes: 1,
                byte_order: Big,
            });
        };
        let (unit_bytes, byte_order) = match (first, second, third, fourth) {
            (0, 0, _, _) => (4, Big),
            (0xff, 0xfe, 0, 0) => (4, Little),
            (0xfe, 0xff, _, _) | (0, _, _, _) => (2, Big),
            (0xff, 0xfe, _, _) => (2, Little),
            (_, 0, 0, 0) => (4, Little),
            (_, 0, _, _) => (2, Little),
            _ => (1, Big),
        };
        Some(Characters {
            remaining: prefix.strip_prefix(BYTE_ORDER_MARK).unwrap_or(prefix),
            unit_bytes,
            byte_order,
        })
    }
}

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let (unit, remaining) = self.remaining.split_at_checked(self.unit_bytes)?;
        self.remaining = remaining;
        let append = |code: u32, byte: &u8| code << 8 | u32::from(*byte);
        let code = match self.byte_order {
            ByteOrder::Little => unit.iter().rev().fold(0, append),
            ByteOrder::Big => unit.iter().fold(0, append),
        };
        // No JSON reader accepts NUL or an invalid code point, so both become the replacement character.
        let replacement = '\u{fffd}';
        Some(
            char::from_u32(code)
                .filter(|c| *c != '\0')
                .unwrap_or(replacement),
        )
    }
}

#[cfg(test)]
mod tests;
