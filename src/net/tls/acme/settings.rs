//! What a certificate is ordered with.

use std::path::PathBuf;

use crate::net::Roots;

/// A certificate to be ordered from a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the directory.
    pub directory: String,
    /// The roots that vouch for the directory's own certificate.
    pub roots: Roots,
    /// The host names that the certificate is for, in lower case; at least one.
    pub names: Vec<String>,
    /// An email address that the directory may write to.
    pub contact: Option<String>,
    /// The folder where accounts and certificates are kept.
    pub dir: PathBuf,
    /// How the gateway proves that the names are its own.
    pub challenge: Challenge,
}

/// How a name is proven: the kind of challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// In a handshake at port 443, RFC 8737.
    TlsAlpn01,
    /// By a response at port 80, RFC 8555 section 8.3.
    Http01,
}

impl Challenge {
    /// The name that directories and policy files use.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::TlsAlpn01 => "tls-alpn-01",
            Challenge::Http01 => "http-01",
        }
    }
}
