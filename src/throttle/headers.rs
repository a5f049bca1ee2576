//! The rate-limit headers of a response, admitted or refused: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::{Finding, Verdict};
use crate::http::head::Fields;
use crate::limit::texts::Texts;
use crate::limit::{Disclose, LimitReading, Rule, RuleLimit, Rules};
use crate::route::HeaderStyle;

/// The rate-limit headers of a response. Computed while the verdict is at hand, written when the response is
/// there.
#[derive(Debug, Default)]
pub struct RateLimitHeaders {
    style: HeaderStyle,
    /// The quota of every disclosed limit that applied; none if they are those of [`Rules::promised`].
    policies: Option<SmallVec<[QuotaPolicy; 4]>>,
    /// What is left of the disclosed limit that decides. Without one no header is written.
    remaining: Option<RemainingQuota>,
    /// The decision was made without the store that gateways share.
    alone: bool,
}

/// Units that one limit admits in one of its windows: a quota policy in the words of the draft. `rule` is the
/// limit's index among the rules of the request.
#[derive(Clone, Copy, Debug)]
struct QuotaPolicy {
    rule: u16,
    window: u8,
    quota: u32,
}

/// What is left of a quota, and the seconds until there is more. None for permits: nobody knows when one comes
/// back.
#[derive(Clone, Copy, Debug)]
struct RemainingQuota {
    rule: u16,
    quota: u32,
    units: u32,
    reset: Option<u64>,
}

impl RateLimitHeaders {
    /// The headers that `verdict` about a request with these `rules` leads to.
    pub fn of(verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) -> RateLimitHeaders {
        let decider = match style {
            HeaderStyle::None => None,
            _ => verdict.disclosed_decider(rules),
        };
        let Some(decider) = decider else {
            return RateLimitHeaders::default();
        };
        let (limit, reading) = (&rules[decider.rule].limit, &decider.reading);
        let (remaining, reset) = limit.left(reading);
        let policies = || verdict.disclosed(rules).map(QuotaPolicy::of);
        let is_default = |policy: QuotaPolicy| policy.is_default(&rules[usize::from(policy.rule)]);
        let default = verdict.findings.len() == rules.len() && policies().all(is_default);
        RateLimitHeaders {
            style,
            policies: (!default).then(|| policies().collect()),
            remaining: Some(RemainingQuota {
                rule: decider.rule as u16,
                quota: reading.quota,
                units: remaining,
                reset: reset.map(|reset| limit.seconds(reset)),
            }),
            alone: verdict.without_store,
        }
    }

    /// Replaces all fields of these names: `RateLimit-Policy` lists every disclosed limit that applied, `RateLimit`
    /// has the one that decides. `rules` must be those of the verdict.
    pub fn write(&self, fields: &mut Fields, rules: &Rules) {
        let Some(remaining) = &self.remaining else {
            return;
        };
        if matches!(self.style, HeaderStyle::Ietf | HeaderStyle::Both) {
            fields.replace("ratelimit-policy", |value| match &self.policies {
                None => add(
                    value,
                    rules.promised.get(|| policy_text(&defaults(rules), rules)),
                ),
                Some(policies) => write_policies(value, policies, rules),
            });
            fields.replace("ratelimit", |value| {
                add(value, &texts(&rules[usize::from(remaining.rule)]).left);
                number(value, remaining.units.into());
                if let Some(seconds) = remaining.reset {
                    add(value, ";t=");
                    number(value, seconds);
                }
            });
        }
        if self.alone {
            fields.set("tollgate-store", b"away");
        }
        if matches!(self.style, HeaderStyle::Legacy | HeaderStyle::Both) {
            remaining.write_legacy(fields);
        }
    }
}

impl RemainingQuota {
    #[inline(never)]
    fn write_legacy(&self, fields: &mut Fields) {
        for (name, figure) in [
            ("x-ratelimit-limit", Some(self.quota.into())),
            ("x-ratelimit-remaining", Some(self.units.into())),
            ("x-ratelimit-reset", self.reset),
        ] {
            if let Some(figure) = figure {
                fields.replace(name, |value| number(value, figure));
            }
        }
    }
}

impl QuotaPolicy {
    fn of(finding: &Finding) -> QuotaPolicy {
        let LimitReading { quota, window, .. } = finding.reading;
        QuotaPolicy {
            rule: finding.rule as u16,
            window,
            quota,
        }
    }

    /// Whether this is the limit's first window, and no plan multiplies it.
    fn is_default(self, rule: &Rule) -> bool {
        let first = texts(rule).windows.first();
        self.window == 0 && first.is_some_and(|(quota, _)| *quota == self.quota)
    }

    /// Appends a member of `RateLimit-Policy`, behind others if `after` is set.
    fn write(self, value: &mut Vec<u8>, rule: &Rule, after: bool) {
        let prepared = texts(rule).windows.get(usize::from(self.window));
        match prepared.filter(|(usual, _)| *usual == self.quota) {
            Some((_, text)) => add(value, if after { text } else { &text[AFTER.len()..] }),
            None => {
                add(value, if after { AFTER } else { "" });
                write_window(value, rule, self.window, self.quota);
            }
        }
    }
}

/// The separator of list members.
const AFTER: &str = ", ";

/// The first window of each disclosed limit, for clients whose plans multiply nothing.
fn defaults(rules: &Rules) -> Vec<QuotaPolicy> {
    let is_disclosed = |rule: &Rule| !rule.shadow && rule.disclose == Disclose::All;
    let each = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| is_disclosed(rule));
    let policies = each.filter_map(|(index, rule)| {
        let (quota, _) = texts(rule).windows.first()?;
        Some(QuotaPolicy {
            rule: index as u16,
            window: 0,
            quota: *quota,
        })
    });
    policies.collect()
}

/// The value of `RateLimit-Policy`.
fn policy_text(policies: &[QuotaPolicy], rules: &Rules) -> Box<str> {
    let mut value = Vec::new();
    write_policies(&mut value, policies, rules);
    String::from_utf8_lossy(&value).into()
}

#[inline(never)]
fn write_policies(value: &mut Vec<u8>, policies: &[QuotaPolicy], rules: &Rules) {
    for (index, policy) in policies.iter().enumerate() {
        policy.write(value, &rules[usize::from(policy.rule)], index > 0);
    }
}

/// Appends one limit in one window, where no text of it was prepared.
fn write_window(value: &mut Vec<u8>, rule: &Rule, window: u8, quota: u32) {
    for part in ["\"", rule.name.as_str(), "\";q="] {
        add(value, part);
    }
    number(value, quota.into());
    match rule.limit.window(window) {
        Some(rate) => {
            add(value, ";w=");
            number(value, rate.window().ceil_secs());
        }
        None => add(value, ";qu=\"concurrent-requests\""),
    }
}

fn texts(rule: &Rule) -> &Texts {
    rule.texts.get(|| {
        let quotas = match &rule.limit {
            RuleLimit::Rate(limit) => limit.windows.iter().map(|rate| rate.quota()).collect(),
            RuleLimit::Open(limit) => vec![limit.most],
        };
        let window = |(window, quota): (usize, u32)| {
            let mut text = Vec::from(AFTER);
            write_window(&mut text, rule, window as u8, quota);
            (quota, String::from_utf8_lossy(&text).into())
        };
        Texts {
            left: format!("\"{}\";r=", rule.name).into(),
            windows: quotas.into_iter().enumerate().map(window).collect(),
        }
    })
}

/// The names of the soft and elastic limits that an admitted request exceeds, as one list.
pub fn exceeded_limits(verdict: &Verdict, rules: &[Arc<Rule>]) -> Option<Box<str>> {
    let mut names = verdict.over(rules).map(|rule| rule.name.as_str());
    let first = names.next()?;
    let list = names.fold(first.to_owned(), |list, name| list + ", " + name);
    Some(list.into())
}

// By hand, because `format!` would cost as much as the decision.
pub(super) fn add(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

pub(super) fn number(text: &mut Vec<u8>, number: u64) {
    add(text, itoa::Buffer::new().format(number));
}
