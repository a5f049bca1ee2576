//! Finds a cookie by name, and decodes its value: quotes, backslashes and escapes, which only some readers decode.
//!
//! A cookie whose value depends on the reader is ambiguous.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::body::FieldName;
use super::field_value::{FieldValue, trim};
use super::{canonical, form};
use crate::http::head::Fields;

/// The value of the cookie whose name resembles `name`. It is ambiguous if two cookies have such a name, even with one
/// value, or if the value depends on the reader.
pub(super) fn find_value<'r>(fields: &'r Fields, name: &FieldName) -> FieldValue<'r> {
    let mut cookie = FieldValue::Absent;
    let lines = fields.all("cookie");
    for pair in lines.flat_map(|line| line.split(|byte| *byte == b';')) {
        let (pair_name, value) = form::split_at_equals(pair);
        if name.resembles(&form::unescape(pair_name, b'+').0) {
            match parse_value(value) {
                Some(value) => cookie.add(value),
                None => cookie = FieldValue::Ambiguous,
            }
        } else if has_hidden_cookie(pair, name) {
            cookie = FieldValue::Ambiguous;
        }
    }
    cookie
}

/// Whether readers that split cookies at blanks or commas too find one of this name in `pair`.
fn has_hidden_cookie(pair: &[u8], name: &FieldName) -> bool {
    let mut before_equals = pair.split(|byte| *byte == b'=').map(<[u8]>::trim_ascii_end);
    // The text after the last `=` is a value, and holds no name.
    let after_last_equals = before_equals.next_back();
    after_last_equals.is_some()
        && before_equals.any(|text| {
            let last_word = text.rsplit(|byte| b", \t".contains(byte)).next();
            last_word.is_some_and(|word| name.resembles(word))
        })
}

/// The value of a cookie, with quotes, backslashes (RFC 2109) and escapes decoded, which only some readers do. JSON of
/// Express becomes its text. A blank becomes `+`, because Rack reads `+` as a blank. `None` if readers would disagree
/// on the value.
fn parse_value(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    let raw = trim(raw)?;
    let value = match raw.strip_prefix(b"\"") {
        Some(after_quote) => decode_backslashes(after_quote.strip_suffix(b"\"")?)?,
        // Python ends a value at a blank or a comma, and reads the text after it as another cookie.
        None if raw.iter().any(|byte| b" \t,".contains(byte)) => return None,
        None => raw.into(),
    };
    let value = decode_escapes(value)?;
    // Express marks a value in JSON with `j:`.
    let text: Cow<'_, [u8]> = match value.strip_prefix(b"j:") {
        Some(json) if serde_json::from_slice::<&RawValue>(json).is_ok() => {
            let text: String = serde_json::from_slice(json).ok()?;
            text.into_bytes().into()
        }
        _ => value,
    };
    if !text.contains(&b' ') || canonical::skips_blanks(&text) {
        return Some(text);
    }
    let blank_to_plus = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
    Some(text.iter().map(blank_to_plus).collect())
}

/// Decodes escapes and trims the result. Returns the value as it is if it has no valid escape. `None` if only some
/// escapes are valid, or if the result is not UTF-8 or has a control character.
fn decode_escapes(value: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    if !value.contains(&b'%') {
        return Some(value);
    }
    let (decoded, escapes) = form::unescape(&value, b'+');
    if !escapes.has_valid && escapes.has_malformed {
        return Some(value);
    }
    if escapes.has_malformed || std::str::from_utf8(&decoded).is_err() {
        return None;
    }
    Some(trim(&decoded)?.to_vec().into())
}

/// Decodes backslashes: one stands before three octal digits of a byte, or before any character. `None` if a quote has
/// no backslash before it, or if the text ends with a backslash.
fn decode_backslashes(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.iter().any(|byte| matches!(byte, b'\\' | b'"')) {
        return Some(text.into());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut remaining = text;
    while let Some((&byte, after)) = remaining.split_first() {
        remaining = after;
        match (byte, after) {
            (b'"', _) | (b'\\', []) => return None,
            (
                b'\\',
                [
                    high @ b'0'..=b'3',
                    middle @ b'0'..=b'7',
                    low @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                decoded.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                remaining = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                decoded.push(*escaped);
                remaining = after;
            }
            _ => decoded.push(byte),
        }
    }
    Some(decoded.into())
}
