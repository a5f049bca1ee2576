//! Adds API keys, lists them and revokes them. Only the response to the request that adds a key has the key itself.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::audit;
use super::control::ControlState;
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::operator::{ApiKeyError, ApiKeyRegistry, ListedApiKey, NewApiKey, is_id};
use crate::policy::parse_duration;

/// A key that an operator adds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyOrder {
    user: String,
    #[serde(default)]
    plan: Option<String>,
    /// The values of custom identities by their names.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// How long it holds, as `90d`; without an end if absent.
    #[serde(default, rename = "for")]
    duration: Option<String>,
    /// What it is for.
    #[serde(default)]
    name: String,
    /// Who adds it, or for whom: see [`AdminOperator::signature`].
    #[serde(default)]
    by: Option<String>,
}

/// The query of a request that lists keys.
#[derive(Deserialize)]
pub(super) struct ListQuery {
    /// Whose keys; of all users if absent.
    user: Option<String>,
}

/// The query of a request that revokes a key.
#[derive(Deserialize)]
pub(super) struct KeyRevocation {
    /// Who revokes it.
    by: Option<String>,
}

/// `GET /v1/keys`: the keys that hold, and the most there can be.
pub(super) async fn list(State(gateway): ControlState, Query(query): Query<ListQuery>) -> Response {
    let keys = gateway.running().api_keys.list();
    let now = gateway.clock().wall();
    let is_asked_for = |key: &&ListedApiKey| {
        let user = query.user.as_ref();
        user.is_none_or(|user| *user == key.terms.user)
    };
    let keys = keys.iter().filter(is_asked_for);
    let keys: Vec<Value> = keys.map(|key| describe(key, now)).collect();
    Json(json!({ "keys": keys, "most": ApiKeyRegistry::MAX_KEYS })).into_response()
}

/// `POST /v1/keys`: the key, which holds already. 400 for a mistake in the order; 409 if the gateway file accepts no keys
/// at run time, or if there are too many.
pub(super) async fn add(
    State(gateway): ControlState,
    operator: AdminOperator,
    body: String,
) -> Response {
    let order: KeyOrder = match serde_json::from_str(&body) {
        Ok(order) => order,
        Err(error) => return problem_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let by = operator.signature(order.by.as_deref());
    let (purpose, meant_user) = (order.name.clone(), audit::shown_user(&order.user));
    let duration = order.duration.as_deref().map(parse_duration).transpose();
    let duration = match duration {
        Ok(duration) => duration,
        Err(message) => {
            let response = problem_response(StatusCode::BAD_REQUEST, &message);
            return audit::describe(response, &by, "key add", &meant_user, &purpose);
        }
    };
    let new_key = NewApiKey {
        user: order.user,
        plan: order.plan,
        identities: order.set,
        duration,
        name: order.name,
        by: by.clone(),
    };
    let clock = gateway.clock().clone();
    let added = tokio::task::spawn_blocking(move || gateway.add_api_key(new_key)).await;
    let target = match &added {
        Ok(Ok(added)) => added.listed.entry.description().into_owned(),
        _ => meant_user,
    };
    let response = respond(added.map(|added| {
        added.map(|added| {
            let mut description = describe(&added.listed, clock.wall());
            if let Value::Object(members) = &mut description {
                members.insert("key".into(), added.key.into());
            }
            description
        })
    }));
    audit::describe(response, &by, "key add", &target, &purpose)
}

/// `DELETE /v1/keys/{id}`: the key as it was, without the key itself. 404 if none that holds has this id.
pub(super) async fn revoke(
    State(gateway): ControlState,
    operator: AdminOperator,
    Path(id): Path<String>,
    Query(query): Query<KeyRevocation>,
) -> Response {
    let by = operator.signature(query.by.as_deref());
    let clock = gateway.clock().clone();
    let signature = by.clone();
    // Any other text may be a key.
    let named_id = if is_id(&id) { id.clone() } else { "…".into() };
    let revoked = tokio::task::spawn_blocking(move || gateway.revoke_api_key(&id, &by)).await;
    let target = match &revoked {
        Ok(Ok(listed)) => listed.entry.description().into_owned(),
        _ => named_id,
    };
    let response = respond(revoked.map(|revoked| revoked.map(|key| describe(&key, clock.wall()))));
    audit::describe(response, &signature, "key revoke", &target, "")
}

/// The response to a change of a key, which no cache may keep. The outer error is that of a thread that panicked.
fn respond(changed: Result<Result<Value, ApiKeyError>, tokio::task::JoinError>) -> Response {
    match changed {
        Ok(Ok(description)) => {
            let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            ([no_store], Json(description)).into_response()
        }
        Ok(Err(error)) => {
            let response = problem_response(status_of(&error), &error.to_string());
            match error {
                ApiKeyError::Superseded(_) => audit::in_part(response),
                _ => response,
            }
        }
        Err(error) => audit::failed(&error),
    }
}

fn status_of(error: &ApiKeyError) -> StatusCode {
    match error {
        ApiKeyError::Unknown(_) | ApiKeyError::NoId => StatusCode::NOT_FOUND,
        ApiKeyError::NotAccepted | ApiKeyError::Full(_) | ApiKeyError::Superseded(_) => {
            StatusCode::CONFLICT
        }
        ApiKeyError::NoRandom => StatusCode::INTERNAL_SERVER_ERROR,
        ApiKeyError::User
        | ApiKeyError::Name(_)
        | ApiKeyError::UnknownPlan(..)
        | ApiKeyError::PlanElsewhere
        | ApiKeyError::UnknownIdentity(..)
        | ApiKeyError::Value(_)
        | ApiKeyError::Values(_)
        | ApiKeyError::TooLong(..)
        | ApiKeyError::Duration => StatusCode::BAD_REQUEST,
    }
}

/// A key as JSON, without the key itself and its hash. Times are in seconds since 1970, and `left` in seconds from `now`;
/// both `until` and `left` are null without an end.
fn describe(key: &ListedApiKey, now: Duration) -> Value {
    let entry = &key.entry;
    let now_millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let seconds = |millis: u64| millis as f64 / 1e3;
    let left = entry
        .end()
        .map(|end| seconds(end.saturating_sub(now_millis)));
    json!({
        "id": entry.key,
        "user": key.terms.user,
        "plan": key.terms.plan,
        "set": key.terms.identities,
        "name": entry.reason,
        "by": entry.by,
        "since": seconds(entry.since),
        "until": entry.end().map(seconds),
        "left": left,
        "kept": key.is_kept,
    })
}
