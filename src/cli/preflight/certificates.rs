//! Checks that certificates in files are valid now and do not expire soon. ACME certificates are renewed by the gateway
//! itself and are not checked.

use super::diagnostics::PreflightDiagnostics;
use crate::base::clock::Clock;
use crate::policy::{CertificateSource, LoadedConfig};

/// A certificate that expires in fewer whole days than this gets a warning.
const EXPIRY_WARNING_DAYS: u64 = 14;

const SECONDS_PER_DAY: u64 = 86_400;

/// Reports certificates that are not valid now, or expire soon, as warnings.
pub fn check_certificates(
    diagnostics: &mut PreflightDiagnostics<'_>,
    loaded: &LoadedConfig,
    clock: &Clock,
) {
    let now = clock.wall();
    let listeners = loaded.ruleset.listeners.iter();
    for source in listeners.flat_map(|listener| &listener.certificates) {
        let CertificateSource::Files(certificate) = source else {
            continue;
        };
        let name = certificate.names.first();
        let name = name.map_or_else(String::new, |name| format!(" of `{name}`"));
        let (from, until) = (certificate.valid_from, certificate.valid_until);
        let (problem, help) = if until <= now {
            let problem = format!("expired on {}", format_date(until));
            (problem, "renew it; clients refuse it")
        } else if from > now {
            let help = "check the clock of this machine; clients refuse it until then";
            (format!("is not valid before {}", format_date(from)), help)
        } else if (until - now).as_secs() / SECONDS_PER_DAY < EXPIRY_WARNING_DAYS {
            (format!("expires on {}", format_date(until)), "renew it")
        } else {
            continue;
        };
        let message = format!("the certificate{name} {problem}");
        diagnostics.add_warning(("listen", "cert"), message, help);
    }
}

/// Formats a time since 1970 as a date of HTTP; empty if it is out of range.
fn format_date(since_epoch: std::time::Duration) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(since_epoch);
    time.map_or_else(String::new, httpdate::fmt_http_date)
}
