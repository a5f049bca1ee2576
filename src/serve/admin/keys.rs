//! Reads and resets the count of one key of one limit, and describes a key in all limits. Keys are written as in lists
//! of top keys, such as `ip=192.0.2.7`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::control::{Control, ControlState};
use super::problem::problem_response;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{ClientCondition, ClientFilter, Identity, Rule};
use crate::record::insight::LimitKey;
use crate::serve::stack::{counted_key, explanation};
use crate::serve::worker::generation;
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::AdmissionRequest;

/// A key that was parsed, and the rules whose counts of the key are read or reset.
struct KeyLookup {
    running_config: RunningConfig,
    identifier: Arc<Identifier>,
    /// The rules of one limit. If it has rates by plan, those for the plan of `client`, or all if none is for that
    /// plan.
    rules: Vec<Arc<Rule>>,
    /// A client that has the identities of the key and no others.
    client: ClientIdentity,
}

/// `GET /v1/limits/{limit}/keys/{key}`: the counts of one key. 404 for an unknown limit, 400 for a text that is no key of
/// the limit.
pub async fn read_key(
    State(gateway): ControlState,
    Path((limit, key)): Path<(String, String)>,
) -> Response {
    let lookup = match KeyLookup::new(&*gateway, &limit, &key) {
        Ok(lookup) => lookup,
        Err(response) => return *response,
    };
    let limits = lookup.describe(&*gateway).await;
    Json(json!({ "key": key, "limits": limits })).into_response()
}

/// The state of one key in all limits that count by its identities.
pub struct DescribedKey {
    /// The key as each of these limits writes it.
    pub names: Vec<LimitKey>,
    /// The state of the key in each of these limits, as JSON.
    pub limits: Vec<Value>,
}

/// Describes the state of a key in every rule whose limit counts by its identities.
pub async fn describe_key(gateway: &dyn Control, key: &str) -> DescribedKey {
    let (mut limits, mut names) = (Vec::new(), Vec::new());
    let running_config = gateway.running();
    let ruleset = &running_config.ruleset;
    let identifier = Identifier::new(ruleset.identity.clone(), running_config.keyer());
    let identifier = Arc::new(identifier);
    for rule in &ruleset.rules {
        // Limits that count by other identities, or whose keys are shown only as hashes, are left out.
        let Ok(client) = identifier.parse_key(key, &rule.key) else {
            continue;
        };
        let client = with_plan(client, rule, &identifier, &running_config);
        names.push(LimitKey {
            limit: rule.name.as_str().to_owned(),
            key: identifier.format_key(&client, &rule.key),
        });
        let lookup = KeyLookup {
            running_config: running_config.clone(),
            identifier: identifier.clone(),
            rules: vec![rule.clone()],
            client,
        };
        limits.extend(lookup.describe(gateway).await);
    }
    DescribedKey { names, limits }
}

/// `DELETE /v1/limits/{limit}/keys/{key}`: responds with the number of rules that had a count of the key. 404 and 400
/// as for [`read_key`], 409 for a limit on open requests only. 503 if the shared store fails; then some counts may be
/// reset.
///
/// The counts of the overflow sketch and of the networks around an address stay, because other keys share them.
/// Permits stay too: they come back when their requests end.
pub async fn reset_key(
    State(gateway): ControlState,
    Path((limit, key)): Path<(String, String)>,
) -> Response {
    let lookup = match KeyLookup::new(&*gateway, &limit, &key) {
        Ok(lookup) => lookup,
        Err(response) => return *response,
    };
    let admission = &lookup.running_config.admission;
    if lookup.rules.iter().all(|rule| rule.limit.open().is_some()) {
        let detail = format!(
            "`{limit}` limits open requests and cannot be reset; each permit comes back when its request ends"
        );
        return problem_response(StatusCode::CONFLICT, &detail);
    }
    let mut reset_count = 0;
    for rule in &lookup.rules {
        let key = lookup.identifier.key(&lookup.client, &rule.key);
        let Some((key, slot)) = key.zip(admission.slot(rule)) else {
            continue;
        };
        let mut had_count = admission.store().forget_key(slot, key);
        if let Some((shared, plan)) = admission.shared_store().zip(admission.plan(rule)) {
            match shared.forget_counter(plan, key).await {
                Ok(had_shared_count) => had_count |= had_shared_count,
                Err(failure) => {
                    let detail = format!("reset in the shared store failed: {failure}");
                    return problem_response(StatusCode::SERVICE_UNAVAILABLE, &detail);
                }
            }
        }
        reset_count += usize::from(had_count);
    }
    Json(json!({ "key": key, "forgotten": reset_count })).into_response()
}

impl KeyLookup {
    /// The state of the key in each of the lookup's rules, as JSON.
    async fn describe(&self, gateway: &dyn Control) -> Vec<Value> {
        let mut limits = Vec::new();
        for rule in &self.rules {
            let request = AdmissionRequest {
                rules: std::slice::from_ref(rule),
                client: &self.client,
                identifier: &self.identifier,
                now: gateway.clock().now(),
                // Pressure belongs to an upstream, and the key alone does not tell which one.
                pressure: None,
                // One unit shows whether anything is left.
                reserved_units: &[(0, 1)],
            };
            let verdict = self.running_config.admission.peek_shared(&request).await;
            let mut description = explanation::describe_rule(rule);
            if let Some(finding) = verdict.findings.first() {
                description.extend(explanation::describe_finding(finding, rule));
            }
            limits.push(Value::Object(description));
        }
        limits
    }

    /// Parses a key of the limit with this name. The error is the response.
    fn new(gateway: &dyn Control, limit: &str, key: &str) -> Result<KeyLookup, Box<Response>> {
        let running_config = gateway.running();
        let rules = running_config.ruleset.rules.iter();
        let rules: Vec<Arc<Rule>> = rules
            .filter(|rule| rule.name.as_str() == limit)
            .map(without_other_conditions)
            .collect();
        let Some(first) = rules.first() else {
            let detail = format!("no limit is named `{limit}`; /v1/limits lists them");
            return Err(Box::new(problem_response(StatusCode::NOT_FOUND, &detail)));
        };
        let identity_settings = running_config.ruleset.identity.clone();
        let identifier = Identifier::new(identity_settings, running_config.keyer());
        let client = identifier.parse_key(key, &first.key).map_err(|error| {
            let detail = error.to_string();
            Box::new(problem_response(StatusCode::BAD_REQUEST, &detail))
        })?;
        let client = with_plan(client, first, &identifier, &running_config);
        // Of rates by plan those of the client's plan hold.
        let is_for_plan = |rule: &&Arc<Rule>| identifier.selects(&rule.clients, &client);
        let plan_rules: Vec<Arc<Rule>> = rules.iter().filter(is_for_plan).cloned().collect();
        let rules = if plan_rules.is_empty() {
            rules
        } else {
            plan_rules
        };
        Ok(KeyLookup {
            running_config,
            identifier: Arc::new(identifier),
            rules,
            client,
        })
    }
}

/// The rule for all clients of its plan, without its other conditions. A key does not say which of those conditions its
/// client meets.
fn without_other_conditions(rule: &Arc<Rule>) -> Arc<Rule> {
    let plan_rules = |condition: &&ClientCondition| condition.identity == Identity::Plan;
    let conditions: Vec<ClientCondition> = (rule.clients.conditions.iter().filter(plan_rules))
        .cloned()
        .collect();
    if conditions.len() == rule.clients.conditions.len() {
        return Arc::clone(rule);
    }
    Arc::new(Rule {
        clients: ClientFilter { conditions },
        ..(**rule).clone()
    })
}

/// Adds the plan by which the limit last counted the key, so that the quota is the one that applied to the key.
///
/// A plan that the key itself names wins. The default plan is used if no plan is remembered.
fn with_plan(
    client: ClientIdentity,
    rule: &Rule,
    identifier: &Identifier,
    running_config: &RunningConfig,
) -> ClientIdentity {
    if client.plan.is_some() {
        return client;
    }
    let plans = &identifier.settings().plan;
    let with_default_plan = ClientIdentity {
        plan: plans.default,
        ..client.clone()
    };
    let key = identifier.key(&with_default_plan, &rule.key);
    let insight = running_config.insight.as_ref();
    let last_plan_name = insight.zip(key).and_then(|(insight, key)| {
        let hash = counted_key::hash_key(key, generation::limit_hash(rule));
        insight.plans.get(hash)
    });
    match last_plan_name {
        Some(name) => ClientIdentity {
            plan: plans.index_of(&name),
            ..client
        },
        None => with_default_plan,
    }
}
