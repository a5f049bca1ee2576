//! The TLS settings of each listener. A reload rebuilds them and keeps certificates that ACME has issued.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::net::tls::acme::{CertificateManager, ManagedCertificate};
use crate::net::tls::config;
use crate::net::tls::config::{OfferedCertificate, Tickets};
use crate::policy::{CertificateSource, ListenerSettings, Process, Ruleset};
use crate::serve::worker::listen::RunningListener;

/// The settings of each listener by `ruleset`.
///
/// A listener keeps its settings of `before` if `ruleset` does not name it, or would switch TLS on or off: both take
/// effect only with a restart.
pub fn listeners(
    process: &Process,
    ruleset: &Ruleset,
    tickets: &Tickets,
    manager: &CertificateManager,
    before: &[RunningListener],
) -> Result<Arc<[RunningListener]>, rustls::Error> {
    let mut listeners = Vec::new();
    for (place, listen) in process.listen.iter().enumerate() {
        let named = |listener: &&ListenerSettings| {
            listener.address == listen.address && listener.certificates.is_empty() != listen.tls
        };
        let same = ruleset.listeners.get(place).filter(named);
        let settings = same.or_else(|| ruleset.listeners.iter().find(named));
        let Some(settings) = settings else {
            listeners.extend(before.get(place).cloned());
            continue;
        };
        let mut managed = Vec::new();
        let certificates = settings.certificates.iter().map(|source| match source {
            CertificateSource::Files(certificate) => OfferedCertificate::Fixed(certificate.clone()),
            CertificateSource::Acme(settings) => {
                let certificate = manager.certificate(settings);
                let issued = certificate.issued.clone();
                managed.push(certificate);
                OfferedCertificate::Issued(issued)
            }
        });
        let certificates: Vec<OfferedCertificate> = certificates.collect();
        let roots = settings.client_roots.as_ref();
        let offer = || config::offer(&certificates, roots, tickets.clone());
        listeners.push(RunningListener {
            offer: listen.tls.then(offer).transpose()?,
            certificates,
            managed,
            proxies: settings.proxies.clone(),
        });
    }
    Ok(listeners.into())
}

/// Renews the ACME certificates of the listeners, and no others.
pub fn follow(manager: &CertificateManager, listeners: &[RunningListener]) -> io::Result<()> {
    let managed = listeners.iter().flat_map(|listener| &listener.managed);
    manager.follow(managed.cloned().collect::<Vec<Arc<ManagedCertificate>>>())
}

/// When each served certificate expires, in seconds since 1970, by its first name.
pub fn expiry(listeners: &[RunningListener]) -> BTreeMap<String, u64> {
    let mut expiry = BTreeMap::new();
    let certificates = listeners.iter().flat_map(|listener| &listener.certificates);
    for certificate in certificates.filter_map(OfferedCertificate::certificate) {
        let until = certificate.until.as_secs();
        let name = certificate.names.into_iter().next().unwrap_or_default();
        // Of two certificates for one name the earlier expiry counts.
        let earliest = expiry.entry(name).or_insert(until);
        *earliest = until.min(*earliest);
    }
    expiry
}
