//! Escapes the values of identities in keys, so that a key is one word in shells, files and terminals.

use std::fmt::Write;

/// Escapes a value for a key.
pub(super) fn escape(value: &str) -> String {
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

/// Whether a character inside a value needs no escape.
fn is_plain(c: char) -> bool {
    let is_formatting = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_formatting && !"~,%?#&+\\".contains(c)
}

/// Undoes [`escape`]. A `~` without two digits stands for itself.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text.as_bytes();
    while let Some((&byte, after)) = remaining.split_first() {
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
