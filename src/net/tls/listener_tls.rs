//! The TLS settings of a listener, [`ListenerTls`]: versions 1.2 and 1.3, certificates by the client's server name, the
//! order of cipher suites, protocols (ALPN), client certificates, and session tickets.
//!
//! A reload makes new settings. Handshakes themselves are in `net/socket.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig};
use smallvec::SmallVec;

use super::certificate::Certificate;
use super::issued_certificate::IssuedCertificate;
use super::ja4::is_grease;
use super::roots::Roots;
use crate::net::quic;

/// The TLS settings of a listener.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// The settings that prefer AES with 128 bits.
    aes_first: Arc<ServerConfig>,
    /// The settings that prefer ChaCha20, for clients whose processors have no instructions for AES.
    chacha_first: Arc<ServerConfig>,
    /// The settings for QUIC; `None` if the listener does not serve HTTP/3.
    quic: Option<Arc<quinn::ServerConfig>>,
    /// The certificates that the listener may show.
    certificates: Arc<CertificatesByName>,
}

impl ListenerTls {
    /// The settings for QUIC; `None` if the listener does not serve HTTP/3.
    pub fn quic(&self) -> Option<&Arc<quinn::ServerConfig>> {
        self.quic.as_ref()
    }

    /// Chooses the settings for a client: ChaCha20 first if that is the client's first cipher suite, as OpenSSL does
    /// with `PrioritizeChaCha`.
    ///
    /// Other clients get AES with 128 bits if they support it. Its suites hash with SHA-256, for which processors have
    /// instructions. SHA-384, the hash of AES with 256 bits, would take a seventh of the handshake's time.
    pub fn config(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        match prefers_chacha(hello.cipher_suites()) {
            true => self.chacha_first.clone(),
            false => self.aes_first.clone(),
        }
    }

    /// Whether a certificate that clients may get for `server_name` is for `other_host` too, which must be in lower case.
    pub fn covers(&self, server_name: &str, other_host: &str) -> bool {
        let covers_other_host = |name: &String| match name.strip_prefix("*.") {
            Some(parent) => other_host
                .split_once('.')
                .is_some_and(|(_, parent_host)| parent_host == parent),
            None => name == other_host,
        };
        let offered = self.certificates.find(Some(server_name));
        offered
            .iter()
            .any(|certificate| certificate.names().iter().any(covers_other_host))
    }
}

/// Whether the first cipher suite is one with ChaCha20. Chrome puts a GREASE value in front of its suites.
fn prefers_chacha(suites: &[CipherSuite]) -> bool {
    let is_suite = |suite: &&CipherSuite| !is_grease(u16::from(**suite));
    let first_suite = suites.iter().find(is_suite);
    first_suite.is_some_and(|suite| is_chacha(*suite))
}

fn is_chacha(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// The keys of session tickets. They outlive reloads, so that clients can resume sessions. All listeners share them,
/// except those that verify client certificates, which issue no tickets.
pub type TicketKeys = Arc<dyn ProducesTickets>;

/// The ALPN name of HTTP/3.
const HTTP3: &[u8] = b"h3";

/// The ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";

/// The ALPN name of HTTP/1.1.
pub const HTTP1: &[u8] = b"http/1.1";

/// The ALPN name of a handshake in which an ACME directory reads the proof of a name: RFC 8737.
pub const ACME_CHALLENGE: &[u8] = b"acme-tls/1";

/// Makes random ticket keys, which rustls replaces with others every six hours.
///
/// # Errors
///
/// Fails if the system has no randomness.
pub fn new_ticket_keys() -> Result<TicketKeys, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

/// A certificate that a listener may show.
#[derive(Clone, Debug)]
pub enum OfferedCertificate {
    /// A certificate from a file.
    Fixed(Certificate),
    /// A certificate that is issued and renewed while the gateway runs.
    Issued(Arc<IssuedCertificate>),
}

impl OfferedCertificate {
    /// The certificate that a handshake would show now; `None` until one is issued.
    pub fn certificate(&self) -> Option<Certificate> {
        match self {
            OfferedCertificate::Fixed(certificate) => Some(certificate.clone()),
            OfferedCertificate::Issued(issued) => issued.certificate(),
        }
    }

    /// The host names that the certificate is for, in lower case.
    fn names(&self) -> &[String] {
        match self {
            OfferedCertificate::Fixed(certificate) => &certificate.names,
            OfferedCertificate::Issued(issued) => &issued.names,
        }
    }

    /// The chain and key of [`OfferedCertificate::certificate`].
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.certificate()
            .map(|certificate| certificate.certified_key)
    }

    /// The certificate that proves `name` to an ACME directory; `None` unless its order is open.
    fn proof(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        match self {
            OfferedCertificate::Fixed(_) => None,
            OfferedCertificate::Issued(issued) => issued.proof(name),
        }
    }
}

/// Makes the TLS settings of a listener with these certificates. Clients that send no server name, or one that no
/// certificate is for, get the first certificate, or another one for exactly its names. With `client_roots`, the
/// certificates of clients that show one are verified. `has_http3` says whether clients may connect by QUIC too.
///
/// # Errors
///
/// Fails if TLS cannot be set up.
pub fn build_listener_tls(
    certificates: &[OfferedCertificate],
    client_roots: Option<&Roots>,
    ticket_keys: TicketKeys,
    has_http3: bool,
) -> Result<ListenerTls, rustls::Error> {
    let resolver = Arc::new(CertificatesByName::new(certificates));
    let config_preferring = |is_preferred: fn(CipherSuite) -> bool| {
        let (resolver, ticket_keys) = (resolver.clone(), ticket_keys.clone());
        build_config(
            certificates,
            client_roots,
            resolver,
            ticket_keys,
            is_preferred,
        )
    };
    let aes_first = config_preferring(is_aes_128)?;
    let quic = has_http3.then(|| quic::build_settings(quic_config(&aes_first)));
    Ok(ListenerTls {
        aes_first,
        chacha_first: config_preferring(is_chacha)?,
        quic: quic.transpose()?,
        certificates: resolver.clone(),
    })
}

/// Makes settings that choose preferred cipher suites before others.
fn build_config(
    certificates: &[OfferedCertificate],
    client_roots: Option<&Roots>,
    resolver: Arc<CertificatesByName>,
    ticket_keys: TicketKeys,
    is_preferred: fn(CipherSuite) -> bool,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut provider = aws_lc_rs::default_provider();
    let suites = &mut provider.cipher_suites;
    suites.sort_by_key(|suite| !is_preferred(suite.suite()));
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let mut config = match client_roots {
        None => builder.with_no_client_auth(),
        Some(roots) => builder.with_client_cert_verifier(roots.client_verifier(provider)?),
    }
    .with_cert_resolver(resolver);
    config.ignore_client_order = true;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    let is_issued =
        |certificate: &OfferedCertificate| matches!(certificate, OfferedCertificate::Issued(_));
    if certificates.iter().any(is_issued) {
        config.alpn_protocols.push(ACME_CHALLENGE.to_vec());
    }
    if client_roots.is_none() {
        config.ticketer = ticket_keys;
        // Each resumed session gets a new ticket. A second ticket would cost time in every handshake, and few clients use
        // it.
        config.send_tls13_tickets = 1;
    } else {
        // A resumed session would bring back a certificate that was verified by other roots, before a reload.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// The settings of handshakes by QUIC, which are those over TCP but for the protocol. QUIC shows no hello before the
/// handshake, so the client's own order of cipher suites decides.
fn quic_config(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![HTTP3.to_vec()];
    config.ignore_client_order = false;
    config
}

/// The certificates of a listener, by the server names for which they are shown.
#[derive(Debug, Default)]
struct CertificatesByName {
    /// The certificates for a name without a wildcard, by the name.
    exact: HashMap<String, Vec<OfferedCertificate>>,
    /// The certificates for a wildcard, by the part of the name after `*.`.
    wildcard: HashMap<String, Vec<OfferedCertificate>>,
    /// The certificates for all other server names: those with the same names as the first one.
    default: Vec<OfferedCertificate>,
}

impl CertificatesByName {
    fn new(certificates: &[OfferedCertificate]) -> CertificatesByName {
        let mut by_name = CertificatesByName::default();
        for certificate in certificates {
            let names = certificate.names();
            if by_name.default.is_empty() || names == certificates[0].names() {
                by_name.default.push(certificate.clone());
            }
            for name in names {
                let (map, key) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut by_name.wildcard, parent),
                    None => (&mut by_name.exact, name.as_str()),
                };
                let certificates_of_name = map.entry(key.to_owned()).or_default();
                certificates_of_name.push(certificate.clone());
            }
        }
        by_name
    }

    /// Finds the certificates for a server name. An exact name comes before a wildcard, which stands for one label:
    /// RFC 9525 section 6.3.
    fn find(&self, server_name: Option<&str>) -> &[OfferedCertificate] {
        let certificates = server_name.and_then(|name| {
            let name = normalize_name(name);
            self.exact.get(&name).or_else(|| {
                let (_, parent) = name.split_once('.')?;
                self.wildcard.get(parent)
            })
        });
        certificates.unwrap_or(&self.default)
    }
}

/// Removes a final dot from a server name, and converts the name to lower case.
fn normalize_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl ResolvesServerCert for CertificatesByName {
    /// Chooses among the certificates for the client's server name: the first whose key the client can verify, or else
    /// the first. For the handshake of an ACME challenge, chooses the proof of the name. With `None`, while nothing is
    /// issued or proven, the handshake fails.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.find(hello.server_name());
        let is_acme_challenge = hello
            .alpn()
            .is_some_and(|mut protocols| protocols.all(|protocol| protocol == ACME_CHALLENGE));
        if is_acme_challenge {
            let name = normalize_name(hello.server_name()?);
            return certificates
                .iter()
                .find_map(|certificate| certificate.proof(&name));
        }
        let keys = certificates
            .iter()
            .filter_map(OfferedCertificate::certified_key);
        let keys: SmallVec<[_; 2]> = keys.collect();
        let schemes = hello.signature_schemes();
        let can_be_verified = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        keys.iter().find(can_be_verified).or(keys.first()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use rustls::CipherSuite::{
        TLS13_AES_128_GCM_SHA256 as AES, TLS13_CHACHA20_POLY1305_SHA256 as CHACHA, Unknown,
    };

    use super::*;

    /// A client that sends GREASE first got AES, although it has no instructions for it.
    #[test]
    fn values_of_grease_are_no_suites() {
        assert!(prefers_chacha(&[Unknown(0x6a6a), CHACHA, AES]));
        assert!(!prefers_chacha(&[Unknown(0x6a6a), AES, CHACHA]));
        assert!(!prefers_chacha(&[Unknown(0x6a6a)]));
        assert!(!prefers_chacha(&[Unknown(0x6a6b), CHACHA]));
    }
}
