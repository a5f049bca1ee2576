//! Builds responses in the format of Prometheus: successes and errors. `write.rs` writes the data of successes.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::record::promql::Error;

/// Why a request failed. Each text is the reason that clients see.
pub(super) enum ApiError {
    /// A parameter is invalid.
    BadData(String),
    /// The query is valid, but cannot be evaluated on the selected series.
    Execution(String),
    /// The record is off in the gateway file.
    NotRecorded(&'static str),
    /// Another process still writes the record.
    Unavailable(&'static str),
    /// The query timed out.
    TimedOut(String),
    /// The record cannot be read, or the thread of the query panicked.
    Internal(String),
}

impl ApiError {
    /// An error about one parameter.
    pub(super) fn parameter(name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::BadData(format!("invalid parameter {name:?}: {why}"))
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> ApiError {
        match error {
            Error::Invalid(why) => ApiError::BadData(why),
            Error::Execution(why) => ApiError::Execution(why),
            Error::TimedOut => ApiError::TimedOut(error.to_string()),
            Error::Source(_) => ApiError::Internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, error_type, why) = match self {
            ApiError::BadData(why) => (StatusCode::BAD_REQUEST, "bad_data", why),
            ApiError::Execution(why) => (StatusCode::UNPROCESSABLE_ENTITY, "execution", why),
            ApiError::NotRecorded(why) => (StatusCode::NOT_FOUND, "not_found", why.into()),
            ApiError::Unavailable(why) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", why.into())
            }
            ApiError::TimedOut(why) => (StatusCode::SERVICE_UNAVAILABLE, "timeout", why),
            ApiError::Internal(why) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", why),
        };
        let body = json!({ "status": "error", "errorType": error_type, "error": why });
        json_response(status, body.to_string())
    }
}

/// The result of a handler.
pub(super) type ApiResult = Result<Response, ApiError>;

/// A response whose body is JSON.
fn json_response(status: StatusCode, body: String) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// Whether a response leaves out results beyond the limit of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncated {
    Yes,
    No,
}

impl Truncated {
    /// Whether a response with at most `limit` of `result_count` results leaves any out.
    pub(super) fn at_limit(limit: usize, result_count: usize) -> Truncated {
        match result_count > limit {
            true => Truncated::Yes,
            false => Truncated::No,
        }
    }
}

/// A response with `data`, which is JSON. If it is truncated, it carries a warning.
pub(super) fn success(data: &str, truncated: Truncated) -> Response {
    let warnings = match truncated {
        Truncated::Yes => r#","warnings":["results truncated due to limit"]"#,
        Truncated::No => "",
    };
    let body = format!(r#"{{"status":"success","data":{data}{warnings}}}"#);
    json_response(StatusCode::OK, body)
}
