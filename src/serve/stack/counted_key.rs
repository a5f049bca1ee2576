//! Reports the keys that limits count to [`LiveInsight`](crate::record::insight::LiveInsight), which finds the busiest
//! keys.
//!
//! Each worker counts its requests by itself. It reports a count within a tenth of a second, or when another key displaces
//! it. Nothing is decided by these counts.

use std::rc::Rc;

use crate::identity::ClientIdentity;
use crate::limit::{Fingerprint, Identity, Rule};
use crate::record::insight::{CountSink, LimitKey, RecentCounts};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::RuleFinding;

/// A key that a limit has counted. It holds the client's identities, from which a text is made only if the key is
/// recorded.
pub struct CountedKey {
    generation: Rc<Generation>,
    /// The index of the limit among the ruleset's rules.
    rule_index: usize,
    /// The client of the first request that was counted.
    client: Rc<ClientIdentity>,
}

impl CountSink for CountedKey {
    fn record(&self, hash: u64, decisions: u32, refusals: u32) {
        let Some(insight) = &self.generation.insight else {
            return;
        };
        let rule = &self.generation.ruleset.rules[self.rule_index];
        if let Some(tally) = &self.generation.counters_by_rule[self.rule_index].shadow_tally {
            let key = || {
                let identifier = &self.generation.identifier;
                identifier.format_key(&self.client, &rule.key)
            };
            tally.add(hash, decisions, refusals, key);
        }
        // The limit that has the candidate rates counts the same requests.
        if rule.is_candidate {
            return;
        }
        let limit_key = || LimitKey {
            limit: rule.name.as_str().to_owned(),
            key: self
                .generation
                .identifier
                .format_key(&self.client, &rule.key),
        };
        insight.decided.count(hash, decisions, limit_key);
        // Other limits do not depend on the plan.
        if rule.plans || rule.clients.has(Identity::Plan) {
            let plans = &self.generation.ruleset.identity.plan.plans;
            let plan = self.client.plan.and_then(|index| plans.get(index));
            let plan_name = plan.map_or("", |plan| &plan.name);
            insight.plans.record(hash, plan_name);
        }
        if refusals > 0 && !rule.shadow {
            insight.refused.count(hash, refusals, limit_key);
        }
    }
}

/// Hashes a key together with its limit, so that the same client has another hash under each limit.
pub(crate) fn hash_key(key: Fingerprint, limit_hash: u64) -> u64 {
    key.0 as u64 ^ limit_hash
}

/// Counts one request for the key of this finding, and one refusal if the limit refused the request or would have.
#[inline]
pub(crate) fn count_request(
    recent_keys: &RecentCounts<CountedKey>,
    generation: &Rc<Generation>,
    client: &Rc<ClientIdentity>,
    rule: &Rule,
    rule_finding: &RuleFinding,
) {
    let hash = hash_key(
        rule_finding.key,
        generation.counters_by_rule[rule.index].limit_hash,
    );
    let is_refused = !rule_finding.finding.standing.admits();
    let is_counted_alike = |counted: &CountedKey| {
        // Limits of several policies may have one name. What a limit in shadow mode would have refused is told of it alone.
        // After a reload its index may be that of another limit.
        let is_same_limit = counted.rule_index == rule.index
            && (!rule.shadow || Rc::ptr_eq(&counted.generation, generation));
        let counted_rule = || &counted.generation.ruleset.rules[counted.rule_index];
        let is_same_kind = || !rule.shadow && !counted_rule().shadow;
        // A client that changes its plan is counted anew, so that the latest plan is shown.
        (is_same_limit || is_same_kind()) && (!rule.plans || counted.client.plan == client.plan)
    };
    recent_keys.count(hash, is_refused, is_counted_alike, || CountedKey {
        generation: generation.clone(),
        rule_index: rule.index,
        client: client.clone(),
    });
}
