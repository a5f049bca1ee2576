//! A field of a JSON body: every text at its path, arrays and objects there included.
//!
//! The whole body must be JSON by RFC 8259. Readers that take more (comments, single quotes, `NaN`, a second
//! document) may see what a strict one does not, so any other body is ambiguous.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Field, Name};
use crate::identity::form::Found;

/// The value of `field` in a body without a byte order mark.
pub(super) fn find<'b>(field: &Field, body: &'b [u8]) -> Found<'b> {
    let mut found = Found::Absent;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let at = At {
        path: &field.path,
        whole: Some(&field.name),
        found: &mut found,
    };
    let read = at.deserialize(&mut reader).and_then(|()| reader.end());
    match read {
        Ok(()) => found,
        Err(_) => Found::Ambiguous,
    }
}

/// Reads one value: what is left of the path leads from it to the field. An error means that the body is not
/// JSON or has a member on the path twice.
struct At<'p, 'f, 'b> {
    path: &'p [Name],
    /// The path as one name, for members that are called so.
    whole: Option<&'p Name>,
    found: &'f mut Found<'b>,
}

impl At<'_, '_, '_> {
    fn scalar(self, text: impl fmt::Display) {
        if self.path.is_empty() {
            self.found.add(text.to_string().into_bytes());
        }
    }
}

impl<'de> DeserializeSeed<'de> for At<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        while let Some(name) = map.next_key_seed(Key)? {
            let whole = self
                .whole
                .is_some_and(|whole| whole.resembles_member(&name));
            let next = match self.path {
                _ if whole => Some(&[][..]),
                [] => Some(self.path),
                [first, rest @ ..] if first.resembles_member(&name) => Some(rest),
                _ => None,
            };
            let Some(path) = next else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen && !self.path.is_empty() {
                return Err(A::Error::custom("a member on the path is there twice"));
            }
            seen = true;
            map.next_value_seed(At {
                path,
                whole: None,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let next = At {
                path: self.path,
                whole: self.whole,
                found: &mut *self.found,
            };
            if seq.next_element_seed(next)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.scalar(text);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.scalar(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The name of a member.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
