//! The servers of each upstream, which outlive reloads.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::policy::Ruleset;
use crate::upstream::Servers;

/// The servers of each upstream. Those that were in `before` keep their health, and their connections where no setting has changed.
pub(super) fn servers(
    ruleset: &Ruleset,
    before: &[Arc<Servers>],
    clock: &Clock,
) -> Vec<Arc<Servers>> {
    let settings = ruleset.upstreams.iter();
    let servers = settings.map(|settings| {
        let same = |other: &&Arc<Servers>| other.settings.name == settings.name;
        let before = before.iter().find(same);
        Servers::new(settings.clone(), before, clock.now())
    });
    servers.collect()
}
