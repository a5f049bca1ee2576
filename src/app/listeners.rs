//! Builds the settings of the listeners that a reload may change: TLS, routes and networks of proxies. Also selects the
//! ACME certificates to renew, and reads when certificates expire. Certificates that ACME has issued outlive reloads.
//! No socket is bound here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::net::tls::acme::{CertificateRenewer, ManagedCertificate};
use crate::net::tls::listener_tls;
use crate::net::tls::listener_tls::{OfferedCertificate, TicketKeys};
use crate::policy::{CertificateSource, ListenerSettings, ProcessSettings, Ruleset};
use crate::serve::worker::listen::RunningListener;

/// Builds the settings of each listener of the process, in the order of `process.listen`, from `ruleset`.
///
/// A listener keeps its settings of `before` if its address is missing in `ruleset`, or if `ruleset` would switch TLS
/// on or off. Only the routes of its name are those of `ruleset`. Such changes, and new listeners, need a restart.
///
/// # Errors
///
/// TLS cannot be set up with the certificates or the roots of a listener.
pub fn build_listeners(
    process: &ProcessSettings,
    ruleset: &Ruleset,
    ticket_keys: &TicketKeys,
    renewer: &CertificateRenewer,
    before: &[RunningListener],
) -> Result<Arc<[RunningListener]>, rustls::Error> {
    let mut listeners = Vec::new();
    for (index, listen) in process.listen.iter().enumerate() {
        let is_same_listener = |settings: &&ListenerSettings| {
            settings.address == listen.address
                && settings.role == listen.role
                && settings.certificates.is_empty() != listen.tls
        };
        // Two listeners may have the same address if their port is 0, so the same index is tried first.
        let at_same_index = ruleset.listeners.get(index).filter(is_same_listener);
        let settings = at_same_index.or_else(|| ruleset.listeners.iter().find(is_same_listener));
        let Some(settings) = settings else {
            let listener_before = before.get(index).cloned();
            listeners.extend(listener_before.map(|listener| RunningListener {
                // The tables of routes are those of `ruleset`, so the index before may be wrong.
                table_index: ruleset.listener_table_index(listener.name.as_deref()),
                ..listener
            }));
            continue;
        };
        let mut managed_certificates = Vec::new();
        let offered_certificates = settings.certificates.iter().map(|source| match source {
            CertificateSource::Files(certificate) => OfferedCertificate::Fixed(certificate.clone()),
            CertificateSource::Acme(settings) => {
                let certificate = renewer.certificate(settings);
                let issued = certificate.issued.clone();
                managed_certificates.push(certificate);
                OfferedCertificate::Issued(issued)
            }
        });
        let offered_certificates: Vec<OfferedCertificate> = offered_certificates.collect();
        let roots = settings.client_roots.as_ref();
        let listener_tls = || {
            let ticket_keys = ticket_keys.clone();
            listener_tls::build_listener_tls(
                &offered_certificates,
                roots,
                ticket_keys,
                listen.http3,
            )
        };
        listeners.push(RunningListener {
            name: settings.name.as_deref().map(Box::from),
            table_index: ruleset.listener_table_index(settings.name.as_deref()),
            listener_tls: listen.tls.then(listener_tls).transpose()?,
            certificates: offered_certificates,
            managed_certificates,
            hsts: settings.hsts.clone(),
            // A reload binds no socket, but it may end the announcement.
            announces_http3: listen.http3 && settings.http3,
            redirect: settings.redirect.clone(),
            proxies: settings.proxies.clone(),
            role: listen.role,
        });
    }
    Ok(listeners.into())
}

/// Makes `renewer` order and renew the ACME certificates of these listeners from now on, and no others.
///
/// # Errors
///
/// The thread of the renewer cannot be started.
pub fn renew_certificates_of(
    listeners: &[RunningListener],
    renewer: &CertificateRenewer,
) -> io::Result<()> {
    let managed_certificates = listeners
        .iter()
        .flat_map(|listener| &listener.managed_certificates);
    renewer.renew_only(
        managed_certificates
            .cloned()
            .collect::<Vec<Arc<ManagedCertificate>>>(),
    )
}

/// The expiry of each served certificate, in seconds since 1970, by its first name, which is empty without names. If
/// two certificates have the same first name, the earlier expiry counts. Certificates that are not issued yet are left
/// out.
pub fn certificate_expiries(listeners: &[RunningListener]) -> BTreeMap<String, u64> {
    let mut expiries = BTreeMap::new();
    let offered_certificates = listeners.iter().flat_map(|listener| &listener.certificates);
    for certificate in offered_certificates.filter_map(OfferedCertificate::certificate) {
        let expiry = certificate.valid_until.as_secs();
        let name = certificate.names.into_iter().next().unwrap_or_default();
        let earliest = expiries.entry(name).or_insert(expiry);
        *earliest = expiry.min(*earliest);
    }
    expiries
}
