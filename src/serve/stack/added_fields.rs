//! The header fields that the gateway adds for an upstream. They name the verified client, the limits that it exceeds, and
//! the connection that the request came over.
//!
//! `forward.rs` calls these functions. Before that it calls `identity/strip.rs`, which removes `Tollgate-*` fields, and
//! fields about a connection unless a trusted proxy has written them. `Via` fields of clients stay.

use http::HeaderName;

use super::peer::Peer;
use crate::http::head::Fields;

/// The gateway's claims about a client, sent as `Tollgate-*` fields and in the fields of custom identities.
pub struct UpstreamClaims<'a> {
    /// The name of the verified user.
    pub user: Option<&'a str>,
    /// The name of the client's plan.
    pub plan: Option<&'a str>,
    /// The name and the value of the field of each custom identity that is forwarded.
    pub custom_identities: Vec<(&'a HeaderName, String)>,
    /// The names of the soft and elastic limits that the request exceeds, separated by `, `.
    pub exceeded_limits: Option<Box<str>>,
}

impl UpstreamClaims<'_> {
    /// Adds a field for each claim. A value with a control character is left out, because no field may carry it.
    pub fn add_to(&self, fields: &mut Fields) {
        let claims = [
            ("tollgate-user", self.user),
            ("tollgate-plan", self.plan),
            ("tollgate-over", self.exceeded_limits.as_deref()),
        ];
        let custom_claims = self
            .custom_identities
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.as_str())));
        for (name, value) in claims.into_iter().chain(custom_claims) {
            let is_valid = |value: &&str| !value.bytes().any(|byte| byte.is_ascii_control());
            if let Some(value) = value.filter(is_valid) {
                fields.add(name, value.as_bytes());
            }
        }
    }
}

/// Adds the fields by which a proxy describes the client's connection: `X-Forwarded-*`, `Via` and `Forwarded` (RFC 7239).
/// `via` is the gateway's element of `Via`. A request without `Host` gets no `Forwarded` and no `X-Forwarded-Host`.
pub fn add_proxy_fields(fields: &mut Fields, peer: &Peer, via: &[u8]) {
    append_element(fields, "x-forwarded-for", peer.ip_text.as_bytes());
    fields.add("via", via);
    if !fields.contains("x-forwarded-proto") {
        fields.add("x-forwarded-proto", peer.scheme().as_bytes());
    }
    let host = fields.first("host");
    let Some(forwarded_element) = host.map(|host| peer.forwarded_element(host)) else {
        return;
    };
    append_element(fields, "forwarded", &forwarded_element);
    if !fields.contains("x-forwarded-host") {
        fields.add_copy("x-forwarded-host", "host");
    }
}

/// Appends an element to a list that a trusted proxy may have begun. All lines of the list become one line, because some
/// upstreams read only the first line, which may be the client's own.
fn append_element(fields: &mut Fields, name: &str, element: &[u8]) {
    if !fields.contains(name) {
        return fields.add(name, element);
    }
    let lines = fields.all(name).filter(|line| !line.is_empty());
    let list: Vec<_> = lines.chain([element]).collect();
    fields.set(name, &list.join(&b", "[..]));
}
