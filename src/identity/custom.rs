//! The settings of custom identities, which the gateway file defines: where each of them comes from.
//! `identifier/custom.rs` finds their values in requests, and `custom_value.rs` defines these values.

use std::sync::Arc;

use http::HeaderName;

use super::body::BodyField;
use super::canonical::canonical_form;
use super::token::TokenSource;
use super::user::CertificateName;
use crate::limit::CustomIdentity;

mod network_table;

pub use network_table::NetworkTable;

/// The settings of one custom identity.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The identity, which is also its name.
    pub identity: CustomIdentity,
    /// The part of a request that it comes from.
    pub source: Source,
    /// The header field that carries the identity to the upstream; `None` if it is not forwarded.
    pub forwarded_as: Option<HeaderName>,
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
    /// A parameter of the query. Many frameworks read the fields of forms and cookies with those of the query.
    Query(BodyField),
    /// A field of the body, which is looked for in the query and in cookies too.
    Body(BodyField),
    /// The segment of the path that the route's pattern calls by this name.
    PathPart(Box<str>),
    /// The name of the most specific network that the client's address is in.
    Networks(Arc<NetworkTable>),
}

impl Source {
    /// A value as an operator wrote it, in the form in which [`Reading::Names`](super::custom_value::Reading::Names) has it.
    pub fn normalise(&self, text: &str) -> String {
        let normal = match self {
            Source::Field(source) => source.normalise(text),
            Source::PathPart(_) | Source::Query(_) | Source::Body(_) => text.into(),
            Source::Claim(_) | Source::ApiKeys | Source::Certificate(_) | Source::Networks(_) => {
                return text.to_owned();
            }
        };
        String::from_utf8_lossy(&canonical_form(normal.as_bytes())).into_owned()
    }

    /// Describes the source in some words, for operators.
    pub fn describe(&self) -> String {
        match self {
            Source::Field(source) => source.describe(),
            Source::Claim(claim) => format!("claim {claim} of the token"),
            Source::ApiKeys => "file of API keys".into(),
            Source::Certificate(_) => "client certificate".into(),
            Source::Query(field) => format!("query parameter {}", field.name().as_str()),
            Source::Body(field) => format!("field {} of the body", field.name().as_str()),
            Source::PathPart(name) => format!("part {{{name}}} of the path"),
            Source::Networks(_) => "network of the address".into(),
        }
    }
}
