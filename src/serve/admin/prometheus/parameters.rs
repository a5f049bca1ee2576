//! The parameters of a request, from its form and its query.

use std::time::Duration;

use axum::extract::{FromRequest, Query, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::reader::TIMEOUT;
use super::response::ApiError;
use super::times;

/// Maximum number of selectors in a request.
const MAX_SELECTORS: usize = 32;

type Pairs = Vec<(String, String)>;

/// Parameters of the form and of the query, those of the form first.
pub(super) struct QueryParameters(Pairs);

impl<S: Send + Sync> FromRequest<S> for QueryParameters {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<QueryParameters, Response> {
        let bad = |why: String| ApiError::Bad(why).into_response();
        let path = Query::<Pairs>::try_from_uri(request.uri());
        let Query(path) = path.map_err(|unclear| bad(unclear.body_text()))?;
        let kind = request.headers().get(header::CONTENT_TYPE);
        let form = b"application/x-www-form-urlencoded";
        let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(form));
        if !is_form || request.method() == axum::http::Method::GET {
            return Ok(QueryParameters(path));
        }
        let body = axum::Form::<Pairs>::from_request(request, state).await;
        let axum::Form(mut all) = body.map_err(|unclear| bad(unclear.body_text()))?;
        all.extend(path);
        Ok(QueryParameters(all))
    }
}

impl QueryParameters {
    /// The first value of a name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value)
    }

    /// The selectors of `match[]`.
    pub(super) fn selectors(&self) -> Result<Vec<String>, ApiError> {
        let given = self.0.iter().filter(|(name, _)| name == "match[]");
        if given.clone().count() > MAX_SELECTORS {
            let why = format!("there are more than {MAX_SELECTORS} match[]");
            return Err(ApiError::Bad(why));
        }
        Ok(given.map(|(_, text)| text.clone()).collect())
    }

    /// The timeout of the query, at most [`TIMEOUT`].
    pub(super) fn timeout(&self) -> Result<Duration, ApiError> {
        let text = self.get("timeout");
        if text.is_empty() {
            return Ok(TIMEOUT);
        }
        let unclear = || format!("cannot parse {text:?} to a valid duration");
        let ms = times::step(text).ok_or_else(|| ApiError::parameter("timeout", unclear()))?;
        Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(TIMEOUT))
    }

    /// A required time, in milliseconds since 1970.
    pub(super) fn moment(&self, name: &str) -> Result<i64, ApiError> {
        let text = self.get(name);
        let unclear = || format!("cannot parse {text:?} to a valid timestamp");
        times::moment(text).ok_or_else(|| ApiError::parameter(name, unclear()))
    }

    /// An optional time, in milliseconds since 1970.
    pub(super) fn optional_moment(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let text = self.get(name);
        if text.is_empty() {
            return Ok(None);
        }
        let why =
            format!("Invalid time value for '{name}': cannot parse {text:?} to a valid timestamp");
        let found = times::moment(text).ok_or_else(|| ApiError::parameter(name, why))?;
        Ok(Some(found))
    }

    /// The maximum number of results; 0 or no value means all.
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        match self.get("limit") {
            "" => Ok(usize::MAX),
            text => match text.parse() {
                Ok(0) => Ok(usize::MAX),
                Ok(limit) => Ok(limit),
                Err(_) => Err(ApiError::Bad("limit must be a number".into())),
            },
        }
    }

    pub(super) fn span(&self) -> Result<(), ApiError> {
        self.optional_moment("start")?;
        self.optional_moment("end").map(drop)
    }
}
