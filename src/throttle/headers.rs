//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::{Finding, Verdict};
use crate::http::head::Fields;
use crate::limit::texts::Texts;
use crate::limit::{Bound, Disclose, Reading, Rule, Rules};
use crate::route::HeaderStyle;

/// The rate-limit headers of an answer: worked out while the verdict is at hand, written when the answer is.
#[derive(Debug, Default)]
pub struct Headers {
    style: HeaderStyle,
    /// Every disclosed limit that applied; nothing when that is what [`Rules::promised`] says.
    promised: Option<SmallVec<[Promise; 4]>>,
    /// What the one of them says that decides; nothing is told without one.
    left: Option<Left>,
    /// It was decided without the store that gateways share.
    alone: bool,
}

/// Units that one limit admits in one of its windows. The limit is named by its place among those that were asked.
#[derive(Clone, Copy, Debug)]
struct Promise {
    rule: u16,
    window: u8,
    quota: u32,
}

/// What is left of it, and the seconds until there is more: nobody knows when a permit comes back.
#[derive(Clone, Copy, Debug)]
struct Left {
    rule: u16,
    quota: u32,
    remaining: u32,
    reset: Option<u64>,
}

impl Headers {
    /// What `verdict` says of `rules`.
    pub fn of(verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) -> Headers {
        let decider = match style {
            HeaderStyle::None => None,
            _ => verdict.disclosed_decider(rules),
        };
        let Some(decider) = decider else {
            return Headers::default();
        };
        let (limit, said) = (&rules[decider.rule].limit, &decider.reading);
        let (remaining, reset) = limit.left(said);
        let promised = || verdict.disclosed(rules).map(Promise::of);
        let by_default = |promise: Promise| promise.is_default(&rules[usize::from(promise.rule)]);
        let default = verdict.findings.len() == rules.len() && promised().all(by_default);
        Headers {
            style,
            promised: (!default).then(|| promised().collect()),
            left: Some(Left {
                rule: decider.rule as u16,
                quota: said.quota,
                remaining,
                reset: reset.map(|reset| limit.seconds(reset)),
            }),
            alone: verdict.alone,
        }
    }

    /// Makes it the only fields of their names: every disclosed limit that applied in `RateLimit-Policy`, the one that
    /// decides in `RateLimit`. `rules` are those that the verdict is of.
    pub fn write(&self, fields: &mut Fields, rules: &Rules) {
        let Some(left) = &self.left else {
            return;
        };
        if matches!(self.style, HeaderStyle::Ietf | HeaderStyle::Both) {
            fields.replace("ratelimit-policy", |value| match &self.promised {
                None => add(
                    value,
                    rules.promised.get(|| policy(&defaults(rules), rules)),
                ),
                Some(promises) => write_policy(value, promises, rules),
            });
            fields.replace("ratelimit", |value| {
                add(value, &texts(&rules[usize::from(left.rule)]).left);
                number(value, left.remaining.into());
                if let Some(seconds) = left.reset {
                    add(value, ";t=");
                    number(value, seconds);
                }
            });
        }
        if self.alone {
            fields.set("tollgate-store", b"away");
        }
        if matches!(self.style, HeaderStyle::Legacy | HeaderStyle::Both) {
            left.write_legacy(fields);
        }
    }
}

impl Left {
    #[inline(never)]
    fn write_legacy(&self, fields: &mut Fields) {
        for (name, figure) in [
            ("x-ratelimit-limit", Some(self.quota.into())),
            ("x-ratelimit-remaining", Some(self.remaining.into())),
            ("x-ratelimit-reset", self.reset),
        ] {
            if let Some(figure) = figure {
                fields.replace(name, |value| number(value, figure));
            }
        }
    }
}

impl Promise {
    fn of(finding: &Finding) -> Promise {
        let Reading { quota, window, .. } = finding.reading;
        Promise {
            rule: finding.rule as u16,
            window,
            quota,
        }
    }

    /// Whether it is of the limit's first window, and no plan has a part in it.
    fn is_default(self, rule: &Rule) -> bool {
        let first = texts(rule).windows.first();
        self.window == 0 && first.is_some_and(|(quota, _)| *quota == self.quota)
    }

    /// Appends what `RateLimit-Policy` says of it, after others or as the first.
    fn write(self, value: &mut Vec<u8>, rule: &Rule, after: bool) {
        let known = texts(rule).windows.get(usize::from(self.window));
        match known.filter(|(usual, _)| *usual == self.quota) {
            Some((_, text)) => add(value, if after { text } else { &text[AFTER.len()..] }),
            None => {
                add(value, if after { AFTER } else { "" });
                write(value, rule, self.window, self.quota);
            }
        }
    }
}

/// Between two members of a list.
const AFTER: &str = ", ";

/// What all disclosed limits promise, each by its first window, to clients whose plans multiply nothing.
fn defaults(rules: &Rules) -> Vec<Promise> {
    let told = |rule: &Rule| !rule.shadow && rule.disclose == Disclose::All;
    let each = rules.iter().enumerate().filter(|(_, rule)| told(rule));
    let promises = each.filter_map(|(place, rule)| {
        let (quota, _) = texts(rule).windows.first()?;
        Some(Promise {
            rule: place as u16,
            window: 0,
            quota: *quota,
        })
    });
    promises.collect()
}

/// The value of `RateLimit-Policy`.
fn policy(promises: &[Promise], rules: &Rules) -> Box<str> {
    let mut value = Vec::new();
    write_policy(&mut value, promises, rules);
    String::from_utf8_lossy(&value).into()
}

#[inline(never)]
fn write_policy(value: &mut Vec<u8>, promises: &[Promise], rules: &Rules) {
    for (place, promise) in promises.iter().enumerate() {
        promise.write(value, &rules[usize::from(promise.rule)], place > 0);
    }
}

/// What it says of one limit in one window, where that was not made before.
fn write(value: &mut Vec<u8>, rule: &Rule, window: u8, quota: u32) {
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
            Bound::Rate(limit) => limit.windows.iter().map(|rate| rate.quota()).collect(),
            Bound::Open(limit) => vec![limit.most],
        };
        let window = |(window, quota): (usize, u32)| {
            let mut text = Vec::from(AFTER);
            write(&mut text, rule, window as u8, quota);
            (quota, String::from_utf8_lossy(&text).into())
        };
        Texts {
            left: format!("\"{}\";r=", rule.name).into(),
            windows: quotas.into_iter().enumerate().map(window).collect(),
        }
    })
}

/// The names of the soft and elastic limits that an admitted request exceeds, as one list.
pub fn over_header(verdict: &Verdict, rules: &[Arc<Rule>]) -> Option<Box<str>> {
    let mut names = verdict.over(rules).map(|rule| rule.name.as_str());
    let first = names.next()?;
    let list = names.fold(first.to_owned(), |list, name| list + ", " + name);
    Some(list.into())
}

// Formatting machinery would cost as much as the decision.
pub(super) fn add(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

pub(super) fn number(text: &mut Vec<u8>, number: u64) {
    add(text, itoa::Buffer::new().format(number));
}
