//! What the verdict about a request's descriptors is as a message: a status for each descriptor, and the fields that the
//! caller adds to its responses. Limits that are not disclosed are never named to clients.

use std::rc::Rc;
use std::time::Duration;

use super::rate_limit_messages::{
    DecisionCode, DescriptorStatus, RateLimitRequest, RateLimitResponse, Unit,
};
use crate::base::clock::Nanos;
use crate::http::head::Fields;
use crate::identity::ClientIdentity;
use crate::limit::calendar::CalendarUnit;
use crate::limit::{Rate, Rules};
use crate::route::HeaderStyle;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{JointVerdict, RuleFinding, Verdict};
use crate::throttle::{RateLimitHeaders, exceeded_limits, reject};

/// A descriptor that a policy matches.
pub(super) struct MatchedDescriptor {
    /// The index of the descriptor in the request.
    pub(super) index: usize,
    /// The index of the policy's route.
    pub(super) route_index: usize,
    /// The client that the entries name.
    pub(super) client: Rc<ClientIdentity>,
    /// The units that the descriptor takes; with 0 it only looks.
    pub(super) units: u32,
}

/// A request and what was decided about it.
pub(super) struct Answered<'a> {
    generation: &'a Generation,
    request: &'a RateLimitRequest<'a>,
    matched: &'a [MatchedDescriptor],
    joint: &'a JointVerdict,
}

impl<'a> Answered<'a> {
    pub(super) fn new(
        generation: &'a Generation,
        request: &'a RateLimitRequest<'a>,
        matched: &'a [MatchedDescriptor],
        joint: &'a JointVerdict,
    ) -> Answered<'a> {
        Answered {
            generation,
            request,
            matched,
            joint,
        }
    }

    /// The name and the header style of the policy that decides; those of the first policy if no limit does.
    fn policy(&self) -> Option<(&'a str, HeaderStyle)> {
        let part = self.joint.deciding_part().unwrap_or(0);
        let descriptor = self.matched.get(part)?;
        let route = self.generation.ruleset.routes.get(descriptor.route_index)?;
        Some((&route.name, route.headers))
    }
}

/// The answer to a request by its verdict.
pub(super) fn answer(answered: &Answered<'_>) -> RateLimitResponse {
    let joint = answered.joint;
    let rules = &joint.rules;
    let mut statuses: Vec<DescriptorStatus> =
        vec![DescriptorStatus::unlimited(); answered.request.descriptors.len()];
    for (part, descriptor) in answered.matched.iter().enumerate() {
        if let Some(status) = statuses.get_mut(descriptor.index) {
            *status = status_of(&joint.of_part(part), rules);
        }
    }
    let is_refused = !joint.verdict.is_admitted;
    let says_so = |status: &DescriptorStatus| status.code != DecisionCode::Ok;
    if is_refused && !statuses.iter().any(says_so) {
        let deciding = joint.deciding_part().unwrap_or(0);
        let descriptor = answered.matched.get(deciding);
        if let Some(status) = descriptor.and_then(|descriptor| statuses.get_mut(descriptor.index)) {
            status.code = DecisionCode::OverLimit;
        }
    }
    let mut response = RateLimitResponse {
        overall_code: match is_refused {
            true => DecisionCode::OverLimit,
            false => DecisionCode::Ok,
        },
        statuses,
        response_fields: Fields::default(),
        request_fields: Fields::default(),
        metadata: Vec::new(),
    };
    let Some((policy_name, style)) = answered.policy() else {
        return response;
    };
    let verdict = joint.one_finding_each();
    RateLimitHeaders::new(&verdict, rules, style).write(&mut response.response_fields, rules);
    if is_refused {
        if let Some(seconds) = joint.verdict.retry_after_secs(rules) {
            reject::add_retry_after(&mut response.response_fields, seconds, false);
        }
    } else if let Some(names) = exceeded_limits(&joint.verdict, rules) {
        response
            .request_fields
            .add("tollgate-over", names.as_bytes());
    }
    response.metadata.push(("policy", policy_name.to_owned()));
    if let Some((rule, rule_finding)) = joint.verdict.decider(rules) {
        let standing = rule_finding.finding.standing.as_str();
        response.metadata.push(("limit", rule.name.to_string()));
        response.metadata.push(("standing", standing.to_owned()));
    }
    response
}

/// The answer to a request that is refused before its descriptors are looked at.
pub(super) fn refused_unseen() -> RateLimitResponse {
    RateLimitResponse {
        overall_code: DecisionCode::OverLimit,
        statuses: Vec::new(),
        response_fields: Fields::default(),
        request_fields: Fields::default(),
        metadata: Vec::new(),
    }
}

/// The answer to a request with a descriptor, by its index, whose client is banned for the `remaining` time.
pub(super) fn refused_by_ban(
    request: &RateLimitRequest<'_>,
    descriptor_index: usize,
    remaining: Nanos,
) -> RateLimitResponse {
    let mut response = refused_unseen();
    response.statuses = vec![DescriptorStatus::unlimited(); request.descriptors.len()];
    if let Some(status) = response.statuses.get_mut(descriptor_index) {
        status.code = DecisionCode::OverLimit;
        status.until_reset = Some(Duration::from_secs(remaining.ceil_secs()));
    }
    reject::add_retry_after(&mut response.response_fields, remaining.ceil_secs(), false);
    response.metadata.push(("standing", "banned".to_owned()));
    response
}

/// The status of a descriptor with this verdict.
fn status_of(verdict: &Verdict, rules: &Rules) -> DescriptorStatus {
    let mut status = DescriptorStatus::unlimited();
    if !verdict.is_admitted {
        status.code = DecisionCode::OverLimit;
    }
    let Some(RuleFinding { rule, finding, .. }) = verdict.disclosed_decider(rules) else {
        return status;
    };
    let rule = rule.resolve(rules);
    let (remaining, reset) = rule.limit.client_figures(finding);
    status.limit_remaining = remaining;
    let seconds = match verdict.is_admitted {
        true => reset.map(|reset| rule.limit.whole_seconds(reset)),
        false => verdict.retry_after_secs(rules),
    };
    status.until_reset = seconds.map(Duration::from_secs);
    let unit = rule.limit.window(finding.window).copied().and_then(unit_of);
    status.current_limit = unit.map(|unit| (finding.quota, unit, rule.name.to_string()));
    status
}

/// The unit of time that is the window of a rate; `None` for a window that is no such unit.
fn unit_of(rate: Rate) -> Option<Unit> {
    if rate.is_credits() {
        return None;
    }
    if let Some(calendar) = rate.calendar() {
        return match calendar.period().unit() {
            CalendarUnit::Day => Some(Unit::Day),
            CalendarUnit::Month => Some(Unit::Month),
            CalendarUnit::Year => Some(Unit::Year),
            CalendarUnit::Week | CalendarUnit::Quarter | CalendarUnit::Ever => None,
        };
    }
    const SECOND: u64 = Nanos::from_secs(1).0;
    match rate.window().0 {
        SECOND => Some(Unit::Second),
        window if window == 60 * SECOND => Some(Unit::Minute),
        window if window == 3_600 * SECOND => Some(Unit::Hour),
        window if window == 86_400 * SECOND => Some(Unit::Day),
        _ => None,
    }
}
