//! Reads and resets the count of one key of one limit, and describes a key in all limits. Keys are written as in lists
//! of top keys, such as `ip=192.0.2.7`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::audit;
use super::control::{Control, ControlState};
use super::operator::AdminOperator;
use super::problem::problem_response;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{ClientCondition, ClientFilter, Identity, Rate, RateLimit, Rule, RuleLimit};
use crate::record::insight::LimitKey;
use crate::serve::stack::{counted_key, explanation};
use crate::serve::worker::generation;
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::{AdmissionRequest, Verdict};

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
    let mut limits = Vec::new();
    let mut names = Vec::new();
    let running_config = gateway.running();
    let ruleset = &running_config.ruleset;
    let identifier = Arc::new(running_config.build_identifier());
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
/// as for [`read_key`], 409 for a limit on open requests or with credits only. 503 if the shared store fails; then some counts may be
/// reset.
///
/// The counts of the overflow sketch and of the networks around an address stay, because other keys share them.
/// Permits stay too: they come back when their requests end.
pub(super) async fn reset_key(
    State(gateway): ControlState,
    operator: AdminOperator,
    Path((limit, key)): Path<(String, String)>,
) -> Response {
    let (response, shown_key) = match KeyLookup::new(&*gateway, &limit, &key) {
        Ok(lookup) => {
            let shown_key = lookup.shown_key();
            (reset_found_key(lookup, &limit, &key).await, shown_key)
        }
        Err(response) => (*response, audit::shown_key(&key)),
    };
    let limit = audit::shown_limit(&gateway.running(), &limit);
    let target = format!("{shown_key} of {limit}");
    audit::describe(response, &operator.signature(None), "reset", &target, "")
}

/// Resets the counts of a key that was parsed: see [`reset_key`].
async fn reset_found_key(lookup: KeyLookup, limit: &str, key: &str) -> Response {
    let admission = &lookup.running_config.admission;
    if lookup.rules.iter().all(|rule| rule.limit.is_credits()) {
        let detail = format!(
            "`{limit}` has credits, and those that were used are not reset; add credits with `tollgate grant`"
        );
        return problem_response(StatusCode::CONFLICT, &detail);
    }
    if lookup.rules.iter().all(|rule| rule.limit.open().is_some()) {
        let detail = format!(
            "`{limit}` limits open requests and cannot be reset; each permit comes back when its request ends"
        );
        return problem_response(StatusCode::CONFLICT, &detail);
    }
    let mut reset_count = 0;
    let resettable = lookup.rules.iter().filter(|rule| !rule.limit.is_credits());
    for rule in resettable {
        let counted_key = lookup.identifier.key(&lookup.client, &rule.key);
        let rule_ref = counted_key.and_then(|key| lookup.identifier.rule_ref(0, rule, key));
        let Some((counted_key, rule_ref)) = counted_key.zip(rule_ref) else {
            continue;
        };
        let rule = rule_ref.resolve(std::slice::from_ref(rule));
        let Some(slot) = admission.slot(rule) else {
            continue;
        };
        let mut had_count = admission.store().forget_key(slot, counted_key);
        if let Some((store, plan)) = admission.shared_store().zip(admission.plan(rule)) {
            match store.forget_counter(plan, counted_key).await {
                Ok(had_shared_count) => had_count |= had_shared_count,
                Err(error) => {
                    let detail = format!("reset in the shared store failed: {error}");
                    let response = problem_response(StatusCode::SERVICE_UNAVAILABLE, &detail);
                    return audit::in_part(response);
                }
            }
        }
        reset_count += usize::from(had_count);
    }
    Json(json!({ "key": key, "forgotten": reset_count })).into_response()
}

/// Describes the state of each of these keys of one limit, as far as they can be read. The state has the figures of the
/// window of which the largest share is used.
pub(super) async fn describe_keys(
    gateway: &dyn Control,
    limit: &str,
    keys: &[String],
) -> Vec<(usize, Map<String, Value>)> {
    let running_config = gateway.running();
    let identifier = Arc::new(running_config.build_identifier());
    let mut descriptions = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let lookup = KeyLookup::of_config(running_config.clone(), identifier.clone(), limit, key);
        let Ok(lookup) = lookup else { continue };
        for rule in lookup.rules.iter().filter(|rule| !rule.is_candidate) {
            let description = lookup.describe_fullest_window(gateway, rule).await;
            descriptions.extend(description.map(|description| (index, description)));
        }
    }
    descriptions
}

impl KeyLookup {
    /// The key as lists show it, with hashes in the place of secrets.
    fn shown_key(&self) -> String {
        let rule = self.rules.first();
        rule.map_or_else(String::new, |rule| {
            self.identifier.format_key(&self.client, &rule.key)
        })
    }

    /// The state of the key in a rule, in the window of which the largest share is used. `None` if the rule does not
    /// apply to the key.
    async fn describe_fullest_window(
        &self,
        gateway: &dyn Control,
        rule: &Arc<Rule>,
    ) -> Option<Map<String, Value>> {
        let mut fullest: Option<(f64, Map<String, Value>)> = None;
        // With an override that holds for the key, its number decides, which the copies do not have.
        let key = self.identifier.key(&self.client, &rule.key);
        let held = key.and_then(|key| self.identifier.rule_ref(0, rule, key));
        let is_overridden = held.is_none_or(|held| held.override_number > 0);
        let is_shared = self.running_config.admission.shared_store().is_some();
        let read_rules = match is_overridden || is_shared {
            true => vec![rule.clone()],
            false => read_rules(rule),
        };
        for read_rule in read_rules {
            let rules = std::slice::from_ref(&read_rule);
            let verdict = self.peek(gateway, rules).await;
            let rule_finding = verdict.findings.first()?;
            let resolved = rule_finding.rule.resolve(rules);
            let description = explanation::describe_finding(rule_finding, resolved);
            let [quota, remaining] = ["quota", "remaining"].map(|name| description[name].as_f64());
            let share = 1.0 - remaining? / quota?.max(1.0);
            if fullest.as_ref().is_none_or(|(most, _)| share > *most) {
                fullest = Some((share, description));
            }
        }
        let (share, mut description) = fullest?;
        description.insert("used_share".into(), json!(share));
        description.insert("at".into(), json!(rule.origin));
        description.insert("scope".into(), json!(rule.scope));
        Some(description)
    }

    /// What one rule says of the key. Nothing is taken.
    async fn peek(&self, gateway: &dyn Control, rules: &[Arc<Rule>]) -> Verdict {
        let request = AdmissionRequest {
            rules,
            client: &self.client,
            identifier: &self.identifier,
            now: gateway.clock().now(),
            // Pressure belongs to an upstream, and the key alone does not tell which one.
            pressure: None,
            // One unit shows whether anything is left.
            reserved_units: &[(0, 1)],
        };
        self.running_config.admission.peek_shared(&request).await
    }

    /// The state of the key in each of the lookup's rules, as JSON.
    async fn describe(&self, gateway: &dyn Control) -> Vec<Value> {
        let mut limits = Vec::new();
        for rule in &self.rules {
            let rules = std::slice::from_ref(rule);
            let verdict = self.peek(gateway, rules).await;
            let rule_finding = verdict.findings.first();
            let rule = rule_finding.map_or(rule, |rule_finding| rule_finding.rule.resolve(rules));
            let mut description = explanation::describe_rule(rule);
            if let Some(rule_finding) = rule_finding {
                description.extend(explanation::describe_finding(rule_finding, rule));
                let key = self.identifier.format_key(&self.client, &rule.key);
                description.insert("key".into(), json!(key));
                let (grants, wall) = (&self.running_config.grants, gateway.clock().wall());
                explanation::add_grant(&mut description, rule, grants, wall);
            } else if self.identifier.is_unlimited(&self.client, rule) {
                description.insert("unlimited".into(), json!(true));
                description.insert("guarantee".into(), json!(explanation::UNLIMITED_KEY));
                description.remove("rate");
                description.remove("concurrent");
            }
            limits.push(Value::Object(description));
        }
        limits
    }

    /// Parses a key of the limit with this name. The error is the response.
    fn new(gateway: &dyn Control, limit_name: &str, key: &str) -> Result<KeyLookup, Box<Response>> {
        let running_config = gateway.running();
        let identifier = Arc::new(running_config.build_identifier());
        KeyLookup::of_config(running_config, identifier, limit_name, key)
    }

    /// Parses a key as [`KeyLookup::new`] does. `identifier` must be that of the configuration.
    fn of_config(
        running_config: RunningConfig,
        identifier: Arc<Identifier>,
        limit_name: &str,
        key: &str,
    ) -> Result<KeyLookup, Box<Response>> {
        let all_rules = running_config.ruleset.rules.iter();
        let rules: Vec<Arc<Rule>> = all_rules
            .filter(|rule| rule.name.as_str() == limit_name)
            .map(without_other_conditions)
            .collect();
        let Some(first_rule) = rules.first() else {
            let detail = format!("no limit is named `{limit_name}`; /v1/limits lists them");
            return Err(Box::new(problem_response(StatusCode::NOT_FOUND, &detail)));
        };
        let client = identifier
            .parse_key(key, &first_rule.key)
            .map_err(|error| {
                let detail = error.to_string();
                Box::new(problem_response(StatusCode::BAD_REQUEST, &detail))
            })?;
        let client = with_plan(client, first_rule, &identifier, &running_config);
        // A limit with rates by plan has a rule for each plan; the one for the client's plan holds.
        let is_for_plan = |rule: &&Arc<Rule>| identifier.selects(&rule.clients, &client);
        let plan_rules: Vec<Arc<Rule>> = rules.iter().filter(is_for_plan).cloned().collect();
        let rules = if plan_rules.is_empty() {
            rules
        } else {
            plan_rules
        };
        Ok(KeyLookup {
            running_config,
            identifier,
            rules,
            client,
        })
    }
}

/// Copies of a rule by which each of its windows is read for itself: in each copy all other windows have the largest quota.
/// Only the rule itself if it has one window, or if its state depends on quotas.
fn read_rules(rule: &Arc<Rule>) -> Vec<Arc<Rule>> {
    let RuleLimit::Rate(limit) = &rule.limit else {
        return vec![rule.clone()];
    };
    let depends_on_quota = limit.algorithm.is_gcra() || limit.throttle.is_elastic();
    if limit.windows.len() < 2 || depends_on_quota {
        return vec![rule.clone()];
    }
    let read_window = |read_index: usize| {
        let windows = limit.windows.iter().enumerate().map(|(index, rate)| {
            let widest = Rate::new(Rate::MAX_QUOTA, rate.window());
            let widest = widest.map_or(*rate, |widest| widest.aligned(rate.alignment()));
            if index == read_index { *rate } else { widest }
        });
        let windows = windows.collect();
        Arc::new(Rule {
            limit: RuleLimit::Rate(RateLimit {
                windows,
                ..limit.clone()
            }),
            ..(**rule).clone()
        })
    };
    (0..limit.windows.len()).map(read_window).collect()
}

/// The rule for all clients of its plan, without its other conditions. A key does not say which of those conditions its
/// client meets.
fn without_other_conditions(rule: &Arc<Rule>) -> Arc<Rule> {
    let is_about_plan = |condition: &&ClientCondition| condition.identity == Identity::Plan;
    let all_conditions = rule.clients.conditions.iter();
    let conditions: Vec<ClientCondition> = all_conditions.filter(is_about_plan).cloned().collect();
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
        plan: plans.default_index,
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
