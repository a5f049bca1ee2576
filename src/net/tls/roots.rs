//! The roots of trust: what the certificates of servers, and of clients, are verified by.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::certificate;

/// The certificates of authorities that vouch for the other side.
#[derive(Clone, Debug)]
pub struct Roots(pub(in crate::net) Arc<RootCertStore>);

/// Why no certificate can be verified.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RootsError {
    /// The file has none.
    #[error("it holds no certificate in PEM")]
    None,
    /// One of them cannot be read.
    #[error("its certificates cannot be read: {0}")]
    Unreadable(String),
    /// The system has none.
    #[error("the system has no certificates to verify servers by{0}")]
    System(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

impl Roots {
    /// Those of a file's contents.
    pub fn from_pem(pem: &[u8]) -> Result<Roots, RootsError> {
        let mut store = RootCertStore::empty();
        let unreadable = |error: &dyn fmt::Display| RootsError::Unreadable(error.to_string());
        let mut read = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            let added = store.add(certificate);
            added.map_err(|error| unreadable(&error))?;
            read += 1;
        }
        if store.is_empty() {
            return Err(RootsError::None);
        }
        certificate::all_read(pem, read).map_err(|error| unreadable(&error))?;
        Ok(Roots(Arc::new(store)))
    }

    /// Verifies the certificates of clients that show one.
    pub(super) fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        WebPkiClientVerifier::builder_with_provider(self.0.clone(), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))
    }

    /// Those that the system trusts.
    pub fn of_system() -> Result<Roots, RootsError> {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map(|error| format!(": {error}"));
            return Err(RootsError::System(why.unwrap_or_default()));
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
