//! What requests tell [`Facts`](crate::record::insight::Facts): whom their limits counted, and some of them as examples.

use std::rc::Rc;
use std::sync::Arc;

use http::Method;

use super::observe::Note;
use super::unreadable::LONGEST_METHOD;
use crate::base::clock::Nanos;
use crate::identity::Who;
use crate::limit::{Fingerprint, Rule, Standing};
use crate::record::insight::{Decision, Key, LONGEST_PATH, Recent, Sample, Whom};
use crate::serve::stack::outcome::{Outcome, origin};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{Finding, Verdict};

/// How many ways there are for a request to end; classes of what limits said come behind.
const ENDS: u8 = Outcome::ALL.len() as u8;

/// Who asked, and the limit that counted.
pub struct Asker {
    generation: Rc<Generation>,
    /// The limit, by index.
    rule: usize,
    who: Rc<Who>,
}

impl Whom for Asker {
    fn tell(&self, hash: u64, asked: u32, refused: u32) {
        let Some(facts) = &self.generation.facts else {
            return;
        };
        let rule = &self.generation.ruleset.rules[self.rule];
        let name = || Key {
            limit: rule.name.as_str().to_owned(),
            key: self.generation.identifier.key_name(&self.who, &rule.key),
        };
        facts.asked.count(hash, asked, name);
        if rule.plans {
            let plans = &self.generation.ruleset.identity.plan.plans;
            let plan = self.who.plan.and_then(|plan| plans.get(plan));
            let name = plan.map_or("", |plan| &plan.name);
            facts.plans.record(hash, name);
        }
        if refused > 0 {
            facts.refused.count(hash, refused, name);
        }
    }
}

/// What tells the keys of one limit apart, by the limit's mark.
pub(crate) fn hash(key: Fingerprint, mark: u64) -> u64 {
    key.0 as u64 ^ mark
}

/// Counts whom a limit was asked about, and whom it refused.
#[inline]
pub(crate) fn count(
    recent: &Recent<Asker>,
    generation: &Rc<Generation>,
    who: &Rc<Who>,
    (rule, finding): (&Rule, &Finding),
) {
    let hash = hash(finding.key, generation.rules[rule.index].mark);
    let refused = !finding.reading.standing.admits() && !rule.shadow;
    // The plan that counted last is shown.
    let is_same = |asker: &Asker| !rule.plans || asker.who.plan == who.plan;
    recent.count(hash, refused, is_same, || Asker {
        generation: generation.clone(),
        rule: rule.index,
        who: who.clone(),
    });
}

/// If this request is to be an example, what the limit said that matters most.
pub(crate) fn example(
    generation: &Generation,
    (who, at): (&Who, Nanos),
    verdict: &Verdict,
    rules: &[Arc<Rule>],
) -> Option<Box<Decision>> {
    let decider = verdict.decider(rules);
    let notable = decider.filter(|(_, finding)| finding.reading.standing != Standing::Within);
    let (rule, finding) = notable.or_else(|| {
        let each = verdict.findings.iter();
        let mut each = each.map(|finding| (&*rules[finding.rule], finding));
        each.find(|(rule, finding)| rule.shadow && !finding.reading.standing.admits())
    })?;
    let reading = &finding.reading;
    let class = ENDS + 2 * reading.standing as u8 + u8::from(rule.shadow);
    if !generation.sampler.takes((class, Some(rule.index)), at) {
        return None;
    }
    let window = rule.limit.window(reading.window);
    Some(Box::new(Decision {
        limit: rule.name.as_str().to_owned(),
        standing: match (reading.standing, rule.shadow) {
            (Standing::Refused | Standing::Unsatisfiable, true) => "shadow_refused".to_owned(),
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

/// Tells of a request that is over, if it is to be an example.
pub(crate) fn tell(note: &Note, now: Nanos) {
    let generation = &*note.generation;
    let Some(facts) = &generation.facts else {
        return;
    };
    let limit = note.decision.take();
    if limit.is_none() {
        // Of refusals those are examples that say by which limit.
        let class = (note.outcome() as u8, None);
        if note.outcome() == Outcome::Refused || !generation.sampler.takes(class, now) {
            return;
        }
    }
    let took = now.since(note.at);
    let began = generation.clock.wall().saturating_sub(took.into());
    let route = note.route.get();
    let method = note.method.as_ref().map_or("", Method::as_str);
    let path = note.head.as_ref().map(|head| head.uri.path());
    let path = path.or(note.path.as_deref());
    facts.tell(Sample {
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
