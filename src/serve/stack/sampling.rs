//! Chooses single requests as samples, and records them in [`LiveInsight`](crate::record::insight::LiveInsight).
//!
//! Requests are sampled by class: by their outcome, or by the limit that matters most for them. Each class has a number of
//! samples per second, so that frequent classes do not displace rare ones.

use std::sync::Arc;

use http::Method;

use super::request_context::RequestContext;
use super::request_outcome::{RequestOutcome, response_origin};
use super::unreadable_request::MAX_METHOD_BYTES;
use crate::base::clock::Nanos;
use crate::identity::ClientIdentity;
use crate::limit::{LimitStanding, Rule};
use crate::record::insight::{LimitDecision, MAX_SAMPLE_PATH_BYTES, RequestSample, SampleClass};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::Verdict;

/// The number of sampling classes for outcomes. The classes for limits are numbered after them.
const OUTCOME_CLASS_COUNT: u8 = RequestOutcome::ALL.len() as u8;

/// The finding of the limit that matters most, which makes the request a sample; `None` if no limit makes it one. The
/// limit is the one that decided, or else one in shadow mode that would have refused.
pub(crate) fn sample_decision(
    generation: &Generation,
    client: &ClientIdentity,
    verdict: &Verdict,
    rules: &[Arc<Rule>],
    now: Nanos,
) -> Option<Box<LimitDecision>> {
    let decider = verdict.decider(rules);
    let notable_decider =
        decider.filter(|(_, rule_finding)| rule_finding.finding.standing != LimitStanding::Within);
    let (rule, rule_finding) = notable_decider.or_else(|| {
        let findings = verdict.findings.iter();
        let mut rules_and_findings =
            findings.map(|rule_finding| (&**rule_finding.rule.resolve(rules), rule_finding));
        rules_and_findings
            .find(|(rule, rule_finding)| rule.shadow && !rule_finding.finding.standing.admits())
    })?;
    let finding = &rule_finding.finding;
    let class = SampleClass {
        kind_number: limit_class_number(finding.standing, rule.shadow),
        rule_index: Some(rule.index),
    };
    if !generation.sampler.choose(class, now) {
        return None;
    }
    let rate = rule.limit.window(finding.window);
    Some(Box::new(LimitDecision {
        limit: rule.name.as_str().to_owned(),
        standing: match (finding.standing, rule.shadow) {
            (LimitStanding::Refused | LimitStanding::Unsatisfiable, true) => {
                let kind = if rule.is_candidate { "try" } else { "shadow" };
                format!("{kind}_refused")
            }
            (standing, _) => standing.as_str().to_owned(),
        },
        key: generation.identifier.format_key(client, &rule.key),
        quota: finding.quota.into(),
        window: rate.and_then(|rate| {
            let rate_text = rate.to_string();
            let (_, window) = rate_text.split_once('/')?;
            if rate.calendar().is_some() {
                return Some(window.to_owned());
            }
            // The rate `100/h` has the window `1h`.
            let missing_number = match window.starts_with(char::is_alphabetic) {
                true => "1",
                false => "",
            };
            Some(format!("{missing_number}{window}"))
        }),
        // A burst or a delay admits more than the quota at once.
        remaining: finding.remaining.min(finding.quota).into(),
        retry_after: (!verdict.is_admitted)
            .then(|| verdict.retry_after_secs(rules))
            .flatten(),
    }))
}

/// The number of the sampling class for requests with this standing by a limit. A limit in shadow mode has classes of its
/// own.
fn limit_class_number(standing: LimitStanding, is_shadow: bool) -> u8 {
    OUTCOME_CLASS_COUNT + 2 * standing as u8 + u8::from(is_shadow)
}

/// Records a request that has ended, if it becomes a sample.
pub(crate) fn record_sample(context: &RequestContext, now: Nanos) {
    let generation = &*context.generation;
    let Some(insight) = &generation.insight else {
        return;
    };
    let decision = context.sampled_decision.take();
    if decision.is_none() {
        // A refusal is a sample only if it names its limit.
        let class = SampleClass {
            kind_number: context.outcome() as u8,
            rule_index: None,
        };
        if context.outcome() == RequestOutcome::Refused || !generation.sampler.choose(class, now) {
            return;
        }
    }
    let duration = now.since(context.arrived_at);
    let arrived_at = generation.clock.wall().saturating_sub(duration.into());
    let route_index = context.route_index.get();
    let method = context.method.as_ref().map_or("", Method::as_str);
    let path = context.head.as_ref().map(|head| head.uri.path());
    let path = path.or(context.unreadable_path.as_deref());
    insight.add_sample(RequestSample {
        at: arrived_at.as_millis() as f64 / 1e3,
        route: route_index.map(|index| generation.ruleset.routes[index].name.to_string()),
        method: method[..method.floor_char_boundary(MAX_METHOD_BYTES)].to_owned(),
        path: path.map(|path| path[..path.floor_char_boundary(MAX_SAMPLE_PATH_BYTES)].to_owned()),
        status: context.status(),
        outcome: context.outcome().as_str().to_owned(),
        origin: response_origin(context.is_from_upstream()).to_owned(),
        ip: context.ip().to_string(),
        user: context
            .user()
            .map(|user| generation.identifier.format_user(user)),
        limit: decision,
        seconds: duration.0 as f64 / 1e9,
    });
}
