//! The model of the field `user` of the section `identity`, as the gateway file writes it.

use std::time::Duration;

use http::HeaderName;

use super::super::tree::Located;
use crate::identity::user::CertificateName;
use crate::net::PeerNetwork;

/// The proof of the user of a request.
#[derive(Clone, Debug)]
pub enum UserConfig {
    /// A claim of a signed token.
    Jwt {
        /// The name of the claim.
        claim: String,
        /// The keys that verify signatures.
        keys: Option<KeyFile>,
        /// The required issuer.
        issuer: Option<String>,
        /// The required audience.
        audience: Option<String>,
        /// The tolerated difference between clocks, in whole seconds.
        leeway: Option<Duration>,
    },
    /// A header that trusted peers set.
    Header {
        /// The name of the header; `None` if it could not be read.
        name: Option<HeaderName>,
        /// The trusted peers.
        from: Vec<PeerNetwork>,
    },
    /// A file that maps tokens to users.
    ApiKeys(Located<String>),
    /// The certificate that the client presents.
    ClientCert(Located<CertificateName>),
}

/// The file of the keys that verify signatures.
#[derive(Clone, Debug)]
pub enum KeyFile {
    /// The file of a JSON Web Key Set.
    Jwks(Located<String>),
    /// The file of a shared secret.
    Secret(Located<String>),
    /// The file of a public key in PEM.
    Pem(Located<String>),
}
