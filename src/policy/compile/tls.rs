//! Certificates: of listeners, and what clients and servers are verified by.

use std::path::Path;

use super::super::collect::Cx;
use super::super::model::{self, GatewayConfig, Located};
use super::super::settings::{CertificateSource, ListenerSettings};
use super::super::source::Files;
use super::super::tree::SourcePlace;
use super::files::{hidden_file, named_file};
use crate::net::tls::acme;
use crate::net::tls::roots::RootsError;
use crate::net::{Certificate, Connector, Roots};
use crate::upstream::{Location, Server};

/// The certificates of the listeners, and the peers that they trust.
pub fn listeners(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<ListenerSettings> {
    let mut listeners = Vec::new();
    for Located {
        value: listener, ..
    } in &gateway.listen
    {
        let tls = listener.tls.iter();
        let roots = listener.client_roots.as_ref();
        listeners.push(ListenerSettings {
            address: listener.address.clone(),
            certificates: tls
                .filter_map(|tls| match tls {
                    model::CertificateConfig::Files(tls) => {
                        certificate(cx, files, base, tls).map(CertificateSource::Files)
                    }
                    model::CertificateConfig::Acme(acme) => {
                        acme_settings(cx, files, base, acme).map(CertificateSource::Acme)
                    }
                })
                .collect(),
            client_roots: roots.and_then(|file| named_roots(cx, files, base, file)),
            proxies: listener.proxies.clone(),
        });
    }
    listeners
}

fn certificate(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    tls: &model::CertificateFiles,
) -> Option<Certificate> {
    let chain = named_file(cx, files, base, &tls.cert, "the certificate");
    let key = hidden_file(cx, files, base, &tls.key, "the certificate's key");
    match Certificate::from_pem(&chain?, &key?) {
        Ok(certificate) => Some(certificate),
        Err(error) => {
            let file = if error.in_key() { &tls.key } else { &tls.cert };
            cx.error(file.place, format!("`{}`: {error}", file.value), None);
            None
        }
    }
}

/// The directory when no other is named.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

fn acme_settings(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    written: &model::AcmeConfig,
) -> Option<acme::Settings> {
    let roots = match &written.roots {
        Some(file) => named_roots(cx, files, base, file)?,
        None => {
            let place = written.challenge.place;
            system_roots(
                cx,
                place,
                "install `ca-certificates`, or name a file: `roots: ca.pem`",
            )?
        }
    };
    let names = written.names.iter().map(|name| name.value.clone());
    Some(acme::Settings {
        directory: written.directory.clone().unwrap_or(LETS_ENCRYPT.into()),
        roots,
        names: names.collect(),
        contact: written.contact.clone(),
        dir: base.join(written.dir.as_deref().unwrap_or("acme")),
        challenge: written.challenge.value,
    })
}

pub(super) fn system_roots(cx: &mut Cx, place: SourcePlace, help: &str) -> Option<Roots> {
    let roots = Roots::of_system();
    let told = |error: RootsError| cx.error(place, error.to_string(), Some(help.into()));
    roots.map_err(told).ok()
}

/// The certificates of a file.
pub(super) fn named_roots(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
) -> Option<Roots> {
    let pem = named_file(cx, files, base, file, "the certificates")?;
    let roots = Roots::from_pem(&pem);
    let told = |error| cx.error(file.place, format!("`{}`: {error}", file.value), None);
    roots.map_err(told).ok()
}

/// Builds the servers of all upstreams, and reads the authorities of the system once.
pub struct ServerBuilder<'a> {
    files: &'a dyn Files,
    base: &'a Path,
    system: Option<Roots>,
}

impl<'a> ServerBuilder<'a> {
    pub fn new(files: &'a dyn Files, base: &'a Path) -> ServerBuilder<'a> {
        ServerBuilder {
            files,
            base,
            system: None,
        }
    }

    /// The servers of one upstream.
    pub fn servers_of(
        &mut self,
        cx: &mut Cx,
        written: &model::UpstreamConfig,
    ) -> Option<Vec<Server>> {
        let tls = written.tls.as_ref();
        let first = written.servers.iter().find(|server| server.value.tls);
        let Some(first) = first else {
            if let Some(tls) = tls {
                let message = "`tls` is for servers that are written https://";
                let help = "write `https://` before those that speak TLS, or drop `tls`";
                cx.error(tls.place, message, Some(help.into()));
            }
            let plain = written
                .servers
                .iter()
                .map(|server| server_settings(&server.value, None));
            return Some(plain.collect());
        };
        let named = tls.and_then(|tls| tls.value.roots.as_ref());
        let own = tls.and_then(|tls| tls.value.own.as_ref());
        let own = own.map(|own| certificate(cx, self.files, self.base, own));
        let roots = match named {
            Some(file) => named_roots(cx, self.files, self.base, file),
            None => self.system(cx, first),
        };
        let (roots, own) = (roots?, own.map_or(Some(None), |own| own.map(Some))?);
        let mut servers = Vec::with_capacity(written.servers.len());
        for server in &written.servers {
            let connector = if server.value.tls {
                let name = tls.and_then(|tls| tls.value.name.as_ref());
                let http2 = written.http2;
                Some(connector(cx, server, name, &roots, own.clone(), http2)?)
            } else {
                None
            };
            servers.push(server_settings(&server.value, connector));
        }
        Some(servers)
    }

    fn system(&mut self, cx: &mut Cx, server: &Located<model::ServerConfig>) -> Option<Roots> {
        if self.system.is_none() {
            let help = "install `ca-certificates`, or name a file: `tls: { roots: ca.pem }`";
            self.system = system_roots(cx, server.place, help);
        }
        self.system.clone()
    }
}

fn connector(
    cx: &mut Cx,
    server: &Located<model::ServerConfig>,
    name: Option<&Located<String>>,
    roots: &Roots,
    own: Option<Certificate>,
    http2: bool,
) -> Option<Connector> {
    let (text, place) = match (name, &server.value.location) {
        (Some(name), _) => (&*name.value, name.place),
        (None, Location::Host(host, _)) => (&**host, server.place),
        // No TLS is spoken to it.
        (None, Location::Unix(_)) => ("localhost", server.place),
    };
    let made = match Connector::name(text) {
        Ok(name) => Connector::new(name, roots, own, http2).map_err(|error| error.to_string()),
        Err(_) => Err(format!("`{text}` cannot be the name in a certificate")),
    };
    made.map_err(|message| cx.error(place, message, None)).ok()
}

fn server_settings(server: &model::ServerConfig, tls: Option<Connector>) -> Server {
    Server {
        location: server.location.clone(),
        tls,
        weight: server.weight,
    }
}
