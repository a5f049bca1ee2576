//! The error of an order: why a certificate was not issued, or cannot be used. Its texts are log messages.

use std::io;

use crate::net::tls::certificate;

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory refused a request, or could not be reached.
    #[error(transparent)]
    Directory(#[from] instant_acme::Error),
    /// The directory did not accept the proof of a name.
    #[error("{name} could not be proven by {challenge}: {reason}")]
    Unproven {
        /// The host name that was to be proven.
        name: String,
        /// The kind of challenge.
        challenge: &'static str,
        /// The reason that the directory gave.
        reason: String,
    },
    /// The order ended in this status, and the directory gave no reason.
    #[error("the order ended as {0}, and the directory gives no reason")]
    Order(String),
    /// The order took longer than ten minutes in all.
    #[error("the order was not finished in time")]
    TimedOut,
    /// The issued or stored text is no certificate, or the key is not that of the certificate.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] certificate::Error),
    /// The issued or stored certificate does not cover the names of the settings.
    #[error("the certificate is for other names")]
    OtherNames,
    /// The issued or stored certificate has expired, or the issued one has at most a third of its life left.
    #[error(
        "the certificate has expired, or is past two thirds of its life; check the system clock"
    )]
    Expired,
    /// The folder for certificates cannot be read or written.
    #[error("the folder for certificates cannot be used: {0}")]
    Folder(#[from] io::Error),
    /// The account's file is not valid JSON, or a new account cannot be written as JSON.
    #[error("the account's file cannot be read: {0}")]
    Account(serde_json::Error),
    /// A key or a certificate request cannot be made.
    #[error("a key or a certificate request cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    /// TLS does not support the certificate that proves a name.
    #[error("the proof cannot be shown in handshakes: {0}")]
    Proof(#[from] rustls::Error),
}

impl Error {
    /// Whether the order may count as failed at the directory. Directories limit failed orders, so the next order must wait
    /// longer. False if the directory was not reached or the order took too long, or if a file could not be used.
    pub fn is_refusal(&self) -> bool {
        match self {
            Error::Directory(error) => matches!(error, instant_acme::Error::Api(_)),
            Error::TimedOut | Error::Folder(_) | Error::Account(_) => false,
            _ => true,
        }
    }
}
