//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use crate::admission::{Finding, Verdict};
use crate::head::Fields;
use crate::limit::Rule;
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
    let name = |finding: &Finding| rules[finding.rule].name.as_str();
    let window = |finding: &Finding| {
        let rate = rules[finding.rule].limit.window(finding.reading.window);
        rate.map(|rate| rate.window().ceil_secs())
    };
    let left = decider.reading;
    // Nobody knows when a permit comes back.
    let reset = window(decider).map(|_| rules[decider.rule].limit.seconds(left.reset));
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
        fields.compose("ratelimit-policy", |value| {
            for (place, finding) in verdict.disclosed(rules).enumerate() {
                add(value, if place == 0 { "\"" } else { ", \"" });
                add(value, name(finding));
                add(value, "\";q=");
                number(value, finding.reading.quota);
                match window(finding) {
                    Some(seconds) => {
                        add(value, ";w=");
                        number(value, seconds);
                    }
                    None => add(value, ";qu=\"concurrent-requests\""),
                }
            }
        });
        fields.compose("ratelimit", |value| {
            add(value, "\"");
            add(value, name(decider));
            add(value, "\";r=");
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

// Formatting machinery would cost as much as the decision.
pub(super) fn add(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

pub(super) fn number(text: &mut Vec<u8>, number: impl itoa::Integer) {
    add(text, itoa::Buffer::new().format(number));
}
