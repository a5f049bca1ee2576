//! The rate-limit headers of an admitted or refused answer: draft-ietf-httpapi-ratelimit-headers-10
//! and, by choice, the older `X-RateLimit-*`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

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
            let mut policies = Text::default();
            for (place, finding) in verdict.findings.iter().filter(open).enumerate() {
                let comma = if place == 0 { "" } else { ", " };
                let (name, quota) = (name(finding), finding.reading.quota);
                policies.add(format_args!(
                    "{comma}\"{name}\";q={quota};w={}",
                    window(finding)
                ));
            }
            line.push(POLICY, policies);
            let mut limit = Text::default();
            let (name, r, t) = (name(speaker), left.remaining, left.reset.header_secs());
            limit.add(format_args!("\"{name}\";r={r};t={t}"));
            line.push(LIMIT, limit);
        }
        if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
            line.push(X_LIMIT, Text::number(left.quota.into()));
            line.push(X_REMAINING, Text::number(left.remaining.into()));
            line.push(X_RESET, Text::number(left.reset.header_secs()));
        }
        line
    }

    fn push(&mut self, name: HeaderName, text: Text) {
        if let Ok(value) = HeaderValue::from_bytes(&text.0) {
            self.values.push((name, value));
        }
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

/// A short text on the stack.
#[derive(Default)]
struct Text(SmallVec<[u8; 128]>);

impl Text {
    fn add(&mut self, text: fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = self.write_fmt(text);
    }

    fn number(number: u64) -> Text {
        let mut text = Text::default();
        text.add(format_args!("{number}"));
        text
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
