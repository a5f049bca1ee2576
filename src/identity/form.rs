//! Finds one named field in a query or a form body, hides its value in a logged query, and decodes escapes.
//!
//! It has a decoder of its own, because the crate `form_urlencoded` does not report malformed escapes. Cookies also
//! need a decoder that keeps `+`.

use std::borrow::Cow;

use http::Uri;

use super::body::FieldName;
use super::field_value::FieldValue;

/// The value of the field in `application/x-www-form-urlencoded` text whose name resembles `name`: see
/// [`FieldName::resembles`].
///
/// The field is ambiguous if it occurs more than once. Some readers also split fields at `;`, so a field with a `;` is
/// ambiguous. So is a value with a malformed escape or with escapes of invalid UTF-8, because readers disagree on
/// whether its other escapes are decoded then.
pub fn find_field<'t>(text: &'t [u8], name: &FieldName) -> FieldValue<'t> {
    let mut field = FieldValue::Absent;
    for pair in text.split(|byte| *byte == b'&') {
        let has_semicolon = pair.contains(&b';');
        for piece in pair.split(|byte| *byte == b';') {
            let (piece_name, value) = split_at_equals(piece);
            if !name.resembles(&decode(piece_name)) {
                continue;
            }
            match decode_value(value) {
                Some(value) if !has_semicolon => field.add(value),
                _ => field = FieldValue::Ambiguous,
            }
        }
    }
    field
}

/// The value of the field in the query of a request target. Fastify begins the query at the first `;` of the path, so
/// the value is ambiguous if the path has the field after a `;`.
pub(super) fn find_in_target<'t>(uri: &'t Uri, name: &FieldName) -> FieldValue<'t> {
    let query = uri.query().unwrap_or_default();
    match uri.path().split_once(';') {
        Some((_, parameters)) if find_field(parameters.as_bytes(), name) != FieldValue::Absent => {
            FieldValue::Ambiguous
        }
        _ => find_field(query.as_bytes(), name),
    }
}

/// The query with `***` in place of each value that [`find_field`] would read, and of the text up to the next `&`.
pub(super) fn mask_field(query: &str, name: &FieldName) -> String {
    let mut masked_query = String::with_capacity(query.len());
    for (index, pair) in query.split('&').enumerate() {
        let mut separator = if index > 0 { "&" } else { "" };
        for piece in pair.split(';') {
            masked_query += separator;
            separator = ";";
            let (piece_name, _) = split_at_equals(piece.as_bytes());
            if name.resembles(&decode(piece_name)) {
                // The text after a `;` may be part of the value, so it is hidden too.
                masked_query += &piece[..piece_name.len()];
                masked_query += "=***";
                break;
            }
            masked_query += piece;
        }
    }
    masked_query
}

/// Splits a name and a value at the first `=`; without one the value is empty.
pub(super) fn split_at_equals(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, &[]),
    }
}

/// Decodes plus signs to spaces and escapes to bytes, as the WHATWG URL standard does: a `%` without two hexadecimal
/// digits stands for itself.
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    unescape(text, b' ').0
}

/// Decodes a value as [`decode`] does; `None` if the result is not UTF-8 or an escape is malformed.
fn decode_value(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (value, escapes) = unescape(text, b' ');
    (!escapes.has_malformed && std::str::from_utf8(&value).is_ok()).then_some(value)
}

/// Which kinds of escapes a text has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Escapes {
    /// Whether the text has a `%` with two hexadecimal digits.
    pub(super) has_valid: bool,
    /// Whether the text has a `%` without two hexadecimal digits.
    pub(super) has_malformed: bool,
}

/// Decodes escapes to bytes, and each plus sign to `plus`. A malformed escape stays as it is.
pub(super) fn unescape(text: &[u8], plus: u8) -> (Cow<'_, [u8]>, Escapes) {
    let mut escapes = Escapes::default();
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return (Cow::Borrowed(text), escapes);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut remaining = text;
    while let Some((&byte, after)) = remaining.split_first() {
        remaining = after;
        match (byte, after) {
            (b'+', _) => decoded.push(plus),
            (b'%', [high, low, after @ ..])
                if hex_value(*high).is_some() && hex_value(*low).is_some() =>
            {
                let (high, low) = (hex_value(*high), hex_value(*low));
                decoded.push(high.unwrap_or_default() << 4 | low.unwrap_or_default());
                escapes.has_valid = true;
                remaining = after;
            }
            _ => {
                escapes.has_malformed |= byte == b'%';
                decoded.push(byte);
            }
        }
    }
    (Cow::Owned(decoded), escapes)
}

/// The value of a hexadecimal digit; `None` for any other byte.
fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: FieldValue<'static>) {
        assert_eq!(
            find_field(text.as_bytes(), &FieldName::new("key")),
            expected,
            "{text}"
        );
    }

    #[test]
    fn fields() {
        let one = |value: &'static str| FieldValue::Single(Cow::Borrowed(value.as_bytes()));
        check("", FieldValue::Absent);
        check("a=b&c", FieldValue::Absent);
        check("key=v", one("v"));
        check("a=b&key=v=w&c", one("v=w"));
        check("k%65y=v", one("v"));
        check("key=%C3%A9+x", one("é x"));
        check("key=%2B%25", one("+%"));
        check("key", one(""));
        check("keys=1&ke=2&xkey=3", FieldValue::Absent);
        check("a=1;b=2&key=1", one("1"));
    }

    /// A spelling that one framework takes for the field counts as the field. With a second one the field is ambiguous.
    #[test]
    fn spellings() {
        let one = FieldValue::Single(Cow::Borrowed(&b"1"[..]));
        for spelling in [
            "KEY=1",
            "+key=1",
            "key[]=1",
            "key%5B0%5D=1",
            "key%00x=1",
            "key.x=1",
            "[key]=1",
            "&&key=1",
        ] {
            check(spelling, one.clone());
            check(&format!("{spelling}&key=2"), FieldValue::Ambiguous);
            check(&format!("key=1&{spelling}"), FieldValue::Ambiguous);
        }
        for ambiguous in [
            "key=1&key=1",
            "key=1&%6bey=2",
            "key&key=1",
            "key=a;b",
            "x=1;key=1",
            "key=1;",
            "key=%zz",
            "key=%",
            "key=%ff",
            "key=a%2",
        ] {
            check(ambiguous, FieldValue::Ambiguous);
        }
    }

    #[test]
    fn masked() {
        let check = |query: &str, expected: &str| {
            assert_eq!(
                mask_field(query, &FieldName::new("key")),
                expected,
                "{query}"
            );
        };
        check("b=1&key=k&%6Bey=l", "b=1&key=***&%6Bey=***");
        check("keys=1&key", "keys=1&key=***");
        check("+key=k&key[]=k&KEY=k", "+key=***&key[]=***&KEY=***");
        check("x=1;key=k;l&y=2", "x=1;key=***&y=2");
        check("x=1;y=2&", "x=1;y=2&");
    }
}
