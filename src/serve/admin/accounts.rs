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
use crate::serve::worker::generation::RunningConfig;

/// How often an account is read again that has changed while it was read.
const MAX_ATTEMPTS: usize = 50;
/// The pause before.
const PAUSE: Duration = Duration::from_millis(10);

/// What is left of an account. A limit that counts each route for itself has a number for each.
pub(super) struct Balance {
    /// The credits that are left on the route that has used most.
    pub least: u32,
    /// The credits that are left on the route that has used least.
    pub most: u32,
}

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

/// The rules of an account by which its balance is told. Where each route counts for itself, requests without a route are
/// left out: hardly any client makes them, and they would seem to have used least.
fn balance_rules(
    account: &ListedGrant,
    running: &RunningConfig,
    identifier: &Identifier,
) -> Vec<(Arc<Rule>, Fingerprint)> {
    let mut rules = granted_rules(account, running, identifier);
    let unrouted = &running.ruleset.unrouted.rules;
    let is_of_route =
        |rule: &Arc<Rule>| unrouted.iter().all(|unrouted| unrouted.index != rule.index);
    if rules.iter().any(|(rule, _)| is_of_route(rule)) {
        rules.retain(|(rule, _)| is_of_route(rule));
    }
    rules
}

/// What is left of an account.
pub(super) async fn read_balance(
    account: &ListedGrant,
    running: &RunningConfig,
) -> Result<Balance, UnknownBalance> {
    let identifier = running.build_identifier();
    let mut balance: Option<Balance> = None;
    for (rule, key) in balance_rules(account, running, &identifier) {
        let applied = rule.grant.as_ref().map(|grant| grant.amount.add);
        if applied != Some(account.terms.add) {
            return Err(UnknownBalance::Unpublished);
        }
        let remaining = running.admission.read_remaining(&rule, key).await;
        let left = remaining.ok_or(UnknownBalance::WithoutStore)?;
        let left = left.min(account.terms.add);
        balance = Some(match balance {
            Some(Balance { least, most }) => Balance {
                least: least.min(left),
                most: most.max(left),
            },
            None => Balance {
                least: left,
                most: left,
            },
        });
    }
    balance.ok_or(UnknownBalance::Unpublished)
}

/// Takes back what is left of an account, also if orders come at the same time.
pub(super) async fn take_back(
    gateway: &Arc<dyn Control>,
    mut account: ListedGrant,
    by: &str,
) -> TakenBack {
    for _ in 0..MAX_ATTEMPTS {
        let running = gateway.running();
        match read_balance(&account, &running).await {
            Err(UnknownBalance::WithoutStore) => return Ok(Err(GrantMistake::BalanceUnknown)),
            Err(UnknownBalance::Unpublished) => {}
            Ok(Balance { most: left, .. }) => {
                let (of_task, by, read) = (gateway.clone(), by.to_owned(), account.clone());
                let taking = spawn_blocking(move || of_task.take_credits_back(&read, left, &by));
                match taking.await? {
                    Err(GrantMistake::Order(GrantOrderError::ChangedMeanwhile)) => {}
                    taken_back => return Ok(taken_back.map(|account| (account, left))),
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
        let Some(current) = running.grants.relist(&account) else {
            break;
        };
        account = current;
    }
    Ok(Err(GrantOrderError::ChangedMeanwhile.into()))
}

/// The credits of an account as JSON, with what is used and left if that is known.
pub(super) fn describe_credits(account: &ListedGrant, balance: Option<&Balance>) -> Value {
    let added = account.terms.add;
    let mut credits = json!({ "added": added });
    if let Some(balance) = balance {
        credits["used"] = json!(added.saturating_sub(balance.least));
        credits["left"] = json!(balance.least);
    }
    credits
}

/// An order of an account as JSON.
pub(super) fn describe_order(order: &HeldOrder) -> Value {
    json!({ "id": order.id, "add": order.units, "repeated": order.is_repeated })
}
