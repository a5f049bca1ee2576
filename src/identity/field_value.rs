//! The value of one named field of a request, if all readers agree on it. Searches of heads, queries, cookies and
//! bodies return this type.

use std::borrow::Cow;

use super::body::is_blank;

/// Longest credential that is read, in bytes: nginx and Apache accept header fields of this length by default. A longer
/// credential is ambiguous.
pub const MAX_CREDENTIAL_BYTES: usize = 8 * 1024;

/// The value of a field, or why there is no value that all readers agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue<'t> {
    /// The field is missing or counts as missing because it is empty.
    Absent,
    /// The field occurs more than once or has no certain reading, so the upstream may use another value.
    Ambiguous,
    /// The field occurs once with this value, or several parts of a request agree on the value.
    Single(Cow<'t, [u8]>),
}

impl<'t> FieldValue<'t> {
    /// Adds a value; a second one makes the field ambiguous.
    pub(super) fn add(&mut self, value: impl Into<Cow<'t, [u8]>>) {
        *self = match self {
            FieldValue::Absent => FieldValue::Single(value.into()),
            FieldValue::Ambiguous | FieldValue::Single(_) => FieldValue::Ambiguous,
        };
    }

    /// Makes an empty value absent, and one of more than `max_bytes` ambiguous.
    pub(super) fn with_max_length(self, max_bytes: usize) -> FieldValue<'t> {
        match self {
            FieldValue::Single(value) if value.is_empty() => FieldValue::Absent,
            FieldValue::Single(value) if value.len() > max_bytes => FieldValue::Ambiguous,
            unchanged => unchanged,
        }
    }

    /// Combines the values of two parts of a request. An absent one adds nothing, equal ones count once, and different
    /// ones are ambiguous.
    pub fn combine(self, other: FieldValue<'t>) -> FieldValue<'t> {
        match (self, other) {
            (FieldValue::Absent, value) | (value, FieldValue::Absent) => value,
            (value, same_value) if value == same_value => value,
            _ => FieldValue::Ambiguous,
        }
    }

    /// Drops the blanks that some upstream would trim. The value is ambiguous if its encoding decides what a blank is.
    /// It is also ambiguous if it has a control character, because some reader would end it there.
    pub(super) fn trimmed(self) -> FieldValue<'t> {
        match self {
            FieldValue::Single(Cow::Borrowed(value)) => match trim(value) {
                Some(value) => FieldValue::Single(value.into()),
                None => FieldValue::Ambiguous,
            },
            FieldValue::Single(Cow::Owned(value)) => match trim(&value) {
                Some(value) => FieldValue::Single(value.to_owned().into()),
                None => FieldValue::Ambiguous,
            },
            unchanged => unchanged,
        }
    }
}

/// The value without blanks at its ends; `None` if [`FieldValue::trimmed`] would be ambiguous.
pub(super) fn trim(value: &[u8]) -> Option<&[u8]> {
    let trimmed = match std::str::from_utf8(value) {
        Ok(text) => text.trim_matches(is_blank).as_bytes(),
        Err(_) => {
            // In a value that is not UTF-8, only ASCII is certainly no blank.
            let end_bytes = [value.first(), value.last()];
            let has_no_blanks = end_bytes.into_iter().flatten().all(u8::is_ascii_graphic);
            has_no_blanks.then_some(value)?
        }
    };
    let may_end_value = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    (!trimmed.iter().any(may_end_value)).then_some(trimmed)
}
