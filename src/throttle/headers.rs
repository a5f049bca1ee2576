//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use crate::admission::{Finding, Verdict};
use crate::head::Fields;
use crate::limit::texts::Texts;
use crate::limit::{Bound, Reading, Rule};
use crate::route::HeaderStyle;

/// Adds what `verdict` says to the client: every disclosed limit that applied in `RateLimit-Policy`,
/// the one that decides in `RateLimit`.
pub fn tell(fields: &mut Fields, verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) {
    let decider = match style {
        HeaderStyle::None => None,
        _ => verdict.disclosed_decider(rules),
    };
    let Some(decider) = decider else {
        return;
    };
    let (rule, left) = (&rules[decider.rule], decider.reading);
    // Nobody knows when a permit comes back.
    let timed = rule.limit.window(left.window).is_some();
    let reset = timed.then(|| rule.limit.seconds(left.reset));
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
        fields.compose("ratelimit-policy", |value| {
            for (place, finding) in verdict.disclosed(rules).enumerate() {
                add(value, if place == 0 { "" } else { ", " });
                promise(value, finding, &rules[finding.rule]);
            }
        });
        fields.compose("ratelimit", |value| {
            add(value, &said(rule).left);
            number(value, left.remaining);
            if let Some(seconds) = reset {
                add(value, ";t=");
                number(value, seconds);
            }
        });
    }
    if verdict.alone {
        fields.compose("tollgate-store", |value| add(value, "away"));
    }
    if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
        for (name, figure) in [
            ("x-ratelimit-limit", Some(left.quota.into())),
            ("x-ratelimit-remaining", Some(left.remaining.into())),
            ("x-ratelimit-reset", reset),
        ] {
            if let Some(figure) = figure {
                fields.compose(name, |value| number(value, figure));
            }
        }
    }
}

/// Appends what `RateLimit-Policy` says of one limit.
fn promise(value: &mut Vec<u8>, finding: &Finding, rule: &Rule) {
    let Reading { quota, window, .. } = finding.reading;
    let known = said(rule).windows.get(usize::from(window));
    match known.filter(|(usual, _)| *usual == quota) {
        Some((_, text)) => add(value, text),
        None => write(value, rule, window, quota),
    }
}

/// The same, not made before.
fn write(value: &mut Vec<u8>, rule: &Rule, window: u8, quota: u32) {
    for part in ["\"", rule.name.as_str(), "\";q="] {
        add(value, part);
    }
    number(value, quota);
    match rule.limit.window(window) {
        Some(rate) => {
            add(value, ";w=");
            number(value, rate.window().ceil_secs());
        }
        None => add(value, ";qu=\"concurrent-requests\""),
    }
}

fn said(rule: &Rule) -> &Texts {
    rule.texts.get(|| {
        let quotas = match &rule.limit {
            Bound::Rate(limit) => limit.windows.iter().map(|rate| rate.quota()).collect(),
            Bound::Open(limit) => vec![limit.most],
        };
        let window = |(window, quota): (usize, u32)| {
            let mut text = Vec::new();
            write(&mut text, rule, window as u8, quota);
            (quota, String::from_utf8_lossy(&text).into())
        };
        Texts {
            left: format!("\"{}\";r=", rule.name).into(),
            windows: quotas.into_iter().enumerate().map(window).collect(),
        }
    })
}

// Formatting machinery would cost as much as the decision.
pub(super) fn add(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

pub(super) fn number(text: &mut Vec<u8>, number: impl itoa::Integer) {
    add(text, itoa::Buffer::new().format(number));
}
