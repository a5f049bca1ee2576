//! How servers are spoken to under TLS. That their certificates are verified cannot be turned off.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::corked::Corked;
use super::tls::certificate;
use super::tls::config::HTTP2;
use super::{Certificate, Stream};

/// Whom to believe that a server is who it says.
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

/// Why there is nobody to believe.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
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
    pub fn from_pem(pem: &[u8]) -> Result<Roots, Error> {
        let mut store = RootCertStore::empty();
        let unreadable = |error: &dyn fmt::Display| Error::Unreadable(error.to_string());
        let mut read = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            let added = store.add(certificate);
            added.map_err(|error| unreadable(&error))?;
            read += 1;
        }
        if store.is_empty() {
            return Err(Error::None);
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
    pub fn of_system() -> Result<Roots, Error> {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map(|error| format!(": {error}"));
            return Err(Error::System(why.unwrap_or_default()));
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

/// Shakes hands with one server.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    roots: Arc<RootCertStore>,
    own: Option<Certificate>,
}

impl Connector {
    /// Believes `roots` that a server is `name`; shows `own` to servers that ask who calls. Speaks HTTP/2 or
    /// HTTP/1.1, and nothing else.
    pub fn new(
        name: ServerName<'static>,
        roots: &Roots,
        own: Option<Certificate>,
        http2: bool,
    ) -> Result<Connector, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.0.clone());
        let mut config = match &own {
            Some(own) => {
                let resolver = SingleCertAndKey::from(own.certified.clone());
                config.with_client_cert_resolver(Arc::new(resolver))
            }
            None => config.with_no_client_auth(),
        };
        let protocol = if http2 { HTTP2 } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Connector {
            config: Arc::new(config),
            name,
            roots: roots.0.clone(),
            own,
        })
    }

    /// The same for a protocol that has no name in handshakes.
    pub fn without_protocol(mut self) -> Connector {
        Arc::make_mut(&mut self.config).alpn_protocols.clear();
        self
    }

    /// The name in a certificate for a host: a DNS name or an address.
    pub fn name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
        ServerName::try_from(host.to_owned())
    }

    pub(super) async fn connect(&self, stream: Stream) -> io::Result<TlsStream<Corked>> {
        let connector = TlsConnector::from(self.config.clone());
        // A client's last message of a handshake is awaited.
        let stream = Corked::new(stream, false);
        connector.connect(self.name.clone(), stream).await
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        let same = self.name == other.name
            && self.own == other.own
            && self.config.alpn_protocols == other.config.alpn_protocols;
        same && self.roots.roots == other.roots.roots
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.name).finish()
    }
}
