//! Checks what policies change of requests and responses.

use super::super::context::LoadContext;
use super::super::decode::{FieldChangesConfig, GatewayConfig, PolicyConfig};
use super::identity::{check_identity, check_path_part};

/// Checks that the gateway file says how the identities in changed fields are known.
pub(super) fn check_changed_fields(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    changes: [&FieldChangesConfig; 2],
) {
    for identity in changes.into_iter().flat_map(FieldChangesConfig::identities) {
        check_identity(cx, gateway, &identity);
    }
}

/// Checks the changes of one policy.
pub(super) fn check_changes(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    let changes = [&policy.request, &policy.response];
    check_changed_fields(cx, gateway, changes);
    for identity in changes.into_iter().flat_map(FieldChangesConfig::identities) {
        check_path_part(cx, gateway, policy, &identity);
    }
}
