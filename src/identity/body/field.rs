//! The field of a body that a policy names.

use super::name::FieldName;

/// A field of bodies. A dotted path reaches into nested objects: `user.email` is `{"user":{"email":…}}`,
/// `user[email]=…` and `user.email=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyField {
    pub(super) name: FieldName,
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

/// The field of this name, whose dots lead into no object.
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
