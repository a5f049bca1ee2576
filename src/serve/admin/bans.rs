//! Lists bans, orders them and lifts them.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::audit;
use super::control::ControlState;
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::operator::{BanError, BanRegistry, BanResponse, ListedBan, NewBan};
use crate::policy::parse_duration;

/// How long a ban lasts without `for`.
const DEFAULT_DURATION: &str = "1h";

/// A ban that an operator orders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BanOrder {
    /// The key, network or address.
    key: String,
    /// How long it lasts, as `1h`.
    #[serde(default, rename = "for")]
    duration: Option<String>,
    #[serde(default)]
    reason: String,
    /// Who orders it, or for whom: see [`AdminOperator::signature`].
    #[serde(default)]
    by: Option<String>,
}

/// The query of a request that lifts a ban.
#[derive(Deserialize)]
pub(super) struct LiftQuery {
    /// Who lifts it.
    by: Option<String>,
}

/// `GET /v1/bans`: the bans that hold, the most there can be, and what banned clients get.
pub(super) async fn list(State(gateway): ControlState) -> Response {
    let running = gateway.running();
    let response = response_name(running.ruleset.ban_response);
    let bans = running.bans.list();
    let now = gateway.clock().wall();
    let bans: Vec<Value> = bans.iter().map(|ban| describe(ban, now)).collect();
    let most = BanRegistry::MAX_BANS;
    Json(json!({ "bans": bans, "most": most, "response": response })).into_response()
}

/// What banned clients get, as responses of the API write it.
pub(super) fn response_name(response: BanResponse) -> &'static str {
    match response {
        BanResponse::TooManyRequests => "429",
        BanResponse::Forbidden => "403",
        BanResponse::Silent => "none",
    }
}

/// `POST /v1/bans`: the ban, which holds already. 400 for a mistake in the order, 409 if there are too many bans.
pub(super) async fn order(
    State(gateway): ControlState,
    operator: AdminOperator,
    body: String,
) -> Response {
    let order: BanOrder = match serde_json::from_str(&body) {
        Ok(order) => order,
        Err(error) => return problem_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let duration = order.duration.as_deref().unwrap_or(DEFAULT_DURATION);
    let duration = match parse_duration(duration) {
        Ok(duration) => duration,
        Err(message) => return problem_response(StatusCode::BAD_REQUEST, &message),
    };
    let by = operator.signature(order.by.as_deref());
    let (key, reason) = (order.key.clone(), order.reason.clone());
    let new_ban = NewBan {
        key: order.key,
        duration,
        reason: order.reason,
        by: by.clone(),
    };
    let clock = gateway.clock().clone();
    let banned = tokio::task::spawn_blocking(move || gateway.ban(new_ban)).await;
    let target = target_of(&banned, &key);
    let response = respond(banned, clock.wall());
    audit::describe(response, &by, "ban", &target, &reason)
}

/// `DELETE /v1/bans/{key}`: the ban as it was. 400 for a text that is no key, 404 for a key that is not banned.
pub(super) async fn lift(
    State(gateway): ControlState,
    operator: AdminOperator,
    Path(key): Path<String>,
    Query(query): Query<LiftQuery>,
) -> Response {
    let by = operator.signature(query.by.as_deref());
    let clock = gateway.clock().clone();
    let (written_key, signature) = (key.clone(), by.clone());
    let lifted = tokio::task::spawn_blocking(move || gateway.lift_ban(&key, &by)).await;
    let target = target_of(&lifted, &written_key);
    let response = respond(lifted, clock.wall());
    audit::describe(response, &signature, "unban", &target, "")
}

/// The result of a change of a ban. The outer error is that of a thread that panicked.
type ChangedBan = Result<Result<ListedBan, BanError>, tokio::task::JoinError>;

/// The key of a change as it may be shown. `written_key` is that of the request.
fn target_of(changed: &ChangedBan, written_key: &str) -> String {
    match changed {
        Ok(Ok(ban)) => ban.entry.key.clone(),
        _ => audit::shown_key(written_key),
    }
}

/// The response to a change of a ban.
fn respond(changed: ChangedBan, now: Duration) -> Response {
    match changed {
        Ok(Ok(ban)) => Json(describe(&ban, now)).into_response(),
        Ok(Err(error)) => {
            let response = problem_response(status_of(&error), &error.to_string());
            match error {
                BanError::Superseded(_) => audit::in_part(response),
                _ => response,
            }
        }
        Err(error) => audit::failed(&error),
    }
}

fn status_of(error: &BanError) -> StatusCode {
    match error {
        BanError::NotBanned(_) | BanError::BannedByNetwork { .. } => StatusCode::NOT_FOUND,
        BanError::Full(_) | BanError::Superseded(_) => StatusCode::CONFLICT,
        BanError::Key(_)
        | BanError::Everyone
        | BanError::Tunnels(_)
        | BanError::TooLong(..)
        | BanError::Duration => StatusCode::BAD_REQUEST,
    }
}

/// A ban as JSON; times are in seconds since 1970, and `left` in seconds from `now`.
fn describe(ban: &ListedBan, now: Duration) -> Value {
    let entry = &ban.entry;
    let now_millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let seconds = |millis: u64| millis as f64 / 1e3;
    json!({
        "key": entry.key,
        "reason": entry.reason,
        "by": entry.by,
        "since": seconds(entry.since),
        "until": seconds(entry.until),
        "left": seconds(entry.until.saturating_sub(now_millis)),
        "hits": ban.hits,
        "kept": ban.is_kept,
    })
}
