//! The value of one named field of a request, as far as all readers agree on it.

use std::borrow::Cow;

use super::body::is_blank;

/// Longest credential that is looked at, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// The value of a field, as all readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue<'t> {
    /// The field is missing or empty.
    Absent,
    /// The field occurs more than once or has no certain reading, so the upstream may use another value.
    Ambiguous,
    /// The field occurs once.
    One(Cow<'t, [u8]>),
}

impl<'t> FieldValue<'t> {
    /// Adds a value; a second one makes the field ambiguous.
    pub(super) fn add(&mut self, value: impl Into<Cow<'t, [u8]>>) {
        *self = match self {
            FieldValue::Absent => FieldValue::One(value.into()),
            FieldValue::Ambiguous | FieldValue::One(_) => FieldValue::Ambiguous,
        };
    }

    /// Makes an empty value absent, and one of more than `most` bytes ambiguous.
    pub(super) fn within(self, most: usize) -> FieldValue<'t> {
        match self {
            FieldValue::One(value) if value.is_empty() => FieldValue::Absent,
            FieldValue::One(value) if value.len() > most => FieldValue::Ambiguous,
            found => found,
        }
    }

    /// Joins two readings: different values make the field ambiguous.
    pub(super) fn or(self, other: FieldValue<'t>) -> FieldValue<'t> {
        match (self, other) {
            (FieldValue::Absent, found) | (found, FieldValue::Absent) => found,
            (one, other) if one == other => one,
            _ => FieldValue::Ambiguous,
        }
    }
    /// Without the blanks around it that some upstream would take off. Ambiguous if that depends on its
    /// encoding, or if it could end at a control character.
    pub(super) fn trimmed(self) -> FieldValue<'t> {
        match self {
            FieldValue::One(Cow::Borrowed(value)) => match trim(value) {
                Some(value) => FieldValue::One(value.into()),
                None => FieldValue::Ambiguous,
            },
            FieldValue::One(Cow::Owned(value)) => match trim(&value) {
                Some(value) => FieldValue::One(value.to_owned().into()),
                None => FieldValue::Ambiguous,
            },
            found => found,
        }
    }
}

pub(super) fn trim(value: &[u8]) -> Option<&[u8]> {
    let trimmed = match std::str::from_utf8(value) {
        Ok(text) => text.trim_matches(is_blank).as_bytes(),
        Err(_) => {
            let ends = [value.first(), value.last()];
            let plain = ends.into_iter().flatten().all(u8::is_ascii_graphic);
            plain.then_some(value)?
        }
    };
    let ends_it = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    (!trimmed.iter().any(ends_it)).then_some(trimmed)
}
