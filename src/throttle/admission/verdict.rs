//! What all limits of a request say, and which of them decides.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Disclose, Fingerprint, LimitReading, LimitStanding, Rule};

/// What one limit says.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Index of the limit among the request's rules.
    pub rule: usize,
    /// The key that was counted.
    pub key: Fingerprint,
    /// What the limit says of that key.
    pub reading: LimitReading,
}

/// What all limits say.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Every limit that applies, in the order of the rules.
    pub findings: SmallVec<[Finding; 4]>,
    /// Index into `findings` of the limit that decides: of those that refuse the one with the
    /// longest wait, else the one with the least remaining and, of equals, the longest window. Shadow limits do not decide.
    pub deciding: Option<usize>,
    /// All limits that can refuse admit.
    pub admitted: bool,
    /// How long the request must be held back first (leaky bucket).
    pub delay: Nanos,
    /// It repeats the refusal of the previous request. Waits and resets are as of now; what limits that admit say is as
    /// of the first decision.
    pub repeated: bool,
    /// The decision was made without the store that gateways share, because it could not be asked.
    pub without_store: bool,
}

impl Verdict {
    /// Finds the limit that decides, and for how long the request is held back.
    pub(crate) fn choose_decider(&mut self, rules: &[Arc<Rule>]) {
        let mut best: Option<&Finding> = None;
        for (index, finding) in self.findings.iter().enumerate() {
            let rule = &rules[finding.rule];
            if rule.shadow {
                continue;
            }
            self.delay = self.delay.max(finding.reading.delay);
            if best.is_none_or(|best| decides_before(finding, best, rules)) {
                best = Some(finding);
                self.deciding = Some(index);
            }
        }
    }

    /// All limits that refuse, the longest wait first.
    pub fn refusing<'a>(&'a self, rules: &'a [Arc<Rule>]) -> SmallVec<[&'a Rule; 4]> {
        let refuses =
            |finding: &&Finding| !finding.reading.standing.admits() && !rules[finding.rule].shadow;
        let mut list: SmallVec<[&Finding; 4]> = self.findings.iter().filter(refuses).collect();
        list.sort_by_key(|finding| std::cmp::Reverse(finding.reading.wait));
        list.iter().map(|finding| &*rules[finding.rule]).collect()
    }

    /// Seconds until all limits that refuse are expected to admit, at least 1. None if waiting cannot help.
    pub fn retry_after(&self, rules: &[Arc<Rule>]) -> Option<u64> {
        let live = self
            .findings
            .iter()
            .filter(|finding| !rules[finding.rule].shadow);
        let mut longest = 1;
        for finding in live {
            match finding.reading.standing {
                LimitStanding::Unsatisfiable => return None,
                LimitStanding::Refused => {
                    let limit = &rules[finding.rule].limit;
                    longest = longest.max(limit.seconds(finding.reading.wait));
                }
                LimitStanding::Within | LimitStanding::Over => {}
            }
        }
        Some(longest)
    }

    /// For how long the verdict reads the same in whole seconds, if no count changes.
    pub fn same_seconds(&self, rules: &[Arc<Rule>]) -> Nanos {
        let waits = self.findings.iter();
        let waits = waits.map(|finding| (finding, finding.reading.wait));
        let decider = self.disclosed_decider(rules);
        let resets = decider.map(|finding| (finding, finding.reading.reset));
        let each = waits.chain(resets);
        let each = each.map(|(finding, span)| rules[finding.rule].limit.same_seconds(span));
        each.min().unwrap_or(Nanos::ZERO)
    }

    /// The limit that decides.
    pub fn decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<(&'a Rule, &'a Finding)> {
        let finding = &self.findings[self.deciding?];
        Some((&rules[finding.rule], finding))
    }

    /// The findings that clients may see: those of limits that are disclosed and not in shadow.
    pub fn disclosed<'a>(&'a self, rules: &'a [Arc<Rule>]) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(|finding| {
            let rule = &rules[finding.rule];
            !rule.shadow && rule.disclose == Disclose::All
        })
    }

    /// The disclosed finding that decides. It is the decider of the whole verdict, if that is disclosed.
    pub fn disclosed_decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<&'a Finding> {
        if let Some((rule, finding)) = self.decider(rules)
            && rule.disclose == Disclose::All
        {
            return Some(finding);
        }
        self.disclosed(rules).reduce(|best, next| {
            if decides_before(next, best, rules) {
                next
            } else {
                best
            }
        })
    }

    /// Whether an elastic limit lends what this request takes.
    pub fn borrows(&self, rules: &[Arc<Rule>]) -> bool {
        self.over(rules).any(|rule| rule.limit.throttle().lends())
    }

    /// The soft and elastic limits that this request exceeds.
    pub fn over<'a>(&'a self, rules: &'a [Arc<Rule>]) -> impl Iterator<Item = &'a Rule> {
        let over = self
            .findings
            .iter()
            .filter(|f| f.reading.standing == LimitStanding::Over);
        over.map(|finding| &*rules[finding.rule])
            .filter(|rule| !rule.shadow)
    }
}

/// Whether `finding` decides rather than `before`, an earlier one; see [`Verdict::deciding`].
#[inline]
fn decides_before(finding: &Finding, before: &Finding, rules: &[Arc<Rule>]) -> bool {
    let weight = |finding: &Finding| match finding.reading.standing {
        LimitStanding::Unsatisfiable => (2, u64::MAX),
        LimitStanding::Refused => (2, finding.reading.wait.0),
        LimitStanding::Over => (1, u64::MAX),
        LimitStanding::Within => (0, 0),
    };
    let window = |finding: &Finding| {
        let rate = rules[finding.rule].limit.window(finding.reading.window);
        rate.map_or(Nanos::ZERO, |rate| rate.window())
    };
    // The usual case: both admit.
    let within = |finding: &Finding| finding.reading.standing == LimitStanding::Within;
    let order = match within(finding) && within(before) {
        true => before.reading.remaining.cmp(&finding.reading.remaining),
        false => weight(finding).cmp(&weight(before)),
    };
    let order = order.then_with(|| window(finding).cmp(&window(before)));
    order.is_gt()
}
