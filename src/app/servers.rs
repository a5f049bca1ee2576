//! Builds the state of each upstream's servers, at the start and at each reload.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::policy::Ruleset;
use crate::upstream::Servers;

/// Builds the state of each upstream's servers, in the order of the ruleset.
///
/// A server that the upstream of the same name has in `previous` too keeps its health and counts. If all settings of an
/// upstream are the same, its state of `previous` is returned. Pools of connections belong to that state, so the
/// upstream keeps its connections.
pub(super) fn build_servers(
    ruleset: &Ruleset,
    previous: &[Arc<Servers>],
    clock: &Clock,
) -> Vec<Arc<Servers>> {
    let settings = ruleset.upstreams.iter();
    let servers = settings.map(|settings| {
        let has_same_name = |other: &&Arc<Servers>| other.settings.name == settings.name;
        let previous_servers = previous.iter().find(has_same_name);
        Servers::new(settings.clone(), previous_servers, clock.now())
    });
    servers.collect()
}
