//! The form of an explanation: routes, limits, pressure and the client as JSON, and all of it as text.
//!
//! `explain.rs` decides what an explanation says; this file only writes it down. The admin listener describes routes,
//! limits and pressure by the same functions.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::explained_account::{describe_account, render_account};
use super::refusal::RefusalCause;
use crate::base::clock::Nanos;
use crate::identity::{ClientIdentity, Identifier, Unverified};
use crate::limit::pressure::{Pressure, RequestClass};
use crate::limit::{AppliedGrant, Identity, KeySpec, Rule, RuleLimit};
use crate::operator::{BanResponse, EntryKind, GrantRegistry};
use crate::policy::Ruleset;
use crate::route::Route;
use crate::throttle::admission::RuleFinding;

/// Why the gateway responds to a request itself, in words for operators.
pub(super) fn refusal_reason(cause: &RefusalCause) -> String {
    match cause {
        RefusalCause::Unidentified(identity) => {
            format!("this route requires a valid {}", identity.as_str())
        }
        RefusalCause::Unverified(reason) => format!("the request comes with {reason}"),
        RefusalCause::Bad(detail) => (*detail).to_owned(),
        RefusalCause::Denied(denial) if denial.list.is_silent => {
            format!("{denial}, and sends no response")
        }
        RefusalCause::Denied(denial) => denial.to_string(),
        RefusalCause::Banned(refusal) => {
            let (key, seconds) = (&refusal.ban.key, refusal.seconds);
            let silence = match refusal.kind {
                BanResponse::Silent => ", and gets no response",
                _ => "",
            };
            format!("`{key}` is banned for {seconds} s more{silence}")
        }
        other_cause => {
            let mut detail = other_cause.detail();
            if let Some(first_letter) = detail.get_mut(..1) {
                first_letter.make_ascii_lowercase();
            }
            detail.trim_end_matches('.').to_owned()
        }
    }
}

/// Why the route does not accept the user of this client, in words for operators.
pub(super) fn describe_other_source(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> String {
    let names = |sources| {
        let names = identifier.settings().user_source_names(sources);
        names.join(" or ")
    };
    format!(
        "this route requires a user of {}, and this one is of {}",
        names(route.user_sources),
        names(client.user_source)
    )
}

/// The pressure on an upstream, and its consequences for requests. Latencies are in milliseconds, and null until they are
/// measured.
pub fn describe_pressure(pressure: &Pressure) -> Value {
    let figures = pressure.figures();
    let millis = |duration: Option<Nanos>| duration.map(|duration| duration.0 as f64 / 1e6);
    let classes_and_counts = RequestClass::ALL.into_iter().zip(figures.shed);
    let shed_counts: Map<String, Value> = classes_and_counts
        .map(|(class, count)| (class.as_str().into(), count.into()))
        .collect();
    json!({
        "load": figures.load,
        "concurrency_limit": figures.capacity,
        "open": figures.open,
        "elastic_factor": figures.factor.get(),
        "latency_ms": {
            "base": millis(figures.baseline),
            "p50": millis(figures.p50),
            "p90": millis(figures.p90),
        },
        "reported_load": figures.reported,
        "gateway_cpu": figures.cpu,
        "shedding_level": figures.level,
        "lent": figures.lent,
        "shed": shed_counts,
    })
}

/// A route, with the name of its upstream or what the gateway answers, and with the names of its limits.
pub fn describe_route(route: &Route, ruleset: &Ruleset) -> Value {
    let upstream_name = ruleset.upstream_name(route);
    let required_identities = route.require.iter().map(|identity| identity.as_str());
    let limits: Vec<&str> = route.rules.iter().map(|rule| rule.name.as_str()).collect();
    json!({
        "name": &*route.name,
        "match": route.action.match_text(&route.pattern),
        "listen": route.listeners.iter().map(|name| &**name).collect::<Vec<_>>(),
        "upstream": upstream_name,
        "action": route.action.describe(upstream_name.unwrap_or_default()),
        "max_body_bytes": route.max_body_bytes,
        "compress": route.codings.iter().map(|coding| coding.as_str()).collect::<Vec<_>>(),
        "require": required_identities.collect::<Vec<_>>(),
        "user_sources": ruleset.identity.required_source_names(route.user_sources),
        "limits": limits,
    })
}

/// The identities of a client. Of tokens and email addresses only keyed hashes are shown.
pub(super) fn describe_client(client: &ClientIdentity, identifier: &Identifier) -> Value {
    let plans = &identifier.settings().plan.plans;
    let present_identities = Identity::all().filter(|identity| client.has(*identity));
    let identities = present_identities.map(|identity| {
        let settings = identifier.settings();
        json!({
            "name": identity.as_str(),
            "key": identifier.format_key(client, &KeySpec::from(&[identity])),
            "source": settings.describe_source(identity),
            "verified": settings.is_unforgeable(identity),
        })
    });
    json!({
        "ip": client.ip.to_string(),
        "user": client.user.as_deref(),
        "user_source": identifier.settings().user_source_names(client.user_source).first(),
        "token": client.token.is_some(),
        "email": client.email.is_some(),
        "plan": client.plan.and_then(|plan| plans.get(plan)).map(|plan| &plan.name),
        "identities": identities.collect::<Value>(),
        "api_key": client.runtime_key.as_ref().map(|key| &*key.id),
        "unverified": client.credential_fault().map(Unverified::as_str),
    })
}

/// A limit of the request's route, as far as it concerns the request.
pub(super) struct ExplainedLimit<'a> {
    pub(super) rule: &'a Rule,
    /// Whether the limit counts the request. Some limits do not count the gateway's own responses.
    pub(super) counts_request: bool,
    /// What the limit says of the request; `None` if it does not apply to this request.
    pub(super) rule_finding: Option<&'a RuleFinding>,
    /// Whether this limit decides the outcome.
    pub(super) decides: bool,
}

/// A limit and its finding for this client, or the reason why the limit does not apply.
pub(super) fn describe_limit(
    limit: &ExplainedLimit<'_>,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Value {
    let rule = limit.rule;
    let mut members = describe_rule(rule);
    members.insert("applies".into(), json!(limit.rule_finding.is_some()));
    let Some(rule_finding) = limit.rule_finding else {
        let is_for_client = identifier.selects(&rule.clients, client);
        let lacks_key =
            !rule.key.is_everyone() && rule.key.identities().all(|identity| !client.has(identity));
        let reason = match (limit.counts_request, is_for_client, lacks_key) {
            (false, _, _) => "it does not count what the gateway answers itself",
            (true, false, _) => "it is for other clients",
            (true, true, true) => "none of its keys is known",
            (true, true, false) if identifier.is_unlimited(client, rule) => UNLIMITED_KEY,
            (true, true, false) => "the address is exempt",
        };
        members.insert("reason".into(), json!(reason));
        return Value::Object(members);
    };
    members.insert(
        "key".into(),
        json!(identifier.format_key(client, &rule.key)),
    );
    members.extend(describe_finding(rule_finding, rule));
    members.insert("decides".into(), json!(limit.decides));
    Value::Object(members)
}

/// The finding of a limit for a key: the units that remain of its quota, and the seconds until more units remain. The
/// window and the wait are in seconds too. A limit on open requests has no window, and one with credits no time at all.
pub fn describe_finding(rule_finding: &RuleFinding, rule: &Rule) -> Map<String, Value> {
    let finding = &rule_finding.finding;
    let seconds = |nanos: Nanos| Duration::from(nanos).as_secs_f64();
    let rate = rule.limit.window(finding.window);
    let (remaining, reset) = rule.limit.client_figures(finding);
    let window = rule.limit.window_length(finding);
    let finding_json = json!({
        "standing": finding.standing.as_str(),
        "window": window.map(Nanos::ceil_secs),
        "quota": finding.quota,
        "remaining": remaining,
        "next_unit_in": reset.map_or(0.0, seconds),
        "wait": seconds(finding.wait),
        "sketched": finding.sketched,
    });
    let mut members = finding_json.as_object().cloned().unwrap_or_default();
    if rule.limit.is_credits() {
        members.insert(
            "credits".into(),
            describe_credits(finding.quota, finding.remaining),
        );
        for time in ["next_unit_in", "wait"] {
            members.insert(time.into(), Value::Null);
        }
        return members;
    }
    let calendar = rate.and_then(|rate| rate.calendar());
    if let Some((calendar, window)) = calendar.zip(finding.calendar_window) {
        let next_window = calendar.format_instant(window.end);
        members.insert("next_window".into(), json!(next_window));
    }
    members
}

/// The credits of a key: what was added in all, and what is left of that. Those of requests in flight count as used.
pub fn describe_credits(added: u32, left: u32) -> Value {
    let left = left.min(added);
    json!({ "added": added, "used": added - left, "left": left })
}

/// The reason why a limit does not apply to a key that an override makes unlimited.
pub const UNLIMITED_KEY: &str = "an override makes the key unlimited";

/// A limit as its policy defines it, without counts.
pub fn describe_rule(rule: &Rule) -> Map<String, Value> {
    let rule_json = json!({
        "limit": rule.name.as_str(),
        "at": rule.origin,
        "scope": rule.scope,
        "counts_by": rule.key.part_names(),
        "guarantee": rule.guarantee(),
        "shadow": rule.shadow,
    });
    let mut members = rule_json.as_object().cloned().unwrap_or_default();
    if rule.is_candidate {
        members.insert("try".into(), json!(true));
    }
    if rule.override_number > 0 && rule.grant.is_none() {
        members.insert("override".into(), json!(true));
    }
    if !rule.clients.is_empty() {
        members.insert("for".into(), json!(rule.clients.to_string()));
    }
    if let Some(condition) = &rule.condition {
        members.insert("while".into(), json!(condition.as_str()));
    }
    match &rule.limit {
        RuleLimit::Rate(limit) if limit.is_credits() => {
            members.insert("rate".into(), json!([]));
        }
        RuleLimit::Rate(limit) => {
            let rates: Vec<String> = limit.windows.iter().map(ToString::to_string).collect();
            members.insert("rate".into(), json!(rates));
            members.insert("algorithm".into(), json!(limit.algorithm.as_str()));
        }
        RuleLimit::Open(limit) => {
            members.insert("concurrent".into(), json!(limit.quota(1)));
        }
    }
    members
}

/// Adds the grant by which a key has more of a limit than the files say, if it has one. Of credits it adds the account.
/// `description` is that of the key and of the rule that holds for it; times are in seconds, and `left` counts from `wall`.
pub fn add_grant(
    description: &mut Map<String, Value>,
    rule: &Rule,
    grants: &GrantRegistry,
    wall: Duration,
) {
    let Some(AppliedGrant {
        limit,
        amount: grant,
    }) = &rule.grant
    else {
        return;
    };
    let key = description.get("key").and_then(Value::as_str);
    // All of its credits are granted, and they are described already.
    if rule.limit.is_credits() {
        let account = key.and_then(|key| grants.find(EntryKind::Credit, limit, key));
        if let Some(account) = account {
            description.insert("account".into(), describe_account(&account));
        }
        return;
    }
    let mut members = Map::new();
    match grant.add {
        0 => members.insert("times".into(), json!(grant.times)),
        add => members.insert("add".into(), json!(add)),
    };
    if let Some(entry) = key.and_then(|key| grants.find(EntryKind::Grant, limit, key)) {
        let until = Duration::from_millis(entry.until);
        members.insert("reason".into(), json!(entry.reason));
        members.insert("by".into(), json!(entry.by));
        members.insert("until".into(), json!(until.as_secs_f64()));
        let left = until.saturating_sub(wall);
        members.insert("left".into(), json!(left.as_secs_f64()));
    }
    description.insert("grant".into(), Value::Object(members));
}

/// Renders an explanation, which [`explain`](super::explain::explain) has made, as text.
pub fn render(explanation: &Value) -> String {
    let mut out = String::new();
    render_outcome(&mut out, explanation);
    render_route(&mut out, &explanation["route"]);
    if let Some(target) = explanation["forwarded"].as_str() {
        out += &format!("forwarded as {target}\n");
    }
    render_client(&mut out, &explanation["who"]);
    render_pressure(&mut out, explanation);
    let limits = explanation["limits"].as_array().map(Vec::as_slice);
    let limits = limits.unwrap_or_default();
    for limit in limits {
        render_limit(&mut out, limit);
    }
    if !limits.is_empty() {
        out += "* decides\n";
    }
    out
}

/// The text of a JSON value: a string without its quotes, nothing for null.
fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other_value => other_value.to_string(),
    }
}

fn render_outcome(out: &mut String, explanation: &Value) {
    let status = &explanation["status"];
    let outcome = match status.as_u64() {
        Some(200) => "admitted",
        Some(429) if explanation["banned"].is_string() => "banned",
        Some(429) => "refused by a limit",
        Some(403) => "denied",
        Some(300..400) => "redirected",
        _ => "not served",
    };
    *out += &format!("{} {outcome}", json_text(status));
    if let Some(location) = explanation["location"].as_str() {
        *out += &format!(" to {location}");
    }
    if let Some(reason) = explanation["reason"].as_str() {
        *out += &format!(": {reason}");
    }
    if let Some(wait) = explanation["retry_after"].as_u64() {
        *out += &format!("; admitted again in {wait} s");
    }
    if let Some(file) = explanation["page"].as_str() {
        *out += &format!("; the body is {file}");
    }
    out.push('\n');
}

fn render_route(out: &mut String, route: &Value) {
    if !route.is_object() {
        return;
    }
    let [name, pattern, action] = ["name", "match", "action"].map(|field| json_text(&route[field]));
    *out += &format!("route {name} ({pattern}) {action}");
    for (field, words) in [
        ("listen", "listener"),
        ("compress", "compresses responses by"),
    ] {
        let texts = route[field].as_array().into_iter().flatten();
        let texts: Vec<&str> = texts.filter_map(Value::as_str).collect();
        if !texts.is_empty() {
            *out += &format!(", {words} {}", texts.join(", "));
        }
    }
    out.push('\n');
}

fn render_client(out: &mut String, client: &Value) {
    if !client.is_object() {
        return;
    }
    *out += &format!("from ip {}", json_text(&client["ip"]));
    for name in ["user", "plan"] {
        if let Some(value) = client[name].as_str() {
            *out += &format!(", {name} {value}");
        }
    }
    let parse_reason = |word| {
        let mut reasons = Unverified::ALL.into_iter();
        reasons.find(|reason| reason.as_str() == word)
    };
    if let Some(reason) = client["unverified"].as_str().and_then(parse_reason) {
        *out += &format!(", with {reason}");
    }
    if let Some(id) = client["api_key"].as_str() {
        *out += &format!(", API key {id}");
    }
    out.push('\n');
    for identity in client["identities"].as_array().into_iter().flatten() {
        let [key, source] = ["key", "source"].map(|field| json_text(&identity[field]));
        let negation = if identity["verified"] == true {
            ""
        } else {
            "not "
        };
        *out += &format!("  {key}: {source}, {negation}verified\n");
    }
}

fn render_pressure(out: &mut String, explanation: &Value) {
    let pressure = &explanation["pressure"];
    let load = pressure["load"].as_f64();
    if let Some((load, factor)) = load.zip(pressure["elastic_factor"].as_f64()) {
        *out += &format!(
            "priority {}; upstream load {load:.2}, elastic limits lend {:.2} times their rate\n",
            json_text(&explanation["priority"]),
            factor - 1.0
        );
    }
}

fn render_grant(out: &mut String, grant: &Value) {
    match (grant["times"].as_u64(), grant["add"].as_u64()) {
        (Some(times), _) => *out += &format!(" with a grant of {times} times"),
        (_, Some(add)) => *out += &format!(" with a grant of {add} more"),
        _ => return,
    }
    if let Some(left) = grant["left"].as_f64() {
        *out += &format!(" for {:.0} s, by {}", left.ceil(), json_text(&grant["by"]));
    }
    if let Some(reason) = grant["reason"].as_str().filter(|reason| !reason.is_empty()) {
        *out += &format!(" ({reason})");
    }
}

fn render_limit(out: &mut String, limit: &Value) {
    let field = |name: &str| json_text(&limit[name]);
    let mark = if limit["decides"] == true { "*" } else { " " };
    *out += &format!("{mark} {}", field("limit"));
    if let Some(clients) = limit["for"].as_str() {
        *out += &format!(" for {clients}");
    }
    *out += &format!(" ({})", field("at"));
    if limit["override"] == true {
        *out += " with an override";
    }
    render_grant(out, &limit["grant"]);
    render_account(out, &limit["account"]);
    if limit["applies"] == true {
        *out += &format!(
            ": {} for {}; {}{} of {} ",
            field("standing"),
            field("key"),
            match limit["credits"].is_object() {
                true => "credits: ",
                false => "",
            },
            field("remaining"),
            field("quota"),
        );
        match limit["window"].as_u64() {
            _ if limit["credits"].is_object() => *out += "left",
            Some(_) if limit["next_window"].is_string() => {
                *out += &format!("left, next window {}", field("next_window"));
            }
            Some(window_seconds) => {
                let next_unit_in = limit["next_unit_in"].as_f64().unwrap_or(0.0);
                *out += &format!("left in {window_seconds} s, next unit in {next_unit_in:.3} s");
            }
            None => *out += "permits free",
        }
    } else {
        *out += &format!(": does not apply, {}", field("reason"));
    }
    if limit["try"] == true {
        *out += " (try: never refuses)";
    } else if limit["shadow"] == true {
        *out += " (shadow: never refuses)";
    }
    *out += &format!("\n    {}", field("guarantee"));
    if let Some(condition) = limit["while"].as_str() {
        *out += &format!(", while {condition}");
    }
    out.push('\n');
}
