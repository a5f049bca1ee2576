//! The admin listener: what an operator asks a running gateway. Loopback by default; with a token
//! everything but `/healthz` needs it.

mod connections;
mod dashboard;
mod door;
mod keys;
mod probes;
mod prometheus;
mod record;

pub use connections::serve;
pub use probes::probes;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rustix::system::uname;
use serde_json::{Value, json};

use super::stack::explain;
use super::stack::explain::Question;
use super::worker::generation::Running;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric};
use crate::policy::Report;
use crate::record::Record;
use crate::record::push;
use crate::upstream::Servers;

/// Most bytes of a request to the admin listener.
const MAX_BODY: usize = 1024 * 1024;

/// The gateway, as far as its operator may reach into it.
pub trait Control: Send + Sync + 'static {
    /// What runs now.
    fn running(&self) -> Running;
    /// Reads the configuration again.
    fn reload(&self) -> Pin<Box<dyn Future<Output = Reload> + Send + '_>>;
    /// `/metrics`.
    fn metrics(&self) -> String;
    /// What happened in every second, once this process has it; nothing if it is not recorded.
    fn record(&self) -> Option<Arc<OnceLock<Record>>>;
    /// The sum of one counter.
    fn count(&self, metric: Metric, labels: &[(Label, &str)]) -> u64;
    /// How each engine does to which figures are pushed.
    fn pushed(&self) -> Vec<push::Status>;
    /// When it was started, in seconds since 1970.
    fn started(&self) -> u64;
    /// Whether new requests are taken.
    fn ready(&self) -> bool;
    /// Time.
    fn clock(&self) -> &Clock;
    /// What operators must prove to know.
    fn token(&self) -> Option<&str>;
}

/// How a reload ended.
pub enum Reload {
    /// It runs. What is worth knowing about it.
    Done(Value),
    /// Mistakes; the policies before still run.
    Mistakes(Report),
    /// It could not be run for another reason; the policies before still run.
    Failed(String),
}

type Gateway = State<Arc<dyn Control>>;

/// The admin listener's routes.
pub fn router(control: Arc<dyn Control>) -> Router {
    let files = dashboard::paths().fold(Router::new(), |router, path| {
        router.route(path, get(dashboard::file))
    });
    files
        .route("/", get(dashboard::page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/limits", get(limits))
        .route(
            "/v1/limits/{limit}/keys/{key}",
            get(keys::read).delete(keys::forget),
        )
        .route("/v1/upstreams", get(upstreams))
        .route("/v1/explain", post(explained))
        .route("/v1/reload", post(reload))
        .route("/v1/policies", get(policies))
        .route("/v1/record/series", get(record::series))
        .route("/v1/record/range", get(record::range))
        .route("/v1/record/top", get(record::top))
        .route("/v1/record/samples", get(record::samples))
        .route("/v1/record/events", get(record::events))
        .route("/v1/record/key", get(record::key))
        .route("/v1/record/explain", get(record::explain))
        .route("/v1/record/live", get(record::live))
        .route("/v1/status", get(status))
        .nest("/prometheus/api/v1", prometheus::router())
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is nothing here") })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .layer(axum::middleware::from_fn_with_state(
            control.clone(),
            door::check,
        ))
        .with_state(control)
}

/// Problem details of the admin listener.
fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let kind = [(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    )];
    (status, kind, body.to_string()).into_response()
}

async fn ready(State(gateway): Gateway) -> Response {
    if gateway.ready() {
        // Without the store the gateway goes on by what `on_store_error` says: no reason to send it nothing.
        let running = gateway.running();
        let store = running
            .admission
            .shared_store()
            .map(|shared| shared.status());
        match store {
            None => String::from("ready\n"),
            Some((standing, gateways, trouble)) => {
                let (word, colon) = (
                    standing.as_str(),
                    if trouble.is_empty() { "" } else { ": " },
                );
                format!("ready\nstore {word} ({gateways} gateways){colon}{trouble}\n")
            }
        }
        .into_response()
    } else {
        draining()
    }
}

fn draining() -> Response {
    problem(StatusCode::SERVICE_UNAVAILABLE, "the gateway is draining")
}

async fn metrics(State(gateway): Gateway) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], gateway.metrics()).into_response()
}

/// Every limit with its decisions so far.
fn all_limits(gateway: &dyn Control) -> Vec<Value> {
    let running = gateway.running();
    let open = running.admission.open();
    let describe = |rule: &Arc<crate::limit::Rule>| {
        let mut value = explain::describe_rule(rule);
        if let Some(permits) = open.get(rule.index).copied().flatten() {
            value.insert("open".into(), json!(permits));
        }
        let count = |outcome| {
            let labels = [
                (Label::Limit, rule.name.as_str()),
                (Label::Outcome, outcome),
            ];
            gateway.count(Metric::LimitDecisions, &labels)
        };
        let outcomes = ["within", "over", "refused", "shadow_refused"];
        let decisions = outcomes
            .iter()
            .map(|outcome| ((*outcome).to_owned(), json!(count(outcome))));
        value.insert("decisions".into(), Value::Object(decisions.collect()));
        if rule.count.is_cost() {
            let labels = [(Label::Limit, rule.name.as_str())];
            let unknown = gateway.count(Metric::CostUnknown, &labels);
            value.insert("cost_unknown".into(), json!(unknown));
        }
        Value::Object(value)
    };
    running.ruleset.rules.iter().map(describe).collect()
}

async fn limits(State(gateway): Gateway) -> Json<Value> {
    Json(json!({ "limits": all_limits(&*gateway) }))
}

/// Every upstream and how its servers stand.
fn all_upstreams(gateway: &dyn Control) -> Vec<Value> {
    let now = gateway.clock().now();
    let describe = |servers: &Arc<Servers>| {
        let endpoints = servers.endpoints();
        let each = endpoints.iter().map(|one| {
            json!({
                "server": *one.name,
                "address": one.resolved_ip(),
                "weight": servers.settings.servers[one.server].weight,
                "state": servers.state(one, now).as_str(),
                "open": one.health.open(),
                "ejections": one.health.ejections(),
                "failed_checks": one.health.failed_checks(),
            })
        });
        json!({
            "upstream": servers.settings.name,
            "servers": each.collect::<Vec<_>>(),
            "pressure": servers.pressure().map(|pressure| explain::describe_pressure(pressure)),
        })
    };
    gateway.running().upstreams.iter().map(describe).collect()
}

async fn upstreams(State(gateway): Gateway) -> Json<Value> {
    Json(json!({ "upstreams": all_upstreams(&*gateway) }))
}

/// The gateway itself.
async fn status(State(gateway): Gateway) -> Response {
    let running = gateway.running();
    let store = running.admission.shared_store().map(|shared| {
        let (standing, gateways, trouble) = shared.status();
        let state = match trouble.is_empty() {
            true => standing.as_str().to_owned(),
            false => format!("{}: {trouble}", standing.as_str()),
        };
        json!({ "kind": "shared", "state": state, "gateways": gateways })
    });
    let pushed = gateway.pushed().into_iter().map(|status| {
        json!({
            "to": status.engine.as_str(),
            "name": status.name,
            "url": status.url,
            "behind_seconds": status.behind_seconds,
            "sent": status.sent,
            "refused": status.refused,
            "trouble": status.trouble,
        })
    });
    Json(json!({
        "gateway": uname().nodename().to_string_lossy(),
        "version": env!("CARGO_PKG_VERSION"),
        "started": gateway.started(),
        "now": gateway.clock().wall().as_secs(),
        "record": record::status(&*gateway).await,
        "push": pushed.collect::<Vec<_>>(),
        "store": store,
    }))
    .into_response()
}

async fn explained(State(gateway): Gateway, body: String) -> Response {
    let question: Question = match serde_json::from_str(&body) {
        Ok(question) => question,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match explain::explain(&gateway.running(), &question, gateway.clock()).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(unclear) => problem(StatusCode::BAD_REQUEST, &unclear.to_string()),
    }
}

async fn reload(State(gateway): Gateway) -> Response {
    match gateway.reload().await {
        Reload::Done(notes) => Json(notes).into_response(),
        Reload::Mistakes(report) => {
            let body = json!({
                "status": 422,
                "title": "The configuration has mistakes",
                "detail": "the policies before still run",
                "report": report.to_json(),
            });
            let kind = HeaderValue::from_static("application/problem+json");
            let headers = [(header::CONTENT_TYPE, kind)];
            (StatusCode::UNPROCESSABLE_ENTITY, headers, body.to_string()).into_response()
        }
        Reload::Failed(why) => problem(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}

async fn policies(State(gateway): Gateway) -> Json<Value> {
    let ruleset = gateway.running().ruleset;
    let files: Vec<Value> = ruleset
        .files
        .iter()
        .map(|(path, text)| json!({ "path": path, "text": text }))
        .collect();
    let route = |route: &Arc<crate::route::Route>| {
        let upstream = ruleset
            .upstreams
            .get(route.upstream)
            .map(|upstream| &*upstream.name);
        explain::describe_route(route, upstream)
    };
    let routes: Vec<Value> = ruleset.routes.iter().map(route).collect();
    Json(json!({ "files": files, "routes": routes }))
}
