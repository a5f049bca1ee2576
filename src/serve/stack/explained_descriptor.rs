//! Explains what the gateway would say of a descriptor by which another proxy asks. The search for its policy, the client and
//! the limits are those of a real request; nothing is counted.

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::explanation::{
    ExplainedLimit, add_grant, describe_client, describe_limit, describe_route,
};
use crate::base::clock::Clock;
use crate::identity::{ClientIdentity, IdentificationStage, Identifier};
use crate::limit::{Rule, Rules};
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::{AdmissionRequest, Verdict};

/// A descriptor to explain, as the only one of a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DescriptorToExplain {
    /// The domain.
    pub domain: String,
    /// The key and the value of each entry.
    pub entries: Vec<(String, String)>,
}

/// Explains a descriptor in the form of [`explain`](super::explain::explain). The status is that which clients of the proxy
/// get: 200 or 429.
pub(super) async fn explain_descriptor(
    running_config: &RunningConfig,
    descriptor: &DescriptorToExplain,
    clock: &Clock,
) -> Value {
    let ruleset = &*running_config.ruleset;
    let identifier = &running_config.build_identifier();
    let entries = descriptor.entries.iter();
    let entries: Vec<(&str, &str)> = entries.map(|(key, value)| (&**key, &**value)).collect();
    let client = identifier.client_of_entries(&entries, Ipv4Addr::LOCALHOST.into());
    let route_index = ruleset.descriptor_table.find(&descriptor.domain, &entries);
    let route = route_index.and_then(|index| ruleset.routes.get(index));
    let no_rules = Rules::default();
    let rules = route.map_or(&no_rules, |route| &route.rules);
    let ban = route.and_then(|_| find_ban(running_config, identifier, &client, clock));
    let counted_rules = match ban {
        Some(_) => &no_rules,
        None => rules,
    };
    let request = AdmissionRequest {
        rules: counted_rules,
        client: &client,
        identifier,
        now: clock.now(),
        pressure: None,
        reserved_units: &[],
    };
    let verdict = running_config.admission.peek_shared(&request).await;
    let is_admitted = verdict.is_admitted && ban.is_none();
    let reason = match (&ban, route) {
        (Some((key, seconds)), _) => Some(format!("`{key}` is banned for {seconds} s more")),
        (None, None) => Some("no policy has this domain and these entries".to_owned()),
        (None, Some(_)) => None,
    };
    let seconds = match &ban {
        Some((_, seconds)) => Some(*seconds),
        None => verdict.retry_after_secs(counted_rules),
    };
    json!({
        "status": if is_admitted { 200 } else { 429 },
        "admitted": is_admitted,
        "reason": reason,
        "banned": ban.map(|(key, _)| key),
        "route": route.map(|route| describe_route(route, ruleset)),
        "who": describe_client(&client, identifier),
        "retry_after": seconds.filter(|_| !is_admitted),
        "limits": describe_limits(running_config, (rules, counted_rules), &verdict, &client, (identifier, clock)),
    })
}

/// The ban of a client that descriptors name: the key, and the seconds until it ends.
fn find_ban(
    running_config: &RunningConfig,
    identifier: &Identifier,
    client: &ClientIdentity,
    clock: &Clock,
) -> Option<(Box<str>, u64)> {
    let (index, now) = (running_config.bans.index(), clock.now());
    let by_address = index.find_address(client.ip, now);
    let stage = IdentificationStage::Whole;
    let ban = by_address
        .filter(|_| !client.is_ip_unclear)
        .or_else(|| index.find_client(client, identifier, stage, now))?;
    Some((ban.key.clone(), ban.until.since(now).ceil_secs()))
}

/// All limits of the policy, with the findings of those that are counted.
fn describe_limits(
    running_config: &RunningConfig,
    (rules, counted_rules): (&Rules, &Rules),
    verdict: &Verdict,
    client: &ClientIdentity,
    (identifier, clock): (&Identifier, &Clock),
) -> Vec<Value> {
    let decider = verdict.decider(counted_rules);
    let decider_index = decider.map(|(rule, _)| rule.index);
    let describe = |rule: &Arc<Rule>| {
        let mut findings = verdict.findings.iter();
        let rule_finding = findings.find(|rule_finding| {
            let counted_rule = rule_finding.rule.base(counted_rules);
            counted_rule.index == rule.index
        });
        let counted_rule = rule_finding.map_or(rule, |rule_finding| {
            rule_finding.rule.resolve(counted_rules)
        });
        let limit = ExplainedLimit {
            rule: counted_rule,
            counts_request: !counted_rules.is_empty(),
            rule_finding,
            decides: decider_index == Some(rule.index),
        };
        let mut description = describe_limit(&limit, client, identifier);
        if let Value::Object(members) = &mut description {
            let grants = &running_config.grants;
            add_grant(members, counted_rule, grants, clock.wall());
        }
        description
    };
    rules.iter().map(describe).collect()
}
