//! Checks whether the settings of certificates fit together.

use std::collections::HashMap;

use super::super::collect::Cx;
use super::super::model::{
    AcmeConfig, CertificateConfig, GatewayConfig, ListenerConfig, Located, UserConfig,
};
use super::super::tree::SourcePlace;
use crate::net::tls::acme::Challenge;

/// Reports every mistake about certificates.
pub fn check(cx: &mut Cx, gateway: &GatewayConfig) {
    check_client_certificates(cx, gateway);
    check_acme(cx, gateway);
}

/// Users that certificates name must be asked for theirs somewhere.
fn check_client_certificates(cx: &mut Cx, gateway: &GatewayConfig) {
    let user = gateway.identity.user.as_ref().map(|user| &user.value);
    let asks = |listener: &Located<ListenerConfig>| listener.value.client_roots.is_some();
    if let Some(UserConfig::ClientCert(named)) = user
        && !gateway.listen.iter().any(asks)
    {
        let message = "no listener asks clients for a certificate";
        let help = "add `client_roots: clients.pem` beside the `tls` of a listener";
        cx.error(named.place, message, Some(help.into()));
    }
}

/// Certificates that a directory issues: each name is asked for once, and what proves it must be there.
fn check_acme(cx: &mut Cx, gateway: &GatewayConfig) {
    let mut seen: HashMap<&str, (&AcmeConfig, SourcePlace)> = HashMap::new();
    let sources = gateway
        .listen
        .iter()
        .flat_map(|listener| &listener.value.tls);
    for source in sources {
        let CertificateConfig::Acme(acme) = source else {
            continue;
        };
        for name in &acme.names {
            match seen.insert(&name.value, (acme, name.place)) {
                Some((other, first))
                    if !acme.is_same_certificate(other) || std::ptr::eq(acme, other) =>
                {
                    let help = format!("it is on line {} already", first.line);
                    let message = format!("`{}` is asked for twice", name.value);
                    cx.error(name.place, message, Some(help));
                }
                _ => {}
            }
        }
        let plain = |listener: &Located<ListenerConfig>| listener.value.tls.is_empty();
        if acme.challenge.value == Challenge::Http01 && !gateway.listen.iter().any(plain) {
            let message = "http-01 needs a listener without `tls`, which is reached at port 80";
            let help = "add `0.0.0.0:80` to `listen`, or write `tls-alpn-01`";
            cx.error(acme.challenge.place, message, Some(help.into()));
        }
    }
}
