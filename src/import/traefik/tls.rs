//! Certificates and options of TLS.

use std::collections::HashMap;

use super::fields::fields;
use super::names::Provider;
use crate::import::documents::InputValue;
use crate::import::report::{Concern, ImportReport, Origin};

/// Maximum number of certificates.
const MAX_CERTIFICATES: usize = 100;

/// What the dynamic configuration says of TLS.
#[derive(Debug, Default)]
pub struct TlsOptions {
    /// Paths of certificates and their keys; the default one first.
    pub certificates: Vec<(String, String)>,
    /// Whether clients are refused without a certificate, by the full name of the options.
    refuses_clients: HashMap<String, bool>,
}

impl TlsOptions {
    /// Whether these options may refuse clients without a certificate. So may options that are not known.
    pub fn may_refuse_clients(&self, name: &str) -> bool {
        // The options of this name hold by default, whatever their namespace.
        let is_default =
            |name: &str| name == "default@file" || name.ends_with("-default@kubernetescrd");
        match name {
            "" => (self.refuses_clients.iter()).any(|(name, refuses)| is_default(name) && *refuses),
            name => self.refuses_clients.get(name) != Some(&false),
        }
    }

    /// Reads options of TLS.
    pub fn add_option(
        &mut self,
        name: &str,
        value: InputValue<'_>,
        at: Origin,
        report: &mut ImportReport,
    ) {
        let text = format!("tls options {name}");
        let client_auth = value.get("clientAuth");
        let kind = client_auth.and_then(|auth| auth.text_of("clientAuthType"));
        let refuses = value.get("clientCA").is_some()
            || client_auth.is_some() && !matches!(kind, Some("NoClientCert" | "RequestClientCert"));
        match refuses {
            true => {
                let note = "it asks clients for certificates: routers with it answer 503. Write `client_roots` at the listener and \
                            `require: user`";
                report.left(at, Concern::Routing, &text, note);
            }
            false => report.left(
                at,
                Concern::Other,
                &text,
                "versions and ciphers of TLS are those of tollgate",
            ),
        }
        let is_refusing = self.refuses_clients.entry(name.to_owned()).or_default();
        *is_refusing |= refuses;
    }

    /// Reads `tls` of the dynamic configuration.
    pub fn read(&mut self, value: InputValue<'_>, report: &mut ImportReport) {
        for (field, at, value) in fields(value) {
            match field {
                "certificates" => {
                    for certificate in value.items() {
                        self.add_certificate(certificate, false, report);
                    }
                }
                "options" => {
                    for (name, at, options) in value.entries() {
                        self.add_option(&Provider::File.full_name(name, None), options, at, report);
                    }
                }
                "stores" => {
                    for (name, at, store) in value.entries() {
                        match store.get("defaultCertificate") {
                            Some(certificate) if name == "default" => {
                                self.add_certificate(certificate, true, report)
                            }
                            _ => report.left(
                                at,
                                Concern::Other,
                                &format!("store {name}"),
                                "it is not read",
                            ),
                        }
                    }
                }
                _ => report.left(at, Concern::Other, field, "it is not read"),
            }
        }
    }

    fn add_certificate(
        &mut self,
        value: InputValue<'_>,
        is_default: bool,
        report: &mut ImportReport,
    ) {
        let path = |field: &str| {
            let text = value.text_of(field)?;
            let is_path = !text.is_empty()
                && text.len() < 400
                && !text.contains("-----")
                && !text.chars().any(char::is_control);
            is_path.then(|| text.to_owned())
        };
        let text = format!("certificate {}", value.text_of("certFile").unwrap_or(""));
        let pair = path("certFile").zip(path("keyFile"));
        let Some(pair) = pair.filter(|_| self.certificates.len() < MAX_CERTIFICATES) else {
            let note = "it is no path of a file with one of its key; write `tls: { cert: FILE, key: FILE }`";
            return report.left(value.origin(), Concern::Routing, &text, note);
        };
        report.taken(value.origin(), Concern::Routing, &text, "");
        if !self.certificates.contains(&pair) {
            let index = if is_default {
                0
            } else {
                self.certificates.len()
            };
            self.certificates.insert(index, pair);
        }
    }
}
