//! The source of the user, as it is written.

use std::time::Duration;

use http::HeaderName;

use super::super::tree::Located;
use crate::identity::user::CertificateName;
use crate::net::PeerNetwork;

/// Who the request proves to be.
#[derive(Clone, Debug)]
pub enum UserConfig {
    /// A claim of a signed token.
    Jwt {
        /// The claim.
        claim: String,
        /// What signatures are checked with.
        keys: Option<KeyFile>,
        /// Who must have issued it.
        issuer: Option<String>,
        /// For whom it must be issued.
        audience: Option<String>,
        /// How far clocks may differ.
        leeway: Option<Duration>,
    },
    /// A header that trusted peers set.
    Header {
        /// The header.
        name: Option<HeaderName>,
        /// The peers.
        from: Vec<PeerNetwork>,
    },
    /// A file that maps tokens to users.
    ApiKeys(Located<String>),
    /// The certificate that a client shows.
    ClientCert(Located<CertificateName>),
}

/// What signatures are checked with.
#[derive(Clone, Debug)]
pub enum KeyFile {
    /// A JSON Web Key Set.
    Jwks(Located<String>),
    /// A shared secret.
    Secret(Located<String>),
    /// A public key in PEM.
    Pem(Located<String>),
}
