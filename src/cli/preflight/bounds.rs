//! Bounds of the process that are narrower than those of the configuration: descriptors and memory.

use super::cgroup;
use super::findings::Findings;
use crate::policy::LoadedConfig;
use crate::serve::worker::listen;

/// Below this number of connections a warning is due.
const FEW_CONNECTIONS: usize = 200;

pub fn check(findings: &mut Findings<'_>, loaded: &LoadedConfig) {
    let room = listen::raise_connection_limit();
    if let Some(total) = loaded.ruleset.connections.total
        && total > room
    {
        let total = total.to_string();
        let message = format!(
            "{} connections need more file descriptors than this process may have, which are enough for {room}",
            findings.shown("connections", &total, &total)
        );
        let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`), or lower `total`";
        findings.warn(("connections", &total), message, help);
    } else if room < FEW_CONNECTIONS {
        let message =
            format!("the file descriptors of this process are enough for {room} connections");
        let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`)";
        findings.warn(("connections", ""), message, help);
    }
    let process = &loaded.process;
    let ledger = process.shared.as_ref().map_or(0, |shared| shared.ledger);
    let budget = (process.store_budget + ledger) as u64;
    if let Some(most) = cgroup::memory_limit()
        && budget >= most
    {
        let message = format!(
            "counts may take {} MiB, and all of this process may take {} MiB: it would be killed",
            budget >> 20,
            most >> 20
        );
        let help = "write `store: { memory: … }` with about half of it, or raise the limit of the container or the unit";
        findings.warn(("store", "memory"), message, help);
    }
}
