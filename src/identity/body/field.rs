//! A field of a body, as the configuration names it.

use super::name::Name;

/// A field of bodies. A dotted path reaches into nested objects: `user.email` is `{"user":{"email":…}}`,
/// `user[email]=…` and `user.email=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(super) name: Name,
    pub(super) path: Vec<Name>,
}

impl Field {
    /// The field at a dotted path.
    pub fn new(path: &str) -> Field {
        Field {
            name: Name::new(path),
            path: path.split('.').map(Name::new).collect(),
        }
    }

    /// Its path as one name, as forms and queries have it.
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl From<Name> for Field {
    fn from(name: Name) -> Field {
        Field {
            path: vec![name.clone()],
            name,
        }
    }
}

impl From<&str> for Field {
    fn from(path: &str) -> Field {
        Field::new(path)
    }
}
