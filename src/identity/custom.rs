//! The settings of custom identities, which the gateway file defines: where each of them comes from.
//! `identifier/custom.rs` finds their values in requests, and `custom_value.rs` defines these values.

use std::sync::Arc;

use http::HeaderName;

use super::body::BodyField;
use super::canonical::{canonical_form, is_ambiguous, whole_number};
use super::field_value::FieldValue;
use super::token::TokenSource;
use super::user::CertificateName;
use super::user_name;
use crate::limit::{CustomIdentity, NetworkTable};

/// The settings of one custom identity.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The identity, which is also its name.
    pub identity: CustomIdentity,
    /// The part of a request that it comes from.
    pub source: Source,
    /// The header field that carries the identity to the upstream; `None` if it is not forwarded.
    pub forwarded_as: Option<HeaderName>,
    /// Whether the value is looked for in every request, even if no limit counts by it: the upstream, a metric or the
    /// log gets it.
    pub is_always_read: bool,
}

/// Where a custom identity comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A header field or a cookie, which is read as strictly as a credential.
    Field(TokenSource),
    /// A claim of the verified token that proves the user. Dots in the name lead into nested claims.
    Claim(String),
    /// The entry of the request's key in the file of API keys.
    ApiKeys,
    /// The certificate that the client presented in the TLS handshake.
    Certificate(CertificateName),
    /// The JA4 fingerprint of the client's TLS handshake.
    Ja4,
    /// A parameter of the query, which is looked for in the body and in cookies too: many frameworks read all three as
    /// one set of fields.
    Query(BodyField),
    /// A field of the body, which is looked for in the query and in cookies too.
    Body(BodyField),
    /// The segment of the path that the route's pattern calls by this name.
    PathPart(Box<str>),
    /// The word `preflight`, for a preflight of CORS (Fetch standard): `OPTIONS` with `Origin` and
    /// `Access-Control-Request-Method`.
    Preflight,
    /// An entry of a descriptor by which another proxy asks. No HTTP request has it.
    Entry,
    /// The name of the most specific network that the client's address is in, or what a table says of that network.
    Networks(Arc<NetworkTable>),
}

impl Source {
    /// Brings a value that an operator wrote into the form in which a request's
    /// [`IdentityValue::Names`](super::custom_value::IdentityValue::Names) has it. A whole number and a credential that
    /// can be spelled in several ways get their canonical form. `None` for a text that no request has as its name: an
    /// ambiguous one, or one that is no name.
    pub fn normalise(&self, text: &str) -> Option<String> {
        let normal = match self {
            Source::Field(source) => source.normalise(text),
            Source::PathPart(_) | Source::Query(_) | Source::Body(_) => text.into(),
            Source::Claim(_)
            | Source::ApiKeys
            | Source::Certificate(_)
            | Source::Ja4
            | Source::Preflight
            | Source::Entry
            | Source::Networks(_) => return user_name::parse(text).map(|name| name.to_string()),
        };
        let canonical = match whole_number::parse(normal.as_bytes()) {
            FieldValue::Single(number) => number,
            FieldValue::Ambiguous => return None,
            FieldValue::Absent if is_ambiguous(normal.as_bytes()) => return None,
            FieldValue::Absent => canonical_form(normal.as_bytes()),
        };
        let name = user_name::parse(std::str::from_utf8(&canonical).ok()?)?;
        Some(name.to_string())
    }

    /// Describes the source in some words, for operators.
    pub fn describe(&self) -> String {
        match self {
            Source::Field(source) => source.describe(),
            Source::Claim(claim) => format!("claim {claim} of the token"),
            Source::ApiKeys => "file of API keys".into(),
            Source::Certificate(_) => "client certificate".into(),
            Source::Ja4 => "JA4 fingerprint of the TLS handshake".into(),
            Source::Query(field) => format!("query parameter {}", field.name().as_str()),
            Source::Body(field) => format!("field {} of the body", field.name().as_str()),
            Source::PathPart(name) => format!("part {{{name}}} of the path"),
            Source::Preflight => "preflight of a browser".into(),
            Source::Entry => "entry of a descriptor".into(),
            Source::Networks(_) => "network of the address".into(),
        }
    }
}
