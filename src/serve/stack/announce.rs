//! What the gateway tells an upstream: who asks, and over which connection.

use super::peer::Peer;
use crate::http::head::Fields;

/// What the gateway tells the upstream of a request.
pub struct UpstreamClaims<'a> {
    /// The verified user.
    pub user: Option<&'a str>,
    /// The plan.
    pub plan: Option<&'a str>,
    /// The limits it exceeds.
    pub over: Option<Box<str>>,
}

impl UpstreamClaims<'_> {
    /// Adds a field for each.
    pub fn write(&self, fields: &mut Fields) {
        let claims = [
            ("tollgate-user", self.user),
            ("tollgate-plan", self.plan),
            ("tollgate-over", self.over.as_deref()),
        ];
        for (name, value) in claims {
            let is_sound = |text: &&str| !text.bytes().any(|byte| byte.is_ascii_control());
            if let Some(value) = value.filter(is_sound) {
                fields.add(name, value.as_bytes());
            }
        }
    }
}

/// Adds what a proxy must say of the client's connection.
pub fn announce(fields: &mut Fields, peer: &Peer, via: &[u8]) {
    append(fields, "x-forwarded-for", peer.address.as_bytes());
    fields.add("via", via);
    if !fields.contains("x-forwarded-proto") {
        fields.add("x-forwarded-proto", peer.scheme().as_bytes());
    }
    let Some(element) = fields.first("host").map(|host| peer.forwarded(host)) else {
        return;
    };
    append(fields, "forwarded", &element);
    if !fields.contains("x-forwarded-host") {
        fields.add_copy("x-forwarded-host", "host");
    }
}

/// Adds an element to a list that a trusted proxy may have begun, in one line: of several lines some upstreams
/// read only the first, which may be the client's own.
fn append(fields: &mut Fields, name: &str, element: &[u8]) {
    if !fields.contains(name) {
        return fields.add(name, element);
    }
    let lines = fields.all(name).filter(|line| !line.is_empty());
    let list: Vec<_> = lines.chain([element]).collect();
    fields.set(name, &list.join(&b", "[..]));
}
