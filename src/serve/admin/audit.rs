//! Records what operators order, whether it is done or refused. Every order passes here, because `rights.rs` guards every
//! route. Handlers add what their orders are about by [`describe`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use super::control::Control;
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::base::clock::Nanos;
use crate::identity::runtime_keys::KEY_PREFIX;
use crate::identity::user_name;
use crate::operator::{OperatorEntry, OperatorTokens};
use crate::record::insight::AuditEntry;
use crate::serve::worker::generation::RunningConfig;

/// What an order is about. A handler leaves it with its response.
#[derive(Clone)]
struct Described {
    by: String,
    action: &'static str,
    target: String,
    reason: String,
}

/// Adds to the response of an order what it is about: `by` has signed the `action` (a verb such as `ban`) on the `target`
/// for the `reason`. None of them may hold a secret: write keys as lists show them, or by [`shown_key`].
pub(super) fn describe(
    mut response: Response,
    by: &str,
    action: &'static str,
    target: &str,
    reason: &str,
) -> Response {
    response.extensions_mut().insert(Described {
        by: shorten(by),
        action,
        target: shorten(target),
        reason: shorten(reason),
    });
    response
}

/// A key as it may be shown, of an order that was refused because of its key. Networks are shown as they are, of other
/// identities only the names: their values may be secrets.
pub(super) fn shown_key(key: &str) -> String {
    let (name, value) = key.split_once('=').unwrap_or(("", key));
    let is_network = value.parse::<IpNet>().is_ok() || value.parse::<IpAddr>().is_ok();
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match (name, is_network) {
        ("" | "ip", true) => key.to_owned(),
        (name, _) if !name.is_empty() && name.len() <= 32 && name.bytes().all(is_name_byte) => {
            format!("{name}=…")
        }
        _ => String::from("…"),
    }
}

/// A user as they may be shown, of an order for an API key that was refused: `…` for an email address, which is no text for
/// logs, and for what is no name or looks like a key.
pub(super) fn shown_user(user: &str) -> String {
    let is_shown = user_name::parse(user).is_some() && !user.contains('@');
    match is_shown && !user.contains(KEY_PREFIX) {
        true => user.to_owned(),
        false => String::from("…"),
    }
}

/// How an order ended that was not simply done or refused. A handler leaves it with its response.
#[derive(Clone, Copy)]
enum Outcome {
    InPart,
    Unknown,
}

/// Marks the response of an order of which a part was carried out.
pub(super) fn in_part(mut response: Response) -> Response {
    response.extensions_mut().insert(Outcome::InPart);
    response
}

/// The response to an order whose task has panicked. The log has the reason.
pub(super) fn failed(error: &JoinError) -> Response {
    tracing::error!(%error, "an order failed");
    let detail = "the order failed, and may be done in part; the log of the gateway says more";
    let mut response = problem_response(StatusCode::INTERNAL_SERVER_ERROR, detail);
    response.extensions_mut().insert(Outcome::Unknown);
    response
}

/// The name of a limit as it may be shown, of an order that was refused: `…` if there is no such limit.
pub(super) fn shown_limit(running: &RunningConfig, limit: &str) -> String {
    let mut rules = running.ruleset.rules.iter();
    match rules.any(|rule| rule.name.as_str() == limit || rule.limit_scope() == limit) {
        true => limit.to_owned(),
        false => String::from("…"),
    }
}

/// Records an order whose request was let in, and returns its response once the record is on the disk: a crash must not
/// leave an order in force of which its operator was told, and nobody else knows. `request` is its method and the pattern of
/// its path, in case that the handler has not described it.
pub(super) async fn record_order(
    gateway: &Arc<dyn Control>,
    operator: &AdminOperator,
    request: &str,
    response: Response,
) -> Response {
    let status = response.status();
    let result = match response.extensions().get::<Outcome>() {
        None if status.is_success() => AuditEntry::DONE.to_owned(),
        None => status.to_string(),
        Some(Outcome::InPart) => format!("{}: {status}", AuditEntry::DONE_IN_PART),
        Some(Outcome::Unknown) => AuditEntry::FAILED.to_owned(),
    };
    let described = response.extensions().get::<Described>().cloned();
    let described = described.unwrap_or_else(|| Described {
        by: operator.signature(None),
        action: "",
        target: String::new(),
        reason: String::new(),
    });
    gateway.audit(AuditEntry {
        by: described.by,
        peer: operator.peer.to_string(),
        action: match described.action {
            "" => request.to_owned(),
            action => action.to_owned(),
        },
        target: described.target,
        reason: described.reason,
        result,
    });
    let gateway = gateway.clone();
    if let Err(error) = spawn_blocking(move || gateway.write_audit()).await {
        tracing::error!(%error, "an order was not written to the record");
    }
    response
}

/// Bounds the records of refused requests, so that they push no order out of the record. Each operator has a bound, and all
/// requests of nobody have another one. Further ones are only counted.
#[derive(Default)]
pub(super) struct Refusals {
    /// By the name of the operator, at most [`OperatorTokens::MAX_TOKENS`].
    operators: Mutex<HashMap<Arc<str>, RefusalCount>>,
    strangers: Mutex<RefusalCount>,
}

/// How many refusals are recorded.
struct RefusalBound {
    at_once: u64,
    /// The time between two after those.
    interval: Nanos,
}

#[derive(Default)]
struct RefusalCount {
    /// The time at which all recorded refusals will be forgotten.
    forgotten_at: Nanos,
    /// Refusals since the last one that was recorded.
    unrecorded: u64,
}

impl Refusals {
    const OF_OPERATOR: RefusalBound = RefusalBound {
        at_once: 20,
        interval: Nanos::from_secs(60),
    };
    const OF_STRANGERS: RefusalBound = RefusalBound {
        at_once: 3,
        interval: Nanos::from_secs(600),
    };

    /// Records a request of an operator that was refused before its handler.
    pub(super) fn record(
        &self,
        gateway: &dyn Control,
        operator: &AdminOperator,
        request: &str,
        result: &str,
    ) {
        let now = gateway.clock().now();
        let unrecorded = {
            let mut operators = self.operators.lock();
            let name = operator.name.clone().unwrap_or_default();
            // Names of earlier files are forgotten.
            if operators.len() >= OperatorTokens::MAX_TOKENS && !operators.contains_key(&name) {
                operators.clear();
            }
            let count = operators.entry(name).or_default();
            count.add(&Refusals::OF_OPERATOR, now)
        };
        let by = operator.signature(None);
        audit_refusal(gateway, unrecorded, &by, operator.peer, request, result);
    }

    /// Records a request without a valid token.
    pub(super) fn record_stranger(
        &self,
        gateway: &dyn Control,
        peer: IpAddr,
        request: &str,
        result: &str,
    ) {
        let now = gateway.clock().now();
        let unrecorded = self.strangers.lock().add(&Refusals::OF_STRANGERS, now);
        audit_refusal(gateway, unrecorded, "", peer, request, result);
    }
}

impl RefusalCount {
    /// Counts a refusal. Returns the number of those before that were not recorded, if this one is to be recorded.
    fn add(&mut self, bound: &RefusalBound, now: Nanos) -> Option<u64> {
        let interval = bound.interval.0;
        if self.forgotten_at.since(now).0 + interval > bound.at_once * interval {
            self.unrecorded += 1;
            return None;
        }
        self.forgotten_at = self.forgotten_at.max(now).after(bound.interval);
        Some(std::mem::take(&mut self.unrecorded))
    }
}

/// Records a refused request, with the number of those before that were not recorded; none if that is `None`.
fn audit_refusal(
    gateway: &dyn Control,
    unrecorded: Option<u64>,
    by: &str,
    peer: IpAddr,
    request: &str,
    result: &str,
) {
    let Some(unrecorded) = unrecorded else { return };
    let result = shorten(result);
    gateway.audit(AuditEntry {
        by: shorten(by),
        peer: peer.to_string(),
        action: shorten(request),
        target: String::new(),
        reason: String::new(),
        result: match unrecorded {
            0 => result,
            count => format!("{result}; {count} more were refused before"),
        },
    });
}

/// A text of at most as many bytes as the longest key that lists show, cut at a character.
fn shorten(text: &str) -> String {
    let mut end = text.len().min(OperatorEntry::MAX_KEY_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_bounded_and_counted() {
        let now = Nanos::from_secs(100);
        for (bound, at_once) in [(Refusals::OF_OPERATOR, 20), (Refusals::OF_STRANGERS, 3)] {
            let mut count = RefusalCount::default();
            let recorded = (0..70).filter(|_| count.add(&bound, now).is_some());
            assert_eq!(recorded.count(), at_once);
            let later = now.after(bound.interval);
            assert_eq!(count.add(&bound, later), Some(70 - at_once as u64));
            assert_eq!(count.add(&bound, later), None);
        }
    }

    #[test]
    fn keys_are_shown_without_their_values() {
        for (key, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("ip=192.0.2.0/24", "ip=192.0.2.0/24"),
            ("ip=192.0.2", "ip=…"),
            ("token=192.0.2.7", "token=…"),
            ("token=secret,user=alice", "token=…"),
            ("secret", "…"),
            ("<script>=1", "…"),
            ("", "…"),
        ] {
            assert_eq!(shown_key(key), shown, "{key}");
        }
    }

    #[test]
    fn users_are_shown_unless_they_may_be_secrets() {
        for (user, shown) in [
            ("alice", "alice"),
            ("ann@example.com", "…"),
            ("tg_0123456789", "…"),
            (" alice", "…"),
            ("", "…"),
        ] {
            assert_eq!(shown_user(user), shown, "{user}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let long = "é".repeat(300);
        assert_eq!(shorten(&long).len(), 512);
        assert_eq!(shorten("a").as_str(), "a");
    }
}
