//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::sync::Arc;

use http::HeaderName;
use smallvec::SmallVec;

use crate::admission::{Finding, Verdict};
use crate::limit::Rule;
use crate::route::HeaderStyle;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Names and values, ready to be put on an answer.
#[derive(Clone, Debug, Default)]
pub struct Line {
    text: Text,
    /// Each name, and where in the text its value ends.
    ends: SmallVec<[(HeaderName, usize); 2]>,
}

impl Line {
    /// What `verdict` says to the client: every disclosed limit that applied in `RateLimit-Policy`,
    /// the one that decides in `RateLimit`.
    pub fn new(verdict: &Verdict, rules: &[Arc<Rule>], style: HeaderStyle) -> Line {
        let mut line = Line {
            text: Text::with_capacity(192),
            ends: SmallVec::new(),
        };
        if style == HeaderStyle::None {
            return line;
        }
        let Some(decider) = verdict.disclosed_decider(rules) else {
            return line;
        };
        let name = |finding: &Finding| rules[finding.rule].name.as_str();
        let window = |finding: &Finding| {
            let rate = &rules[finding.rule].limit.windows[usize::from(finding.reading.window)];
            rate.window().ceil_secs()
        };
        let left = decider.reading;
        let reset = rules[decider.rule].limit.seconds(left.reset);
        if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
            let policies = &mut line.text;
            for (place, finding) in verdict.disclosed(rules).enumerate() {
                policies.add(if place == 0 { "\"" } else { ", \"" });
                policies.add(name(finding)).add("\";q=");
                policies.number(finding.reading.quota).add(";w=");
                policies.number(window(finding));
            }
            line.end(POLICY);
            let limit = &mut line.text;
            limit.add("\"").add(name(decider)).add("\";r=");
            limit.number(left.remaining).add(";t=");
            limit.number(reset);
            line.end(LIMIT);
        }
        if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
            line.number(X_LIMIT, left.quota.into());
            line.number(X_REMAINING, left.remaining.into());
            line.number(X_RESET, reset);
        }
        line
    }

    fn end(&mut self, name: HeaderName) {
        self.ends.push((name, self.text.0.len()));
    }

    fn number(&mut self, name: HeaderName, number: u64) {
        self.text.number(number);
        self.end(name);
    }

    /// Each field's name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |(name, end)| {
            let value = &self.text.0[start..*end];
            start = *end;
            (name, value)
        })
    }
}

/// A text in the making; formatting machinery would cost as much as the decision.
#[derive(Clone, Debug, Default)]
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

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}
