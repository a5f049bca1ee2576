//! Checks whether this machine can run a configuration. `check.rs` runs all checks, and `run.rs` those of bounds. No
//! check leaves a file or a folder behind.
//!
//! | file | what it does |
//! |---|---|
//! | `bounds` | checks the file descriptors and the memory that this process may use |
//! | `certificates` | checks whether certificates in files are valid now and for some days |
//! | `cgroup` | reads the memory limit of the control group |
//! | `diagnostics` | collects what the checks report, with lines of the gateway file |
//! | `files` | checks whether files and folders can be written |
//! | `network` | checks addresses to bind, names, and servers of the store |

mod bounds;
mod certificates;
mod cgroup;
mod diagnostics;
mod files;
mod network;

use self::diagnostics::PreflightDiagnostics;
use crate::base::clock::Clock;
use crate::policy::LoadedConfig;
use crate::policy::diagnostic::Diagnostic;

/// Whether checks may use the network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NetworkChecks {
    /// Names are looked up, and connections to the store are tried.
    Online,
    /// Only this machine is checked.
    Offline,
}

/// Runs all checks, and returns what prevents or impairs a run on this machine. `config_path` is the path of the
/// gateway file.
pub fn check(
    loaded: &LoadedConfig,
    config_path: &str,
    network_checks: NetworkChecks,
) -> Vec<Diagnostic> {
    let mut diagnostics = PreflightDiagnostics::new(loaded, config_path);
    files::check_files(&mut diagnostics, loaded);
    network::check_addresses(&mut diagnostics, loaded);
    certificates::check_certificates(&mut diagnostics, loaded, &Clock::system());
    if network_checks == NetworkChecks::Online {
        network::check_reachable(&mut diagnostics, loaded);
    }
    bounds::check_bounds(&mut diagnostics, loaded);
    diagnostics.list
}

/// Runs only the checks of `bounds`, which a start needs too.
pub fn check_bounds(loaded: &LoadedConfig, config_path: &str) -> Vec<Diagnostic> {
    let mut diagnostics = PreflightDiagnostics::new(loaded, config_path);
    bounds::check_bounds(&mut diagnostics, loaded);
    diagnostics.list
}
