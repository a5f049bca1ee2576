//! The parameters of a question, from its form and its query.

use std::time::Duration;

use axum::extract::{FromRequest, Query, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::reader::PATIENCE;
use super::response::Refusal;
use super::times;

/// Most selectors of a question.
const SELECTORS: usize = 32;

type Pairs = Vec<(String, String)>;

/// Parameters of a form and of the path, those of the form first.
pub(super) struct Parameters(Pairs);

impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Parameters, Response> {
        let bad = |why: String| Refusal::Bad(why).into_response();
        let path = Query::<Pairs>::try_from_uri(request.uri());
        let Query(path) = path.map_err(|unclear| bad(unclear.body_text()))?;
        let kind = request.headers().get(header::CONTENT_TYPE);
        let form = b"application/x-www-form-urlencoded";
        let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(form));
        if !is_form || request.method() == axum::http::Method::GET {
            return Ok(Parameters(path));
        }
        let body = axum::Form::<Pairs>::from_request(request, state).await;
        let axum::Form(mut all) = body.map_err(|unclear| bad(unclear.body_text()))?;
        all.extend(path);
        Ok(Parameters(all))
    }
}

impl Parameters {
    /// The first of a name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value)
    }

    /// Selectors of series.
    pub(super) fn selectors(&self) -> Result<Vec<String>, Refusal> {
        let given = self.0.iter().filter(|(name, _)| name == "match[]");
        if given.clone().count() > SELECTORS {
            let why = format!("there are more than {SELECTORS} match[]");
            return Err(Refusal::Bad(why));
        }
        Ok(given.map(|(_, text)| text.clone()).collect())
    }

    /// How long to wait for an answer.
    pub(super) fn timeout(&self) -> Result<Duration, Refusal> {
        let text = self.get("timeout");
        if text.is_empty() {
            return Ok(PATIENCE);
        }
        let unclear = || format!("cannot parse {text:?} to a valid duration");
        let ms = times::step(text).ok_or_else(|| Refusal::parameter("timeout", unclear()))?;
        Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(PATIENCE))
    }

    /// A moment that must be there.
    pub(super) fn moment(&self, name: &str) -> Result<i64, Refusal> {
        let text = self.get(name);
        let unclear = || format!("cannot parse {text:?} to a valid timestamp");
        times::moment(text).ok_or_else(|| Refusal::parameter(name, unclear()))
    }

    /// A moment that may be missing.
    pub(super) fn optional_moment(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let text = self.get(name);
        if text.is_empty() {
            return Ok(None);
        }
        let why =
            format!("Invalid time value for '{name}': cannot parse {text:?} to a valid timestamp");
        let found = times::moment(text).ok_or_else(|| Refusal::parameter(name, why))?;
        Ok(Some(found))
    }

    /// Most of what there is; 0 or nothing is all.
    pub(super) fn limit(&self) -> Result<usize, Refusal> {
        match self.get("limit") {
            "" => Ok(usize::MAX),
            text => match text.parse() {
                Ok(0) => Ok(usize::MAX),
                Ok(limit) => Ok(limit),
                Err(_) => Err(Refusal::Bad("limit must be a number".into())),
            },
        }
    }

    pub(super) fn span(&self) -> Result<(), Refusal> {
        self.optional_moment("start")?;
        self.optional_moment("end").map(drop)
    }
}
