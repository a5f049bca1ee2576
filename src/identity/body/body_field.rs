//! The field of a body that the configuration names, by its name or by a dotted path to it.

use super::field_name::FieldName;

/// A field of bodies. A dotted path reaches into nested objects: `user.email` is `{"user":{"email":…}}`,
/// `user[email]=…` and `user.email=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyField {
    /// The whole path as one name, dots included.
    pub(super) name: FieldName,
    /// The names of the members on the way to the field, at least one; the last is the field's own.
    pub(super) path: Vec<FieldName>,
}

impl BodyField {
    /// Splits `path` at its dots.
    pub fn new(path: &str) -> BodyField {
        BodyField {
            name: FieldName::new(path),
            path: path.split('.').map(FieldName::new).collect(),
        }
    }

    /// The whole path as one name, as it stands in forms and queries.
    pub fn name(&self) -> &FieldName {
        &self.name
    }
}

/// The field of this name; dots in the name do not lead into objects.
impl From<FieldName> for BodyField {
    fn from(name: FieldName) -> BodyField {
        BodyField {
            path: vec![name.clone()],
            name,
        }
    }
}

impl From<&str> for BodyField {
    fn from(path: &str) -> BodyField {
        BodyField::new(path)
    }
}
