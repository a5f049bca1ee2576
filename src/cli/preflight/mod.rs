//! Checks whether this machine can run a configuration: its files, folders, addresses, names, descriptors and memory.
//! `check.rs` runs all checks, and `run.rs` those of bounds. The checks leave nothing behind.

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
    /// Names are looked up, and the store must accept a connection.
    Online,
    /// Only this machine is checked.
    Offline,
}

/// Finds everything on this machine that prevents or impairs a run. `config_path` is the path of the gateway file.
pub fn check(
    loaded: &LoadedConfig,
    config_path: &str,
    network_checks: NetworkChecks,
) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config_path);
    files::check_files(&mut findings, loaded);
    network::check_addresses(&mut findings, loaded);
    certificates::check_certificates(&mut findings, loaded, &Clock::system());
    if network_checks == NetworkChecks::Online {
        network::check_reachable(&mut findings, loaded);
    }
    bounds::check_bounds(&mut findings, loaded);
    findings.diagnostics
}

/// Finds bounds of this process that are narrower than those of the configuration.
pub fn check_bounds(loaded: &LoadedConfig, config_path: &str) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config_path);
    bounds::check_bounds(&mut findings, loaded);
    findings.diagnostics
}
