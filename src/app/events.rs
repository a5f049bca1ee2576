//! What a reload changed, for those who look back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Clock;
use crate::facts::{Change, Event};
use crate::limit::{Bound, Rule, Throttle};
use crate::policy::Ruleset;

/// Most changes that an event names.
const NAMED: usize = 100;

/// Something that happens now.
pub(super) fn event(clock: &Clock, event: &str, detail: &str, changes: Vec<Change>) -> Event {
    Event {
        at: clock.wall().as_secs(),
        event: event.to_owned(),
        detail: detail.to_owned(),
        changes,
    }
}

/// Limits that are not what they were.
pub(super) fn changes(before: &Ruleset, after: &Ruleset) -> Vec<Change> {
    let old: BTreeMap<&str, &Arc<Rule>> = by_scope(before);
    let new: BTreeMap<&str, &Arc<Rule>> = by_scope(after);
    let mut changes = Vec::new();
    for (scope, rule) in &new {
        let (was, is) = (old.get(scope).map(|rule| written(rule)), written(rule));
        if was.as_ref() != Some(&is) {
            changes.push(change(rule, was, Some(is)));
        }
    }
    for (scope, rule) in &old {
        if !new.contains_key(scope) {
            changes.push(change(rule, Some(written(rule)), None));
        }
    }
    changes.truncate(NAMED);
    changes
}

fn change(rule: &Rule, before: Option<String>, after: Option<String>) -> Change {
    Change {
        limit: rule.name.as_str().to_owned(),
        at: rule.origin.clone(),
        before,
        after,
    }
}

fn by_scope(ruleset: &Ruleset) -> BTreeMap<&str, &Arc<Rule>> {
    let rules = ruleset.rules.iter();
    rules.map(|rule| (rule.scope.as_str(), rule)).collect()
}

/// A limit in few words: `5/m per ip`.
fn written(rule: &Rule) -> String {
    let what = match &rule.limit {
        Bound::Rate(limit) => {
            let rates = limit.windows.iter().map(ToString::to_string);
            rates.collect::<Vec<_>>().join(", ")
        }
        Bound::Open(limit) => format!("{} at once", limit.most),
    };
    let key: Vec<&str> = rule.key.iter().map(|part| part.as_str()).collect();
    let throttle = match rule.limit.throttle() {
        Throttle::Hard => String::from("hard"),
        Throttle::Soft { percent } => format!("soft {percent}%"),
        Throttle::Elastic { most, of } => format!("elastic x{}", f64::from(most) / f64::from(of)),
    };
    let shadow = if rule.shadow { ", shadow" } else { "" };
    format!("{what} per {}, {throttle}{shadow}", key.join(" and "))
}
