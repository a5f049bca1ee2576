//! Serves what a limit would have refused: by its candidate rate (`try`), or because it is in shadow mode.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::control::ControlState;
use super::problem::problem_response;
use crate::limit::Rule;
use crate::record::insight::ShadowTally;
use crate::serve::stack::explanation;

/// The most keys of a response, and the number if the query names none.
const MAX_KEYS: usize = 1_000;
const DEFAULT_KEYS: usize = 20;

/// The parameters of a query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TriedParameters {
    limit: String,
    /// The most keys of each rule.
    most: Option<usize>,
}

/// `GET /v1/try`: how often each rule of a limit that refuses nothing would have refused, whom, and since when. 404 for an
/// unknown limit, and for one that only refuses; 400 for a wrong query.
pub(super) async fn tried(
    State(gateway): ControlState,
    query: Result<Query<TriedParameters>, QueryRejection>,
) -> Response {
    let Query(TriedParameters { limit, most }) = match query {
        Ok(parameters) => parameters,
        Err(rejection) => {
            return problem_response(StatusCode::BAD_REQUEST, &rejection.body_text());
        }
    };
    let most = most.unwrap_or(DEFAULT_KEYS);
    if !(1..=MAX_KEYS).contains(&most) {
        let detail = format!("`most` must be between 1 and {MAX_KEYS}");
        return problem_response(StatusCode::BAD_REQUEST, &detail);
    }
    let running = gateway.running();
    let rules = running.ruleset.rules.iter();
    let rules: Vec<&Arc<Rule>> = rules.filter(|rule| rule.name.as_str() == limit).collect();
    if rules.is_empty() {
        let detail = format!("no limit is named `{limit}`; /v1/limits lists them");
        return problem_response(StatusCode::NOT_FOUND, &detail);
    }
    let Some(insight) = &running.insight else {
        let detail = "nobody counts keys while the record is off; remove `record: off` from the gateway file";
        return problem_response(StatusCode::NOT_FOUND, detail);
    };
    let now = gateway.clock().wall().as_secs();
    let shadows: Vec<Value> = rules
        .iter()
        .filter(|rule| rule.shadow)
        .filter_map(|rule| {
            let tally = insight.shadow_tallies.find(&rule.scope)?;
            let mut description = describe_tally(rule, &tally, most);
            description["seconds"] = json!(now.saturating_sub(tally.since));
            Some(description)
        })
        .collect();
    if shadows.is_empty() {
        let detail = format!(
            "`{limit}` refuses, and has no candidate; give it for instance `try: 80/m`, or `mode: shadow`"
        );
        return problem_response(StatusCode::NOT_FOUND, &detail);
    }
    Json(json!({ "limit": limit, "would_refuse": shadows })).into_response()
}

/// A rule with what it would have refused.
fn describe_tally(rule: &Rule, tally: &ShadowTally, most: usize) -> Value {
    let counts = tally.counts();
    let keys = counts.top_keys(most).into_iter();
    let keys: Vec<Value> = keys
        .map(|(key, count)| json!({ "key": key, "count": count }))
        .collect();
    let mut description = explanation::describe_rule(rule);
    description.insert("since".into(), json!(tally.since));
    description.insert("decided".into(), json!(counts.decisions));
    description.insert("refused".into(), json!(counts.refusals));
    description.insert("distinct".into(), json!(counts.key_count()));
    description.insert("exact".into(), json!(!counts.has_dropped_keys));
    description.insert("keys".into(), json!(keys));
    Value::Object(description)
}
