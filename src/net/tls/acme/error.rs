//! Why a certificate was not issued, or cannot be used.

use std::io;

use crate::net::tls::certificate;

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory refuses, or it cannot be reached.
    #[error(transparent)]
    Directory(#[from] instant_acme::Error),
    /// The directory did not accept the proof of a name.
    #[error("{name} could not be proven by {challenge}: {why}")]
    Unproven {
        /// The name.
        name: String,
        /// The kind of challenge.
        challenge: &'static str,
        /// In the directory's words.
        why: String,
    },
    /// The order ended in another status than it should; the directory gives no reason.
    #[error("the order ended as {0}, and the directory gives no reason")]
    Order(String),
    /// The order took longer than ten minutes.
    #[error("the order was not finished in time")]
    Late,
    /// What the directory issued is no certificate, or not for the key.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] certificate::Error),
    /// The issued or stored certificate does not cover the names of the settings.
    #[error("the certificate is for other names")]
    OtherNames,
    /// The issued or stored certificate has expired, or has less than a third of its life left.
    #[error(
        "the certificate has expired, or is past two thirds of its life; check the system clock"
    )]
    Expired,
    /// The folder for certificates cannot be read or written.
    #[error("the folder for certificates cannot be used: {0}")]
    Folder(#[from] io::Error),
    /// The account's file is not valid JSON.
    #[error("the account's file cannot be read: {0}")]
    Account(serde_json::Error),
    /// A key or a certificate request cannot be made.
    #[error("a key or a certificate request cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    /// TLS does not take the certificate that proves a name.
    #[error("the proof cannot be shown in handshakes: {0}")]
    Proof(#[from] rustls::Error),
}

impl Error {
    /// Whether the directory was reached and refused. Directories limit failed orders, so the next one must wait longer.
    pub fn is_refusal(&self) -> bool {
        match self {
            Error::Directory(error) => matches!(error, instant_acme::Error::Api(_)),
            Error::Late | Error::Folder(_) | Error::Account(_) => false,
            _ => true,
        }
    }
}
