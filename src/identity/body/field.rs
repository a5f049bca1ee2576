//! A field of a body, as the configuration names it.

use super::name::FieldName;

/// A field of bodies. A dotted path reaches into nested objects: `user.email` is `{"user":{"email":…}}`,
/// `user[email]=…` and `user.email=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyField {
    pub(super) name: FieldName,
    pub(super) path: Vec<FieldName>,
}

impl BodyField {
    /// The field at a dotted path.
    pub fn new(path: &str) -> BodyField {
        BodyField {
            name: FieldName::new(path),
            path: path.split('.').map(FieldName::new).collect(),
        }
    }

    /// Its path as one name, as forms and queries have it.
    pub fn name(&self) -> &FieldName {
        &self.name
    }
}

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
