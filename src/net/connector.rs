//! The TLS settings for connections to servers, and the handshakes with them. The verification of a server's
//! certificate cannot be turned off.

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
use super::tls::listener_tls::{HTTP1, HTTP2};
use super::tls::roots::{Roots, RootsError};

/// The TLS settings for connections to one server.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    /// The name that the server's certificate must have. A DNS name is also sent as SNI; an IP address is not.
    server_name: ServerName<'static>,
    /// The roots in `config`, kept to compare connectors.
    roots: Arc<RootCertStore>,
    /// The certificate of the gateway in `config`, kept to compare connectors.
    client_certificate: Option<Certificate>,
}

impl Connector {
    /// Makes settings for a server whose certificate must be for `server_name` and chain to `roots`. The gateway sends
    /// `client_certificate` if the server asks for one. The handshake offers only HTTP/2 if `uses_http2`, and otherwise
    /// only HTTP/1.1.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new(
        server_name: ServerName<'static>,
        roots: &Roots,
        client_certificate: Option<Certificate>,
        uses_http2: bool,
    ) -> Result<Connector, RootsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.0.clone());
        let mut config = match &client_certificate {
            Some(certificate) => {
                let resolver = SingleCertAndKey::from(certificate.certified_key.clone());
                config.with_client_cert_resolver(Arc::new(resolver))
            }
            None => config.with_no_client_auth(),
        };
        let protocol = if uses_http2 { HTTP2 } else { HTTP1 };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Connector {
            config: Arc::new(config),
            server_name,
            roots: roots.0.clone(),
            client_certificate,
        })
    }

    /// Offers no protocol (ALPN) in handshakes, as for Redis.
    pub fn without_alpn(mut self) -> Connector {
        Arc::make_mut(&mut self.config).alpn_protocols.clear();
        self
    }

    /// Parses a host into the name that the server's certificate must have.
    ///
    /// # Errors
    ///
    /// Fails if the host is neither a DNS name nor an IP address.
    pub fn parse_server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
        ServerName::try_from(host.to_owned())
    }

    /// Does the TLS handshake over a connected stream.
    ///
    /// # Errors
    ///
    /// The stream fails, or either side rejects the handshake.
    pub(super) async fn connect(&self, stream: Stream) -> io::Result<TlsStream<Corked>> {
        let connector = TlsConnector::from(self.config.clone());
        // Not corked: the server waits for the client's last message of the handshake.
        let stream = Corked::new(stream, false);
        connector.connect(self.server_name.clone(), stream).await
    }
}

/// Connectors are equal if they were made of equal parts. [`ClientConfig`] cannot be compared, but everything else in
/// it is the same for all connectors.
impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        self.server_name == other.server_name
            && self.client_certificate == other.client_certificate
            && self.config.alpn_protocols == other.config.alpn_protocols
            && self.roots.roots == other.roots.roots
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.server_name).finish()
    }
}
