//! [`RateLimitHeaders`]: the rate-limit headers of a response to an admitted or refused request:
//! draft-ietf-httpapi-ratelimit-headers-10 and, by choice, the older `X-RateLimit-*`. They never name a limit that the
//! policy does not disclose. [`exceeded_limits`] makes the list of limits that the upstream gets.

use std::sync::Arc;

use super::admission::{RuleFinding, Verdict};
use crate::http::head::Fields;
use crate::limit::header_texts::HeaderTexts;
use crate::limit::{
    CalendarWindow, Disclose, HeaderStyle, LimitFinding, Rule, RuleLimit, RuleRef, Rules,
};

/// The rate-limit headers of a response. They are computed while the verdict is at hand, and written once the response
/// is there.
#[derive(Debug, Default)]
pub struct RateLimitHeaders {
    /// Which of the fields are written.
    style: HeaderStyle,
    /// The quota of every disclosed limit that applied. `None` if [`Rules::usual_policy_field`] has the same quotas.
    policies: Option<Vec<QuotaPolicy>>,
    /// What remains of the disclosed limit that decides; `None` without such a limit, or where the route wants no
    /// headers. Then no header is written.
    remaining: Option<RemainingQuota>,
    /// Whether the decision was made without the store that gateways share; `tollgate-store` tells clients so.
    is_without_store: bool,
}

/// The units that one limit admits in one of its windows, or the permits of a limit on open requests. The draft calls this
/// a quota policy.
#[derive(Clone, Copy, Debug)]
struct QuotaPolicy {
    rule: RuleRef,
    /// The index of the window in the rule's limit; 0 for permits.
    window_index: u8,
    /// The quota in that window or of permits, with the multiplier of the client's plan.
    quota: u32,
    /// The window of the calendar, whose length is not always the same; `None` for other limits.
    calendar_window: Option<CalendarWindow>,
}

/// What remains of the deciding limit's quota.
#[derive(Clone, Copy, Debug)]
struct RemainingQuota {
    rule: RuleRef,
    /// The quota in units or permits, with the multiplier of the client's plan.
    quota: u32,
    /// The units or permits that remain of the quota.
    units: u32,
    /// The seconds until there is one more unit. `None` for permits and credits: the time of their return is not known.
    reset_secs: Option<u64>,
}

impl RateLimitHeaders {
    /// Computes the headers of a response to a request with this `verdict` by these `rules`.
    pub fn new(verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) -> RateLimitHeaders {
        let decider = match style {
            HeaderStyle::None => None,
            _ => verdict.disclosed_decider(rules),
        };
        let Some(decider) = decider else {
            return RateLimitHeaders::default();
        };
        let (limit, finding) = (&decider.rule.resolve(rules).limit, &decider.finding);
        let (remaining, reset) = limit.client_figures(finding);
        let policies = || verdict.disclosed(rules).map(QuotaPolicy::new);
        let is_usual = |policy: QuotaPolicy| policy.is_usual(rules);
        // The usual field is made as if every rule applied, so each rule must have a finding.
        let are_usual = verdict.findings.len() == rules.len() && policies().all(is_usual);
        RateLimitHeaders {
            style,
            policies: (!are_usual).then(|| policies().collect()),
            remaining: Some(RemainingQuota {
                rule: decider.rule,
                quota: finding.quota,
                units: remaining,
                reset_secs: reset.map(|reset| limit.whole_seconds(reset)),
            }),
            is_without_store: verdict.is_without_store,
        }
    }

    /// Writes the fields in place of those that `fields` has by the same names. `RateLimit-Policy` lists every
    /// disclosed limit that applied; `RateLimit` and `X-RateLimit-*` have the disclosed limit that decides. Without such
    /// a limit nothing is written. `rules` must be the rules of the verdict.
    pub fn write(&self, fields: &mut Fields, rules: &Rules) {
        let Some(remaining) = &self.remaining else {
            return;
        };
        if matches!(self.style, HeaderStyle::Ietf | HeaderStyle::Both) {
            fields.set_with("ratelimit-policy", |value| match &self.policies {
                None => push_text(
                    value,
                    rules
                        .usual_policy_field
                        .get_or_make(|| policy_text(&usual_policies(rules), rules)),
                ),
                Some(policies) => write_policies(value, policies, rules),
            });
            fields.set_with("ratelimit", |value| {
                let texts = header_texts(remaining.rule.base(rules));
                push_text(value, &texts.remaining_prefix);
                push_number(value, remaining.units.into());
                if let Some(seconds) = remaining.reset_secs {
                    push_text(value, ";t=");
                    push_number(value, seconds);
                }
            });
        }
        if self.is_without_store {
            fields.set("tollgate-store", b"away");
        }
        if matches!(self.style, HeaderStyle::Legacy | HeaderStyle::Both) {
            remaining.write_legacy(fields);
        }
    }
}

impl RemainingQuota {
    /// Writes the `X-RateLimit-*` fields.
    // Kept out of `RateLimitHeaders::write`, because few routes have these fields.
    #[inline(never)]
    fn write_legacy(&self, fields: &mut Fields) {
        for (name, figure) in [
            ("x-ratelimit-limit", Some(self.quota.into())),
            ("x-ratelimit-remaining", Some(self.units.into())),
            ("x-ratelimit-reset", self.reset_secs),
        ] {
            if let Some(figure) = figure {
                fields.set_with(name, |value| push_number(value, figure));
            }
        }
    }
}

impl QuotaPolicy {
    fn new(rule_finding: &RuleFinding) -> QuotaPolicy {
        let LimitFinding {
            quota,
            window,
            calendar_window,
            ..
        } = rule_finding.finding;
        QuotaPolicy {
            rule: rule_finding.rule,
            window_index: window,
            quota,
            calendar_window,
        }
    }

    /// Whether this is the limit's first window, with a quota that neither a plan nor an override changes.
    fn is_usual(self, rules: &[Arc<Rule>]) -> bool {
        let first = header_texts(self.rule.base(rules)).windows.first();
        self.rule.override_number == 0
            && self.window_index == 0
            && self.calendar_window.is_none()
            && first.is_some_and(|(quota, _)| *quota == self.quota)
    }

    /// Appends a member of `RateLimit-Policy`, with a separator before it unless it `is_first`.
    fn write(self, value: &mut Vec<u8>, rule: &Rule, is_first: bool) {
        let prepared = header_texts(rule)
            .windows
            .get(usize::from(self.window_index));
        let is_prepared = |(usual_quota, _): &&(u32, Box<str>)| {
            *usual_quota == self.quota && self.calendar_window.is_none()
        };
        match prepared.filter(is_prepared) {
            Some((_, text)) if is_first => push_text(value, &text[SEPARATOR.len()..]),
            Some((_, text)) => push_text(value, text),
            None => {
                push_text(value, if is_first { "" } else { SEPARATOR });
                write_quota_policy(value, rule, &self);
            }
        }
    }
}

/// The separator of list members.
const SEPARATOR: &str = ", ";

/// The first window of each disclosed limit, with the quota of clients whose plans multiply nothing.
fn usual_policies(rules: &Rules) -> Vec<QuotaPolicy> {
    let is_disclosed = |rule: &Rule| !rule.shadow && rule.disclose == Disclose::All;
    let disclosed = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| is_disclosed(rule));
    let policies = disclosed.filter_map(|(index, rule)| {
        let (quota, _) = header_texts(rule).windows.first()?;
        Some(QuotaPolicy {
            rule: RuleRef {
                index: index as u16,
                override_number: 0,
            },
            window_index: 0,
            quota: *quota,
            calendar_window: None,
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

/// Appends a member of `RateLimit-Policy` for each policy.
// Kept out of `RateLimitHeaders::write`, because most responses have the usual policies.
#[inline(never)]
fn write_policies(value: &mut Vec<u8>, policies: &[QuotaPolicy], rules: &Rules) {
    for (index, policy) in policies.iter().enumerate() {
        policy.write(value, policy.rule.resolve(rules), index == 0);
    }
}

/// Appends a member of `RateLimit-Policy`: one limit in one window, the credits of a key, or the permits of a limit on open
/// requests.
fn write_quota_policy(value: &mut Vec<u8>, rule: &Rule, policy: &QuotaPolicy) {
    for part in ["\"", rule.name.as_str(), "\";q="] {
        push_text(value, part);
    }
    push_number(value, policy.quota.into());
    match rule.limit.window(policy.window_index) {
        // No time refills credits.
        Some(rate) if rate.is_credits() => {}
        Some(rate) => {
            let length = rate.window_length(policy.calendar_window);
            push_text(value, ";w=");
            push_number(value, length.ceil_secs());
        }
        None => push_text(value, ";qu=\"concurrent-requests\""),
    }
}

/// The prepared texts of a rule, which are made on first use.
fn header_texts(rule: &Rule) -> &HeaderTexts {
    rule.header_texts.get_or_make(|| {
        let quotas = match &rule.limit {
            RuleLimit::Rate(limit) => limit.windows.iter().map(|rate| rate.quota()).collect(),
            RuleLimit::Open(limit) => vec![limit.quota(1)],
        };
        let prepare = |(window_index, quota): (usize, u32)| {
            let mut text = Vec::from(SEPARATOR);
            let policy = QuotaPolicy {
                rule: RuleRef {
                    index: 0,
                    override_number: 0,
                },
                window_index: window_index as u8,
                quota,
                calendar_window: None,
            };
            write_quota_policy(&mut text, rule, &policy);
            (quota, String::from_utf8_lossy(&text).into())
        };
        HeaderTexts {
            remaining_prefix: format!("\"{}\";r=", rule.name).into(),
            windows: quotas.into_iter().enumerate().map(prepare).collect(),
        }
    })
}

/// The names of the soft and elastic limits that an admitted request exceeds, with commas between them, disclosed or not;
/// `None` if it exceeds none.
pub fn exceeded_limits(verdict: &Verdict, rules: &[Arc<Rule>]) -> Option<Box<str>> {
    let mut names = verdict.exceeded_rules(rules).map(|rule| rule.name.as_str());
    let first = names.next()?;
    let list = names.fold(first.to_owned(), |list, name| list + ", " + name);
    Some(list.into())
}

/// Appends `part`. `format!` would cost as much as the decision.
pub(super) fn push_text(text: &mut Vec<u8>, part: &str) {
    text.extend_from_slice(part.as_bytes());
}

/// Appends a decimal number.
pub(super) fn push_number(text: &mut Vec<u8>, number: u64) {
    push_text(text, itoa::Buffer::new().format(number));
}
