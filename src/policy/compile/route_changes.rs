//! Compiles what a policy changes of requests and responses. Whether the changes are possible was checked before.

use std::sync::Arc;

use super::super::decode::{FieldChangesConfig, PolicyConfig};
use super::super::tree::Located;
use crate::route::{AddedField, FieldChanges, PathChange};

/// Compiles the change of the path; `None` if it is forwarded as it is.
pub(super) fn compile_path_change(policy: &PolicyConfig) -> Option<Arc<PathChange>> {
    let text = |field: &Option<Located<Box<str>>>| {
        let text = field.as_ref().map(|field| field.value.clone());
        text.unwrap_or_default()
    };
    let change = PathChange {
        strip: text(&policy.strip),
        prefix: text(&policy.prefix),
    };
    (change != PathChange::default()).then(|| Arc::new(change))
}

/// Compiles the changes of header fields; `None` if there are none.
pub(super) fn compile_field_changes(config: &FieldChangesConfig) -> Option<Arc<FieldChanges>> {
    let FieldChangesConfig { set, add, remove } = config;
    let added = set.iter().chain(add).map(|field| AddedField {
        name: field.name.value.clone(),
        value: field.value.value.clone(),
    });
    let set_names = set.iter().map(|field| &field.name);
    let removed = remove.iter().chain(set_names);
    let changes = FieldChanges {
        removed: removed.map(|name| name.value.clone()).collect(),
        added: added.collect(),
    };
    (changes != FieldChanges::default()).then(|| Arc::new(changes))
}
