//! A cookie of a request, without the quotes and escapes that some readers take off.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::body::FieldName;
use super::field_value::{FieldValue, trim};
use super::{canonical, form};
use crate::http::head::Fields;

pub(super) fn find<'r>(fields: &'r Fields, name: &FieldName) -> FieldValue<'r> {
    let mut found = FieldValue::Absent;
    let lines = fields.all("cookie");
    for pair in lines.flat_map(|line| line.split(|byte| *byte == b';')) {
        let (given, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &[][..]),
        };
        if name.resembles(&form::unescape(given, b'+').0) {
            match cookie_value(value) {
                Some(value) => found.add(value),
                None => found = FieldValue::Ambiguous,
            }
        } else if hides(pair, name) {
            found = FieldValue::Ambiguous;
        }
    }
    found
}

/// Whether readers that part cookies at blanks or commas too find one of this name in another.
fn hides(pair: &[u8], name: &FieldName) -> bool {
    let mut before = pair.split(|byte| *byte == b'=').map(<[u8]>::trim_ascii_end);
    // Behind the last `=` stands no name.
    let last = before.next_back();
    last.is_some()
        && before.any(|text| {
            let word = text.rsplit(|byte| b", \t".contains(byte)).next();
            word.is_some_and(|word| name.resembles(word))
        })
}

/// The value of a cookie as it was before quotes, backslashes (RFC 2109), and escapes, which a part of the
/// readers take off each. A blank is `+`, for which Rack takes it. None if only some would take an escape.
fn cookie_value(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    let raw = trim(raw)?;
    let value = match raw.strip_prefix(b"\"") {
        Some(inner) => unquoted(inner.strip_suffix(b"\"")?)?,
        // Python's reader ends a value there, and reads on.
        None if raw.iter().any(|byte| b" \t,".contains(byte)) => return None,
        None => raw.into(),
    };
    let value = unescaped(value)?;
    // Express' mark of JSON.
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
    let plus = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
    Some(text.iter().map(plus).collect())
}

/// Escapes to bytes, or the value if it has no escapes at all.
fn unescaped(value: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    if !value.contains(&b'%') {
        return Some(value);
    }
    let (decoded, escapes) = form::unescape(&value, b'+');
    if !escapes.good && escapes.bad {
        return Some(value);
    }
    if escapes.bad || std::str::from_utf8(&decoded).is_err() {
        return None;
    }
    Some(trim(&decoded)?.to_vec().into())
}

/// Backslashes to what they stand for: a byte in octal, or the character behind. None for a quote without one.
fn unquoted(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.iter().any(|byte| matches!(byte, b'\\' | b'"')) {
        return Some(text.into());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'"', _) | (b'\\', []) => return None,
            (
                b'\\',
                [
                    high @ b'0'..=b'3',
                    mid @ b'0'..=b'7',
                    low @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push((high - b'0') << 6 | (mid - b'0') << 3 | (low - b'0'));
                rest = after;
            }
            (b'\\', [other, after @ ..]) => {
                out.push(*other);
                rest = after;
            }
            _ => out.push(byte),
        }
    }
    Some(out.into())
}
