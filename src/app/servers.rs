//! Builds the servers of each upstream, at the start and at each reload. Servers outlive reloads: they keep their
//! health and their connections.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::policy::Ruleset;
use crate::upstream::Servers;

/// Builds the servers of each upstream. Servers that are also in `previous` keep their health. If their settings are the
/// same, they keep their connections too.
pub(super) fn build_servers(
    ruleset: &Ruleset,
    previous: &[Arc<Servers>],
    clock: &Clock,
) -> Vec<Arc<Servers>> {
    let settings = ruleset.upstreams.iter();
    let servers = settings.map(|settings| {
        let has_same_name = |other: &&Arc<Servers>| other.settings.name == settings.name;
        let previous = previous.iter().find(has_same_name);
        Servers::new(settings.clone(), previous, clock.now())
    });
    servers.collect()
}
