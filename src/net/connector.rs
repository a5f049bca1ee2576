//! TLS handshakes with servers. The verification of their certificates cannot be turned off.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::corked::Corked;
use super::stream::Stream;
use super::tls::certificate::Certificate;
use super::tls::config::{HTTP1, HTTP2};
use super::tls::roots::{Roots, RootsError};

/// The TLS settings for connections to one server.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    roots: Arc<RootCertStore>,
    /// The certificate of the gateway, for servers that ask for one.
    own: Option<Certificate>,
}

impl Connector {
    /// Makes settings for a server whose certificate is for `name` and chains to `roots`. `own` is the certificate that
    /// the gateway shows. The handshake offers only HTTP/2 if `http2` holds, and else only HTTP/1.1.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new(
        name: ServerName<'static>,
        roots: &Roots,
        own: Option<Certificate>,
        http2: bool,
    ) -> Result<Connector, RootsError> {
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
        let protocol = if http2 { HTTP2 } else { HTTP1 };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Connector {
            config: Arc::new(config),
            name,
            roots: roots.0.clone(),
            own,
        })
    }

    /// Offers no protocol in handshakes, as for Redis.
    pub fn without_protocol(mut self) -> Connector {
        Arc::make_mut(&mut self.config).alpn_protocols.clear();
        self
    }

    /// Converts a host, a DNS name or an IP address, into the name that the server's certificate must have.
    pub fn server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
        ServerName::try_from(host.to_owned())
    }

    pub(super) async fn connect(&self, stream: Stream) -> io::Result<TlsStream<Corked>> {
        let connector = TlsConnector::from(self.config.clone());
        // Not corked: the server waits for the client's last message of the handshake.
        let stream = Corked::new(stream, false);
        connector.connect(self.name.clone(), stream).await
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        self.name == other.name
            && self.own == other.own
            && self.config.alpn_protocols == other.config.alpn_protocols
            && self.roots.roots == other.roots.roots
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.name).finish()
    }
}
