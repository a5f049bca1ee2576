//! Compiles what a policy changes of requests and responses. Whether the changes are possible was checked before.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::decode::{FieldChangesConfig, GatewayConfig, PolicyConfig};
use super::super::tree::Located;
use crate::route::canonical_host::canonical_name;
use crate::route::{AddedField, BackMapping, FieldChanges, PathChange, ServerOrigin};
use crate::upstream::Location;

/// Compiles the change of the path; `None` if it stays as it is. Of a redirect only `strip` counts, and of another
/// response of the gateway nothing.
pub(super) fn compile_path_change(policy: &PolicyConfig) -> Option<Arc<PathChange>> {
    let change = match (&policy.redirect, &policy.respond) {
        (None, None) => path_change(policy),
        (Some(_), _) => PathChange {
            prefix: "".into(),
            ..path_change(policy)
        },
        (None, Some(_)) => PathChange::default(),
    };
    (change != PathChange::default()).then(|| Arc::new(change))
}

/// Compiles the mapping of responses; `None` if they are passed on as they are, or if nothing could be mapped.
pub(super) fn compile_back_mapping(
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
) -> Option<Arc<BackMapping>> {
    policy.map_back.as_ref().filter(|map_back| map_back.value)?;
    let upstream = gateway.find_upstream(&policy.upstream.as_ref()?.value)?;
    let path_change = path_change(policy);
    if path_change == PathChange::default() && !upstream.replaces_host() {
        return None;
    }
    let servers = upstream.servers.iter().map(|server| &server.value);
    let origins = servers.filter_map(|server| match &server.location {
        Location::Host(host, port) => Some(ServerOrigin {
            is_tls: server.tls,
            name: canonical_server_name(host).into(),
            port: *port,
        }),
        Location::Unix(_) => None,
    });
    Some(Arc::new(BackMapping::new(&path_change, origins.collect())))
}

/// The canonical form of the host of a server, which has no brackets. One without such a form stays as it is.
fn canonical_server_name(host: &str) -> String {
    let name = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    canonical_name(&name).map_or_else(|| name.clone(), Cow::into_owned)
}

fn path_change(policy: &PolicyConfig) -> PathChange {
    let text = |field: &Option<Located<Box<str>>>| {
        let text = field.as_ref().map(|field| field.value.clone());
        text.unwrap_or_default()
    };
    PathChange {
        strip: text(&policy.strip),
        prefix: text(&policy.prefix),
    }
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
