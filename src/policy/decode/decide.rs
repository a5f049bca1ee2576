//! Reads the section `decide`: where other proxies ask whether they may serve a request.

use super::super::section::{AtLeastOneField, section};
use super::super::settings::ListenerRole;
use super::super::tree::Located;
use super::scalar::ListenAddressField;
use crate::net::Address;

section! {
    /// Where other proxies ask.
    pub struct DecideConfig, table DECIDE_TABLE = "`decide`",
        "Where other proxies ask whether they may serve a request. They proxy it themselves.";
    grpc: AtLeastOneField<ListenAddressField>,
        "Address and port, or `unix:` and the path of a Unix socket, of Envoy's rate limit service (v3), over HTTP/2 without TLS. Policies with `domain` say what is counted. Whoever can connect may ask.", "127.0.0.1:8081";
    http: AtLeastOneField<ListenAddressField>,
        "Address and port, or `unix:` and the path of a Unix socket, of the HTTP check: nginx `auth_request`, Traefik ForwardAuth, Caddy `forward_auth`. Only `trusted_proxies` may ask.", "127.0.0.1:8082";
}

impl DecideConfig {
    /// The addresses where proxies ask, each with what they ask.
    pub fn addresses(&self) -> impl Iterator<Item = (&Located<Address>, ListenerRole)> {
        let http = self
            .http
            .iter()
            .map(|address| (address, ListenerRole::Check));
        let grpc = self.grpc.iter();
        http.chain(grpc.map(|address| (address, ListenerRole::RateLimitService)))
    }
}
