//! Serves health checks and metrics, for orchestrators and scrapers.
//!
//! The setting `admin.probes` gives them a listener of their own, which needs no token.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::control::{Control, ControlState, MAX_BODY_BYTES};
use super::problem::problem_response;
use crate::base::telemetry::MetricsFormat;
use crate::http::quality::parse_quality;

/// The paths of `admin.probes`. Anybody may reach them, so `/readyz` does not describe the store here.
pub fn probes(gateway: Arc<dyn Control>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .fallback(|| async {
            problem_response(
                StatusCode::NOT_FOUND,
                "no such path; this listener serves /healthz, /readyz and /metrics",
            )
        })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(gateway)
}

/// `GET /readyz` of the listener for probes: 200, or 503 if the gateway takes no requests.
async fn readiness(State(gateway): ControlState) -> Response {
    match gateway.is_ready() {
        true => "ready\n".into_response(),
        false => draining_response(),
    }
}

/// `GET /readyz` of the admin listener: as [`readiness`], and describes the shared store.
pub(super) async fn readiness_with_store(State(gateway): ControlState) -> Response {
    if gateway.is_ready() {
        // Without the store the gateway still serves, as `on_store_error` says, so the gateway stays ready.
        let running = gateway.running();
        let store_status = running.admission.shared_store().map(|store| store.status());
        match store_status {
            None => String::from("ready\n"),
            Some(store_status) => {
                let status = store_status.status.as_str();
                let gateway_count = store_status.gateway_count;
                let error = store_status.last_error;
                let colon = if error.is_empty() { "" } else { ": " };
                format!("ready\nstore {status} ({gateway_count} gateways){colon}{error}\n")
            }
        }
        .into_response()
    } else {
        draining_response()
    }
}

/// The response of `/readyz` while the gateway stops, or before its workers have started.
fn draining_response() -> Response {
    problem_response(StatusCode::SERVICE_UNAVAILABLE, "the gateway is draining")
}

/// `GET /metrics`: all metrics in the text format of Prometheus. With traces there are exemplars for those who ask for
/// OpenMetrics, which alone has them.
pub(super) async fn metrics(State(gateway): ControlState, fields: HeaderMap) -> Response {
    let format = match gateway.has_traces() && accepts_open_metrics(&fields) {
        true => MetricsFormat::OpenMetrics,
        false => MetricsFormat::Text,
    };
    let content_type = HeaderValue::from_static(format.content_type());
    let content_type = [(header::CONTENT_TYPE, content_type)];
    let varies = [(header::VARY, HeaderValue::from_static("accept"))];
    (content_type, varies, gateway.metrics(format)).into_response()
}

/// Whether `Accept` names OpenMetrics, and neither refuses it nor has a malformed quality.
fn accepts_open_metrics(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::ACCEPT).iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let is_zero = |part: &str| {
            let (name, weight) = part.split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("q")
                && parse_quality(weight.trim().as_bytes()).is_none_or(|quality| quality == 0)
        };
        media_type.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(is_zero)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: bool) {
        let mut fields = HeaderMap::new();
        fields.insert(header::ACCEPT, accept.parse().unwrap());
        assert_eq!(accepts_open_metrics(&fields), expected, "{accept}");
    }

    #[test]
    fn open_metrics_must_be_named() {
        assert!(!accepts_open_metrics(&HeaderMap::new()));
        check("*/*", false);
        check("text/plain;version=0.0.4", false);
        check("application/openmetrics-text", true);
        check(
            "text/plain;q=0.5, Application/OpenMetrics-Text; version=1.0.0;q=0.75",
            true,
        );
        check("application/openmetrics-text;q=0.000,*/*", false);
        check("application/openmetrics-text; Q = 0.1", true);
        check("application/openmetrics-text;q=-1", false);
    }
}
