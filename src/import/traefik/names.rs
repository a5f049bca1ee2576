//! Names of the objects of Traefik with the provider that they come from: `auth@file`, `default-auth@kubernetescrd`.

use crate::import::documents::InputValue;
use crate::import::report::Origin;

/// The provider of an object, which also says how its names are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// A file of the dynamic configuration.
    File,
    /// Resources of Kubernetes in this namespace.
    Kubernetes(String),
}

impl Provider {
    /// The full name of what is called `name` here. `namespace` is that of a reference of Kubernetes that says one.
    pub fn full_name(&self, name: &str, namespace: Option<&str>) -> String {
        match self {
            _ if name.contains('@') => name.to_owned(),
            Provider::File => format!("{name}@file"),
            Provider::Kubernetes(own) => {
                format!("{}-{name}@kubernetescrd", namespace.unwrap_or(own))
            }
        }
    }

    /// The full name of a reference: a text, or a map with `name` and `namespace`.
    pub fn reference(&self, value: InputValue<'_>) -> Option<String> {
        match value.text() {
            Some(name) => Some(self.full_name(name, None)),
            None => Some(self.full_name(value.text_of("name")?, value.text_of("namespace"))),
        }
    }
}

/// An object with a name.
#[derive(Clone, Debug)]
pub struct NamedObject<'v> {
    /// Its full name.
    pub name: String,
    /// The provider that it comes from.
    pub provider: Provider,
    /// What it says.
    pub value: InputValue<'v>,
    /// Where it stands.
    pub at: Origin,
}
