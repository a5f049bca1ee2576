//! What needs no token, for orchestrators and scrapers: whether the gateway is well, and its figures.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::control::{Control, ControlState, MAX_BODY};
use super::problem::problem;

/// The routes of `admin.probes`. Whoever reaches them may be anybody: they say no more than they must.
pub fn probes(control: Arc<dyn Control>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there are only probes here") })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .with_state(control)
}

async fn ready(State(gateway): ControlState) -> Response {
    match gateway.ready() {
        true => "ready\n".into_response(),
        false => draining(),
    }
}

/// `GET /readyz` of the admin listener, which also says how the shared store stands.
pub(super) async fn ready_with_store(State(gateway): ControlState) -> Response {
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

/// `GET /metrics`.
pub(super) async fn metrics(State(gateway): ControlState) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], gateway.metrics()).into_response()
}
