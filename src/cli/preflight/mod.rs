//! Checks what a configuration needs of this machine: files, folders, addresses, names, descriptors and memory.
//!
//! The checks leave nothing behind.

mod bounds;
mod certificates;
mod cgroup;
mod files;
mod findings;
mod network;

use self::findings::Findings;
use crate::base::clock::Clock;
use crate::policy::LoadedConfig;
use crate::policy::diagnostic::Diagnostic;

/// Whether checks may use the network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NetworkChecks {
    /// Look up names and connect to the store.
    Online,
    /// Check this machine only.
    Offline,
}

/// Finds everything that would make a run fail or disappoint.
pub fn check(
    loaded: &LoadedConfig,
    config: &str,
    network_checks: NetworkChecks,
) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config);
    files::check(&mut findings, loaded);
    network::addresses(&mut findings, loaded);
    certificates::check(&mut findings, loaded, &Clock::system());
    if network_checks == NetworkChecks::Online {
        network::reachable(&mut findings, loaded);
    }
    bounds::check(&mut findings, loaded);
    findings.all
}

/// Finds bounds of this process that are narrower than those of the configuration.
pub fn check_bounds(loaded: &LoadedConfig, config: &str) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config);
    bounds::check(&mut findings, loaded);
    findings.all
}
