//! A certificate that an ACME directory issues while the gateway runs, shared by the handshakes of all workers.
//!
//! It also holds the certificates that prove names to the directory, in handshakes of their own (RFC 8737). The orders are
//! in `acme`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::net::Certificate;

/// A certificate that is replaced while the gateway runs.
#[derive(Debug)]
pub struct IssuedCertificate {
    /// The host names that the certificate is for, in lower case.
    pub names: Vec<String>,
    /// The certificate that handshakes present; `None` until the first one is issued.
    current: RwLock<Option<Certificate>>,
    /// The certificates that prove names, by name: at most one for each of `names`, while its order is open.
    proofs: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl IssuedCertificate {
    /// The certificate for these names, which is not issued yet.
    pub fn new(names: Vec<String>) -> IssuedCertificate {
        IssuedCertificate {
            names,
            current: RwLock::default(),
            proofs: RwLock::default(),
        }
    }

    /// The certificate that handshakes present now; `None` until one is issued.
    pub fn certificate(&self) -> Option<Certificate> {
        self.current.read().clone()
    }

    /// Replaces the certificate for all handshakes that begin from now on.
    pub fn set_certificate(&self, certificate: Certificate) {
        *self.current.write() = Some(certificate);
    }

    /// Presents the certificate `proof` in handshakes that ask for the proof of a name: RFC 8737 section 3. `key` is
    /// the private key of `proof`.
    ///
    /// # Errors
    ///
    /// Fails if TLS does not support the key.
    pub fn add_proof(
        &self,
        name: &str,
        proof: CertificateDer<'static>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<(), rustls::Error> {
        // The proof is not parsed like other certificates: it has a critical extension that only the directory understands.
        let key = aws_lc_rs::sign::any_supported_type(key)?;
        let proof = Arc::new(CertifiedKey::new(vec![proof], key));
        self.proofs.write().insert(name.to_owned(), proof);
        Ok(())
    }

    /// Stops presenting the proof of a name.
    pub fn remove_proof(&self, name: &str) {
        self.proofs.write().remove(name);
    }

    /// The certificate that proves `name`; `None` if there is no proof to present.
    pub(crate) fn proof(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.proofs.read().get(name).cloned()
    }
}
