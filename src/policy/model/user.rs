//! The model of the field `user` of the section `identity`, as the gateway file writes it.

use std::time::Duration;

use http::{HeaderName, Uri};

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
        keys: Option<KeySource>,
        /// The required issuer.
        issuer: Option<String>,
        /// The audiences of which a token must have one.
        audience: Option<Vec<String>>,
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

/// The keys that verify signatures.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// A JSON Web Key Set, or an OpenID configuration that names one.
    Url {
        /// Where it is.
        url: Located<Uri>,
        /// The file of the authorities that verify its server.
        roots: Option<Located<String>>,
    },
    /// A file.
    File(KeyFormat, Located<String>),
}

/// The format of a file with keys.
#[derive(Clone, Copy, Debug)]
pub enum KeyFormat {
    /// A JSON Web Key Set.
    Jwks,
    /// A shared secret.
    Secret,
    /// A public key in PEM.
    Pem,
}
