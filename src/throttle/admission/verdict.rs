//! The verdict about a request: what all its limits say, and which of them decides. It takes nothing;
//! `throttle/headers.rs` and `throttle/reject.rs` write a verdict as HTTP.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Disclose, Fingerprint, LimitFinding, LimitStanding, Rule, RuleRef};

/// What one limit says of a request, with the limit's rule and the counted key.
#[derive(Clone, Copy, Debug)]
pub struct RuleFinding {
    /// The limit's rule among the rules of the request.
    pub rule: RuleRef,
    /// The key by which the limit counts the request.
    pub key: Fingerprint,
    /// Whether the limit admits, and the figures that responses show.
    pub finding: LimitFinding,
}

/// What all limits of a request say of it.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What every limit that applies says, in the order of the rules.
    pub findings: SmallVec<[RuleFinding; 4]>,
    /// The index into `findings` of the limit that decides; `None` if none applies. Shadow limits do not decide. A limit
    /// that can never admit the request comes first. Then come limits that refuse, by the longest wait, limits that are
    /// exceeded, and the other limits, by the fewest remaining units. Of equals the longest window decides, then the first.
    pub deciding: Option<usize>,
    /// Whether all limits admit the request, shadow limits left out.
    pub is_admitted: bool,
    /// The time for which a leaky bucket holds the request back before it is forwarded.
    pub delay: Nanos,
    /// Whether the verdict repeats the refusal of the previous request. Its waits and resets are as of now; the other
    /// figures are as of the first decision.
    pub is_repeated: bool,
    /// Whether the gateway decided alone about a limit that gateways share. The store was away or learning, or its reply
    /// did not come in time.
    pub is_without_store: bool,
}

/// What helps a client whose request a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Another try in so many seconds, at least 1.
    Wait(u64),
    /// Credits that an operator adds.
    Credits,
    /// Something that clients may not see.
    Hidden,
    /// Nothing: the request costs more than the limit can ever admit.
    Nothing,
}

impl Remedy {
    /// The seconds to wait; `None` if waiting cannot help.
    pub fn wait_secs(self) -> Option<u64> {
        match self {
            Remedy::Wait(seconds) => Some(seconds),
            Remedy::Credits | Remedy::Hidden | Remedy::Nothing => None,
        }
    }
}

impl Verdict {
    /// Sets [`Verdict::deciding`] and [`Verdict::delay`] by the findings.
    pub(crate) fn choose_decider(&mut self, rules: &[Arc<Rule>]) {
        let mut decider: Option<&RuleFinding> = None;
        for (index, rule_finding) in self.findings.iter().enumerate() {
            let rule = rule_finding.rule.base(rules);
            if rule.shadow {
                continue;
            }
            self.delay = self.delay.max(rule_finding.finding.delay);
            if decider.is_none_or(|decider| decides_before(rule_finding, decider, rules)) {
                decider = Some(rule_finding);
                self.deciding = Some(index);
            }
        }
    }

    /// The rules that refuse, the longest wait first.
    pub fn refusing_rules<'a>(&'a self, rules: &'a [Arc<Rule>]) -> SmallVec<[&'a Rule; 4]> {
        let refuses = |rule_finding: &&RuleFinding| {
            !rule_finding.finding.standing.admits() && !rule_finding.rule.base(rules).shadow
        };
        let mut refusing: SmallVec<[&RuleFinding; 4]> =
            self.findings.iter().filter(refuses).collect();
        refusing.sort_by_key(|rule_finding| std::cmp::Reverse(rule_finding.finding.wait));
        let refusing_rules = refusing
            .iter()
            .map(|rule_finding| &**rule_finding.rule.resolve(rules));
        refusing_rules.collect()
    }

    /// What helps a client whose request is refused.
    pub fn remedy(&self, rules: &[Arc<Rule>]) -> Remedy {
        let enforced = self
            .findings
            .iter()
            .filter(|rule_finding| !rule_finding.rule.base(rules).shadow);
        let mut longest_secs = 1;
        let mut lacking = None;
        for rule_finding in enforced {
            match rule_finding.finding.standing {
                LimitStanding::Unsatisfiable => return Remedy::Nothing,
                LimitStanding::Refused => {
                    let rule = rule_finding.rule.resolve(rules);
                    // A gateway that decides alone knows nothing of credits, so another try soon may help.
                    if rule.limit.is_credits() && !self.is_without_store {
                        // If memory lacks, the credits may suffice.
                        let is_told =
                            rule.disclose == Disclose::All && !rule_finding.finding.sketched;
                        if is_told || lacking.is_none() {
                            lacking = Some(if is_told {
                                Remedy::Credits
                            } else {
                                Remedy::Hidden
                            });
                        }
                    }
                    let wait = rule_finding.finding.wait;
                    longest_secs = longest_secs.max(rule.limit.whole_seconds(wait));
                }
                LimitStanding::Within | LimitStanding::Over => {}
            }
        }
        lacking.unwrap_or(Remedy::Wait(longest_secs))
    }

    /// The seconds until all limits that refuse are expected to admit, at least 1. `None` if waiting cannot help.
    pub fn retry_after_secs(&self, rules: &[Arc<Rule>]) -> Option<u64> {
        self.remedy(rules).wait_secs()
    }

    /// How long the waits of the verdict and the reset that responses show stay the same in whole seconds, if no count
    /// changes. Zero without limits.
    pub fn seconds_unchanged_for(&self, rules: &[Arc<Rule>]) -> Nanos {
        let waits = self.findings.iter();
        let waits = waits.map(|rule_finding| (rule_finding, rule_finding.finding.wait));
        let decider = self.disclosed_decider(rules);
        let resets = decider.map(|rule_finding| (rule_finding, rule_finding.finding.reset));
        let durations = waits.chain(resets);
        let unchanged_for = durations.map(|(rule_finding, duration)| {
            let limit = &rule_finding.rule.resolve(rules).limit;
            limit.seconds_unchanged_for(duration)
        });
        unchanged_for.min().unwrap_or(Nanos::ZERO)
    }

    /// The rule that decides, and what its limit says; `None` if no limit decides.
    pub fn decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<(&'a Rule, &'a RuleFinding)> {
        let rule_finding = &self.findings[self.deciding?];
        Some((rule_finding.rule.resolve(rules), rule_finding))
    }

    /// The findings that clients may see, of limits that are disclosed and not in shadow.
    pub fn disclosed<'a>(
        &'a self,
        rules: &'a [Arc<Rule>],
    ) -> impl Iterator<Item = &'a RuleFinding> {
        self.findings.iter().filter(|rule_finding| {
            let rule = rule_finding.rule.base(rules);
            !rule.shadow && rule.disclose == Disclose::All
        })
    }

    /// The disclosed finding that decides: the decider of the whole verdict if that is disclosed, or else the decider
    /// of the disclosed findings. `None` without a disclosed finding.
    pub fn disclosed_decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<&'a RuleFinding> {
        if let Some((rule, rule_finding)) = self.decider(rules)
            && rule.disclose == Disclose::All
        {
            return Some(rule_finding);
        }
        self.disclosed(rules).reduce(|decider, rule_finding| {
            if decides_before(rule_finding, decider, rules) {
                rule_finding
            } else {
                decider
            }
        })
    }

    /// Whether an elastic limit lends what this request takes.
    pub fn borrows(&self, rules: &[Arc<Rule>]) -> bool {
        self.exceeded_rules(rules)
            .any(|rule| rule.limit.throttle().is_elastic())
    }

    /// The rules with soft and elastic limits that this admitted request exceeds.
    pub fn exceeded_rules<'a>(&'a self, rules: &'a [Arc<Rule>]) -> impl Iterator<Item = &'a Rule> {
        let over_findings = self
            .findings
            .iter()
            .filter(|rule_finding| rule_finding.finding.standing == LimitStanding::Over);
        over_findings
            .map(|rule_finding| &**rule_finding.rule.resolve(rules))
            .filter(|rule| !rule.shadow)
    }
}

/// Whether `rule_finding` decides rather than `earlier`, which is earlier in the findings; see [`Verdict::deciding`].
#[inline]
fn decides_before(rule_finding: &RuleFinding, earlier: &RuleFinding, rules: &[Arc<Rule>]) -> bool {
    let rank = |rule_finding: &RuleFinding| match rule_finding.finding.standing {
        LimitStanding::Unsatisfiable => (2, u64::MAX),
        LimitStanding::Refused => (2, rule_finding.finding.wait.0),
        LimitStanding::Over => (1, u64::MAX),
        LimitStanding::Within => (0, 0),
    };
    let window = |rule_finding: &RuleFinding| {
        let limit = &rule_finding.rule.resolve(rules).limit;
        let rate = limit.window(rule_finding.finding.window);
        rate.map_or(Nanos::ZERO, |rate| rate.window())
    };
    // In the usual case both limits admit within their rates.
    let is_within =
        |rule_finding: &RuleFinding| rule_finding.finding.standing == LimitStanding::Within;
    let order = match is_within(rule_finding) && is_within(earlier) {
        true => earlier
            .finding
            .remaining
            .cmp(&rule_finding.finding.remaining),
        false => rank(rule_finding).cmp(&rank(earlier)),
    };
    let order = order.then_with(|| window(rule_finding).cmp(&window(earlier)));
    order.is_gt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Identity, LimitName, RateLimit};

    /// Memory lacks for the account, and no time is known at which that ends.
    #[test]
    fn no_refusal_of_credits_names_a_time() {
        let name = LimitName::new("prepaid").unwrap();
        let rule = Rule::new(name, 0, &[Identity::User], RateLimit::of_credits(false));
        let rules = [Arc::new(rule)];
        let finding = LimitFinding {
            standing: LimitStanding::Refused,
            window: 0,
            quota: 9,
            remaining: 0,
            wait: Nanos::from_secs(50_000_000),
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            calendar_window: None,
            sketched: true,
        };
        let rule_finding = RuleFinding {
            rule: RuleRef {
                index: 0,
                override_number: 0,
            },
            key: Fingerprint(7),
            finding,
        };
        let mut verdict = Verdict::default();
        verdict.findings.push(rule_finding);
        assert_eq!(
            verdict.remedy(&rules),
            Remedy::Hidden,
            "the credits may suffice"
        );
        verdict.findings[0].finding.sketched = false;
        assert_eq!(verdict.remedy(&rules), Remedy::Credits);
        verdict.is_without_store = true;
        assert!(verdict.retry_after_secs(&rules).is_some());
    }
}
