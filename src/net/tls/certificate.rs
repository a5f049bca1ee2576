//! A certificate chain with its private key, read from PEM. Reading checks that both belong together, but not whether
//! the certificate has expired or is trusted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain with the private key of its first certificate, to which the other fields refer.
#[derive(Clone)]
pub struct Certificate {
    /// The host names that the certificate is for, sorted and in lower case. They may have the form `*.example.com`. IP
    /// addresses of the certificate are left out.
    pub names: Vec<String>,
    /// The start of the certificate's validity, since the Unix epoch; zero if it is earlier.
    pub valid_from: Duration,
    /// The end of the certificate's validity, since the Unix epoch; zero if it is earlier.
    pub valid_until: Duration,
    /// The chain and the key, as rustls uses them.
    pub(crate) certified_key: Arc<CertifiedKey>,
}

/// Why two files are not a certificate and its key. Each text continues a sentence about the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first file has no certificate.
    #[error("it holds no certificate in PEM")]
    NoCertificate,
    /// The certificate cannot be parsed.
    #[error("its certificate cannot be read: {0}")]
    Certificate(String),
    /// The second file has no key.
    #[error("it holds no private key in PEM")]
    NoKey,
    /// The key is encrypted with a password, as PKCS #8 does it.
    #[error("its private key is encrypted: store it without a password")]
    Encrypted,
    /// The key cannot be parsed, or TLS does not support it.
    #[error("its private key cannot be used: {0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("its private key is not that of the certificate")]
    Mismatch,
}

impl Error {
    /// Whether the error is about the file of the key.
    pub fn is_about_key(&self) -> bool {
        !matches!(self, Error::NoCertificate | Error::Certificate(_))
    }
}

/// The error of a PEM file in which the parser has skipped certificates, because their BEGIN lines are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "of its {begin_line_count} certificates {read_count} can be read; `-----BEGIN CERTIFICATE-----` must be all of its line"
)]
pub(crate) struct UnreadCertificates {
    /// The number of lines that look like the BEGIN line of a certificate.
    begin_line_count: usize,
    /// The number of certificates that the parser has read.
    read_count: usize,
}

/// Checks that the parser has read all certificates of a PEM file; `read_count` is the number that it has read. The parser
/// takes a malformed BEGIN line for a comment, and skips its certificate silently.
pub(crate) fn check_all_read(pem: &[u8], read_count: usize) -> Result<(), UnreadCertificates> {
    let is_begin_line = |line: &&[u8]| {
        let line_contains = |text: &[u8]| memchr::memmem::find(line, text).is_some();
        line_contains(b"BEGIN ") && line_contains(b"CERTIFICATE-----")
    };
    let lines = pem.split(|byte| matches!(byte, b'\n' | b'\r'));
    let begin_line_count = lines.filter(is_begin_line).count();
    if begin_line_count == read_count {
        Ok(())
    } else {
        Err(UnreadCertificates {
            begin_line_count,
            read_count,
        })
    }
}

impl Certificate {
    /// Reads the contents of both files, which may be the same file.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be parsed, or if a BEGIN line in the chain is malformed. Also fails if TLS does not
    /// support the key, or if the key is encrypted or not that of the first certificate. Of later certificates only the
    /// PEM is parsed.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Certificate, Error> {
        let invalid_pem = |error: pem::Error| Error::Certificate(error.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain_pem)
            .collect::<Result<_, _>>()
            .map_err(invalid_pem)?;
        let first_certificate = chain.first().ok_or(Error::NoCertificate)?;
        check_all_read(chain_pem, chain.len())
            .map_err(|error| Error::Certificate(error.to_string()))?;
        let end_entity = webpki::EndEntityCert::try_from(first_certificate)
            .map_err(|error| Error::Certificate(error.to_string()))?;
        let names = end_entity.valid_dns_names().map(str::to_ascii_lowercase);
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        let (_, x509) = X509Certificate::from_der(first_certificate)
            .map_err(|error| Error::Certificate(error.to_string()))?;
        let since_epoch = |time: i64| Duration::from_secs(u64::try_from(time).unwrap_or(0));
        let valid_from = since_epoch(x509.validity().not_before.timestamp());
        let valid_until = since_epoch(x509.validity().not_after.timestamp());
        if memchr::memmem::find(key_pem, b"ENCRYPTED PRIVATE KEY").is_some() {
            return Err(Error::Encrypted);
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            pem::Error::NoItemsFound => Error::NoKey,
            error => Error::Key(error.to_string()),
        })?;
        let provider = aws_lc_rs::default_provider();
        let certified_key = CertifiedKey::from_der(chain, key, &provider);
        let certified_key = certified_key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Error::Mismatch,
            error => Error::Key(error.to_string()),
        })?;
        let certified_key = Arc::new(certified_key);
        Ok(Certificate {
            names,
            valid_from,
            valid_until,
            certified_key,
        })
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        // Equal certificates have equal keys, because `from_pem` checks that.
        self.certified_key.cert == other.certified_key.cert
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.names).finish()
    }
}
