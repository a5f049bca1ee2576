//! Serves the keys that have used most of a limit. The lists of top keys name the candidates, and the store says how much
//! each of them has used: the figures are those by which the limit decides, not estimates. Of a limit with credits the keys
//! with an account are the candidates.

use std::collections::HashSet;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::notes::{CoveredLists, ListKind, read_lists};
use super::query::{ErrorResponse, bad_request, run_query};
use crate::limit::{Rule, RuleLimit};
use crate::record::insight::KeyLists;
use crate::serve::admin::control::{Control, ControlState};
use crate::serve::admin::keys::describe_keys;
use crate::serve::admin::problem::problem_response;

/// The shortest span whose lists name candidates, in seconds: the current minute and those before it.
const MIN_SPAN_SECONDS: u64 = 300;

/// The longest span whose lists name candidates, in seconds. Above it lists of whole hours and days would be read.
const MAX_SPAN_SECONDS: u64 = 6 * 3_600;

/// The share of the quota above which a key is near its limit if the query names none, in percent.
const DEFAULT_ABOVE_PERCENT: f64 = 80.0;

/// The most keys whose state is asked for.
const MAX_CANDIDATES: usize = 500;

/// The number of equal parts of a quota by which all compared keys are counted.
const USED_PARTS: usize = 4;

/// The parameters of a query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NearParameters {
    limit: String,
    /// A number of percent, with or without the sign.
    above: Option<String>,
}

/// The candidates of a query.
struct Candidates {
    keys: Vec<String>,
    /// Begin and end of the lists that named them, in seconds since 1970.
    covered: (u64, u64),
    /// Whether all keys of the span are among them.
    is_complete: bool,
}

/// `GET /v1/near`: the keys that have used more than a share of the quota of a limit, the fullest first, and how many of all
/// compared keys have used how much. 404 for an unknown limit, 400 for a share that is none.
pub async fn near(
    State(gateway): ControlState,
    query: Result<Query<NearParameters>, QueryRejection>,
) -> Response {
    match find_near(&*gateway, query).await {
        Ok(response) | Err(response) => *response,
    }
}

async fn find_near(
    gateway: &dyn Control,
    query: Result<Query<NearParameters>, QueryRejection>,
) -> Result<ErrorResponse, ErrorResponse> {
    let Query(parameters) = query.map_err(|rejection| bad_request(&rejection.body_text()))?;
    let limit = parameters.limit;
    let above = parse_percent(parameters.above.as_deref())?;
    let ruleset = gateway.running().ruleset;
    let rules = ruleset.rules.iter();
    let window_seconds = rules
        .filter(|rule| rule.name.as_str() == limit)
        .map(|rule| longest_window_seconds(rule))
        .max();
    let Some(window_seconds) = window_seconds else {
        let detail = format!("no limit is named `{limit}`; /v1/limits lists them");
        return Err(problem_response(StatusCode::NOT_FOUND, &detail).into());
    };
    let span = window_seconds.clamp(MIN_SPAN_SECONDS, MAX_SPAN_SECONDS);
    let candidates = match find_accounts(gateway, &limit) {
        Some(accounts) => accounts,
        None => find_candidates(gateway, &limit, span).await?,
    };
    let mut near_keys: Vec<_> = describe_keys(gateway, &limit, &candidates.keys).await;
    let compared_count = candidates.keys.len();
    let distribution = count_used_shares(near_keys.iter().map(|(_, state)| state));
    near_keys.retain(|(_, state)| used_share(state) > Some(above / 100.0));
    // Of credits the least left come first, whatever was added before.
    let order = |state: &Map<String, Value>| {
        let left = state
            .get("credits")
            .and_then(|credits| credits["left"].as_f64());
        left.map_or_else(|| used_share(state).unwrap_or(0.0), |left| -left)
    };
    near_keys.sort_by(|(_, one), (_, other)| order(other).total_cmp(&order(one)));
    let near_keys = near_keys.into_iter().map(|(index, mut state)| {
        state.insert("key".into(), json!(candidates.keys[index]));
        state
    });
    let response = Json(json!({
        "limit": limit,
        "above": above,
        "from": candidates.covered.0,
        "to": candidates.covered.1,
        "compared": compared_count,
        "complete": candidates.is_complete && window_seconds <= span,
        "distribution": distribution,
        "keys": near_keys.collect::<Vec<_>>(),
    }));
    Ok(response.into_response().into())
}

/// The share of the quota that a key has used; `None` if that is not known.
fn used_share(state: &Map<String, Value>) -> Option<f64> {
    state.get("used_share")?.as_f64()
}

/// The numbers of keys by the share of the quota that they have used, in [`USED_PARTS`] parts that begin with the least used.
/// Each part includes its lower bound; the last one includes keys that have used all or more.
fn count_used_shares<'a>(
    states: impl Iterator<Item = &'a Map<String, Value>>,
) -> [usize; USED_PARTS] {
    let mut counts = [0; USED_PARTS];
    for share in states.filter_map(used_share) {
        // Casts saturate: a share below 0 is in the first part.
        let part = (share * USED_PARTS as f64) as usize;
        counts[part.min(USED_PARTS - 1)] += 1;
    }
    counts
}

/// The keys of the limit in the lists of the last seconds.
async fn find_candidates(
    gateway: &dyn Control,
    limit: &str,
    seconds: u64,
) -> Result<Candidates, ErrorResponse> {
    let insight = gateway.running().insight;
    let now = gateway.clock().wall().as_secs();
    // The end of a span is not part of it, and the current second is to be.
    let span = (now.saturating_sub(seconds), now + 1);
    let CoveredLists { lists, covered } = run_query(gateway, move |record| {
        read_lists(record, insight.as_deref(), span, now, &ListKind::ALL)
    })
    .await?;
    let KeyLists { decided, refused } = lists;
    let is_complete = decided.distinct.is_none() && refused.distinct.is_none();
    let mut keys: Vec<String> = Vec::new();
    for listed in refused.keys.into_iter().chain(decided.keys) {
        if listed.key.limit == limit
            && keys.len() < MAX_CANDIDATES
            && !keys.contains(&listed.key.key)
        {
            keys.push(listed.key.key);
        }
    }
    Ok(Candidates {
        is_complete: is_complete && keys.len() < MAX_CANDIDATES,
        keys,
        covered,
    })
}

/// The keys with an account of a limit with credits; `None` for other limits.
fn find_accounts(gateway: &dyn Control, limit: &str) -> Option<Candidates> {
    let running = gateway.running();
    let rules = running.ruleset.rules.iter();
    let rules = rules.filter(|rule| rule.name.as_str() == limit && rule.limit.is_credits());
    let limits: HashSet<String> = rules.map(|rule| rule.granted_limit()).collect();
    if limits.is_empty() {
        return None;
    }
    let accounts = running.grants.list().into_iter();
    let accounts =
        accounts.filter(|grant| grant.is_account() && limits.contains(&grant.terms.limit));
    let mut keys: Vec<String> = accounts.map(|account| account.entry.key).collect();
    let is_complete = keys.len() <= MAX_CANDIDATES;
    keys.truncate(MAX_CANDIDATES);
    let now = gateway.clock().wall().as_secs();
    Some(Candidates {
        keys,
        covered: (now, now + 1),
        is_complete,
    })
}

/// The longest window of a rule in seconds; 0 for a limit on open requests or with credits.
fn longest_window_seconds(rule: &Rule) -> u64 {
    match &rule.limit {
        RuleLimit::Rate(limit) if limit.is_credits() => 0,
        RuleLimit::Rate(limit) => limit.longest_window().ceil_secs(),
        RuleLimit::Open(_) => 0,
    }
}

/// Parses a number of percent from 0 to 100.
fn parse_percent(text: Option<&str>) -> Result<f64, ErrorResponse> {
    let Some(text) = text else {
        return Ok(DEFAULT_ABOVE_PERCENT);
    };
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| bad_request("`above` is a number of percent such as 80%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_shares_are_counted_in_quarters() {
        let shares = [-1.0, 0.0, 0.24, 0.25, 0.5, 0.74, 0.75, 1.0, 1.5, f64::NAN];
        let states: Vec<Map<String, Value>> = shares
            .iter()
            .map(|share| Map::from_iter([(String::from("used_share"), json!(share))]))
            .collect();
        // JSON has no NaN, so the last share is unknown.
        assert_eq!(count_used_shares(states.iter()), [3, 1, 2, 3]);
    }
}
