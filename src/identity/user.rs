//! Who a request proves to be.

use std::sync::Arc;

use http::HeaderName;

use super::{api_keys, jwt, user_name};
use crate::net::{PeerNetwork, Subject};

/// How a request proves who it is from.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A claim of the signed token in `Authorization: Bearer`.
    Jwt(jwt::Settings),
    /// A request header that a trusted proxy sets.
    Header {
        /// Its name.
        name: HeaderName,
        /// Peers that may set it; from everyone else it is removed.
        from: Vec<PeerNetwork>,
    },
    /// The credential of [`super::Settings::token`], looked up in the file of API keys; where no
    /// credential is configured, `Authorization: Bearer`.
    ApiKeys(Arc<api_keys::ApiKeys>),
    /// The certificate that the client has shown when the connection began.
    ClientCert(CertificateName),
}

/// What becomes of a request whose credential does not verify, on a route that counts by what it would prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnverified {
    /// It is refused with 401: the upstream might take the credential all the same, and no limit would count it.
    #[default]
    Refuse,
    /// It is served as a request of nobody.
    Anonymous,
}

/// Which name of a certificate is the user.
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
