//! Handles the endpoints of Prometheus' HTTP API. Where Prometheus has the same error, its text is used, because
//! clients show it.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::parameters::QueryParameters;
use super::reader::RecordReader;
use super::response::{ApiError, ApiResult, Truncated, success};
use super::samples::RecordSamples;
use super::{metadata, times, write};
use crate::operator::Right::Read;
use crate::record::promql;
use crate::record::promql::StepTimes;
use crate::record::promql::labels::{Labels, is_label_name};
use crate::serve::admin::control::{Control, ControlState};
use crate::serve::admin::rights::Method::{Get, Post};
use crate::serve::admin::rights::{AdminRoute, route};

/// The routes. Clients send long queries by `POST`, which changes nothing either.
pub(in crate::serve::admin) fn routes() -> Vec<AdminRoute> {
    vec![
        route(Get, "/prometheus/api/v1/query", Read, query),
        route(Post, "/prometheus/api/v1/query", Read, query),
        route(Get, "/prometheus/api/v1/query_range", Read, query_range),
        route(Post, "/prometheus/api/v1/query_range", Read, query_range),
        route(Get, "/prometheus/api/v1/labels", Read, labels),
        route(Post, "/prometheus/api/v1/labels", Read, labels),
        route(
            Get,
            "/prometheus/api/v1/label/{name}/values",
            Read,
            label_values,
        ),
        route(Get, "/prometheus/api/v1/series", Read, series),
        route(Post, "/prometheus/api/v1/series", Read, series),
        route(Get, "/prometheus/api/v1/metadata", Read, metadata::metadata),
        route(Get, "/prometheus/api/v1/status/buildinfo", Read, build_info),
        route(Get, "/prometheus/api/v1/query_exemplars", Read, exemplars),
        route(Post, "/prometheus/api/v1/query_exemplars", Read, exemplars),
        route(Get, "/prometheus/api/v1/rules", Read, rules),
    ]
}

/// The current time, in milliseconds since 1970.
fn now_ms(gateway: &dyn Control) -> i64 {
    i64::try_from(gateway.clock().wall().as_millis()).unwrap_or(0)
}

/// `GET /api/v1/query`: the value of a query at one moment.
async fn query(State(gateway): ControlState, parameters: QueryParameters) -> ApiResult {
    let requested_ms = parameters.optional_moment_ms("time")?;
    let time_ms = requested_ms.unwrap_or_else(|| now_ms(&*gateway));
    let timeout = parameters.timeout()?;
    let query = parameters.get("query").to_owned();
    let evaluate = move |source: &RecordSamples| {
        let result = promql::query_instant(&query, time_ms, source)?;
        Ok(write::write_instant(&result, time_ms))
    };
    match RecordReader::open(&*gateway)?.run(timeout, evaluate).await {
        Ok(result) => Ok(success(&result, Truncated::No)),
        Err(ApiError::BadData(why)) => Err(ApiError::parameter("query", why)),
        Err(error) => Err(error),
    }
}

/// `GET /api/v1/query_range`: the values of a query in a span, one for each step.
async fn query_range(State(gateway): ControlState, parameters: QueryParameters) -> ApiResult {
    let start_ms = parameters.moment_ms("start")?;
    let end_ms = parameters.moment_ms("end")?;
    if end_ms < start_ms {
        let why = "end timestamp must not be before start time";
        return Err(ApiError::parameter("end", why));
    }
    let text = parameters.get("step");
    let parse_error = || format!("cannot parse {text:?} to a valid duration");
    let step_ms =
        times::parse_step_ms(text).ok_or_else(|| ApiError::parameter("step", parse_error()))?;
    if step_ms <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(ApiError::parameter("step", why));
    }
    let timeout = parameters.timeout()?;
    let query = parameters.get("query").to_owned();
    let evaluate = move |source: &RecordSamples| {
        let times = StepTimes {
            start_ms,
            end_ms,
            step_ms,
        };
        promql::query_range(&query, times, source).map(|series| write::write_matrix(&series))
    };
    let reader = RecordReader::open(&*gateway)?;
    let result = reader.run(timeout, evaluate).await?;
    Ok(success(&result, Truncated::No))
}

/// A response with a list of at most `limit` texts, and a warning if there are more.
fn list_response(texts: BTreeSet<&str>, limit: usize) -> Response {
    let truncated = Truncated::at_limit(limit, texts.len());
    let listed: Vec<&str> = texts.into_iter().take(limit).collect();
    success(&json!(listed).to_string(), truncated)
}

/// `GET /api/v1/labels`: the names of the labels of the selected series, or of all series without a selector.
async fn labels(State(gateway): ControlState, parameters: QueryParameters) -> ApiResult {
    parameters.check_span()?;
    let (selectors, limit) = (parameters.selectors()?, parameters.limit()?);
    let reader = RecordReader::open(&*gateway)?;
    let matching = reader.matching_labels(selectors).await?;
    let names = matching.iter().flat_map(Labels::iter).map(|(name, _)| name);
    Ok(list_response(names.collect(), limit))
}

/// `GET /api/v1/label/{name}/values`: the values of one label in the selected series, or in all without a selector.
async fn label_values(
    State(gateway): ControlState,
    Path(name): Path<String>,
    parameters: QueryParameters,
) -> ApiResult {
    if !is_label_name(&name) {
        return Err(ApiError::BadData(format!("invalid label name: {name:?}")));
    }
    parameters.check_span()?;
    let (selectors, limit) = (parameters.selectors()?, parameters.limit()?);
    let reader = RecordReader::open(&*gateway)?;
    let matching = reader.matching_labels(selectors).await?;
    let values = matching.iter().map(|labels| labels.get(&name));
    let values = values.filter(|value| !value.is_empty());
    Ok(list_response(values.collect(), limit))
}

/// `GET /api/v1/series`: the labels of the series that match selectors.
async fn series(State(gateway): ControlState, parameters: QueryParameters) -> ApiResult {
    parameters.check_span()?;
    let selectors = parameters.selectors()?;
    if selectors.is_empty() {
        return Err(ApiError::BadData("no match[] parameter provided".into()));
    }
    let limit = parameters.limit()?;
    let reader = RecordReader::open(&*gateway)?;
    let matching = match reader.matching_labels(selectors).await {
        Err(ApiError::BadData(why)) => return Err(ApiError::parameter("match[]", why)),
        result => result?,
    };
    let label_sets = matching.iter().take(limit).map(write::write_labels);
    let label_sets: Vec<String> = label_sets.collect();
    let data = format!("[{}]", label_sets.join(","));
    Ok(success(&data, Truncated::at_limit(limit, matching.len())))
}

/// `GET /api/v1/status/buildinfo`: the version of Prometheus whose API this is. Clients choose features by it.
async fn build_info() -> Response {
    let build = json!({
        "version": "2.42.0",
        "revision": concat!("tollgate-", env!("CARGO_PKG_VERSION")),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    });
    success(&build.to_string(), Truncated::No)
}

/// `GET /api/v1/query_exemplars`: an empty list if the query is valid, because the record has no exemplars.
async fn exemplars(parameters: QueryParameters) -> ApiResult {
    let start_ms = parameters.optional_moment_ms("start")?;
    let end_ms = parameters.optional_moment_ms("end")?;
    if let (Some(start_ms), Some(end_ms)) = (start_ms, end_ms)
        && end_ms < start_ms
    {
        let why = "end timestamp must not be before start timestamp";
        return Err(ApiError::BadData(why.into()));
    }
    let query = parameters.get("query").to_owned();
    match spawn_blocking(move || promql::validate(&query)).await {
        Ok(validation) => validation?,
        Err(_) => return Err(ApiError::Internal("the query was not read".into())),
    }
    Ok(success("[]", Truncated::No))
}

/// `GET /api/v1/rules`: an empty list, because the gateway has no alerting or recording rules.
async fn rules(parameters: QueryParameters) -> ApiResult {
    match parameters.get("type") {
        "" | "alert" | "record" => Ok(success(r#"{"groups":[]}"#, Truncated::No)),
        unknown_type => Err(ApiError::parameter(
            "type",
            format!("not supported value {unknown_type:?}"),
        )),
    }
}
