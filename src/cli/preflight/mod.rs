//! What a configuration needs of the machine that it is checked on: files and folders, addresses, names, descriptors,
//! memory. Nothing that is made to find out is left behind.

mod bounds;
mod certificates;
mod cgroup;
mod files;
mod findings;
mod network;

use self::findings::Findings;
use crate::base::clock::Clock;
use crate::policy::Loaded;
use crate::policy::diagnostic::Diagnostic;

/// Whether others are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NetworkChecks {
    /// Names are looked up and the store is connected to.
    Online,
    /// Only this machine is looked at.
    Offline,
}

/// Everything that a run would stumble over.
pub fn check(loaded: &Loaded, config: &str, network_checks: NetworkChecks) -> Vec<Diagnostic> {
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

/// What a run is told of: bounds of the process that are narrower than those of the configuration.
pub fn check_bounds(loaded: &Loaded, config: &str) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config);
    bounds::check(&mut findings, loaded);
    findings.all
}
