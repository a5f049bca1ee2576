//! Responses as Prometheus gives them: successes and errors.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::record::promql::Error;

/// Why a question is not answered.
pub(super) enum Refusal {
    /// It is unclear.
    Bad(String),
    /// It cannot be answered for these series.
    Execution(String),
    /// Nothing is recorded.
    Nowhere(&'static str),
    /// Another process has the record.
    Unavailable(&'static str),
    /// It took too long.
    Late(String),
    /// The record is at fault.
    Internal(String),
}

impl Refusal {
    /// About one parameter.
    pub(super) fn parameter(name: &str, why: impl std::fmt::Display) -> Refusal {
        Refusal::Bad(format!("invalid parameter {name:?}: {why}"))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::Unclear(why) => Refusal::Bad(why),
            Error::Execution(why) => Refusal::Execution(why),
            Error::Late => Refusal::Late(error.to_string()),
            Error::Source(_) => Refusal::Internal(error.to_string()),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, kind, why) = match self {
            Refusal::Bad(why) => (StatusCode::BAD_REQUEST, "bad_data", why),
            Refusal::Execution(why) => (StatusCode::UNPROCESSABLE_ENTITY, "execution", why),
            Refusal::Nowhere(why) => (StatusCode::NOT_FOUND, "not_found", why.into()),
            Refusal::Unavailable(why) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", why.into())
            }
            Refusal::Late(why) => (StatusCode::SERVICE_UNAVAILABLE, "timeout", why),
            Refusal::Internal(why) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", why),
        };
        let body = json!({ "status": "error", "errorType": kind, "error": why });
        answer(status, body.to_string())
    }
}

pub(super) type Answer = Result<Response, Refusal>;

fn answer(status: StatusCode, body: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// An answer with what was asked for, which is JSON, and whether there was more of it.
pub(super) fn success(data: &str, cut: bool) -> Response {
    let warnings = match cut {
        true => r#","warnings":["results truncated due to limit"]"#,
        false => "",
    };
    let body = format!(r#"{{"status":"success","data":{data}{warnings}}}"#);
    answer(StatusCode::OK, body)
}
