//! Checks what the operating system allows this process: enough file descriptors for its connections, and enough memory
//! for its counts.

use super::cgroup;
use super::diagnostics::PreflightDiagnostics;
use crate::policy::LoadedConfig;
use crate::serve::worker::listen;

/// A process that may have fewer client connections than this gets a warning: so few are hardly intended.
const MIN_CONNECTIONS: usize = 200;

/// Reports bounds of this process that are narrower than those of the configuration. Raises the number of file
/// descriptors first, as the gateway does.
pub fn check_bounds(diagnostics: &mut PreflightDiagnostics<'_>, loaded: &LoadedConfig) {
    let max_connections = listen::raise_connection_limit();
    if let Some(total) = loaded.ruleset.connections.total
        && total > max_connections
    {
        let total = total.to_string();
        let message = format!(
            "{} connections need more file descriptors than this process may have, which are enough for {max_connections}",
            diagnostics.display_value("connections", &total, &total)
        );
        let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`), or lower `total`";
        diagnostics.add_warning(("connections", &total), message, help);
    } else if max_connections < MIN_CONNECTIONS {
        let message = format!(
            "the file descriptors of this process are enough for {max_connections} connections"
        );
        let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`)";
        diagnostics.add_warning(("connections", ""), message, help);
    }
    let process = &loaded.process;
    let ledger_bytes = process
        .shared
        .as_ref()
        .map_or(0, |shared| shared.ledger_bytes);
    let count_bytes = (process.store_budget + ledger_bytes) as u64;
    if let Some(limit_bytes) = cgroup::read_memory_limit()
        && count_bytes >= limit_bytes
    {
        let message = format!(
            "counts may take {} MiB, and all of this process may take {} MiB: it would be killed",
            count_bytes >> 20,
            limit_bytes >> 20
        );
        let help = "write `store: { memory: … }` with about half of it, or raise the limit of the container or the unit";
        diagnostics.add_warning(("store", "memory"), message, help);
    }
}
