//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::admission::{Finding, Verdict};
use crate::limit::{Disclose, Rule};
use crate::route::HeaderStyle;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Header values, ready to be put on an answer.
#[derive(Clone, Debug, Default)]
pub struct Line {
    values: SmallVec<[(HeaderName, HeaderValue); 2]>,
}

impl Line {
    /// What `verdict` says to the client: every disclosed limit that applied in `RateLimit-Policy`,
    /// the one that speaks in `RateLimit`.
    pub fn new(verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) -> Line {
        let mut line = Line::default();
        let open = |finding: &&Finding| {
            let rule = &rules[finding.rule];
            !rule.shadow && rule.disclose == Disclose::All
        };
        if style == HeaderStyle::None {
            return line;
        }
        let Some(speaker) = verdict.findings.iter().filter(open).max_by(loudest) else {
            return line;
        };
        let name = |finding: &Finding| rules[finding.rule].name.as_str();
        let window = |finding: &Finding| {
            let rate = &rules[finding.rule].limit.windows[usize::from(finding.reading.window)];
            rate.window().ceil_secs()
        };
        let left = speaker.reading;
        if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
            let mut policies = Text::with_capacity(128);
            for (place, finding) in verdict.findings.iter().filter(open).enumerate() {
                policies.add(if place == 0 { "\"" } else { ", \"" });
                policies.add(name(finding)).add("\";q=");
                policies.number(finding.reading.quota).add(";w=");
                policies.number(window(finding));
            }
            line.push(POLICY, policies);
            let mut limit = Text::with_capacity(64);
            limit.add("\"").add(name(speaker)).add("\";r=");
            limit.number(left.remaining).add(";t=");
            limit.number(left.reset.header_secs());
            line.push(LIMIT, limit);
        }
        if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
            line.number(X_LIMIT, left.quota.into());
            line.number(X_REMAINING, left.remaining.into());
            line.number(X_RESET, left.reset.header_secs());
        }
        line
    }

    fn push(&mut self, name: HeaderName, text: Text) {
        if let Ok(value) = HeaderValue::from_maybe_shared(text.finish()) {
            self.values.push((name, value));
        }
    }

    fn number(&mut self, name: HeaderName, number: u64) {
        self.values.push((name, HeaderValue::from(number)));
    }

    /// Puts the values on an answer, over any that an upstream sent.
    pub fn write(self, headers: &mut HeaderMap) {
        for (name, value) in self.values {
            headers.insert(name, value);
        }
    }
}

/// Orders findings as [`Verdict::deciding`] does; needed here because a limit that decides may be
/// one that clients are not told of.
fn loudest(a: &&Finding, b: &&Finding) -> std::cmp::Ordering {
    let weight = |finding: &Finding| {
        let reading = &finding.reading;
        (
            !reading.standing.admits(),
            reading.wait,
            std::cmp::Reverse(reading.remaining),
        )
    };
    weight(a).cmp(&weight(b))
}

/// A text in the making; formatting machinery would cost as much as the decision.
pub(super) struct Text(Vec<u8>);

impl Text {
    pub(super) fn with_capacity(bytes: usize) -> Text {
        Text(Vec::with_capacity(bytes))
    }

    pub(super) fn add(&mut self, text: &str) -> &mut Text {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) -> &mut Text {
        self.add(itoa::Buffer::new().format(number))
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.into()
    }
}
