//! Certificates that have expired or soon will.

use super::findings::Findings;
use crate::base::clock::Clock;
use crate::policy::{CertificateSource, LoadedConfig};

/// Days before its expiry in which a certificate causes a warning.
const EXPIRY_DAYS: u64 = 14;

pub fn check(findings: &mut Findings<'_>, loaded: &LoadedConfig, clock: &Clock) {
    let now = clock.wall();
    let entrances = loaded.ruleset.listeners.iter();
    for source in entrances.flat_map(|entrance| &entrance.certificates) {
        let CertificateSource::Files(certificate) = source else {
            continue;
        };
        let name = certificate.names.first();
        let name = name.map_or_else(String::new, |name| format!(" of `{name}`"));
        let day = |at: std::time::Duration| {
            let at = std::time::UNIX_EPOCH.checked_add(at);
            at.map_or_else(String::new, httpdate::fmt_http_date)
        };
        let (from, until) = (certificate.from, certificate.until);
        let (what, help) = if until <= now {
            (
                format!("expired on {}", day(until)),
                "renew it; clients refuse it",
            )
        } else if from > now {
            let help = "check the clock of this machine; clients refuse it until then";
            (format!("is not valid before {}", day(from)), help)
        } else if (until - now).as_secs() / 86_400 < EXPIRY_DAYS {
            (format!("expires on {}", day(until)), "renew it")
        } else {
            continue;
        };
        findings.warn(
            ("listen", "cert"),
            format!("the certificate{name} {what}"),
            help,
        );
    }
}
