//! Records the verdict on a request: in the metrics, in the top keys, and in the request's context for the log and the
//! samples. The verdict itself is never changed here.

use std::rc::Rc;
use std::sync::Arc;

use super::request_context::RequestContext;
use super::{counted_key, sampling};
use crate::base::clock::Nanos;
use crate::identity::ClientIdentity;
use crate::limit::{LimitStanding, Rule};
use crate::throttle::admission::Verdict;

/// Counts every finding of the verdict. Notes in `context` which limit decided, whether the shared store was missing, and
/// the finding if the request becomes a sample. `rules` are the rules that the indices in the findings refer to.
pub(crate) fn record_verdict(
    context: &RequestContext,
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    client: &Rc<ClientIdentity>,
    now: Nanos,
) {
    let generation = &context.generation;
    let is_within = count_findings(context, verdict, rules, client);
    if !is_within && generation.insight.is_some() {
        let decision = sampling::sample_decision(generation, client, verdict, rules, now);
        context.sampled_decision.set(decision);
    }
    context.is_without_store.set(verdict.is_without_store);
    if let Some((rule, rule_finding)) = verdict.decider(rules) {
        let standing = rule_finding.finding.standing;
        context.deciding_limit.set(Some((rule.index, standing)));
        if let Some(traced) = context.traced_request() {
            // A burst or a delay admits more than the quota at once.
            let finding = &rule_finding.finding;
            let remaining = finding.remaining.min(finding.quota);
            traced.remaining.set(Some(remaining.into()));
        }
    }
}

/// Counts every finding of the verdict in the metrics and in the top keys. Returns whether the request is within all of
/// its limits.
#[inline]
pub(crate) fn count_findings(
    context: &RequestContext,
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    client: &Rc<ClientIdentity>,
) -> bool {
    let generation = &context.generation;
    let mut is_within = true;
    for rule_finding in &verdict.findings {
        let rule = rule_finding.rule.base(rules);
        let counters = &generation.counters_by_rule[rule.index];
        is_within &= rule_finding.finding.standing == LimitStanding::Within;
        match (rule_finding.finding.standing, rule.shadow) {
            (LimitStanding::Within, _) => counters.within.increment(1),
            (LimitStanding::Over, _) => counters.over.increment(1),
            (_, true) => counters.shadow_refused.increment(1),
            (_, false) => {
                counters.refused.increment(1);
                // While the store is away, limits that fail closed refuse everybody.
                if let Some(policy) = &rule.ban
                    && !verdict.is_without_store
                {
                    let (bans, identifier) = (&generation.bans, &generation.identifier);
                    let key = rule_finding.key;
                    let now = generation.clock.now();
                    bans.report_refusal((rule, policy), key, client, identifier, now);
                }
            }
        }
        if generation.insight.is_some() {
            let recent_keys = &context.peer.worker.recent_keys;
            counted_key::count_request(recent_keys, generation, client, rule, rule_finding);
        }
    }
    is_within
}
