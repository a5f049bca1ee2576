//! Chooses single requests as samples, and records them in [`Insight`](crate::record::insight::Insight).

use std::sync::Arc;

use http::Method;

use super::note::RequestNote;
use super::outcome::{RequestOutcome, origin};
use super::unreadable::LONGEST_METHOD;
use crate::base::clock::Nanos;
use crate::identity::ClientIdentity;
use crate::limit::{LimitStanding, Rule};
use crate::record::insight::{Decision, LONGEST_PATH, RequestSample};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::Verdict;

/// How many ways a request can end. The sampling classes of limits are numbered behind them.
const ENDS: u8 = RequestOutcome::ALL.len() as u8;

/// What the limit found that matters most, if this request becomes a sample.
pub(crate) fn example(
    generation: &Generation,
    (who, at): (&ClientIdentity, Nanos),
    verdict: &Verdict,
    rules: &[Arc<Rule>],
) -> Option<Box<Decision>> {
    let decider = verdict.decider(rules);
    let notable = decider.filter(|(_, finding)| finding.reading.standing != LimitStanding::Within);
    let (rule, finding) = notable.or_else(|| {
        let each = verdict.findings.iter();
        let mut each = each.map(|finding| (&*rules[finding.rule], finding));
        each.find(|(rule, finding)| rule.shadow && !finding.reading.standing.admits())
    })?;
    let reading = &finding.reading;
    let class = ENDS + 2 * reading.standing as u8 + u8::from(rule.shadow);
    if !generation.sampler.choose((class, Some(rule.index)), at) {
        return None;
    }
    let window = rule.limit.window(reading.window);
    Some(Box::new(Decision {
        limit: rule.name.as_str().to_owned(),
        standing: match (reading.standing, rule.shadow) {
            (LimitStanding::Refused | LimitStanding::Unsatisfiable, true) => {
                "shadow_refused".to_owned()
            }
            (standing, _) => standing.as_str().to_owned(),
        },
        key: generation.identifier.key_name(who, &rule.key),
        quota: reading.quota.into(),
        window: window.and_then(|rate| {
            let text = rate.to_string();
            let (_, window) = text.split_once('/')?;
            let one = if window.starts_with(char::is_alphabetic) {
                "1"
            } else {
                ""
            };
            Some(format!("{one}{window}"))
        }),
        remaining: reading.remaining.min(reading.quota).into(),
        retry_after: (!verdict.admitted)
            .then(|| verdict.retry_after(rules))
            .flatten(),
    }))
}

/// Records a request that is over, if it becomes a sample.
pub(crate) fn tell(note: &RequestNote, now: Nanos) {
    let generation = &*note.generation;
    let Some(insight) = &generation.insight else {
        return;
    };
    let limit = note.decision.take();
    if limit.is_none() {
        // Of refusals only those are samples that name a limit.
        let class = (note.outcome() as u8, None);
        if note.outcome() == RequestOutcome::Refused || !generation.sampler.choose(class, now) {
            return;
        }
    }
    let took = now.since(note.at);
    let began = generation.clock.wall().saturating_sub(took.into());
    let route = note.route.get();
    let method = note.method.as_ref().map_or("", Method::as_str);
    let path = note.head.as_ref().map(|head| head.uri.path());
    let path = path.or(note.path.as_deref());
    insight.add_sample(RequestSample {
        at: began.as_millis() as f64 / 1e3,
        route: route.map(|route| generation.ruleset.routes[route].name.to_string()),
        method: method[..method.floor_char_boundary(LONGEST_METHOD)].to_owned(),
        path: path.map(|path| path[..path.floor_char_boundary(LONGEST_PATH)].to_owned()),
        status: note.status(),
        outcome: note.outcome().as_str().to_owned(),
        origin: origin(note.by_upstream()).to_owned(),
        ip: note.ip().to_string(),
        user: note
            .user()
            .map(|user| generation.identifier.user_name(user)),
        limit,
        seconds: took.0 as f64 / 1e9,
    });
}
