//! A client that speaks TLS.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};
use tempfile::TempDir;

use super::certificate::{Certificate, roots};
use super::{Gateway, MAX_WAIT, Message, read_body, read_head};

/// All versions of TLS that rustls speaks.
pub const ALL: &[&SupportedProtocolVersion] = rustls::ALL_VERSIONS;

/// Writes a certificate and its key as `NUMBER.pem` and `NUMBER.key`.
pub fn put(folder: &TempDir, number: usize, certificate: &Certificate) {
    let file = |end: &str| folder.path().join(format!("{number}.{end}"));
    std::fs::write(file("pem"), &certificate.pem).unwrap();
    std::fs::write(file("key"), &certificate.key).unwrap();
}

/// The configuration of a client that trusts these certificates.
pub fn trusting(
    certificates: &[&Certificate],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    showing(None, certificates, versions)
}

/// The configuration of a client that also has a certificate of its own, for servers that ask for one.
pub fn showing(
    own: Option<&Certificate>,
    certificates: &[&Certificate],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots(certificates));
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => config
            .with_client_auth_cert(vec![own.der.clone()], own.private())
            .unwrap(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A connection, and the server name that it asked for.
pub struct Tls(
    pub BufReader<StreamOwned<ClientConnection, TcpStream>>,
    String,
);

impl Tls {
    pub fn connect(gateway: &Gateway, name: &str, config: &Arc<ClientConfig>) -> Tls {
        Tls::to(gateway.address, name, config)
    }

    pub fn to(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Tls {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(config.clone(), server).unwrap();
        let stream = BufReader::new(StreamOwned::new(connection, socket));
        Tls(stream, name.to_owned())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub fn answer(&mut self) -> Message {
        let mut answer = read_head(&mut self.0).unwrap();
        read_body(&mut self.0, &mut answer).unwrap();
        answer
    }

    pub fn get(&mut self, path: &str) -> Message {
        self.try_get(path).unwrap()
    }

    /// Sends a GET and reads the response, where the handshake may fail.
    pub fn try_get(&mut self, path: &str) -> io::Result<Message> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.1);
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut answer = read_head(&mut self.0)?;
        read_body(&mut self.0, &mut answer)?;
        Ok(answer)
    }

    /// The certificate that the server has shown.
    pub fn shown(&self) -> CertificateDer<'static> {
        let connection = &self.0.get_ref().conn;
        connection.peer_certificates().unwrap()[0].clone()
    }
}
