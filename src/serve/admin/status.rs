//! Serves the state of limits, upstreams, policies and the process, as JSON. Nothing is changed by these requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use rustix::system::uname;
use serde_json::{Value, json};

use super::control::{Control, ControlState};
use super::record;
use crate::base::telemetry::{Label, Metric};
use crate::serve::stack::explanation;
use crate::upstream::Servers;

/// Every rule as JSON, with its open permits. Its decisions and unknown costs are those of all rules with its name,
/// since the start of the process.
pub(super) fn describe_limits(gateway: &dyn Control) -> Vec<Value> {
    let running = gateway.running();
    let open_permits = running.admission.open_permits();
    let describe = |rule: &Arc<crate::limit::Rule>| {
        let mut description = explanation::describe_rule(rule);
        if let Some(count) = open_permits.get(rule.index).copied().flatten() {
            description.insert("open".into(), json!(count));
        }
        description.insert("scope".into(), json!(rule.scope));
        let decision_count = |outcome| {
            let labels = [
                (Label::Limit, rule.name.as_str()),
                (Label::Outcome, outcome),
            ];
            gateway.counter_total(Metric::LimitDecisions, &labels)
        };
        let outcomes: &[&str] = match rule.is_candidate {
            true => &["try_refused"],
            false => &["within", "over", "refused", "shadow_refused"],
        };
        let decisions = outcomes
            .iter()
            .map(|outcome| ((*outcome).to_owned(), json!(decision_count(outcome))));
        description.insert("decisions".into(), Value::Object(decisions.collect()));
        if rule.count.is_stated_in_response() {
            let labels = [(Label::Limit, rule.name.as_str())];
            let unknown_count = gateway.counter_total(Metric::CostUnknown, &labels);
            description.insert("cost_unknown".into(), json!(unknown_count));
        }
        Value::Object(description)
    };
    running.ruleset.rules.iter().map(describe).collect()
}

/// `GET /v1/limits`: see [`describe_limits`].
pub(super) async fn limits(State(gateway): ControlState) -> Json<Value> {
    Json(json!({ "limits": describe_limits(&*gateway) }))
}

/// Every upstream as JSON, with the state of its servers and the pressure on it.
pub(super) fn describe_upstreams(gateway: &dyn Control) -> Vec<Value> {
    let now = gateway.clock().now();
    let describe = |servers: &Arc<Servers>| {
        let endpoints = servers.endpoints();
        let descriptions = endpoints.iter().map(|endpoint| {
            json!({
                "server": *endpoint.name,
                "address": endpoint.resolved_ip(),
                "weight": servers.settings.servers[endpoint.server_index].weight,
                "state": servers.state(endpoint, now).as_str(),
                "open": endpoint.health.open_requests(),
                "ejections": endpoint.health.ejections(),
                "failed_checks": endpoint.health.failed_checks(),
            })
        });
        json!({
            "upstream": servers.settings.name,
            "servers": descriptions.collect::<Vec<_>>(),
            "pressure": servers.pressure().map(|pressure| explanation::describe_pressure(pressure)),
        })
    };
    gateway.running().upstreams.iter().map(describe).collect()
}

/// `GET /v1/upstreams`: see [`describe_upstreams`].
pub(super) async fn upstreams(State(gateway): ControlState) -> Json<Value> {
    Json(json!({ "upstreams": describe_upstreams(&*gateway) }))
}

/// `GET /v1/status`: the process, its record, its push destinations and its store.
pub(super) async fn status(State(gateway): ControlState) -> Response {
    let running = gateway.running();
    let store = running.admission.shared_store().map(|store| {
        let status = store.status();
        let state = match status.last_error.is_empty() {
            true => status.status.as_str().to_owned(),
            false => format!("{}: {}", status.status.as_str(), status.last_error),
        };
        json!({ "kind": "shared", "state": state, "gateways": status.gateway_count })
    });
    let push_destinations = gateway.push_status().into_iter().map(|status| {
        json!({
            "to": status.engine.as_str(),
            "name": status.name,
            "url": status.url,
            "behind_seconds": status.behind_seconds,
            "sent": status.sent_samples,
            "refused": status.refused_samples,
            "trouble": status.last_error,
        })
    });
    Json(json!({
        "gateway": uname().nodename().to_string_lossy(),
        "version": env!("CARGO_PKG_VERSION"),
        "started": gateway.started_at(),
        "now": gateway.clock().wall().as_secs(),
        "record": record::describe_record(&*gateway).await,
        "push": push_destinations.collect::<Vec<_>>(),
        "store": store,
    }))
    .into_response()
}

/// `GET /v1/policies`: the policy files as they were read, and the routes that they define.
pub(super) async fn policies(State(gateway): ControlState) -> Json<Value> {
    let ruleset = gateway.running().ruleset;
    let files: Vec<Value> = ruleset
        .files
        .iter()
        .map(|(path, text)| json!({ "path": path, "text": text }))
        .collect();
    let routes = ruleset.routes.iter();
    let routes: Vec<Value> = routes
        .map(|route| explanation::describe_route(route, &ruleset))
        .collect();
    Json(json!({ "files": files, "routes": routes }))
}
