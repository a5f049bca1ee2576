//! Checks what policies change of requests and responses.

use super::super::context::LoadContext;
use super::super::decode::{
    CorsChoice, FieldChangesConfig, GatewayConfig, ListenerConfig, PolicyConfig, TlsPart,
};
use super::super::tree::Located;
use super::identity::{check_identity, check_path_part};
use crate::identity::strip::is_alike;
use crate::route::{Pattern, Segment, TlsFact, Variable};

/// Checks that the gateway file says how the identities in changed fields are known.
pub(super) fn check_changed_fields(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    changes: [&FieldChangesConfig; 2],
) {
    for identity in changes.into_iter().flat_map(FieldChangesConfig::identities) {
        check_identity(cx, gateway, &identity);
    }
    for variable in changes.into_iter().flat_map(FieldChangesConfig::variables) {
        check_variable(cx, gateway, variable);
    }
    let Some(id_field) = &gateway.request_id else {
        return;
    };
    for name in changes.into_iter().flat_map(FieldChangesConfig::names) {
        if is_alike(name.value.as_str().as_bytes(), id_field.value.as_str()) {
            let message = format!("`{}` has the id of the request", name.value);
            let help = "change another field, or leave `request_id` out of the gateway file";
            cx.error(name.location, message, Some(help.into()));
        }
    }
}

/// Checks that requests may have what a value names besides identities.
fn check_variable(cx: &mut LoadContext, gateway: &GatewayConfig, variable: Located<Variable>) {
    let mut listeners = gateway.listen.iter();
    let mut custom_identities = gateway.identity.custom.iter();
    let (is_known, message, help) = match variable.value {
        Variable::RequestId => (
            gateway.request_id.is_some(),
            "requests have no id",
            "add `request_id: x-request-id` to the gateway file",
        ),
        Variable::Tls(TlsFact::Ja4) => (
            custom_identities
                .any(|custom| custom.tls.is_some_and(|part| part.value == TlsPart::Ja4)),
            "no identity is the fingerprint of handshakes, so that none is computed",
            "add for instance `fingerprint: { tls: ja4 }` to `identity`",
        ),
        Variable::Tls(TlsFact::Subject | TlsFact::San) => (
            listeners.any(|listener| listener.client_roots.is_some()),
            "no listener asks clients for a certificate",
            "add `client_roots: clients.pem` beside the `tls` of a listener",
        ),
        Variable::Tls(TlsFact::Version | TlsFact::Name | TlsFact::Cipher) => (
            listeners.any(ListenerConfig::is_tls),
            "no listener speaks TLS",
            "add `tls: { cert: cert.pem, key: key.pem }` to a listener",
        ),
        Variable::Identity(_) | Variable::Host | Variable::Route => return,
    };
    if !is_known {
        cx.error(variable.location, message, Some(help.into()));
    }
}

/// Checks the changes of one policy.
pub(super) fn check_changes(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    check_strip(cx, policy);
    check_map_back(cx, gateway, policy);
    let changes = [&policy.request, &policy.response];
    check_changed_fields(cx, gateway, changes);
    for identity in changes.into_iter().flat_map(FieldChangesConfig::identities) {
        check_path_part(cx, gateway, policy, &identity);
    }
    check_fields_of_gateway(cx, gateway, policy);
}

/// The begin of the names of fields that `cors` writes.
const CORS_FIELDS: &str = "access-control-";

/// The field that `hsts` writes.
const HSTS_FIELD: &str = "strict-transport-security";

/// Reports fields of responses that the gateway writes too: those of `cors` beside `cors`, which drops all others, and a
/// second `Strict-Transport-Security`, of which browsers read the first only (RFC 6797 section 8.1).
fn check_fields_of_gateway(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    let FieldChangesConfig { set, add, .. } = &policy.response;
    let cors = policy.cors.as_ref().or(gateway.cors.as_ref());
    if matches!(cors, Some(CorsChoice::On(_))) {
        for name in set.iter().chain(add).map(|field| &field.name) {
            if name.value.as_str().starts_with(CORS_FIELDS) {
                let message = format!(
                    "`{}` is written by `cors`, which drops any other",
                    name.value
                );
                let help = "leave it out, or write `cors: off` in the policy";
                cx.error(name.location, message, Some(help.into()));
            }
        }
    }
    let is_of_policy = |listener: &&ListenerConfig| {
        let name = listener.name.as_ref().map(|name| &name.value);
        policy.listen.is_empty()
            || policy
                .listen
                .iter()
                .any(|listed| Some(&listed.value) == name)
    };
    let mut listeners = gateway.listen.iter().filter(is_of_policy);
    let has_hsts = listeners.any(|listener| listener.hsts.is_some());
    for name in add.iter().map(|field| &field.name) {
        if has_hsts && name.value == HSTS_FIELD {
            let message = format!(
                "`{}` is added to that of `hsts`, and browsers read one only",
                name.value
            );
            let help = "write it under `set`, which replaces the other, or leave it out";
            cx.error(name.location, message, Some(help.into()));
        }
    }
}

/// Checks that every `match` of the policy begins with the segments that it strips.
fn check_strip(cx: &mut LoadContext, policy: &PolicyConfig) {
    let Some(strip) = &policy.strip else { return };
    let lacks_prefix = |pattern: &&Located<Pattern>| {
        let mut segments = pattern.value.segments().iter();
        let mut stripped = strip.value.split('/').skip(1);
        !stripped.all(|stripped| {
            matches!(segments.next(), Some(Segment::Literal(text)) if **text == *stripped)
        })
    };
    if let Some(pattern) = policy.patterns.iter().find(lacks_prefix) {
        let message = format!(
            "`{}` does not begin with `{}`, which is taken off",
            pattern.value, strip.value
        );
        let help = "strip whole segments with which every `match` begins, or write a policy of its own for this one";
        cx.error(strip.location, message, Some(help.into()));
    }
}

/// Reports a policy of whose responses nothing could be mapped back. One that inherits `map_back` may be so.
fn check_map_back(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    // No policy inherits its `match`.
    let own_file = policy.patterns.first().map(|pattern| pattern.location.file);
    let is_own = |map_back: &&Located<bool>| Some(map_back.location.file) == own_file;
    let map_back = policy.map_back.as_ref().filter(|map_back| map_back.value);
    let Some(map_back) = map_back.filter(is_own) else {
        return;
    };
    let Some(upstream) = &policy.upstream else {
        let message = "nothing is mapped back, because no upstream answers here";
        let help = "drop `map_back`";
        return cx.error(map_back.location, message, Some(help.into()));
    };
    let changes_place = policy.strip.is_some() || policy.prefix.is_some();
    // An upstream that the gateway file lacks is a mistake of its own.
    let has_same_host = gateway
        .find_upstream(&upstream.value)
        .is_some_and(|upstream| !upstream.replaces_host());
    if !changes_place && has_same_host {
        let message =
            "nothing is mapped back, because the upstream gets the path and the host of the client";
        let help = "drop `map_back`, or add `strip`, `prefix`, or `host` of the upstream";
        cx.error(map_back.location, message, Some(help.into()));
    }
}
