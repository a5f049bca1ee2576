//! The source of the user as written.

use std::time::Duration;

use http::HeaderName;

use super::super::tree::Located;
use crate::identity::user::CertificateName;
use crate::net::PeerNetwork;

/// What proves the user of a request.
#[derive(Clone, Debug)]
pub enum UserConfig {
    /// A claim of a signed token.
    Jwt {
        /// The claim.
        claim: String,
        /// The keys that verify signatures.
        keys: Option<KeyFile>,
        /// The required issuer.
        issuer: Option<String>,
        /// The required audience.
        audience: Option<String>,
        /// The tolerated difference between clocks.
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
    /// The certificate that the client presents.
    ClientCert(Located<CertificateName>),
}

/// The keys that verify signatures.
#[derive(Clone, Debug)]
pub enum KeyFile {
    /// A JSON Web Key Set.
    Jwks(Located<String>),
    /// A shared secret.
    Secret(Located<String>),
    /// A public key in PEM.
    Pem(Located<String>),
}
