//! One named value in text that clients write: a query, a form body.

use std::borrow::Cow;

/// What a look for one value found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'t> {
    /// It is not there, or empty.
    Absent,
    /// It is there more than once or cannot be read, so that nobody can say which value the
    /// upstream will take.
    Ambiguous,
    /// It is there once.
    One(Cow<'t, [u8]>),
}

impl<'t> Found<'t> {
    /// One more value; a second makes it ambiguous.
    pub(super) fn add(&mut self, value: impl Into<Cow<'t, [u8]>>) {
        *self = match self {
            Found::Absent => Found::One(value.into()),
            Found::Ambiguous | Found::One(_) => Found::Ambiguous,
        };
    }

    /// Empty values are absent, those longer than `most` bytes ambiguous.
    pub(super) fn within(self, most: usize) -> Found<'t> {
        match self {
            Found::One(value) if value.is_empty() => Found::Absent,
            Found::One(value) if value.len() > most => Found::Ambiguous,
            found => found,
        }
    }
}

/// The value of the field that `is_it` knows by its decoded name, in
/// `application/x-www-form-urlencoded` text.
pub fn field(text: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Found<'_> {
    let mut found = Found::Absent;
    for pair in text.split(|byte| *byte == b'&') {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &[][..]),
        };
        if is_it(&decode(name)) {
            found.add(decode(value));
        }
    }
    found
}

/// Plus signs to spaces and escapes to bytes, as the WHATWG URL standard has it: a `%` without two
/// hexadecimal digits stands for itself.
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
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
    fn check(text: &str, expected: Found<'static>) {
        assert_eq!(
            field(text.as_bytes(), |name| name == b"key"),
            expected,
            "{text}"
        );
    }

    #[test]
    fn fields() {
        let one = |value: &'static str| Found::One(Cow::Borrowed(value.as_bytes()));
        check("", Found::Absent);
        check("a=b&c", Found::Absent);
        check("key=v", one("v"));
        check("a=b&key=v=w&c", one("v=w"));
        check("k%65y=v", one("v"));
        check("key=%C3%A9+x", one("é x"));
        check("key=%2B%zz%2", one("+%zz%2"));
        check("key", one(""));
        check("key=1&key=1", Found::Ambiguous);
        check("key=1&%6bey=2", Found::Ambiguous);
        check("KEY=1", Found::Absent);
    }
}
