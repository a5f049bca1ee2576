//! The sources that can prove the user of a request.

use std::sync::Arc;

use http::HeaderName;

use super::{api_keys, jwt, user_name};
use crate::net::{PeerNetwork, Subject};

/// What proves the user of a request.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A claim of the signed token in `Authorization: Bearer`.
    Jwt(jwt::Settings),
    /// A header field that a trusted proxy sets.
    Header {
        /// Its name.
        name: HeaderName,
        /// Peers that may set it; the gateway removes it from all others.
        from: Vec<PeerNetwork>,
    },
    /// The credential of [`super::Settings::token`], looked up in the file of API keys; where no
    /// credential is configured, `Authorization: Bearer`.
    ApiKeys(Arc<api_keys::ApiKeys>),
    /// The certificate that the client presented in the TLS handshake.
    ClientCert(CertificateName),
}

/// What happens to a request whose credential does not verify, on a route that counts by what it would prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnverified {
    /// The gateway refuses it with 401: the upstream might accept the credential, and no limit would count it.
    #[default]
    Refuse,
    /// The gateway serves it as an anonymous request.
    Anonymous,
}

/// The name in a client certificate that is the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// [`Subject::name`].
    Subject,
    /// [`Subject::alternative`].
    San,
}

impl CertificateName {
    /// The user, if the certificate names one.
    pub(super) fn of(self, subject: &Subject) -> Option<Arc<str>> {
        match self {
            CertificateName::Subject => user_name::parse(&subject.name),
            CertificateName::San => user_name::parse(subject.alternative.as_ref()?),
        }
    }
}
