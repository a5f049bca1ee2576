//! Parses the parameters of a request, from its form and its query string.

use std::time::Duration;

use axum::extract::{FromRequest, Query, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::reader::MAX_QUERY_TIMEOUT;
use super::response::ApiError;
use super::times;

/// Maximum number of selectors in a request.
const MAX_SELECTORS: usize = 32;

/// Names and values of parameters.
type ParameterPairs = Vec<(String, String)>;

/// The parameters of a request: first those of the form, then those of the query string. A `GET` has no form.
pub(super) struct QueryParameters(ParameterPairs);

impl<S: Send + Sync> FromRequest<S> for QueryParameters {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<QueryParameters, Response> {
        let to_error = |why: String| ApiError::BadData(why).into_response();
        let query = Query::<ParameterPairs>::try_from_uri(request.uri());
        let Query(query_pairs) = query.map_err(|rejection| to_error(rejection.body_text()))?;
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let form_type = b"application/x-www-form-urlencoded";
        let is_form = content_type.is_some_and(|value| value.as_bytes().starts_with(form_type));
        if !is_form || request.method() == axum::http::Method::GET {
            return Ok(QueryParameters(query_pairs));
        }
        let form = axum::Form::<ParameterPairs>::from_request(request, state).await;
        let axum::Form(mut pairs) = form.map_err(|rejection| to_error(rejection.body_text()))?;
        pairs.extend(query_pairs);
        Ok(QueryParameters(pairs))
    }
}

impl QueryParameters {
    /// The first value of the parameter `name`; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        let mut pairs = self.0.iter();
        let parameter = pairs.find(|(pair_name, _)| pair_name == name);
        parameter.map_or("", |(_, value)| value)
    }

    /// The selectors of `match[]`, as text. An error if there are more than [`MAX_SELECTORS`].
    pub(super) fn selectors(&self) -> Result<Vec<String>, ApiError> {
        let selectors = self.0.iter().filter(|(name, _)| name == "match[]");
        if selectors.clone().count() > MAX_SELECTORS {
            let why = format!("there are more than {MAX_SELECTORS} match[]");
            return Err(ApiError::BadData(why));
        }
        Ok(selectors.map(|(_, text)| text.clone()).collect())
    }

    /// The timeout of the query, at most [`MAX_QUERY_TIMEOUT`], which is also the default. Zero if it is negative, an error
    /// if it is no duration.
    pub(super) fn timeout(&self) -> Result<Duration, ApiError> {
        let text = self.get("timeout");
        if text.is_empty() {
            return Ok(MAX_QUERY_TIMEOUT);
        }
        let parse_error = || format!("cannot parse {text:?} to a valid duration");
        let timeout_ms = times::parse_step_ms(text)
            .ok_or_else(|| ApiError::parameter("timeout", parse_error()))?;
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        Ok(timeout.min(MAX_QUERY_TIMEOUT))
    }

    /// A required time, in milliseconds since 1970; an error if it is absent or cannot be parsed.
    pub(super) fn moment_ms(&self, name: &str) -> Result<i64, ApiError> {
        let text = self.get(name);
        let parse_error = || format!("cannot parse {text:?} to a valid timestamp");
        times::parse_moment_ms(text).ok_or_else(|| ApiError::parameter(name, parse_error()))
    }

    /// An optional time, in milliseconds since 1970; `None` if it is absent or empty, an error if it cannot be parsed.
    pub(super) fn optional_moment_ms(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let text = self.get(name);
        if text.is_empty() {
            return Ok(None);
        }
        let why =
            format!("Invalid time value for '{name}': cannot parse {text:?} to a valid timestamp");
        let moment_ms =
            times::parse_moment_ms(text).ok_or_else(|| ApiError::parameter(name, why))?;
        Ok(Some(moment_ms))
    }

    /// The maximum number of results; `usize::MAX` for 0 or no value. An error if it is no number.
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        match self.get("limit") {
            "" => Ok(usize::MAX),
            text => match text.parse() {
                Ok(0) => Ok(usize::MAX),
                Ok(limit) => Ok(limit),
                Err(_) => Err(ApiError::BadData("limit must be a number".into())),
            },
        }
    }

    /// Checks that `start` and `end` can be parsed. They are not used otherwise.
    pub(super) fn check_span(&self) -> Result<(), ApiError> {
        self.optional_moment_ms("start")?;
        self.optional_moment_ms("end").map(drop)
    }
}
