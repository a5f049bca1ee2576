//! The record as a data source for what asks Prometheus, such as Grafana: the paths, parameters and answers are those of its
//! HTTP interface, under `/prometheus`.
//!
//! Where Prometheus narrows labels and series by time, here all that were ever recorded are named.

mod catalog;
mod metadata;
mod samples;
mod times;
mod write;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use self::samples::Recorded;
use super::Control;
use crate::base::clock::{Clock, Nanos};
use crate::record::Record;
use crate::record::promql;
use crate::record::promql::labels::{Labels, Matcher, is_label_name};
use crate::record::promql::{Error, Times};

/// Two queries at a time, so that a long one keeps no short ones waiting, and beside what the dashboard asks.
static ANSWERING: Semaphore = Semaphore::const_new(2);
/// Longest time for an answer, with the wait for others' queries.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most selectors of a question.
const SELECTORS: usize = 32;

type Gateway = State<Arc<dyn Control>>;

/// The paths below `/prometheus/api/v1`.
pub fn router() -> Router<Arc<dyn Control>> {
    Router::new()
        .route("/query", get(query).post(query))
        .route("/query_range", get(query_range).post(query_range))
        .route("/labels", get(labels).post(labels))
        .route("/label/{name}/values", get(values))
        .route("/series", get(series).post(series))
        .route("/metadata", get(metadata::metadata))
        .route("/status/buildinfo", get(build))
        .route("/query_exemplars", get(exemplars).post(exemplars))
        .route("/rules", get(rules))
}

/// Why a question is not answered.
enum Refusal {
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
    fn parameter(name: &str, why: impl std::fmt::Display) -> Refusal {
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

type Answer = Result<Response, Refusal>;

fn answer(status: StatusCode, body: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// An answer with what was asked for, which is JSON, and whether there was more of it.
fn success(data: &str, cut: bool) -> Response {
    let warnings = match cut {
        true => r#","warnings":["results truncated due to limit"]"#,
        false => "",
    };
    let body = format!(r#"{{"status":"success","data":{data}{warnings}}}"#);
    answer(StatusCode::OK, body)
}

type Pairs = Vec<(String, String)>;

/// Parameters of a form and of the path, those of the form first.
struct Parameters(Pairs);

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
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value)
    }

    /// Selectors of series.
    fn selectors(&self) -> Result<Vec<String>, Refusal> {
        let given = self.0.iter().filter(|(name, _)| name == "match[]");
        if given.clone().count() > SELECTORS {
            let why = format!("there are more than {SELECTORS} match[]");
            return Err(Refusal::Bad(why));
        }
        Ok(given.map(|(_, text)| text.clone()).collect())
    }

    /// How long to wait for an answer.
    fn timeout(&self) -> Result<Duration, Refusal> {
        let text = self.get("timeout");
        if text.is_empty() {
            return Ok(PATIENCE);
        }
        let unclear = || format!("cannot parse {text:?} to a valid duration");
        let ms = times::step(text).ok_or_else(|| Refusal::parameter("timeout", unclear()))?;
        Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(PATIENCE))
    }

    /// A moment that must be there.
    fn moment(&self, name: &str) -> Result<i64, Refusal> {
        let text = self.get(name);
        let unclear = || format!("cannot parse {text:?} to a valid timestamp");
        times::moment(text).ok_or_else(|| Refusal::parameter(name, unclear()))
    }

    /// A moment that may be missing.
    fn optional_moment(&self, name: &str) -> Result<Option<i64>, Refusal> {
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
    fn limit(&self) -> Result<usize, Refusal> {
        match self.get("limit") {
            "" => Ok(usize::MAX),
            text => match text.parse() {
                Ok(0) => Ok(usize::MAX),
                Ok(limit) => Ok(limit),
                Err(_) => Err(Refusal::Bad("limit must be a number".into())),
            },
        }
    }

    fn span(&self) -> Result<(), Refusal> {
        self.optional_moment("start")?;
        self.optional_moment("end").map(drop)
    }
}

/// The record, once this process has it.
struct Opened {
    record: Arc<OnceLock<Record>>,
    clock: Clock,
}

impl Opened {
    fn of(gateway: &dyn Control) -> Result<Opened, Refusal> {
        let off = "nothing is recorded: the gateway file says `record: off`";
        let record = gateway.record().ok_or(Refusal::Nowhere(off))?;
        match record.get() {
            Some(_) => Ok(Opened {
                record,
                clock: gateway.clock().clone(),
            }),
            None => Err(Refusal::Unavailable(
                "another process still writes the record; it is taken over when that ends",
            )),
        }
    }

    /// Reads and computes where the disk may be waited for, until it takes too long or nobody waits any more.
    async fn answer<T: Send + 'static>(
        self,
        timeout: Duration,
        answer: impl FnOnce(&Recorded) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Refusal> {
        let until = self.clock.now().after(Nanos::from(timeout));
        let turn = tokio::time::timeout(timeout, ANSWERING.acquire()).await;
        let turn = turn.map_err(|_| Refusal::Late("query timed out in query queue".into()))?;
        // It goes with this future.
        let asker = Arc::new(());
        let waits = Arc::downgrade(&asker);
        let run = spawn_blocking(move || {
            let _turn = turn;
            let record = self.record.get()?;
            let recorded = Recorded {
                record,
                exposed: &catalog::exposed(&record.series()),
                // The second that goes on is in no answer.
                now: self.clock.wall().as_secs(),
                wanted: &|| waits.strong_count() > 0 && self.clock.now() < until,
            };
            Some(answer(&recorded))
        });
        match run.await {
            Ok(Some(found)) => Ok(found?),
            _ => Err(Refusal::Internal("the record was not read".into())),
        }
    }

    /// The labels of series that one of the selectors takes, or of all if there is none.
    async fn fitting(self, selectors: Vec<String>) -> Result<BTreeSet<Labels>, Refusal> {
        let answer = move |recorded: &Recorded| {
            let mut found = BTreeSet::new();
            let mut take = |matchers: &[Matcher]| -> Result<(), Error> {
                let fitting = recorded.fitting(matchers)?.into_iter();
                found.extend(fitting.map(|one| one.labels.clone()));
                Ok(())
            };
            if selectors.is_empty() {
                take(&[])?;
            }
            for text in &selectors {
                take(&promql::selector(text)?)?;
            }
            Ok(found)
        };
        self.answer(PATIENCE, answer).await
    }
}

fn now(gateway: &dyn Control) -> i64 {
    i64::try_from(gateway.clock().wall().as_millis()).unwrap_or(0)
}

async fn query(State(gateway): Gateway, asked: Parameters) -> Answer {
    let at = asked.optional_moment("time")?;
    let at = at.unwrap_or_else(|| now(&*gateway));
    let timeout = asked.timeout()?;
    let query = asked.get("query").to_owned();
    let evaluate = move |source: &Recorded| {
        promql::instant(&query, at, source).map(|found| write::answer(&found, at))
    };
    match Opened::of(&*gateway)?.answer(timeout, evaluate).await {
        Ok(found) => Ok(success(&found, false)),
        Err(Refusal::Bad(why)) => Err(Refusal::parameter("query", why)),
        Err(other) => Err(other),
    }
}

async fn query_range(State(gateway): Gateway, asked: Parameters) -> Answer {
    let (start, end) = (asked.moment("start")?, asked.moment("end")?);
    if end < start {
        let why = "end timestamp must not be before start time";
        return Err(Refusal::parameter("end", why));
    }
    let text = asked.get("step");
    let unclear = || format!("cannot parse {text:?} to a valid duration");
    let step = times::step(text).ok_or_else(|| Refusal::parameter("step", unclear()))?;
    if step <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(Refusal::parameter("step", why));
    }
    let timeout = asked.timeout()?;
    let query = asked.get("query").to_owned();
    let evaluate = move |source: &Recorded| {
        promql::range(&query, Times { start, end, step }, source).map(|found| write::matrix(&found))
    };
    let found = Opened::of(&*gateway)?.answer(timeout, evaluate).await?;
    Ok(success(&found, false))
}

/// A list of texts, as many as the limit allows.
fn texts(all: BTreeSet<&str>, limit: usize) -> Response {
    let cut = all.len() > limit;
    let some: Vec<&str> = all.into_iter().take(limit).collect();
    success(&json!(some).to_string(), cut)
}

async fn labels(State(gateway): Gateway, asked: Parameters) -> Answer {
    asked.span()?;
    let (selectors, limit) = (asked.selectors()?, asked.limit()?);
    let fitting = Opened::of(&*gateway)?.fitting(selectors).await?;
    let names = fitting.iter().flat_map(Labels::iter).map(|(name, _)| name);
    Ok(texts(names.collect(), limit))
}

async fn values(State(gateway): Gateway, Path(name): Path<String>, asked: Parameters) -> Answer {
    if !is_label_name(&name) {
        return Err(Refusal::Bad(format!("invalid label name: {name:?}")));
    }
    asked.span()?;
    let (selectors, limit) = (asked.selectors()?, asked.limit()?);
    let fitting = Opened::of(&*gateway)?.fitting(selectors).await?;
    let values = fitting.iter().map(|labels| labels.get(&name));
    Ok(texts(
        values.filter(|value| !value.is_empty()).collect(),
        limit,
    ))
}

async fn series(State(gateway): Gateway, asked: Parameters) -> Answer {
    asked.span()?;
    let selectors = asked.selectors()?;
    if selectors.is_empty() {
        return Err(Refusal::Bad("no match[] parameter provided".into()));
    }
    let limit = asked.limit()?;
    let fitting = match Opened::of(&*gateway)?.fitting(selectors).await {
        Err(Refusal::Bad(why)) => return Err(Refusal::parameter("match[]", why)),
        other => other?,
    };
    let some = fitting.iter().take(limit).map(write::labels);
    let some: Vec<String> = some.collect();
    let data = format!("[{}]", some.join(","));
    Ok(success(&data, fitting.len() > limit))
}

/// What asks reads the version to know what it may ask for.
async fn build() -> Response {
    let build = json!({
        "version": "2.42.0",
        "revision": concat!("tollgate-", env!("CARGO_PKG_VERSION")),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    });
    success(&build.to_string(), false)
}

/// There are none.
async fn exemplars(asked: Parameters) -> Answer {
    let (start, end) = (
        asked.optional_moment("start")?,
        asked.optional_moment("end")?,
    );
    if let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        let why = "end timestamp must not be before start timestamp";
        return Err(Refusal::Bad(why.into()));
    }
    let query = asked.get("query").to_owned();
    match spawn_blocking(move || promql::check(&query)).await {
        Ok(checked) => checked?,
        Err(_) => return Err(Refusal::Internal("the query was not read".into())),
    }
    Ok(success("[]", false))
}

/// There are none.
async fn rules(asked: Parameters) -> Answer {
    match asked.get("type") {
        "" | "alert" | "record" => Ok(success(r#"{"groups":[]}"#, false)),
        other => Err(Refusal::parameter(
            "type",
            format!("not supported value {other:?}"),
        )),
    }
}
