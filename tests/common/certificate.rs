//! Certificates that tests make for themselves.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate that is its own authority.
pub struct Certificate {
    pub pem: String,
    pub key: String,
    pub der: CertificateDer<'static>,
}

impl Certificate {
    /// For these names.
    pub fn of(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        Certificate {
            pem: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
            der: made.cert.der().clone(),
        }
    }

    /// Its private key.
    pub fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// Believes these certificates.
pub fn roots(certificates: &[&Certificate]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.der.clone()).unwrap();
    }
    roots
}
