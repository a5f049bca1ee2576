//! Events of the gateway and changes of limits, for the record.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::limit::{CountMode, Rule, RuleLimit, ThrottleMode};
use crate::policy::Ruleset;
use crate::record::insight::{Change, GatewayEvent};
use crate::route::Route;

/// Maximum number of changes in an event.
const MAX_CHANGES: usize = 100;

/// Maximum number of members of a list in a text.
const MAX_MEMBERS: usize = 8;

/// An event at the current time.
pub(super) fn event(
    clock: &Clock,
    event: &str,
    detail: &str,
    mut changes: Vec<Change>,
) -> GatewayEvent {
    let detail = match changes.len().saturating_sub(MAX_CHANGES) {
        0 => detail.to_owned(),
        more => format!("{detail}; {more} more limits were changed"),
    };
    changes.truncate(MAX_CHANGES);
    GatewayEvent {
        at: clock.wall().as_secs(),
        event: event.to_owned(),
        detail,
        changes,
    }
}

/// The limits that differ between two configurations.
pub(super) fn changes(before: &Ruleset, after: &Ruleset) -> Vec<Change> {
    let (old, new) = (by_scope(before), by_scope(after));
    let mut changes = Vec::new();
    for (scope, (rule, is)) in &new {
        let was = old.get(scope).map(|(_, was)| was);
        if was != Some(is) {
            changes.push(change(rule, was, Some(is)));
        }
    }
    for (scope, (rule, was)) in &old {
        if !new.contains_key(scope) {
            changes.push(change(rule, Some(was), None));
        }
    }
    changes
}

fn change(rule: &Rule, before: Option<&LimitText>, after: Option<&LimitText>) -> Change {
    Change {
        limit: rule.name.as_str().to_owned(),
        at: rule.origin.clone(),
        before: before.map(|before| before.beside(after)),
        after: after.map(|after| after.beside(before)),
    }
}

fn by_scope(ruleset: &Ruleset) -> BTreeMap<&str, (&Rule, LimitText)> {
    let rules = ruleset.rules.iter();
    rules
        .map(|rule| {
            (
                rule.scope.as_str(),
                (&**rule, LimitText::new(rule, ruleset)),
            )
        })
        .collect()
}

/// A limit in a few words.
#[derive(PartialEq)]
struct LimitText {
    /// `5/m per ip, hard`
    short: String,
    /// Details that appear only where they changed.
    rest: [String; 6],
}

impl LimitText {
    fn new(rule: &Rule, ruleset: &Ruleset) -> LimitText {
        let (what, algorithm) = match &rule.limit {
            RuleLimit::Rate(limit) => {
                let rates = limit.windows.iter().map(ToString::to_string);
                (
                    rates.collect::<Vec<_>>().join(", "),
                    limit.algorithm.as_str(),
                )
            }
            RuleLimit::Open(limit) => (format!("{} at once", limit.max_open), ""),
        };
        let key: Vec<&str> = rule.key.iter().map(|part| part.as_str()).collect();
        let throttle = match rule.limit.throttle() {
            ThrottleMode::Hard => String::from("hard"),
            ThrottleMode::Soft { percent } => format!("soft {percent}%"),
            ThrottleMode::Elastic { at_most, base } => {
                format!("elastic x{}", f64::from(at_most) / f64::from(base))
            }
        };
        let condition = rule.condition.as_ref();
        let condition = condition.map_or(String::new(), |held| format!(" while {}", held.as_str()));
        let count = match &rule.count {
            CountMode::All => String::new(),
            CountMode::Status { from, to } => format!(", status {from}-{to}"),
            CountMode::CostHeader(name) => format!(", cost header {name}"),
            CountMode::CostJson(path) => format!(", cost json {}", path.join(".")),
        };
        let reserve = rule.reserve.as_ref();
        let reserve = reserve.map_or(String::new(), |held| format!(", reserves {held}"));
        let shadow = if rule.shadow { ", shadow" } else { "" };
        let plans = ruleset.identity.plan.plans.iter().filter(|_| rule.plans);
        let using = |route: &&Arc<Route>| route.rules.iter().any(|own| own.index == rule.index);
        let routes = ruleset.routes.iter().filter(using);
        LimitText {
            short: format!(
                "{what} per {}, {throttle}{condition}{count}{reserve}{shadow}",
                key.join(" and ")
            ),
            rest: [
                algorithm.to_owned(),
                short_list(
                    "plans",
                    plans.map(|plan| format!("{} x{}", plan.name, plan.multiply)),
                ),
                short_list("not for", rule.exempt.iter().map(ToString::to_string)),
                short_list("on", routes.map(|route| route.name.to_string())),
                format!("shared {}", rule.sharing.as_str()),
                format!("without the store {}", rule.on_store_error.as_str()),
            ],
        }
    }

    /// The text, with the details that differ from `other`.
    fn beside(&self, other: Option<&LimitText>) -> String {
        let mut text = self.short.clone();
        let rest = other.map_or(&self.rest, |other| &other.rest);
        for (own, _) in self
            .rest
            .iter()
            .zip(rest)
            .filter(|(own, other)| own != other)
        {
            text = text + ", " + if own.is_empty() { "nothing more" } else { own };
        }
        text
    }
}

/// A list, cut after [`MAX_MEMBERS`]; empty if it has no members.
fn short_list(what: &str, all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let more = match all.len().saturating_sub(MAX_MEMBERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = &all[..all.len().min(MAX_MEMBERS)];
    if all.is_empty() {
        return String::new();
    }
    format!("{what} {}{more}", named.join(", "))
}
