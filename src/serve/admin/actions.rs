//! Handles `POST` requests of operators, which explain a request or reload the configuration.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::control::{ControlState, ReloadOutcome};
use super::problem::problem;
use crate::serve::stack::explain;
use crate::serve::stack::explain::RequestToExplain;

pub(super) async fn explain(State(gateway): ControlState, body: String) -> Response {
    let request: RequestToExplain = match serde_json::from_str(&body) {
        Ok(request) => request,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match explain::explain(&gateway.running(), &request, gateway.clock()).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(unclear) => problem(StatusCode::BAD_REQUEST, &unclear.to_string()),
    }
}

pub(super) async fn reload(State(gateway): ControlState) -> Response {
    match gateway.reload().await {
        ReloadOutcome::Done(notes) => Json(notes).into_response(),
        ReloadOutcome::Mistakes(report) => {
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
        ReloadOutcome::Failed(why) => problem(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}
