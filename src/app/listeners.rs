//! Builds the TLS settings of the listeners. A reload rebuilds them, and keeps
//! certificates that ACME has issued.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::net::tls::acme::{CertificateRenewer, ManagedCertificate};
use crate::net::tls::listener_tls;
use crate::net::tls::listener_tls::{OfferedCertificate, TicketKeys};
use crate::policy::{CertificateSource, ListenerSettings, ProcessSettings, Ruleset};
use crate::serve::worker::listen::RunningListener;

/// Builds the settings of each listener as `ruleset` has them.
///
/// A listener keeps its settings in `before` if `ruleset` does not have it, or would switch TLS on or off. Both changes
/// take effect only with a restart.
pub fn build_listeners(
    process: &ProcessSettings,
    ruleset: &Ruleset,
    tickets: &TicketKeys,
    manager: &CertificateRenewer,
    before: &[RunningListener],
) -> Result<Arc<[RunningListener]>, rustls::Error> {
    let mut listeners = Vec::new();
    for (index, listen) in process.listen.iter().enumerate() {
        let is_same_listener = |settings: &&ListenerSettings| {
            settings.address == listen.address && settings.certificates.is_empty() != listen.tls
        };
        // Two listeners may have the same address if their port is 0, so the same index is tried first.
        let at_same_index = ruleset.listeners.get(index).filter(is_same_listener);
        let settings = at_same_index.or_else(|| ruleset.listeners.iter().find(is_same_listener));
        let Some(settings) = settings else {
            listeners.extend(before.get(index).cloned());
            continue;
        };
        let mut managed = Vec::new();
        let offered = settings.certificates.iter().map(|source| match source {
            CertificateSource::Files(certificate) => OfferedCertificate::Fixed(certificate.clone()),
            CertificateSource::Acme(settings) => {
                let certificate = manager.certificate(settings);
                let issued = certificate.issued.clone();
                managed.push(certificate);
                OfferedCertificate::Issued(issued)
            }
        });
        let offered: Vec<OfferedCertificate> = offered.collect();
        let roots = settings.client_roots.as_ref();
        let listener_tls = || listener_tls::build_listener_tls(&offered, roots, tickets.clone());
        listeners.push(RunningListener {
            listener_tls: listen.tls.then(listener_tls).transpose()?,
            certificates: offered,
            managed_certificates: managed,
            proxies: settings.proxies.clone(),
        });
    }
    Ok(listeners.into())
}

/// From now on renews the ACME certificates of these listeners, and no others.
pub fn manage_certificates(
    manager: &CertificateRenewer,
    listeners: &[RunningListener],
) -> io::Result<()> {
    let managed = listeners
        .iter()
        .flat_map(|listener| &listener.managed_certificates);
    manager.renew_only(managed.cloned().collect::<Vec<Arc<ManagedCertificate>>>())
}

/// The expiry of each served certificate, in seconds since 1970, by its first name. If two certificates have the same
/// name, the earlier expiry counts.
pub fn certificate_expiries(listeners: &[RunningListener]) -> BTreeMap<String, u64> {
    let mut expiries = BTreeMap::new();
    let offered = listeners.iter().flat_map(|listener| &listener.certificates);
    for certificate in offered.filter_map(OfferedCertificate::certificate) {
        let expiry = certificate.valid_until.as_secs();
        let name = certificate.names.into_iter().next().unwrap_or_default();
        let earliest = expiries.entry(name).or_insert(expiry);
        *earliest = expiry.min(*earliest);
    }
    expiries
}
