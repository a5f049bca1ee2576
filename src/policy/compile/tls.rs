//! Compiles listeners and servers, with everything about TLS: certificates, ACME settings, and the authorities that
//! verify peers. It reads certificates and keys, but connects to nothing.

use std::path::Path;

use super::super::context::LoadContext;
use super::super::decode::{AcmeConfig, GatewayConfig, ServerConfig, UpstreamConfig};
use super::super::settings::{CertificateSource, ListenerRole, ListenerSettings};
use super::super::source::Files;
use super::super::tree::{Located, SourceLocation};
use super::action::listener_redirect;
use super::files::{read_named_file, read_secret_file};
use crate::net::tls::acme;
use crate::net::tls::roots::RootsError;
use crate::net::{Certificate, Connector, Roots};
use crate::upstream::{Location, Server};

/// The URL of the ACME directory if the gateway file names none: Let's Encrypt's.
const LETS_ENCRYPT_URL: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The folder of ACME accounts and certificates if the gateway file names none, relative to that file.
const DEFAULT_ACME_FOLDER: &str = "acme";

/// Compiles the listeners, with the certificates and authorities in the files that they name. Certificates and
/// authorities with a mistake are reported and left out. So are listeners whose address the decoder has reported.
pub fn compile_listeners(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<ListenerSettings> {
    let mut listeners = Vec::new();
    for listener in &gateway.listen {
        let Some(address) = &listener.address else {
            continue;
        };
        let mut certificates = Vec::new();
        for source in &listener.tls {
            certificates.extend(match (&source.acme, &source.cert, &source.key) {
                (Some(acme), ..) => {
                    compile_acme(cx, files, base, acme).map(CertificateSource::Acme)
                }
                (None, Some(cert), Some(key)) => {
                    read_certificate(cx, files, base, cert, key).map(CertificateSource::Files)
                }
                _ => None,
            });
        }
        let roots = listener.client_roots.as_ref();
        listeners.push(ListenerSettings {
            name: listener.name.as_ref().map(|name| name.value.clone()),
            address: address.value.clone(),
            certificates,
            client_roots: roots.and_then(|file| read_named_roots(cx, files, base, file)),
            hsts: listener.hsts.map(|duration| {
                // Part of a second must not become 0, which ends it.
                let seconds = duration.value.as_millis().div_ceil(1000);
                format!("max-age={seconds}").into()
            }),
            http3: listener.http3.is_some_and(|http3| http3.value),
            redirect: listener.redirect.map(|_| listener_redirect(gateway)),
            proxies: listener.proxy_protocol.clone(),
            role: ListenerRole::Proxy,
        });
    }
    let addresses = gateway.decide.addresses();
    listeners.extend(addresses.map(|(address, role)| ListenerSettings {
        name: None,
        address: address.value.clone(),
        certificates: Vec::new(),
        client_roots: None,
        hsts: None,
        http3: false,
        redirect: None,
        proxies: Vec::new(),
        role,
    }));
    listeners
}

/// Reads a certificate chain and its key. `None` if one cannot be read or they do not fit together, which is reported.
fn read_certificate(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    cert: &Located<String>,
    key: &Located<String>,
) -> Option<Certificate> {
    let chain_pem = read_named_file(cx, files, base, cert, "the certificate");
    let key_pem = read_secret_file(cx, files, base, key, "the certificate's key");
    match Certificate::from_pem(&chain_pem?, &key_pem?) {
        Ok(certificate) => Some(certificate),
        Err(error) => {
            let file = if error.is_about_key() { key } else { cert };
            cx.error(file.location, format!("`{}`: {error}", file.value), None);
            None
        }
    }
}

/// Compiles the settings of an ACME certificate. `None` if the authorities that verify the directory cannot be loaded,
/// which is reported.
fn compile_acme(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    Located {
        value: written,
        location,
    }: &Located<AcmeConfig>,
) -> Option<acme::Settings> {
    let roots = match &written.roots {
        Some(file) => read_named_roots(cx, files, base, file)?,
        None => {
            let help = "install `ca-certificates`, or name a file: `roots: ca.pem`";
            let location = written
                .challenge
                .map_or(*location, |challenge| challenge.location);
            load_system_roots(cx, location, help)?
        }
    };
    let folder = written.dir.as_ref();
    let domains = written.domains.iter();
    Some(acme::Settings {
        directory_url: written.directory.clone().unwrap_or(LETS_ENCRYPT_URL.into()),
        roots,
        names: domains.map(|domain| domain.value.clone()).collect(),
        contact_email: written.contact.clone(),
        folder: base.join(folder.map_or(DEFAULT_ACME_FOLDER, |folder| &folder.value)),
        challenge: written.challenge(),
    })
}

/// Loads the authorities of the operating system. `None` if none can be read, which is reported at `location` with
/// `help`.
pub(super) fn load_system_roots(
    cx: &mut LoadContext,
    location: SourceLocation,
    help: &str,
) -> Option<Roots> {
    let report_error = |error: RootsError| cx.error(location, error.to_string(), Some(help.into()));
    Roots::from_system().map_err(report_error).ok()
}

/// Reads the authorities in a file. `None` if the file cannot be read or has a mistake, which is reported.
pub(super) fn read_named_roots(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
) -> Option<Roots> {
    let pem = read_named_file(cx, files, base, file, "the certificates")?;
    let report_error = |error| cx.error(file.location, format!("`{}`: {error}", file.value), None);
    Roots::from_pem(&pem).map_err(report_error).ok()
}

/// Compiles the servers of one upstream after the other, and loads the system's authorities once for all of them.
pub struct ServerCompiler<'a> {
    files: &'a dyn Files,
    base: &'a Path,
    /// The authorities of the system; `None` until an upstream needs them, or if they cannot be loaded.
    system_roots: Option<Roots>,
}

impl<'a> ServerCompiler<'a> {
    pub fn new(files: &'a dyn Files, base: &'a Path) -> ServerCompiler<'a> {
        ServerCompiler {
            files,
            base,
            system_roots: None,
        }
    }

    /// Compiles the servers of one upstream. Returns `None` if the TLS settings of a server have a mistake, which is
    /// reported. The section `tls` without a server that uses TLS is reported too, but then the servers are returned.
    pub fn compile_servers(
        &mut self,
        cx: &mut LoadContext,
        written: &UpstreamConfig,
    ) -> Option<Vec<Server>> {
        let tls = written.tls.as_ref();
        let first_with_tls = written.servers.iter().find(|server| server.value.tls);
        let Some(first_with_tls) = first_with_tls else {
            if let Some(tls) = tls {
                let message = "`tls` is for servers that are written https://";
                let help = "write `https://` before those that speak TLS, or drop `tls`";
                cx.error(tls.location, message, Some(help.into()));
            }
            let servers = written
                .servers
                .iter()
                .map(|server| compile_server(&server.value, None));
            return Some(servers.collect());
        };
        let roots_file = tls.and_then(|tls| tls.value.roots.as_ref());
        let pem_files = tls.and_then(|tls| tls.value.cert.as_ref().zip(tls.value.key.as_ref()));
        // Both the certificate and the roots are read before either can end the function, so that mistakes in both are
        // reported.
        let client_certificate =
            pem_files.map(|(cert, key)| read_certificate(cx, self.files, self.base, cert, key));
        let roots = match roots_file {
            Some(file) => read_named_roots(cx, self.files, self.base, file),
            None => self.system_roots(cx, first_with_tls),
        };
        let (roots, client_certificate) = (
            roots?,
            client_certificate.map_or(Some(None), |certificate| certificate.map(Some))?,
        );
        let mut servers = Vec::with_capacity(written.servers.len());
        for server in &written.servers {
            let connector = if server.value.tls {
                let name = tls.and_then(|tls| tls.value.name.as_ref());
                let http2 = written.http2;
                Some(compile_connector(
                    cx,
                    server,
                    name,
                    &roots,
                    client_certificate.clone(),
                    http2,
                )?)
            } else {
                None
            };
            servers.push(compile_server(&server.value, connector));
        }
        Some(servers)
    }

    /// The authorities of the system. `None` if they cannot be loaded, which is reported at `server`, the first that
    /// needs them.
    fn system_roots(
        &mut self,
        cx: &mut LoadContext,
        server: &Located<ServerConfig>,
    ) -> Option<Roots> {
        if self.system_roots.is_none() {
            let help = "install `ca-certificates`, or name a file: `tls: { roots: ca.pem }`";
            self.system_roots = load_system_roots(cx, server.location, help);
        }
        self.system_roots.clone()
    }
}

/// Compiles the TLS settings of connections to a server. `name` is the name in its certificate if it differs from the
/// host, and `client_certificate` is what the gateway presents. `None` for a mistake, which is reported at the name, or
/// at the server without one.
fn compile_connector(
    cx: &mut LoadContext,
    server: &Located<ServerConfig>,
    name: Option<&Located<String>>,
    roots: &Roots,
    client_certificate: Option<Certificate>,
    http2: bool,
) -> Option<Connector> {
    let (text, location) = match (name, &server.value.location) {
        (Some(name), _) => (&*name.value, name.location),
        (None, Location::Host(host, _)) => (&**host, server.location),
        // The gateway connects to Unix sockets without TLS, so this name is never used.
        (None, Location::Unix(_)) => ("localhost", server.location),
    };
    let connector = match Connector::parse_server_name(text) {
        Ok(name) => Connector::new(name, roots, client_certificate, http2)
            .map_err(|error| error.to_string()),
        Err(_) => Err(format!("`{text}` cannot be the name in a certificate")),
    };
    connector
        .map_err(|message| cx.error(location, message, None))
        .ok()
}

fn compile_server(server: &ServerConfig, tls: Option<Connector>) -> Server {
    Server {
        location: server.location.clone(),
        tls,
        weight: server.weight,
    }
}
