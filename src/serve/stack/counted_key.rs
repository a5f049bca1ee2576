//! What requests report to [`Insight`](crate::record::insight::Insight) of each key that they count.

use std::rc::Rc;

use crate::identity::ClientIdentity;
use crate::limit::{Fingerprint, Rule};
use crate::record::insight::{CountSink, LimitKey, RecentCounts};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::Finding;

/// A key that a limit has counted: the client's identities and the limit. Its name is made only if it is recorded.
pub struct CountedKey {
    generation: Rc<Generation>,
    /// The limit, by index.
    rule: usize,
    who: Rc<ClientIdentity>,
}

impl CountSink for CountedKey {
    fn record(&self, hash: u64, asked: u32, refused: u32) {
        let Some(insight) = &self.generation.insight else {
            return;
        };
        let rule = &self.generation.ruleset.rules[self.rule];
        let name = || LimitKey {
            limit: rule.name.as_str().to_owned(),
            key: self.generation.identifier.key_name(&self.who, &rule.key),
        };
        insight.asked.count(hash, asked, name);
        if rule.plans {
            let plans = &self.generation.ruleset.identity.plan.plans;
            let plan = self.who.plan.and_then(|plan| plans.get(plan));
            let name = plan.map_or("", |plan| &plan.name);
            insight.plans.record(hash, name);
        }
        if refused > 0 {
            insight.refused.count(hash, refused, name);
        }
    }
}

/// The hash of a key, different for each limit.
pub(crate) fn hash(key: Fingerprint, limit_hash: u64) -> u64 {
    key.0 as u64 ^ limit_hash
}

/// Counts a request of a key, and whether the limit refused it.
#[inline]
pub(crate) fn count(
    recent: &RecentCounts<CountedKey>,
    generation: &Rc<Generation>,
    who: &Rc<ClientIdentity>,
    (rule, finding): (&Rule, &Finding),
) {
    let hash = hash(finding.key, generation.rules[rule.index].limit_hash);
    let refused = !finding.reading.standing.admits() && !rule.shadow;
    // The plan that counted last is shown.
    let is_same = |counted: &CountedKey| !rule.plans || counted.who.plan == who.plan;
    recent.count(hash, refused, is_same, || CountedKey {
        generation: generation.clone(),
        rule: rule.index,
        who: who.clone(),
    });
}
