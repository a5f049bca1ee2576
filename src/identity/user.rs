//! The settings of the identity `user`: what proves the user of a request, and what happens if the proof fails.

use std::sync::Arc;

use http::HeaderName;

use super::{api_keys, jwt, user_name};
use crate::limit::UserSources;
use crate::net::{PeerNetwork, Subject};

/// The source that proves the user of a request.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A claim of the signed token in `Authorization: Bearer`; the settings of each issuer. If there are several, each has
    /// an [`issuer`].
    ///
    /// [`issuer`]: jwt::Settings::issuer
    Jwt(Vec<jwt::Settings>),
    /// A header field that a trusted proxy sets.
    Header {
        /// The field's name.
        name: HeaderName,
        /// Peers that may set the field; the gateway removes it from requests of all others.
        allowed_peers: Vec<PeerNetwork>,
    },
    /// The credential of [`super::Settings::token_sources`], looked up among the API keys. Without any token source,
    /// the credential in `Authorization: Bearer`.
    ApiKeys(Arc<api_keys::ApiKeys>),
    /// The certificate that the client presented in the TLS handshake.
    ClientCert(CertificateName),
}

/// The treatment of a request whose credential does not verify, on a route that counts by what it would prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnverified {
    /// The gateway refuses it with 401: the upstream might accept the credential, and no limit would count it. The field of
    /// an untrusted peer never reaches the upstream, so it is no reason to refuse.
    #[default]
    Refuse,
    /// The gateway serves it as an anonymous request. It still refuses one whose credential is ambiguous or unchecked, and
    /// one that lacks an identity that the route requires.
    Anonymous,
}

/// The part of a client certificate that names the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The distinguished name: [`Subject::distinguished_name`].
    Subject,
    /// The alternative name: [`Subject::alternative_name`].
    San,
}

impl Settings {
    /// Those of `sources` that these settings are, each with the name by which files require it: the issuer of a token,
    /// or else the kind of the source.
    pub fn names(&self, sources: UserSources) -> Vec<&str> {
        let name_if = |source, name| sources.accepts(source).then_some(name);
        match self {
            Settings::Jwt(issuers) => {
                let issuers = issuers.iter().enumerate();
                let names = issuers.filter_map(|(index, jwt)| {
                    let name = jwt.issuer.as_deref().unwrap_or("jwt");
                    name_if(UserSources::issuer(index), name)
                });
                names.collect()
            }
            Settings::Header { .. } => name_if(UserSources::HEADER, "header").into_iter().collect(),
            Settings::ApiKeys(_) => {
                let name = name_if(UserSources::API_KEYS, "api_keys");
                name.into_iter().collect()
            }
            Settings::ClientCert(_) => {
                let name = name_if(UserSources::CLIENT_CERT, "client_cert");
                name.into_iter().collect()
            }
        }
    }

    /// Describes the source in some words, for operators.
    pub fn describe(&self) -> String {
        match self {
            Settings::Jwt(issuers) => {
                let has_several = issuers.len() > 1;
                let each = issuers.iter().map(|jwt| match &jwt.issuer {
                    Some(issuer) if has_several => {
                        format!("claim {} of the token of {issuer}", jwt.claim)
                    }
                    _ => format!("claim {} of the token", jwt.claim),
                });
                each.collect::<Vec<_>>().join(" or ")
            }
            Settings::Header { name, .. } => format!("header {name} of a trusted peer"),
            Settings::ApiKeys(keys) => keys.describe().into(),
            Settings::ClientCert(_) => "client certificate".into(),
        }
    }
}

impl CertificateName {
    /// The user that a certificate with this subject names; `None` if it names no valid user.
    pub(super) fn user(self, subject: &Subject) -> Option<Arc<str>> {
        match self {
            CertificateName::Subject => user_name::parse(&subject.distinguished_name),
            CertificateName::San => user_name::parse(subject.alternative_name.as_ref()?),
        }
    }
}
