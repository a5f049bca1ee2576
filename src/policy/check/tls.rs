//! Checks whether the TLS settings of listeners fit the other settings: identities from client certificates and from
//! handshakes, and ACME certificates.

use std::collections::HashMap;

use super::super::context::LoadContext;
use super::super::decode::{AcmeConfig, GatewayConfig, ListenerConfig, TlsPart};
use super::super::tree::SourceLocation;
use crate::net::tls::acme::Challenge;

/// Reports all TLS settings that do not fit.
pub fn check_tls(cx: &mut LoadContext, gateway: &GatewayConfig) {
    check_client_certificates(cx, gateway);
    check_fingerprints(cx, gateway);
    check_acme(cx, gateway);
}

/// Checks that some listener asks for client certificates if an identity comes from them.
fn check_client_certificates(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let asks_clients = |listener: &ListenerConfig| listener.client_roots.is_some();
    let custom_identities = gateway.identity.custom.iter();
    let certificate_parts = custom_identities
        .filter_map(|custom| custom.tls)
        .filter(|part| part.value != TlsPart::Ja4);
    let users = gateway.identity.users.iter();
    let user_names = users.filter_map(|user| user.value.client_cert);
    let locations = user_names
        .map(|name| name.location)
        .chain(certificate_parts.map(|part| part.location));
    if gateway.listen.iter().any(asks_clients) {
        return;
    }
    for location in locations {
        let message = "no listener asks clients for a certificate";
        let help = "add `client_roots: clients.pem` beside the `tls` of a listener";
        cx.error(location, message, Some(help.into()));
    }
}

/// Checks that some listener speaks TLS if an identity comes from its handshakes, and warns if clients can come without a
/// fingerprint by HTTP/3.
fn check_fingerprints(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let has_tls = gateway
        .listen
        .iter()
        .any(|listener| !listener.tls.is_empty());
    let has_http3 = |listener: &ListenerConfig| listener.http3.is_some_and(|http3| http3.value);
    let custom = gateway.identity.custom.iter();
    for part in custom.filter_map(|custom| custom.tls) {
        if part.value != TlsPart::Ja4 {
            continue;
        }
        if !has_tls {
            let message = "no listener speaks TLS, so that no handshake has a fingerprint";
            let help = "add `tls: { cert: cert.pem, key: key.pem }` to a listener";
            cx.error(part.location, message, Some(help.into()));
        } else if gateway.listen.iter().any(has_http3) {
            let message =
                "requests over HTTP/3 have no fingerprint, so that clients can leave it out";
            let help = "drop `http3`, or put a limit by ip beside the limits by this identity";
            cx.warn(part.location, message, Some(help.into()));
        }
    }
}

/// Checks that no two different ACME certificates have the same name, that none has it twice, and that http-01 has a
/// listener without TLS. Several listeners may have the same certificate.
fn check_acme(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let mut certificates: HashMap<&str, (&AcmeConfig, SourceLocation)> = HashMap::new();
    let sources = gateway.listen.iter().flat_map(|listener| &listener.tls);
    for acme in sources.filter_map(|source| source.acme.as_ref()) {
        let acme = &acme.value;
        for name in &acme.domains {
            match certificates.insert(&name.value, (acme, name.location)) {
                Some((other, first_location))
                    if !acme.is_same_certificate(other) || std::ptr::eq(acme, other) =>
                {
                    let help = format!("it is on line {} already", first_location.line);
                    let message = format!("`{}` is asked for twice", name.value);
                    cx.error(name.location, message, Some(help));
                }
                _ => {}
            }
        }
        let is_without_tls = |listener: &ListenerConfig| listener.tls.is_empty();
        let http_challenge = acme
            .challenge
            .filter(|challenge| challenge.value == Challenge::Http01);
        if let Some(challenge) = http_challenge
            && !gateway.listen.iter().any(is_without_tls)
        {
            let message = "http-01 needs a listener without `tls`, which is reached at port 80";
            let help = "add `0.0.0.0:80` to `listen`, or write `tls-alpn-01`";
            cx.error(challenge.location, message, Some(help.into()));
        }
    }
}
