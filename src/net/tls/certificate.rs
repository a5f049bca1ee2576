//! A certificate and its private key, from PEM.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A chain, the key of its first certificate, and the names that this one is for.
#[derive(Clone)]
pub struct Certificate {
    /// Host names in lower case and in order, those of the form `*.example.com` among them.
    pub names: Vec<String>,
    /// From when it holds, since the Unix epoch.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    pub(crate) certified: Arc<CertifiedKey>,
}

/// Why two files are not a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No certificate in the first file.
    #[error("it holds no certificate in PEM")]
    NoCertificate,
    /// The certificate is not one of X.509.
    #[error("its certificate cannot be read: {0}")]
    Certificate(String),
    /// No key in the second file.
    #[error("it holds no private key in PEM")]
    NoKey,
    /// The key needs a password.
    #[error("its private key is encrypted: store it without a password")]
    Encrypted,
    /// The key is of a kind that TLS does not use.
    #[error("its private key cannot be used: {0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("its private key is not that of the certificate")]
    Mismatch,
}

impl Error {
    /// Whether the file of the key is the one to look at.
    pub fn in_key(&self) -> bool {
        !matches!(self, Error::NoCertificate | Error::Certificate(_))
    }
}

/// Why certificates that a file begins are not there: the mark must stand at the start of its line, alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "of its {begun} certificates {read} can be read; `-----BEGIN CERTIFICATE-----` must be all of its line"
)]
pub(crate) struct Unread {
    begun: usize,
    read: usize,
}

/// Holds the certificates that were read of a PEM file against those that it begins, in whatever way: what the parser
/// takes for a comment would be missing without a word.
pub(crate) fn all_read(pem: &[u8], read: usize) -> Result<(), Unread> {
    let begins = |line: &&[u8]| {
        let has = |mark: &[u8]| memchr::memmem::find(line, mark).is_some();
        has(b"BEGIN ") && has(b"CERTIFICATE-----")
    };
    let lines = pem.split(|byte| matches!(byte, b'\n' | b'\r'));
    let begun = lines.filter(begins).count();
    if begun == read {
        Ok(())
    } else {
        Err(Unread { begun, read })
    }
}

impl Certificate {
    /// Reads both files' contents and checks that they belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, Error> {
        let unreadable = |error: pem::Error| Error::Certificate(error.to_string());
        let pem = chain;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        let first = chain.first().ok_or(Error::NoCertificate)?;
        all_read(pem, chain.len()).map_err(|error| Error::Certificate(error.to_string()))?;
        let parsed = webpki::EndEntityCert::try_from(first)
            .map_err(|error| Error::Certificate(error.to_string()))?;
        let names = parsed.valid_dns_names().map(str::to_ascii_lowercase);
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        let (_, read) = X509Certificate::from_der(first)
            .map_err(|error| Error::Certificate(error.to_string()))?;
        let since = |time: i64| Duration::from_secs(u64::try_from(time).unwrap_or(0));
        let from = since(read.validity().not_before.timestamp());
        let until = since(read.validity().not_after.timestamp());
        if memchr::memmem::find(key, b"ENCRYPTED PRIVATE KEY").is_some() {
            return Err(Error::Encrypted);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => Error::NoKey,
            error => Error::Key(error.to_string()),
        })?;
        let provider = aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider);
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Error::Mismatch,
            error => Error::Key(error.to_string()),
        })?;
        let certified = Arc::new(certified);
        Ok(Certificate {
            names,
            from,
            until,
            certified,
        })
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        // The key is that of the certificate.
        self.certified.cert == other.certified.cert
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.names).finish()
    }
}
