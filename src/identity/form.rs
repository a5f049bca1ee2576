//! One named field of a query or a form body.
//!
//! The decoder is ours, for `form_urlencoded` does not say whether an escape was malformed, and a cookie keeps its `+`.

use std::borrow::Cow;

use http::Uri;

use super::body::FieldName;
use super::field_value::FieldValue;

/// The value of the field that [`FieldName::resembles`] `name`, in `application/x-www-form-urlencoded` text.
///
/// Some readers also split fields at `;`, so a field with one is ambiguous. So is a value with a malformed escape, or
/// with one that makes invalid UTF-8: readers then disagree on whether its other escapes are decoded.
pub fn field<'t>(text: &'t [u8], name: &FieldName) -> FieldValue<'t> {
    let mut found = FieldValue::Absent;
    for pair in text.split(|byte| *byte == b'&') {
        let parted = pair.contains(&b';');
        for piece in pair.split(|byte| *byte == b';') {
            let (given, value) = halves(piece);
            if !name.resembles(&decode(given)) {
                continue;
            }
            match decode_clearly(value) {
                Some(value) if !parted => found.add(value),
                _ => found = FieldValue::Ambiguous,
            }
        }
    }
    found
}

/// The same in the query of a target. To some (Fastify) a query begins at the first `;` of the path already, so that a
/// field there makes it ambiguous.
pub(super) fn in_target<'t>(uri: &'t Uri, name: &FieldName) -> FieldValue<'t> {
    let text = uri.query().unwrap_or_default();
    match uri.path().split_once(';') {
        Some((_, before)) if field(before.as_bytes(), name) != FieldValue::Absent => {
            FieldValue::Ambiguous
        }
        _ => field(text.as_bytes(), name),
    }
}

/// The query with `***` in place of each value that [`field`] would read.
pub(super) fn mask(query: &str, name: &FieldName) -> String {
    let mut out = String::with_capacity(query.len());
    for (place, pair) in query.split('&').enumerate() {
        let mut separator = if place > 0 { "&" } else { "" };
        for piece in pair.split(';') {
            out += separator;
            separator = ";";
            let (given, _) = halves(piece.as_bytes());
            if name.resembles(&decode(given)) {
                // What stands behind a `;` may belong to the value.
                out += &piece[..given.len()];
                out += "=***";
                break;
            }
            out += piece;
        }
    }
    out
}

/// The parts before and after the first `=`.
fn halves(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, &[]),
    }
}

/// Plus signs to spaces and escapes to bytes, as the WHATWG URL standard has it: a `%` without two
/// hexadecimal digits stands for itself.
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    unescape(text, b' ').0
}

/// The same for values: none if it is not UTF-8 or has an escape that is none.
fn decode_clearly(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (value, escapes) = unescape(text, b' ');
    (!escapes.bad && std::str::from_utf8(&value).is_ok()).then_some(value)
}

/// The escapes of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Escapes {
    /// At least one is well-formed.
    pub(super) good: bool,
    /// There is a `%` without two hexadecimal digits.
    pub(super) bad: bool,
}

/// Escapes to bytes, and each plus sign to `plus`.
pub(super) fn unescape(text: &[u8], plus: u8) -> (Cow<'_, [u8]>, Escapes) {
    let mut escapes = Escapes::default();
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return (Cow::Borrowed(text), escapes);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'+', _) => out.push(plus),
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                out.push(hex(*high).unwrap_or_default() << 4 | hex(*low).unwrap_or_default());
                escapes.good = true;
                rest = after;
            }
            _ => {
                escapes.bad |= byte == b'%';
                out.push(byte);
            }
        }
    }
    (Cow::Owned(out), escapes)
}

fn hex(digit: u8) -> Option<u8> {
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
            field(text.as_bytes(), &FieldName::new("key")),
            expected,
            "{text}"
        );
    }

    #[test]
    fn fields() {
        let one = |value: &'static str| FieldValue::One(Cow::Borrowed(value.as_bytes()));
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

    /// What one framework takes for the field counts as it, and a second one makes it ambiguous.
    #[test]
    fn spellings() {
        let one = FieldValue::One(Cow::Borrowed(&b"1"[..]));
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
            assert_eq!(mask(query, &FieldName::new("key")), expected, "{query}");
        };
        check("b=1&key=k&%6Bey=l", "b=1&key=***&%6Bey=***");
        check("keys=1&key", "keys=1&key=***");
        check("+key=k&key[]=k&KEY=k", "+key=***&key[]=***&KEY=***");
        check("x=1;key=k;l&y=2", "x=1;key=***&y=2");
        check("x=1;y=2&", "x=1;y=2&");
    }
}
