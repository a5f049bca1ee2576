//! The paths of the admin listener, and the handler of each. The paths of `admin.probes` are in `probes.rs`.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};

use super::control::{Control, MAX_BODY_BYTES};
use super::problem::problem_response;
use super::{
    actions, api_keys, authorization, bans, dashboard, grants, keys, probes, prometheus, record, status,
    tried,
};

/// All paths of the admin listener, behind [`authorization::authorize`].
pub fn router(gateway: Arc<dyn Control>) -> Router {
    let assets = dashboard::asset_paths().fold(Router::new(), |router, path| {
        router.route(path, get(dashboard::asset))
    });
    assets
        .route("/", get(dashboard::page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(probes::readiness_with_store))
        .route("/metrics", get(probes::metrics))
        .route("/v1/limits", get(status::limits))
        .route(
            "/v1/limits/{limit}/keys/{key}",
            get(keys::read_key).delete(keys::reset_key),
        )
        .route("/v1/near", get(record::near))
        .route("/v1/try", get(tried::tried))
        .route("/v1/bans", get(bans::list).post(bans::order))
        .route("/v1/bans/{*key}", delete(bans::lift))
        .route("/v1/grants", get(grants::list).post(grants::order))
        .route("/v1/grants/{limit}/{*key}", delete(grants::revoke))
        .route("/v1/keys", get(api_keys::list).post(api_keys::add))
        .route("/v1/keys/{id}", delete(api_keys::revoke))
        .route("/v1/upstreams", get(status::upstreams))
        .route("/v1/explain", post(actions::explain))
        .route("/v1/reload", post(actions::reload))
        .route("/v1/policies", get(status::policies))
        .route("/v1/record/series", get(record::series))
        .route("/v1/record/range", get(record::range))
        .route("/v1/record/top", get(record::top))
        .route("/v1/record/samples", get(record::samples))
        .route("/v1/record/events", get(record::events))
        .route("/v1/record/key", get(record::key))
        .route("/v1/record/explain", get(record::explain))
        .route("/v1/record/live", get(record::live))
        .route("/v1/status", get(status::status))
        .nest("/prometheus/api/v1", prometheus::router())
        .fallback(|| async { problem_response(StatusCode::NOT_FOUND, "no such path") })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn_with_state(
            gateway.clone(),
            authorization::authorize,
        ))
        .with_state(gateway)
}
