//! Counts the verdict on a request, and notes it for the log and the samples.

use std::rc::Rc;
use std::sync::Arc;

use super::note::RequestNote;
use super::{counted_key, sampling};
use crate::base::clock::Nanos;
use crate::identity::ClientIdentity;
use crate::limit::{LimitStanding, Rule};
use crate::throttle::admission::Verdict;

/// Counts the verdict on a request in the metrics and the top keys, and notes the limit that decided.
pub(crate) fn record_verdict(
    note: &RequestNote,
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    who: &Rc<ClientIdentity>,
    now: Nanos,
) {
    let generation = &note.generation;
    let mut within = true;
    for finding in &verdict.findings {
        let rule = &rules[finding.rule];
        let counters = &generation.rules[rule.index];
        within &= finding.reading.standing == LimitStanding::Within;
        match (finding.reading.standing, rule.shadow) {
            (LimitStanding::Within, _) => counters.within.increment(1),
            (LimitStanding::Over, _) => counters.over.increment(1),
            (_, true) => counters.shadow_refused.increment(1),
            (_, false) => counters.refused.increment(1),
        }
        if generation.insight.is_some() {
            let recent = &note.peer.worker.recent;
            counted_key::count(recent, generation, who, (rule, finding));
        }
    }
    if !within && generation.insight.is_some() {
        let example = sampling::example(generation, (who, now), verdict, rules);
        note.decision.set(example);
    }
    note.alone.set(verdict.without_store);
    if let Some((rule, finding)) = verdict.decider(rules) {
        note.limit.set(Some((rule.index, finding.reading.standing)));
    }
}
