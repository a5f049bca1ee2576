//! Accounts of credits, beside the grants: what is left of them, and how it is taken back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{JoinError, spawn_blocking};

use super::control::Control;
use crate::identity::Identifier;
use crate::limit::{Fingerprint, Rule};
use crate::operator::{GrantOrderError, HeldOrder, ListedGrant};
use crate::policy::GrantMistake;
use crate::serve::stack::explanation;
use crate::serve::worker::generation::RunningConfig;

/// How often an account is read again that has changed while it was read.
const MAX_ATTEMPTS: usize = 50;
/// The pause before.
const PAUSE: Duration = Duration::from_millis(10);

/// Why the balance of an account is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownBalance {
    /// The workers do not decide by the last order yet.
    Unpublished,
    /// The shared store is away.
    WithoutStore,
}

/// The result of taking an account back: the account as it is then, and the credits. The outer error is that of a thread
/// that panicked.
pub(super) type TakenBack = Result<Result<(ListedGrant, u32), GrantMistake>, JoinError>;

/// The account that a limit and a key name, as it is listed or as the policies name it; `None` if there is none.
pub(super) fn find_account(running: &RunningConfig, limit: &str, key: &str) -> Option<ListedGrant> {
    running.grants.find_account(limit, key).or_else(|| {
        let identifier = running.build_identifier_of_files();
        let subject = running.loaded.grant_subject(limit, key, &identifier).ok()?;
        running.grants.find_account(&subject.limit, &subject.key)
    })
}

/// The rules with a grant or an account, as it is applied, and the key that they count.
pub(super) fn granted_rules(
    grant: &ListedGrant,
    running: &RunningConfig,
    identifier: &Identifier,
) -> Vec<(Arc<Rule>, Fingerprint)> {
    let granted_rule = |rule: &Arc<Rule>| {
        let key = match grant.entry.fingerprint() {
            Some(fingerprint) => fingerprint,
            None => {
                let client = identifier.parse_key(&grant.entry.key, &rule.key).ok()?;
                identifier.key(&client, &rule.key)?
            }
        };
        let held = identifier.rule_ref(0, rule, key)?;
        let held = held.resolve(std::slice::from_ref(rule));
        let applied = held.grant.as_ref()?;
        (*applied.limit == grant.terms.limit).then(|| (held.clone(), key))
    };
    running
        .ruleset
        .rules
        .iter()
        .filter_map(granted_rule)
        .collect()
}

/// The credits that are left of an account. Its limit is one rule, because routes cannot count credits for themselves.
pub(super) async fn read_balance(
    account: &ListedGrant,
    running: &RunningConfig,
) -> Result<u32, UnknownBalance> {
    let identifier = running.build_identifier();
    let rules = granted_rules(account, running, &identifier);
    let (rule, key) = rules.first().ok_or(UnknownBalance::Unpublished)?;
    let applied = rule.grant.as_ref().map(|grant| grant.amount.add);
    if applied != Some(account.terms.add) {
        return Err(UnknownBalance::Unpublished);
    }
    let remaining = running.admission.read_remaining(rule, *key).await;
    let left = remaining.ok_or(UnknownBalance::WithoutStore)?;
    Ok(left.min(account.terms.add))
}

/// Takes back what is left of an account, also if orders come at the same time.
pub(super) async fn take_back(
    gateway: &Arc<dyn Control>,
    mut account: ListedGrant,
    by: &str,
) -> TakenBack {
    let mut obstacle = GrantMistake::OrderUnpublished;
    for _ in 0..MAX_ATTEMPTS {
        let running = gateway.running();
        match read_balance(&account, &running).await {
            Err(UnknownBalance::WithoutStore) => return Ok(Err(GrantMistake::BalanceUnknown)),
            Err(UnknownBalance::Unpublished) => obstacle = GrantMistake::OrderUnpublished,
            Ok(left) => {
                let (of_task, by, read) = (gateway.clone(), by.to_owned(), account.clone());
                let taking = spawn_blocking(move || of_task.take_credits_back(&read, left, &by));
                match taking.await? {
                    Err(changed @ GrantMistake::Order(GrantOrderError::ChangedMeanwhile)) => {
                        obstacle = changed;
                    }
                    taken_back => return Ok(taken_back.map(|account| (account, left))),
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
        let Some(current) = running.grants.relist(&account) else {
            let not_granted = GrantOrderError::NotGranted {
                limit: account.terms.limit,
                key: account.entry.key,
            };
            return Ok(Err(not_granted.into()));
        };
        account = current;
    }
    Ok(Err(obstacle))
}

/// The credits of an account as JSON, with what is used and left if that is known.
pub(super) fn describe_credits(account: &ListedGrant, left: Option<u32>) -> Value {
    let added = account.terms.add;
    match left {
        Some(left) => explanation::describe_credits(added, left),
        None => json!({ "added": added }),
    }
}

/// An order of an account as JSON.
pub(super) fn describe_order(order: &HeldOrder) -> Value {
    json!({ "id": order.id, "add": order.units, "repeated": order.is_repeated })
}
