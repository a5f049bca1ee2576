//! What needs no token, for orchestrators and scrapers: whether the gateway is well, and its figures.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{Control, Gateway, MAX_BODY, draining, metrics, problem};

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

async fn ready(State(gateway): Gateway) -> Response {
    match gateway.ready() {
        true => "ready\n".into_response(),
        false => draining(),
    }
}
