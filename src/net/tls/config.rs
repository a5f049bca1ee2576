//! What a listener that speaks TLS offers: TLS 1.2 and 1.3, the certificate that the client asks for by
//! name, and session tickets whose keys change by themselves.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig};
use smallvec::SmallVec;

use super::certificate::Certificate;
use super::issued::Issued;
use super::roots::Roots;

/// What the handshakes of one listener are made with; a reload makes a new one.
#[derive(Clone, Debug)]
pub struct Offer {
    usual: Arc<ServerConfig>,
    /// For clients whose processors do not know AES.
    chacha: Arc<ServerConfig>,
    certificates: Arc<ByName>,
}

impl Offer {
    /// For the client that says so. As OpenSSL's servers do that prioritize ChaCha20: a client that names it first
    /// gets it. Others get AES with keys of 128 bits where they take it: processors have instructions for the hash of
    /// those suites. The larger hash would be a seventh of a handshake.
    pub fn config(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        let first = hello.cipher_suites().first();
        match first.is_some_and(|suite| is_chacha(*suite)) {
            true => self.chacha.clone(),
            false => self.usual.clone(),
        }
    }

    /// Whether the certificate for clients that ask for one name is for another too.
    pub fn covers(&self, asked: &str, other: &str) -> bool {
        let is_for = |name: &String| match name.strip_prefix("*.") {
            Some(parent) => other
                .split_once('.')
                .is_some_and(|(_, rest)| rest == parent),
            None => name == other,
        };
        let shown = self.certificates.find(Some(asked));
        shown.iter().any(|shown| shown.names().iter().any(is_for))
    }
}

fn is_chacha(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

fn is_of_128_bits(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// Keys of session tickets. All listeners share them and they outlive reloads, so that clients
/// resume their sessions.
pub type Tickets = Arc<dyn ProducesTickets>;

/// What HTTP/2 is called in a handshake.
pub const HTTP2: &[u8] = b"h2";

/// Keys that rustls changes every six hours.
pub fn tickets() -> Result<Tickets, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

/// What a handshake is called in which an authority asks for a proof.
pub const PROOF: &[u8] = b"acme-tls/1";

/// A certificate that may be shown.
#[derive(Clone, Debug)]
pub enum OfferedCertificate {
    /// Always the same.
    Fixed(Certificate),
    /// The one that there is.
    Issued(Arc<Issued>),
}

impl OfferedCertificate {
    /// The certificate that would be shown now.
    pub fn certificate(&self) -> Option<Certificate> {
        match self {
            OfferedCertificate::Fixed(certificate) => Some(certificate.clone()),
            OfferedCertificate::Issued(issued) => issued.certificate(),
        }
    }

    fn names(&self) -> &[String] {
        match self {
            OfferedCertificate::Fixed(certificate) => &certificate.names,
            OfferedCertificate::Issued(issued) => &issued.names,
        }
    }

    fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.certificate().map(|certificate| certificate.certified)
    }

    fn proof(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        match self {
            OfferedCertificate::Fixed(_) => None,
            OfferedCertificate::Issued(issued) => issued.proof(name),
        }
    }
}

/// An offer of these certificates. The first is for clients that name no host or one that no
/// certificate is for. With `clients`, those that show a certificate must have theirs from there.
pub fn offer(
    certificates: &[OfferedCertificate],
    clients: Option<&Roots>,
    tickets: Tickets,
) -> Result<Offer, rustls::Error> {
    let resolver = Arc::new(ByName::new(certificates));
    let by = |before: fn(CipherSuite) -> bool| {
        let (resolver, tickets) = (resolver.clone(), tickets.clone());
        config(certificates, clients, resolver, tickets, before)
    };
    Ok(Offer {
        usual: by(is_of_128_bits)?,
        chacha: by(is_chacha)?,
        certificates: resolver.clone(),
    })
}

/// One with these suites before the others.
fn config(
    certificates: &[OfferedCertificate],
    clients: Option<&Roots>,
    resolver: Arc<ByName>,
    tickets: Tickets,
    before: fn(CipherSuite) -> bool,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut provider = aws_lc_rs::default_provider();
    let suites = &mut provider.cipher_suites;
    suites.sort_by_key(|suite| !before(suite.suite()));
    let provider = Arc::new(provider);
    let versions = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let mut config = match clients {
        None => versions.with_no_client_auth(),
        Some(roots) => versions.with_client_cert_verifier(roots.verifier(provider)?),
    }
    .with_cert_resolver(resolver);
    config.ignore_client_order = true;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    let proves = |shown: &OfferedCertificate| matches!(shown, OfferedCertificate::Issued(_));
    if certificates.iter().any(proves) {
        config.alpn_protocols.push(PROOF.to_vec());
    }
    if clients.is_none() {
        config.ticketer = tickets;
        // Each resumed session brings the next; a second one costs every handshake, and few clients use it.
        config.send_tls13_tickets = 1;
    } else {
        // A session that is resumed would bring a certificate that nobody has verified by these roots.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Certificates by the name that clients ask for.
#[derive(Debug, Default)]
struct ByName {
    exact: HashMap<String, Vec<OfferedCertificate>>,
    /// By what stands behind `*.`.
    wildcard: HashMap<String, Vec<OfferedCertificate>>,
    default: Vec<OfferedCertificate>,
}

impl ByName {
    fn new(certificates: &[OfferedCertificate]) -> ByName {
        let mut all = ByName::default();
        for shown in certificates {
            let names = shown.names();
            if all.default.is_empty() || names == certificates[0].names() {
                all.default.push(shown.clone());
            }
            for name in names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut all.wildcard, parent),
                    None => (&mut all.exact, name.as_str()),
                };
                map.entry(name.to_owned()).or_default().push(shown.clone());
            }
        }
        all
    }

    /// Those for `name`: an exact one before a wildcard, which stands for one label.
    fn find(&self, name: Option<&str>) -> &[OfferedCertificate] {
        let found = name.and_then(|name| {
            let name = plain(name);
            self.exact.get(&name).or_else(|| {
                let (_, parent) = name.split_once('.')?;
                self.wildcard.get(parent)
            })
        });
        found.unwrap_or(&self.default)
    }
}

/// A name as certificates are found by it.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl ResolvesServerCert for ByName {
    /// Of several for one name, the first whose key the client can verify.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.find(hello.server_name());
        if hello
            .alpn()
            .is_some_and(|mut offers| offers.all(|offer| offer == PROOF))
        {
            let name = plain(hello.server_name()?);
            return found.iter().find_map(|shown| shown.proof(&name));
        }
        let keys: SmallVec<[_; 2]> = found.iter().filter_map(OfferedCertificate::key).collect();
        let schemes = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        keys.iter().find(fits).or(keys.first()).cloned()
    }
}
