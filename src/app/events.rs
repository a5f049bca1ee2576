//! Creates the events of the gateway for the record, such as a reload with the limits that it changed, and describes
//! changed limits. Nothing is written here: `note_writer.rs` writes events.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::base::clock::Clock;
use crate::limit::{CountMode, KeyLimit, Overrides, Rule, RuleLimit, ThrottleMode};
use crate::operator::OperatorToken;
use crate::policy::Ruleset;
use crate::record::insight::{AuditEntry, GatewayEvent, LimitChange};
use crate::route::Route;

/// The largest number of changed limits in an event, which bounds its size in the record.
const MAX_EVENT_CHANGES: usize = 100;

/// The largest number of members that the text of a list names.
const MAX_LISTED_MEMBERS: usize = 8;

/// The largest number of events that wait for the record; further ones are only counted.
const MAX_WAITING_EVENTS: usize = 300;

/// The largest number of them before an event that is no order of an operator is only counted.
const MAX_WAITING_CHANGES: usize = 200;

/// Events that wait for the record.
#[derive(Default)]
pub(super) struct WaitingEvents {
    events: Vec<GatewayEvent>,
    /// Events that were dropped because too many wait.
    dropped: u64,
}

impl WaitingEvents {
    /// Adds an event. It is only counted if [`MAX_WAITING_EVENTS`] wait already, or if it is no order of an operator and
    /// [`MAX_WAITING_CHANGES`] do.
    pub(super) fn add(&mut self, event: GatewayEvent) {
        let most = match event.audit {
            Some(_) => MAX_WAITING_EVENTS,
            None => MAX_WAITING_CHANGES,
        };
        match self.events.len() < most {
            true => self.events.push(event),
            false => self.dropped += 1,
        }
    }

    /// Takes all events. The last one says how many were dropped, if any were.
    pub(super) fn take(&mut self) -> Vec<GatewayEvent> {
        let mut events = std::mem::take(&mut self.events);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let result = format!("{dropped} orders and other events were not recorded");
            events.push(GatewayEvent {
                at: events.last().map_or(0, |event| event.at),
                event: "events_dropped".to_owned(),
                detail: format!("{result}: too many came at once; the log has them"),
                changes: Vec::new(),
                audit: Some(AuditEntry {
                    by: String::new(),
                    peer: String::new(),
                    action: String::new(),
                    target: String::new(),
                    reason: String::new(),
                    result,
                }),
            });
        }
        events
    }
}

/// Creates an event at the current time, with the first [`MAX_EVENT_CHANGES`] of the changes. Its detail says how many
/// more there are.
pub(super) fn new_event(
    clock: &Clock,
    kind: &str,
    detail: &str,
    mut changes: Vec<LimitChange>,
) -> GatewayEvent {
    let detail = match changes.len().saturating_sub(MAX_EVENT_CHANGES) {
        0 => detail.to_owned(),
        unlisted => format!("{detail}; {unlisted} more limits were changed"),
    };
    changes.truncate(MAX_EVENT_CHANGES);
    GatewayEvent {
        at: clock.wall().as_secs(),
        event: kind.to_owned(),
        detail,
        changes,
        audit: None,
    }
}

/// Creates the event of an order of an operator at the current time.
pub(super) fn new_audit_event(clock: &Clock, entry: AuditEntry) -> GatewayEvent {
    let kind = match entry.may_have_effect() {
        true => "ordered",
        false => "order_refused",
    };
    GatewayEvent {
        audit: Some(entry.clone()),
        ..new_event(clock, kind, &entry.to_string(), Vec::new())
    }
}

/// Lists the limits that differ between two configurations: the added and changed ones first, then the removed ones.
/// Differences in settings that [`LimitText`] leaves out are not listed.
pub(super) fn find_limit_changes(before: &Ruleset, after: &Ruleset) -> Vec<LimitChange> {
    let old_limits = texts_by_scope(before);
    let new_limits = texts_by_scope(after);
    let mut changes = Vec::new();
    for (scope, (rule, new_text)) in &new_limits {
        let old_text = old_limits.get(scope).map(|(_, text)| text);
        if old_text != Some(new_text) {
            changes.push(new_limit_change(rule, old_text, Some(new_text)));
        }
    }
    for (scope, (rule, old_text)) in &old_limits {
        if !new_limits.contains_key(scope) {
            changes.push(new_limit_change(rule, Some(old_text), None));
        }
    }
    changes
}

/// The operators that differ between two configurations, to be added to the detail of an event. Empty if there are none.
pub(super) fn find_operator_changes(before: &Ruleset, after: &Ruleset) -> String {
    let tokens = |ruleset: &Ruleset| -> BTreeMap<Arc<str>, OperatorToken> {
        let tokens = ruleset.operators.iter().flat_map(|tokens| tokens.list());
        tokens
            .map(|token| (token.name.clone(), token.clone()))
            .collect()
    };
    let (before, after) = (tokens(before), tokens(after));
    let mut changes = Vec::new();
    for (name, token) in &after {
        let right = token.right.as_str();
        match before.get(name) {
            None => changes.push(format!("{name} added ({right})")),
            Some(old) if old.right != token.right => {
                changes.push(format!("{name} {} → {right}", old.right.as_str()));
            }
            Some(old) if old != token => changes.push(format!("{name} changed ({right})")),
            Some(_) => {}
        }
    }
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    changes.extend(removed.map(|name| format!("{name} removed")));
    match short_list("operators:", changes.into_iter()) {
        list if list.is_empty() => list,
        list => format!("; {list}"),
    }
}

fn new_limit_change(
    rule: &Rule,
    before: Option<&LimitText>,
    after: Option<&LimitText>,
) -> LimitChange {
    LimitChange {
        limit: rule.name.as_str().to_owned(),
        origin: rule.origin.clone(),
        before: before.map(|text| text.compared_with(after)),
        after: after.map(|text| text.compared_with(before)),
    }
}

/// The texts of all limits, by the scope that identifies the counts of a limit across reloads.
fn texts_by_scope(ruleset: &Ruleset) -> BTreeMap<&str, (&Rule, LimitText)> {
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

/// A description of a limit. Two limits count as equal if their descriptions are.
#[derive(PartialEq)]
struct LimitText {
    /// The most important settings, such as `5/m per ip, hard`.
    summary: String,
    /// Settings that are shown only if they changed, each with a fixed index. A setting that the limit does not have is
    /// empty.
    details: [String; 8],
}

impl LimitText {
    fn new(rule: &Rule, ruleset: &Ruleset) -> LimitText {
        let (quota, algorithm) = match &rule.limit {
            RuleLimit::Rate(limit) if limit.is_credits() => (String::from("credits"), ""),
            RuleLimit::Rate(limit) => {
                let rates = limit.windows.iter().map(ToString::to_string);
                (
                    rates.collect::<Vec<_>>().join(", "),
                    limit.algorithm.as_str(),
                )
            }
            RuleLimit::Open(limit) => (format!("{} at once", limit.max_open), ""),
        };
        let throttle = match rule.limit.throttle() {
            ThrottleMode::Hard => String::from("hard"),
            ThrottleMode::Soft { percent } => format!("soft {percent}%"),
            ThrottleMode::Elastic { at_most, base } => {
                format!("elastic x{}", f64::from(at_most) / f64::from(base))
            }
        };
        let condition = rule.condition.as_ref();
        let condition = condition.map_or(String::new(), |condition| {
            format!(" while {}", condition.as_str())
        });
        let count = match &rule.count {
            CountMode::All => String::new(),
            count => format!(", {count}"),
        };
        let reserve = rule.reservation();
        let reserve = reserve.map_or(String::new(), |reserve| format!(", reserves {reserve}"));
        let shadow = match (rule.is_candidate, rule.shadow) {
            (true, _) => ", try",
            (false, true) => ", shadow",
            (false, false) => "",
        };
        let plans = ruleset.identity.plan.plans.iter().filter(|_| rule.plans);
        let has_limit = |route: &&Arc<Route>| {
            route
                .rules
                .iter()
                .any(|route_rule| route_rule.index == rule.index)
        };
        let routes = ruleset.routes.iter().filter(has_limit);
        let mut route_names: Vec<String> = routes.map(|route| route.name.to_string()).collect();
        // A policy with several matches has a route for each, and these routes of one name follow each other.
        route_names.dedup();
        LimitText {
            summary: format!(
                "{quota} per {}, {throttle}{condition}{count}{reserve}{shadow}",
                rule.key
            ),
            details: [
                algorithm.to_owned(),
                short_list(
                    "plans",
                    plans.map(|plan| format!("{} x{}", plan.name, plan.plan_factor)),
                ),
                match rule.clients.is_empty() {
                    true => String::new(),
                    false => format!("for {}", rule.clients),
                },
                short_list("not for", rule.exempt.iter().map(ToString::to_string)),
                short_list("on", route_names.into_iter()),
                rule.overrides
                    .as_deref()
                    .map_or(String::new(), describe_overrides),
                format!("shared {}", rule.sharing.as_str()),
                format!("without the store {}", rule.on_store_error.as_str()),
            ],
        }
    }

    /// The summary, followed by those details that differ from `other`. Without `other`, only the summary.
    fn compared_with(&self, other: Option<&LimitText>) -> String {
        let mut text = self.summary.clone();
        let other_details = other.map_or(&self.details, |other| &other.details);
        for (own_detail, _) in self
            .details
            .iter()
            .zip(other_details)
            .filter(|(own_detail, other_detail)| own_detail != other_detail)
        {
            text = text
                + ", "
                + if own_detail.is_empty() {
                    "nothing more"
                } else {
                    own_detail
                };
        }
        text
    }
}

/// Formats `name` and a list, cut after [`MAX_LISTED_MEMBERS`] with the number of the others. The text is empty if the
/// list is.
fn short_list(name: &str, members: impl Iterator<Item = String>) -> String {
    let members: Vec<String> = members.collect();
    if members.is_empty() {
        return String::new();
    }
    let unlisted_text = match members.len().saturating_sub(MAX_LISTED_MEMBERS) {
        0 => String::new(),
        unlisted => format!(" and {unlisted} more"),
    };
    let listed_members = &members[..members.len().min(MAX_LISTED_MEMBERS)];
    format!("{name} {}{unlisted_text}", listed_members.join(", "))
}

/// Formats the number of overrides, and 32 bits of a hash of them. Another hash shows that some overrides or their
/// order have changed.
fn describe_overrides(overrides: &Overrides) -> String {
    let mut hasher = SipHasher13::new();
    for (key, limit) in &overrides.set.keys {
        hasher.write(key.as_bytes());
        match limit {
            KeyLimit::Unlimited => hasher.write(b"unlimited"),
            KeyLimit::Override(number) => {
                let limit = overrides.rule(*number).map(|rule| &rule.limit);
                hasher.write(format!("{limit:?}").as_bytes());
            }
        }
    }
    let count = overrides.set.keys.len();
    format!("{count} overrides ({:08x})", hasher.finish() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_are_counted() {
        let clock = Clock::system();
        let mut waiting = WaitingEvents::default();
        for _ in 0..MAX_WAITING_CHANGES + 3 {
            waiting.add(new_event(&clock, "banned", "", Vec::new()));
        }
        for _ in MAX_WAITING_CHANGES..MAX_WAITING_EVENTS + 4 {
            let entry = AuditEntry {
                by: String::new(),
                peer: String::new(),
                action: String::new(),
                target: String::new(),
                reason: String::new(),
                result: AuditEntry::DONE.to_owned(),
            };
            waiting.add(new_audit_event(&clock, entry));
        }
        let events = waiting.take();
        assert_eq!(events.len(), MAX_WAITING_EVENTS + 1);
        let audit = events.last().and_then(|event| event.audit.as_ref());
        let result = audit.map(|audit| audit.result.as_str());
        assert_eq!(result, Some("7 orders and other events were not recorded"));
        assert!(waiting.take().is_empty());
    }
}
