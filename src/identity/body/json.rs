//! A field of a JSON body: every text at its path, arrays and objects there included.
//!
//! The whole body must be JSON by RFC 8259. Readers that take more (comments, single quotes, `NaN`, a second
//! document) may see what a strict one does not, so any other body is ambiguous.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::field::BodyField;
use super::name::FieldName;
use crate::identity::FieldValue;

/// Is shown a text at the path, or none for what leads to no text: null, a list, an object without the next member.
type OnValue<'s> = &'s mut dyn FnMut(Option<String>);

/// The value of `field` in a body without a byte order mark.
pub(super) fn find(field: &BodyField, body: &[u8]) -> FieldValue<'static> {
    let mut found = FieldValue::Absent;
    let mut see = |text: Option<String>| {
        if let Some(text) = text {
            found.add(text.into_bytes());
        }
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let at = PathVisitor::root(field, true, &mut see);
    match at.deserialize(&mut reader).and_then(|()| reader.end()) {
        Ok(()) => found,
        Err(_) => FieldValue::Ambiguous,
    }
}

/// Whether a body begins with a whole document without `field`: strict readers find it in no body that begins so.
pub(super) fn begins_without(field: &BodyField, body: &[u8]) -> bool {
    let mut found = false;
    let mut see = |text: Option<String>| found |= text.is_some();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = PathVisitor::root(field, false, &mut see).deserialize(&mut reader);
    read.is_ok() && !found
}

/// Shows every value of `field` in the documents of a body, also of those members that are there twice. False where it
/// is anything but one document.
pub(super) fn each(field: &BodyField, body: &[u8], see: OnValue<'_>) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(body);
    for number in 0.. {
        let at = PathVisitor::root(field, false, &mut *see);
        if at.deserialize(&mut reader).is_err() {
            break;
        }
        if reader.end().is_ok() {
            return number == 0;
        }
    }
    false
}

/// Reads one value: what is left of the path leads from it to the field. An error means that the body is not
/// JSON or has a member on the path twice where it may be there `once`.
struct PathVisitor<'p, 's> {
    path: &'p [FieldName],
    /// The path as one name, for members that are called so.
    whole: Option<&'p FieldName>,
    once: bool,
    see: OnValue<'s>,
}

impl<'p, 's> PathVisitor<'p, 's> {
    fn root(field: &'p BodyField, once: bool, see: OnValue<'s>) -> PathVisitor<'p, 's> {
        PathVisitor {
            path: &field.path,
            // Names are compared with care, and a body may have thousands: one is not compared twice.
            whole: (field.path.len() > 1).then_some(&field.name),
            once,
            see,
        }
    }

    fn scalar(self, text: impl fmt::Display) {
        let text = self.path.is_empty().then(|| text.to_string());
        (self.see)(text);
    }
}

impl<'de> DeserializeSeed<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        if self.path.is_empty() {
            (self.see)(None);
        }
        while let Some(name) = map.next_key_seed(MemberName)? {
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
            if seen && self.once && !self.path.is_empty() {
                return Err(A::Error::custom("a member on the path is there twice"));
            }
            seen = true;
            map.next_value_seed(PathVisitor {
                path,
                whole: None,
                once: self.once,
                see: &mut *self.see,
            })?;
        }
        if !seen {
            (self.see)(None);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        (self.see)(None);
        loop {
            let next = PathVisitor {
                path: self.path,
                whole: self.whole,
                once: self.once,
                see: &mut *self.see,
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
        (self.see)(None);
        Ok(())
    }
}

/// The name of a member.
struct MemberName;

impl<'de> DeserializeSeed<'de> for MemberName {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for MemberName {
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
