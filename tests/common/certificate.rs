//! Certificates that tests make for themselves.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
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
    /// Makes a certificate for these names.
    pub fn of(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        Certificate {
            pem: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
            der: made.cert.der().clone(),
        }
    }

    /// The private key, as rustls takes it.
    pub fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// A certificate authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { pem, issuer }
    }

    /// Issues a certificate for this common name. `set` may change all other parameters.
    pub fn issue(&self, name: &str, set: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        set(&mut params);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        Certificate {
            pem: made.pem(),
            key: key.serialize_pem(),
            der: made.der().clone(),
        }
    }
}

/// A root store with these certificates.
pub fn roots(certificates: &[&Certificate]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.der.clone()).unwrap();
    }
    roots
}
