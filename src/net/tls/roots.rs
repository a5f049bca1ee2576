//! Roots of trust: the certificates of authorities, by which the certificates of servers and clients are verified.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::certificate;

/// A set of trusted authorities.
#[derive(Clone, Debug)]
pub struct Roots(pub(in crate::net) Arc<RootCertStore>);

/// Why a set of roots cannot be used. Most texts continue a sentence about the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RootsError {
    /// The file has no certificate.
    #[error("it holds no certificate in PEM")]
    Empty,
    /// A certificate of the file cannot be read.
    #[error("its certificates cannot be read: {0}")]
    Unreadable(String),
    /// The system has no certificates. The text is empty, or `: ` and the reason.
    #[error("the system has no certificates to verify servers by{0}")]
    System(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

impl Roots {
    /// Reads the roots in the contents of a PEM file.
    ///
    /// # Errors
    ///
    /// Fails if the file has no certificate, or one that cannot be read or has a malformed BEGIN line.
    pub fn from_pem(pem: &[u8]) -> Result<Roots, RootsError> {
        let mut store = RootCertStore::empty();
        let unreadable = |error: &dyn fmt::Display| RootsError::Unreadable(error.to_string());
        let mut read_count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            let result = store.add(certificate);
            result.map_err(|error| unreadable(&error))?;
            read_count += 1;
        }
        if store.is_empty() {
            return Err(RootsError::Empty);
        }
        certificate::check_all_read(pem, read_count).map_err(|error| unreadable(&error))?;
        Ok(Roots(Arc::new(store)))
    }

    /// Makes a verifier of clients' certificates. Clients without a certificate are accepted too. Fails if there are no
    /// roots.
    pub(super) fn client_verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        WebPkiClientVerifier::builder_with_provider(self.0.clone(), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))
    }

    /// Reads the roots that the system trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. Those that cannot
    /// be read are skipped.
    ///
    /// # Errors
    ///
    /// Fails if there is no readable root.
    pub fn from_system() -> Result<Roots, RootsError> {
        let mut store = RootCertStore::empty();
        let loaded = rustls_native_certs::load_native_certs();
        let (added_count, _ignored_count) = store.add_parsable_certificates(loaded.certs);
        if added_count == 0 {
            let reason = loaded.errors.first().map(|error| format!(": {error}"));
            return Err(RootsError::System(reason.unwrap_or_default()));
        }
        Ok(Roots(Arc::new(store)))
    }
}

impl PartialEq for Roots {
    fn eq(&self, other: &Roots) -> bool {
        self.0.roots == other.0.roots
    }
}

impl Eq for Roots {}
