//! The settings with which a certificate is ordered. `policy/compile` builds them from `acme:` of a listener.

use std::path::PathBuf;

use crate::net::Roots;

/// The settings of the orders of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the ACME directory.
    pub directory_url: String,
    /// The roots to which the directory's own certificate must chain.
    pub roots: Roots,
    /// The host names that the certificate is for, in lower case; at least one.
    pub names: Vec<String>,
    /// The email address of the account, to which the authority may write; `None` for an account without one.
    pub contact_email: Option<String>,
    /// The folder in which accounts and certificates are saved.
    pub folder: PathBuf,
    /// How the gateway proves that it serves the names.
    pub challenge: Challenge,
}

/// The kind of challenge by which a name is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// The directory does a TLS handshake at port 443, whose certificate is the proof: RFC 8737.
    TlsAlpn01,
    /// The directory sends a request to port 80, whose response is the proof: RFC 8555 section 8.3.
    Http01,
}

impl Challenge {
    /// The name that directories and the gateway file use.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::TlsAlpn01 => "tls-alpn-01",
            Challenge::Http01 => "http-01",
        }
    }
}
