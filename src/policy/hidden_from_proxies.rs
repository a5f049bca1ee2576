//! Warns of what proxies that ask by an HTTP check do not show, where limits or routes depend on it: bodies, and how
//! requests end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::LoadContext;
use super::tree::SourceLocation;
use crate::limit::{Algorithm, CountMode, RateLimit, Rule, RuleLimit};
use crate::route::{Route, RouteAction};

/// Warns at `location`, which is that of `decide.http`. `routes` are all routes.
pub(super) fn warn_of_hidden_facts(
    cx: &mut LoadContext,
    location: SourceLocation,
    rules: &[Arc<Rule>],
    routes: &[Arc<Route>],
) {
    // Proxies ask about the routes that hold on every listener.
    let asked_routes = || routes.iter().filter(|route| route.holds_on(None));
    let asked_rules: BTreeSet<usize> = asked_routes()
        .flat_map(|route| route.rules.iter().map(|rule| rule.index))
        .collect();
    for rule in rules {
        if let Some(effect) = effect_on_limit(rule)
            && asked_rules.contains(&rule.index)
        {
            let message = format!("for proxies that ask, the limit `{}` {effect}", rule.scope);
            let help = "count requests by `rate` there, let tollgate proxy them, or settle tickets: docs/doors.md";
            cx.warn(location, message, Some(help.into()));
        }
    }
    if asked_routes().next().is_none() {
        let message = "no policy holds for proxies that ask, so that each check gets 404";
        let help = "policies with `listen` hold for clients of these listeners only";
        cx.warn(location, message, Some(help.into()));
    }
    let mut warned = BTreeSet::new();
    for route in asked_routes() {
        for (effect, help) in effects_on_route(route) {
            let message = format!("the policy `{}` {effect}", route.name);
            if warned.insert(message.clone()) {
                cx.warn(location, message, Some(help.into()));
            }
        }
    }
}

/// What of a route does not happen where its requests are only asked about, and the cure of each.
fn effects_on_route(route: &Route) -> Vec<(&'static str, &'static str)> {
    let mut effects = Vec::new();
    if route.reads.may_need_body() {
        effects.push((
            "looks for an identity or a cost in bodies, which proxies that ask do not show",
            "take it from a header or the query, or let tollgate proxy these requests",
        ));
    }
    if route.max_body_bytes.is_some() {
        effects.push((
            "bounds bodies by `max_body`, which proxies that ask do not show",
            "let the proxy bound them too",
        ));
    }
    if route.request_changes.is_some() {
        effects.push((
            "changes fields of requests, and proxies that ask forward them as they are",
            "let the proxy change them too, and remove what clients send of them",
        ));
    }
    if route.path_change.is_some() {
        effects.push((
            "changes the path, and proxies that ask forward it as it is",
            "let the proxy change it too",
        ));
    }
    if matches!(&route.action, RouteAction::Respond(response) if response.status.is_success()) {
        effects.push((
            "responds with a status that would be an admission, so that proxies that ask get 403",
            "let the proxy respond itself",
        ));
    }
    effects
}

/// What becomes of a limit that depends on how requests end; `None` if it does not.
fn effect_on_limit(rule: &Rule) -> Option<&'static str> {
    if matches!(rule.limit, RuleLimit::Open(_)) {
        return Some("counts a request only while it is decided");
    }
    let delays = |limit: &RateLimit| matches!(limit.algorithm, Algorithm::LeakyBucket { .. });
    if rule.limit.rate().is_some_and(delays) {
        return Some("holds their checks back, so that they must wait longer than its `delay`");
    }
    match rule.count {
        CountMode::All | CountMode::CostRequest(_) => None,
        CountMode::Status { .. } => Some("counts every request, whatever status its response has"),
        CountMode::CostHeader(_) | CountMode::CostJson(_) => {
            Some("charges what it reserves, because responses are not seen")
        }
        CountMode::CostBytes(_) | CountMode::CostMessages => {
            Some("counts nothing, because bodies are not seen")
        }
    }
}
