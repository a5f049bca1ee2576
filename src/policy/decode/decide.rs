//! Reads the section `decide`: where other proxies ask whether they may serve a request.

use super::super::section::{AlternativeField, section};
use super::scalar::ListenAddressField;

section! {
    /// Where other proxies ask.
    pub struct DecideConfig, table DECIDE_TABLE = "`decide`",
        "Where other proxies ask whether they may serve a request. They proxy it themselves.";
    http: AlternativeField<ListenAddressField>,
        "Address and port, or `unix:` and the path of a Unix socket, of the HTTP check: nginx `auth_request`, Traefik ForwardAuth, Caddy `forward_auth`. Only `trusted_proxies` may ask.", "127.0.0.1:8082";
}
