//! Serves the state of limits, upstreams, policies and the process, as JSON.

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

/// Every limit with its decisions since the start.
pub(super) fn all_limits(gateway: &dyn Control) -> Vec<Value> {
    let running = gateway.running();
    let open = running.admission.open_permits();
    let describe = |rule: &Arc<crate::limit::Rule>| {
        let mut value = explanation::describe_rule(rule);
        if let Some(permits) = open.get(rule.index).copied().flatten() {
            value.insert("open".into(), json!(permits));
        }
        let count = |outcome| {
            let labels = [
                (Label::Limit, rule.name.as_str()),
                (Label::Outcome, outcome),
            ];
            gateway.counter_total(Metric::LimitDecisions, &labels)
        };
        let outcomes = ["within", "over", "refused", "shadow_refused"];
        let decisions = outcomes
            .iter()
            .map(|outcome| ((*outcome).to_owned(), json!(count(outcome))));
        value.insert("decisions".into(), Value::Object(decisions.collect()));
        if rule.count.is_cost() {
            let labels = [(Label::Limit, rule.name.as_str())];
            let unknown = gateway.counter_total(Metric::CostUnknown, &labels);
            value.insert("cost_unknown".into(), json!(unknown));
        }
        Value::Object(value)
    };
    running.ruleset.rules.iter().map(describe).collect()
}

pub(super) async fn limits(State(gateway): ControlState) -> Json<Value> {
    Json(json!({ "limits": all_limits(&*gateway) }))
}

/// Every upstream with the state of its servers.
pub(super) fn all_upstreams(gateway: &dyn Control) -> Vec<Value> {
    let now = gateway.clock().now();
    let describe = |servers: &Arc<Servers>| {
        let endpoints = servers.endpoints();
        let endpoints = endpoints.iter().map(|endpoint| {
            json!({
                "server": *endpoint.name,
                "address": endpoint.resolved_ip(),
                "weight": servers.settings.servers[endpoint.server].weight,
                "state": servers.state(endpoint, now).as_str(),
                "open": endpoint.health.open(),
                "ejections": endpoint.health.ejections(),
                "failed_checks": endpoint.health.failed_checks(),
            })
        });
        json!({
            "upstream": servers.settings.name,
            "servers": endpoints.collect::<Vec<_>>(),
            "pressure": servers.pressure().map(|pressure| explanation::describe_pressure(pressure)),
        })
    };
    gateway.running().upstreams.iter().map(describe).collect()
}

pub(super) async fn upstreams(State(gateway): ControlState) -> Json<Value> {
    Json(json!({ "upstreams": all_upstreams(&*gateway) }))
}

/// `GET /v1/status`: the process, its record, its push destinations and its store.
pub(super) async fn status(State(gateway): ControlState) -> Response {
    let running = gateway.running();
    let store = running.admission.shared_store().map(|shared| {
        let store = shared.status();
        let state = match store.last_error.is_empty() {
            true => store.status.as_str().to_owned(),
            false => format!("{}: {}", store.status.as_str(), store.last_error),
        };
        json!({ "kind": "shared", "state": state, "gateways": store.gateway_count })
    });
    let pushed = gateway.push_status().into_iter().map(|status| {
        json!({
            "to": status.engine.as_str(),
            "name": status.name,
            "url": status.url,
            "behind_seconds": status.behind_seconds,
            "sent": status.sent,
            "refused": status.refused,
            "trouble": status.last_error,
        })
    });
    Json(json!({
        "gateway": uname().nodename().to_string_lossy(),
        "version": env!("CARGO_PKG_VERSION"),
        "started": gateway.started_at(),
        "now": gateway.clock().wall().as_secs(),
        "record": record::status(&*gateway).await,
        "push": pushed.collect::<Vec<_>>(),
        "store": store,
    }))
    .into_response()
}

pub(super) async fn policies(State(gateway): ControlState) -> Json<Value> {
    let ruleset = gateway.running().ruleset;
    let files: Vec<Value> = ruleset
        .files
        .iter()
        .map(|(path, text)| json!({ "path": path, "text": text }))
        .collect();
    let route = |route: &Arc<crate::route::Route>| {
        let upstream = ruleset
            .upstreams
            .get(route.upstream_index)
            .map(|upstream| &*upstream.name);
        explanation::describe_route(route, upstream)
    };
    let routes: Vec<Value> = ruleset.routes.iter().map(route).collect();
    Json(json!({ "files": files, "routes": routes }))
}
