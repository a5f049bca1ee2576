//! A certificate that an authority issues while the gateway runs: the one there is now, and the proofs that the
//! authority asks for in handshakes of their own (RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::net::Certificate;

/// See the module.
#[derive(Debug)]
pub struct Issued {
    /// The host names that it is for, in lower case.
    pub names: Vec<String>,
    now: RwLock<Option<Certificate>>,
    /// By name; at most one for each.
    proofs: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl Issued {
    /// For these names, without a certificate yet.
    pub fn new(names: Vec<String>) -> Issued {
        Issued {
            names,
            now: RwLock::default(),
            proofs: RwLock::default(),
        }
    }

    /// What handshakes show now.
    pub fn certificate(&self) -> Option<Certificate> {
        self.now.read().clone()
    }

    /// What handshakes show from now on.
    pub fn put(&self, certificate: Certificate) {
        *self.now.write() = Some(certificate);
    }

    /// Shows this to who asks for the proof of a name.
    ///
    /// # Errors
    ///
    /// The key is of a kind that TLS does not use.
    pub fn prove(
        &self,
        name: &str,
        proof: CertificateDer<'static>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<(), rustls::Error> {
        // Not as other certificates are read: it says on purpose what only the authority understands.
        let key = aws_lc_rs::sign::any_supported_type(key)?;
        let proof = Arc::new(CertifiedKey::new(vec![proof], key));
        self.proofs.write().insert(name.to_owned(), proof);
        Ok(())
    }

    /// Nobody needs the proof of a name any more.
    pub fn proven(&self, name: &str) {
        self.proofs.write().remove(name);
    }

    pub(crate) fn proof(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.proofs.read().get(name).cloned()
    }
}
