//! Lists grants, orders them and takes them back. Accounts of credits are among them.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::accounts::{
    describe_credits, describe_order, find_account, granted_rules, read_balance, take_back,
};
use super::audit;
use super::control::{Control, ControlState, GrantOrder, Granted};
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::identity::Identifier;
use crate::limit::{LimitGrant, Rate, RuleLimit};
use crate::operator::{GrantOrderError, GrantRegistry, GrantTerms, ListedGrant};
use crate::policy::{GrantMistake, parse_duration};
use crate::serve::worker::generation::RunningConfig;

/// A grant that an operator orders. Either `times` or `add` is given. Without an end it adds credits to an account.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderBody {
    limit: String,
    key: String,
    #[serde(default)]
    times: Option<Value>,
    #[serde(default)]
    add: Option<Value>,
    /// How long it lasts, as `1d`.
    #[serde(default, rename = "for")]
    duration: Option<String>,
    /// The id of an order of credits.
    #[serde(default)]
    order: Option<String>,
    #[serde(default)]
    reason: String,
    /// Who orders it, or for whom: see [`AdminOperator::signature`].
    #[serde(default)]
    by: Option<String>,
}

/// The query of a request that takes a grant back.
#[derive(Deserialize)]
pub(super) struct RevokeQuery {
    /// Who takes it back.
    by: Option<String>,
}

/// `GET /v1/grants`: the grants that have not ended, and the most there can be.
pub(super) async fn list(State(gateway): ControlState) -> Response {
    let running = gateway.running();
    let identifier = running.build_identifier();
    let wall = gateway.clock().wall();
    let grants = running.grants.list();
    let grants = grants
        .iter()
        .map(|grant| describe(grant, wall, &running, &identifier, None));
    let grants: Vec<Value> = grants.collect();
    let most = (GrantRegistry::MAX_GRANTS, GrantRegistry::MAX_ACCOUNTS);
    Json(json!({ "grants": grants, "most": most.0, "most_accounts": most.1 })).into_response()
}

/// `POST /v1/grants`: the grant, which holds already. 400 for a mistake in the order, 404 for an unknown limit, 409 if there
/// are too many grants, or if an account takes no such order, 503 for one of credits while the shared store is away.
pub(super) async fn order(
    State(gateway): ControlState,
    operator: AdminOperator,
    body: String,
) -> Response {
    let body: OrderBody = match serde_json::from_str(&body) {
        Ok(body) => body,
        Err(error) => return problem_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let by = operator.signature(body.by.as_deref());
    let (limit, key, reason) = (body.limit.clone(), body.key.clone(), body.reason.clone());
    let order = match read_order(body, by.clone()) {
        Ok(order) => order,
        Err(message) => return problem_response(StatusCode::BAD_REQUEST, &message),
    };
    let of_task = gateway.clone();
    let granted = tokio::task::spawn_blocking(move || of_task.grant(order)).await;
    let running = gateway.running();
    let (changed, order) = match granted {
        Ok(Ok(Granted { grant, order })) => (Ok(Ok(grant)), order),
        Ok(Err(mistake)) => (Ok(Err(mistake)), None),
        Err(error) => (Err(error), None),
    };
    let mut target = target_of(&changed, &running, &limit, &key);
    let response = match (&changed, &order) {
        (Ok(Ok(account)), Some(order)) => {
            let repeated = if order.is_repeated { " (repeated)" } else { "" };
            // What comes last may be cut.
            target = format!("+{} {}{repeated} {target}", order.units, order.id);
            let members = [("order", describe_order(order))];
            respond_with_account(account, &members, &running, gateway.clock().wall()).await
        }
        _ => respond(changed, &running, gateway.clock().wall()),
    };
    audit::describe(response, &by, "grant", &target, &reason)
}

/// `DELETE /v1/grants/{limit}/{key}`: the grant as it was, or the account without the credits that were left. 404 if there
/// is none, 503 if what is left cannot be read.
pub(super) async fn revoke(
    State(gateway): ControlState,
    operator: AdminOperator,
    Path((limit, key)): Path<(String, String)>,
    Query(query): Query<RevokeQuery>,
) -> Response {
    let by = operator.signature(query.by.as_deref());
    let mut obstacle = None;
    if let Some(account) = find_account(&gateway.running(), &limit, &key) {
        obstacle.clone_from(&account.obstacle);
        if obstacle.is_none() {
            return revoke_account(&gateway, account, &by).await;
        }
    }
    let (written_limit, written_key, signature) = (limit.clone(), key.clone(), by.clone());
    let of_task = gateway.clone();
    let revoked =
        tokio::task::spawn_blocking(move || of_task.revoke_grant(&limit, &key, &by)).await;
    let revoked = match (revoked, obstacle) {
        (superseded @ Ok(Err(GrantMistake::Order(GrantOrderError::Superseded(_)))), _) => {
            superseded
        }
        (Ok(Err(_)), Some(obstacle)) => Ok(Err(GrantMistake::InactiveAccount(obstacle))),
        (revoked, _) => revoked,
    };
    let running = gateway.running();
    let target = target_of(&revoked, &running, &written_limit, &written_key);
    let response = respond(revoked, &running, gateway.clock().wall());
    audit::describe(response, &signature, "revoke", &target, "")
}

/// Takes back what is left of an account.
async fn revoke_account(gateway: &Arc<dyn Control>, account: ListedGrant, by: &str) -> Response {
    let mut target = format!("{} {}", account.terms.limit, account.entry.key);
    let taken_back = take_back(gateway, account, by).await;
    let (running, wall) = (gateway.running(), gateway.clock().wall());
    let response = match taken_back {
        Ok(Ok((account, taken))) => {
            target = format!("-{taken} {target}");
            let members = [("revoked", json!(taken))];
            respond_with_account(&account, &members, &running, wall).await
        }
        Ok(Err(mistake)) => respond(Ok(Err(mistake)), &running, wall),
        Err(error) => audit::failed(&error),
    };
    audit::describe(response, by, "revoke", &target, "")
}

/// The response to a change of an account, with more members.
async fn respond_with_account(
    account: &ListedGrant,
    members: &[(&str, Value)],
    running: &RunningConfig,
    wall: Duration,
) -> Response {
    let left = read_balance(account, running).await.ok();
    let identifier = running.build_identifier();
    let mut description = describe(account, wall, running, &identifier, left);
    for (name, value) in members {
        description[*name] = value.clone();
    }
    Json(description).into_response()
}

/// Reads an order that `by` has signed. The error is for its operator.
fn read_order(body: OrderBody, by: String) -> Result<GrantOrder, String> {
    let grant = match (&body.times, &body.add) {
        (Some(times), None) => LimitGrant {
            times: read_number("times", times, 2, GrantTerms::MAX_TIMES)?,
            add: 0,
        },
        (None, Some(add)) => LimitGrant {
            times: 1,
            add: read_number("add", add, 1, Rate::MAX_QUOTA)?,
        },
        (None, None) => {
            let message = "a grant needs `times` or `add`; write for instance \"times\": 10";
            return Err(message.into());
        }
        (Some(_), Some(_)) => {
            return Err("a grant has either `times` or `add`; remove one of them".into());
        }
    };
    let duration = body.duration.as_deref().map(parse_duration).transpose()?;
    Ok(GrantOrder {
        limit: body.limit,
        key: body.key,
        grant,
        duration,
        order: body.order,
        reason: body.reason,
        by,
    })
}

/// Reads a whole number within bounds.
fn read_number(name: &str, value: &Value, least: u32, most: u32) -> Result<u32, String> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        format!("`{name}` is a whole number from {least} to {most}; `{value}` is none")
    })
}

/// The result of a change of a grant. The outer error is that of a thread that panicked.
type ChangedGrant = Result<Result<ListedGrant, GrantMistake>, tokio::task::JoinError>;

/// The limit and the key of a change as they may be shown. `limit` and `key` are those of the request.
fn target_of(changed: &ChangedGrant, running: &RunningConfig, limit: &str, key: &str) -> String {
    match changed {
        Ok(Ok(grant)) => format!("{} {}", grant.terms.limit, grant.entry.key),
        _ => {
            let limit = audit::shown_limit(running, limit);
            format!("{limit} {}", audit::shown_key(key))
        }
    }
}

/// The response to a change of a grant.
fn respond(changed: ChangedGrant, running: &RunningConfig, wall: Duration) -> Response {
    match changed {
        Ok(Ok(grant)) => {
            let identifier = running.build_identifier();
            Json(describe(&grant, wall, running, &identifier, None)).into_response()
        }
        Ok(Err(error)) => {
            let response = problem_response(status_of(&error), &error.to_string());
            match error {
                GrantMistake::Order(GrantOrderError::Superseded(_)) => audit::in_part(response),
                _ => response,
            }
        }
        Err(error) => audit::failed(&error),
    }
}

fn status_of(error: &GrantMistake) -> StatusCode {
    match error {
        GrantMistake::UnknownLimit(..)
        | GrantMistake::Order(GrantOrderError::NotGranted { .. }) => StatusCode::NOT_FOUND,
        GrantMistake::BalanceUnknown | GrantMistake::OrderUnpublished | GrantMistake::StoreAway => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        GrantMistake::Full | GrantMistake::InactiveAccount(_) => StatusCode::CONFLICT,
        GrantMistake::Order(order) if is_conflict(order) => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Whether an order fails because of others, and not by itself.
fn is_conflict(error: &GrantOrderError) -> bool {
    matches!(
        error,
        GrantOrderError::Full(_)
            | GrantOrderError::Superseded(_)
            | GrantOrderError::AccountsFull(_)
            | GrantOrderError::OrdersFull(_)
            | GrantOrderError::OtherOrder(..)
            | GrantOrderError::TooManyOrders(_)
            | GrantOrderError::TooManyCredits(_)
            | GrantOrderError::ChangedMeanwhile
    )
}

/// A grant as JSON, with what the key has now, or an account with its credits. So many of them are `left`, if that is
/// known. Times are in seconds since 1970.
fn describe(
    grant: &ListedGrant,
    wall: Duration,
    running: &RunningConfig,
    identifier: &Identifier,
    left: Option<u32>,
) -> Value {
    let ListedGrant {
        entry,
        terms,
        is_kept,
        obstacle,
    } = grant;
    let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
    let mut description = json!({
        "limit": terms.limit,
        "key": entry.key,
        "reason": entry.reason,
        "by": entry.by,
        "since": seconds(entry.since),
        "holds": obstacle.is_none(),
        "kept": is_kept,
    });
    match (grant.is_account(), terms.add) {
        (true, _) => description["credits"] = describe_credits(grant, left),
        (false, 0) => description["times"] = json!(terms.times),
        (false, add) => description["add"] = json!(add),
    }
    if let Some(end) = entry.end() {
        let time_left = Duration::from_millis(end).saturating_sub(wall);
        description["until"] = json!(seconds(end));
        description["left"] = json!(time_left.as_secs_f64());
    }
    if let Some(obstacle) = obstacle {
        description["why"] = json!(obstacle);
    } else if !grant.is_account()
        && let Some(numbers) = find_numbers(grant, running, identifier)
    {
        description["number"] = json!(numbers);
    }
    description
}

/// What holds for the key of a grant in the first rule to which the grant applies, such as `100/m`.
fn find_numbers(
    grant: &ListedGrant,
    running: &RunningConfig,
    identifier: &Identifier,
) -> Option<Vec<String>> {
    let rules = granted_rules(grant, running, identifier);
    let (rule, _) = rules.first()?;
    Some(match &rule.limit {
        RuleLimit::Rate(limit) => limit.windows.iter().map(ToString::to_string).collect(),
        RuleLimit::Open(limit) => vec![format!("{} at once", limit.quota(1))],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_with_mistakes_are_refused_with_the_cure() {
        let check = |fields: &str, expected: &str| {
            let body = format!(r#"{{"limit": "a", "key": "user=b"{fields}}}"#);
            let body: OrderBody = serde_json::from_str(&body).unwrap();
            let message = read_order(body, String::new()).err().unwrap_or_default();
            assert!(message.contains(expected), "{fields}: {message}");
        };
        check(r#", "times": 10, "for": "1d""#, "");
        check(r#", "for": "1d""#, "needs `times` or `add`");
        check(r#", "times": 2, "add": 1, "for": "1d""#, "remove one");
        check(r#", "times": 2, "for": "soon""#, "soon");
        for times in ["0", "1", "-1", "1.5", "1000001", "1e400", "\"NaN\"", "[]"] {
            if serde_json::from_str::<Value>(times).is_ok() {
                let fields = format!(r#", "times": {times}, "for": "1d""#);
                check(&fields, "`times` is a whole number from 2 to 1000000");
            }
        }
        for add in ["0", "-5", "1000000001", "99999999999999999999"] {
            let fields = format!(r#", "add": {add}, "for": "1d""#);
            check(&fields, "`add` is a whole number from 1 to 1000000000");
        }
    }
}
