//! Handles the `POST` requests of operators: to explain a request, and to reload the configuration.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::audit;
use super::control::{ControlState, ReloadOutcome};
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::serve::stack::explain;
use crate::serve::stack::request_to_explain::RequestToExplain;

/// `POST /v1/explain`: what the gateway would do with a request; 400 if it cannot be explained.
pub(super) async fn explain(State(gateway): ControlState, body: String) -> Response {
    let request: RequestToExplain = match serde_json::from_str(&body) {
        Ok(request) => request,
        Err(error) => return problem_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match explain::explain(&gateway.running(), &request, gateway.clock()).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => problem_response(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// `POST /v1/reload`: 200 with the changes, 422 with the mistakes, or 500 if it fails for another reason.
pub(super) async fn reload(State(gateway): ControlState, operator: AdminOperator) -> Response {
    let response = match gateway.reload().await {
        ReloadOutcome::Done(changes) => Json(changes).into_response(),
        ReloadOutcome::Mistakes(report) => {
            let body = json!({
                "status": 422,
                "title": "The configuration has mistakes",
                "detail": "the policies before still run",
                "report": report.to_json(),
            });
            let content_type = HeaderValue::from_static("application/problem+json");
            let headers = [(header::CONTENT_TYPE, content_type)];
            (StatusCode::UNPROCESSABLE_ENTITY, headers, body.to_string()).into_response()
        }
        ReloadOutcome::Failed(reason) => {
            problem_response(StatusCode::INTERNAL_SERVER_ERROR, &reason)
        }
    };
    audit::describe(response, &operator.signature(None), "reload", "", "")
}
