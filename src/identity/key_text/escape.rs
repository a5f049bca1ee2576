//! Escapes and decodes the values of identities in keys. It escapes the characters that separate parts, have a meaning in
//! URLs, or cannot be seen. Blanks inside a value, quotes and `$` stay, so a shell needs quotes around some keys.

use std::fmt::Write;

/// Escapes a value of a key: see `key_text.rs` for the characters.
pub(super) fn escape(value: &str) -> String {
    // A blank at an end is escaped, because nobody sees it there.
    let leading_blank_bytes = value.len() - value.trim_start().len();
    let inner_range = leading_blank_bytes..value.trim_end().len();
    let mut escaped = String::with_capacity(value.len());
    for (offset, c) in value.char_indices() {
        if is_plain(c) && (inner_range.contains(&offset) || !c.is_whitespace()) {
            escaped.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(escaped, "~{byte:02X}");
        }
    }
    escaped
}

/// Whether a character inside a value needs no escape. Formatting characters are Unicode's categories Zl and Zp, and most
/// of Cf: they are invisible, or reorder what a terminal shows.
fn is_plain(c: char) -> bool {
    let is_formatting = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_formatting && !"~,%?#&+\\".contains(c)
}

/// Decodes what [`escape`] writes. A `~` without two hexadecimal digits stands for itself, and so does a whole text whose
/// bytes are not UTF-8.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text.as_bytes();
    while let Some((&byte, after)) = remaining.split_first() {
        // Where there is no escape, the zero bytes below are no digits, so nothing is decoded.
        let digits = match after {
            [high, low, ..] if byte == b'~' => [*high, *low],
            _ => [0, 0],
        };
        let hex_value = |digit: u8| char::from(digit).to_digit(16);
        match digits.map(hex_value) {
            [Some(high), Some(low)] => {
                bytes.push((high << 4 | low) as u8);
                remaining = &after[2..];
            }
            _ => {
                bytes.push(byte);
                remaining = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
