//! Serves health checks and metrics, for orchestrators and scrapers.
//!
//! `admin.probes` is a listener of its own for them, which needs no token.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::control::{Control, ControlState, MAX_BODY};
use super::problem::problem;

/// The paths of `admin.probes`. Anybody may reach them, so `/readyz` does not describe the store here.
pub fn probes(control: Arc<dyn Control>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async {
            problem(
                StatusCode::NOT_FOUND,
                "no such path; this listener serves /healthz, /readyz and /metrics",
            )
        })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .with_state(control)
}

async fn ready(State(gateway): ControlState) -> Response {
    match gateway.is_ready() {
        true => "ready\n".into_response(),
        false => draining(),
    }
}

/// `GET /readyz` of the admin listener, which also describes the shared store.
pub(super) async fn ready_with_store(State(gateway): ControlState) -> Response {
    if gateway.is_ready() {
        // Without the store the gateway still serves, as `on_store_error` says, so it stays ready.
        let running = gateway.running();
        let store = running
            .admission
            .shared_store()
            .map(|shared| shared.status());
        match store {
            None => String::from("ready\n"),
            Some(store) => {
                let (word, gateways) = (store.status.as_str(), store.gateway_count);
                let trouble = store.last_error;
                let colon = if trouble.is_empty() { "" } else { ": " };
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
