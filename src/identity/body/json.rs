//! Finds a field of a JSON body: every scalar value at the field's path, also in arrays on the way. Members below the path
//! count too, as the parts of a field in a form do. The body is read without building a tree.
//!
//! For [`find_in_json`] the whole body must be JSON by RFC 8259. Lenient readers (comments, single quotes, `NaN`, a second
//! document) may see fields that a strict one does not, so any other body is ambiguous.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::body_field::BodyField;
use super::field_name::FieldName;
use crate::identity::FieldValue;

/// A callback for the values at the path. It gets the text of a scalar value. For every other value on the path it gets
/// `None`: null, an array, an object at the path's end or without the next member, a scalar before the end.
type OnValue<'s> = &'s mut dyn FnMut(Option<String>);

/// The value of `field` in a body without a byte order mark. The value is ambiguous if the body is not JSON, repeats a
/// member on the path, or has several values there.
pub(super) fn find_in_json(field: &BodyField, body: &[u8]) -> FieldValue<'static> {
    let mut value = FieldValue::Absent;
    let mut on_value = |text: Option<String>| {
        if let Some(text) = text {
            value.add(text.into_bytes());
        }
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let visitor = PathVisitor::new(field, Duplicates::Refused, &mut on_value);
    match visitor.deserialize(&mut reader).and_then(|()| reader.end()) {
        Ok(()) => value,
        Err(_) => FieldValue::Ambiguous,
    }
}

/// Whether the body begins with a whole document without a text at `field`. Strict readers find no field after that
/// document.
pub(super) fn begins_without(field: &BodyField, body: &[u8]) -> bool {
    let mut has_text = false;
    let mut on_value = |text: Option<String>| has_text |= text.is_some();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let visitor = PathVisitor::new(field, Duplicates::Allowed, &mut on_value);
    visitor.deserialize(&mut reader).is_ok() && !has_text
}

/// Calls `on_value` for every value of `field` in the documents of a body, also of repeated members. The first text that is
/// not JSON ends the search. Returns whether the body is exactly one document.
pub(super) fn visit_values(field: &BodyField, body: &[u8], on_value: OnValue<'_>) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(body);
    for document_index in 0.. {
        let visitor = PathVisitor::new(field, Duplicates::Allowed, &mut *on_value);
        if visitor.deserialize(&mut reader).is_err() {
            break;
        }
        if reader.end().is_ok() {
            return document_index == 0;
        }
    }
    false
}

/// What happens if a member on the path to the field occurs twice in its object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duplicates {
    Allowed,
    Refused,
}

/// Reads one value, from which `path` leads to the field. An error means that the body is not JSON, or repeats a member
/// on the path where duplicates are refused.
struct PathVisitor<'p, 's> {
    /// The names that are yet to be followed; empty at the field itself.
    path: &'p [FieldName],
    /// The dotted path as one name, for a member whose name has the dots. `None` below the outermost object, and for a
    /// path of one name.
    dotted_name: Option<&'p FieldName>,
    duplicates: Duplicates,
    on_value: OnValue<'s>,
}

impl<'p, 's> PathVisitor<'p, 's> {
    fn new(
        field: &'p BodyField,
        duplicates: Duplicates,
        on_value: OnValue<'s>,
    ) -> PathVisitor<'p, 's> {
        PathVisitor {
            path: &field.path,
            // A comparison of names is slow and a body may have thousands, so a path of one name is not compared twice.
            dotted_name: (field.path.len() > 1).then_some(&field.name),
            duplicates,
            on_value,
        }
    }

    /// Calls back with a scalar value: with its text at the field itself, with `None` before the end of the path.
    fn report_scalar(self, text: impl fmt::Display) {
        let text = self.path.is_empty().then(|| text.to_string());
        (self.on_value)(text);
    }

    /// The path from this object's member to the field, which is empty at the field itself. `None` if the member does
    /// not lead there.
    fn path_below(&self, member: &str) -> Option<&'p [FieldName]> {
        let is_dotted_name = self
            .dotted_name
            .is_some_and(|name| name.resembles_member(member));
        match self.path {
            _ if is_dotted_name => Some(&[]),
            // Every member of the field's own value is a part of the field.
            [] => Some(self.path),
            [next_name, path_below @ ..] if next_name.resembles_member(member) => Some(path_below),
            _ => None,
        }
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
        let mut has_member_on_path = false;
        if self.path.is_empty() {
            (self.on_value)(None);
        }
        while let Some(name) = map.next_key_seed(MemberName)? {
            let Some(path) = self.path_below(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if has_member_on_path && self.duplicates == Duplicates::Refused && !self.path.is_empty()
            {
                return Err(A::Error::custom("a member on the path occurs twice"));
            }
            has_member_on_path = true;
            map.next_value_seed(PathVisitor {
                path,
                dotted_name: None,
                duplicates: self.duplicates,
                on_value: &mut *self.on_value,
            })?;
        }
        if !has_member_on_path {
            (self.on_value)(None);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        (self.on_value)(None);
        loop {
            let element = PathVisitor {
                path: self.path,
                dotted_name: self.dotted_name,
                duplicates: self.duplicates,
                on_value: &mut *self.on_value,
            };
            if seq.next_element_seed(element)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.report_scalar(text);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.report_scalar(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.report_scalar(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.report_scalar(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.report_scalar(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        (self.on_value)(None);
        Ok(())
    }
}

/// Reads a member's name, borrowed where it has no escapes.
pub(super) struct MemberName;

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
