//! Describes a loaded configuration as JSON, for programs.

use http::HeaderName;
use serde_json::{Value, json};

use super::super::diagnostic::Diagnostic;
use super::super::key_control::KeyControl;
use super::super::load::LoadedConfig;
use super::super::settings::LogFormat;
use super::routes::{describe_field_changes, find_broader_route, sort_by_specificity};
use super::{describe_promise, format_throttle, gateway_lists, key_controls_of};
use crate::limit::{AccessLists, Disclose, Rule};
use crate::route::{ErrorPages, HostPattern};

/// Describes the configuration as JSON, in the form that `tollgate check --json` prints. Times are in seconds;
/// `store_budget`, `bytes_per_key` and the record's `size` are in bytes. `ok` is always true, because a configuration
/// with mistakes is never loaded.
pub fn describe_json(loaded: &LoadedConfig) -> Value {
    let ruleset = &loaded.ruleset;
    let routes: Vec<Value> = sort_by_specificity(loaded)
        .into_iter()
        .map(|route| {
            json!({
                "name": &*route.name,
                "match": route.pattern.to_string(),
                "host": match route.pattern.host() {
                    HostPattern::Any => Value::Null,
                    host => host.to_string().into(),
                },
                "listen": route.listeners.iter().map(|name| &**name).collect::<Vec<_>>(),
                "upstream": ruleset.upstream_name(route),
                "action": route.action.describe(ruleset.upstream_name(route).unwrap_or_default()),
                "broader": find_broader_route(loaded, route).map(|broader| &*broader.name),
                "max_body_bytes": route.max_body_bytes,
                "compress": route.codings.iter().map(|coding| coding.as_str()).collect::<Vec<_>>(),
                "cors": route.cors.as_ref().map(|cors| json!({
                    "origins": cors.origins.to_string(),
                    "credentials": cors.allows_credentials,
                })),
                "strip": route.path_change.as_ref().map(|change| &*change.strip),
                "prefix": route.path_change.as_ref().map(|change| &*change.prefix),
                "map_back": route.back_mapping.is_some(),
                "errors": route.error_pages.as_deref().map(error_pages_json),
                "request": route.request_changes.as_deref().map(describe_field_changes),
                "response": route.response_changes.as_deref().map(describe_field_changes),
                "require": route.require.iter().map(|identity| identity.as_str()).collect::<Vec<_>>(),
                "user_sources": ruleset.identity.required_source_names(route.user_sources),
                "access": access_json(&route.access),
                "limits": route.rules.iter().map(|rule| rule.index).collect::<Vec<_>>(),
            })
        })
        .collect();
    let limits: Vec<Value> = ruleset
        .rules
        .iter()
        .zip(key_controls_of(ruleset))
        .map(|(rule, control)| limit_json(rule, loaded, control))
        .collect();
    let access_log = &loaded.process.access_log;
    let diagnostics: Vec<Value> = loaded.warnings.iter().map(Diagnostic::to_json).collect();
    json!({
        "ok": true,
        "routes": routes,
        "errors": ruleset.error_pages.as_deref().map(error_pages_json),
        "access": access_json(&gateway_lists(loaded)),
        "limits": limits,
        "store_budget": loaded.process.store_budget,
        "snapshots": loaded.process.snapshots.as_ref().map(|settings| json!({
            "folder": settings.folder.display().to_string(),
            "every": settings.interval.as_secs_f64(),
        })),
        "record": loaded.process.record.as_ref().map(|settings| json!({
            "folder": settings.folder.as_ref().map(|folder| folder.display().to_string()),
            "size": settings.max_bytes,
        })),
        "request_id": ruleset.identity.request_id_field.as_ref().map(HeaderName::as_str),
        "access_log": {
            "format": match access_log.format {
                LogFormat::Json => "json",
                LogFormat::Combined => "combined",
            },
            "fields": access_log.fields.iter().map(|field| field.as_str()).collect::<Vec<_>>(),
        },
        "traces": loaded.process.traces.as_ref().map(|traces| json!({
            "to": traces.display_url,
            "sample": traces.sample.to_string(),
            "service": traces.service,
        })),
        "push": loaded.process.push.iter().map(|push| json!({
            "name": push.name,
            "to": push.engine.as_str(),
            "url": push.display_url,
            "every": push.step_seconds,
        })).collect::<Vec<_>>(),
        "store": loaded.process.shared.as_ref().map(|shared| shared.backend.to_string()),
        "diagnostics": diagnostics,
    })
}

/// The files of bodies of refusals, by status.
fn error_pages_json(pages: &ErrorPages) -> Value {
    let entries = pages.0.iter().map(|(status, page)| {
        let files: Vec<&str> = page.files().collect();
        (status.to_string(), json!(files))
    });
    Value::Object(entries.collect())
}

/// Lists of `deny` and `allow`, each with its sentence. Those of the gateway file stand at the top, and without their
/// networks in each route.
fn access_json(lists: &AccessLists) -> Vec<Value> {
    let lists = lists.iter().map(|list| {
        json!({
            "list": list.effect.as_str(),
            "origin": list.origin,
            "silent": list.is_silent,
            "says": list.to_string(),
        })
    });
    lists.collect()
}

/// One element of `limits`. `control` says how far a client controls the key; `None` if no route has the limit.
fn limit_json(rule: &Rule, loaded: &LoadedConfig, control: Option<KeyControl>) -> Value {
    let (rules, identity) = (&loaded.ruleset.rules, &loaded.ruleset.identity);
    let client = control.map(|control| control.to_json(&control.describe(rule, rules, identity)));
    let rate = rule.limit.rate();
    // At least one byte, because the budget is divided by it.
    let key_bytes = rate.map(|limit| limit.bytes_per_key().max(1));
    let timed_rate = rate.filter(|limit| !limit.is_credits());
    let windows = timed_rate.map_or(&[][..], |limit| &limit.windows);
    json!({
        "name": rule.name.as_str(),
        "index": rule.index,
        "origin": rule.origin,
        "scope": rule.scope,
        "key": rule.key.part_names(),
        "for": (!rule.clients.is_empty()).then(|| rule.clients.to_string()),
        "rates": windows.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "overrides": rule.overrides.as_ref().map(|overrides| overrides.set.keys.len()),
        "concurrent": rule.limit.open().map(|limit| limit.max_open),
        "credits": rule.limit.is_credits(),
        "algorithm": timed_rate.map(|limit| limit.algorithm.as_str()),
        "throttle": format_throttle(rule.limit.throttle()),
        "count": rule.count.to_string(),
        "reserve": rule.reservation().map(ToString::to_string),
        "plans": rule.plans,
        "shadow": rule.shadow,
        "try": rule.is_candidate,
        "disclosed": rule.disclose == Disclose::All,
        "sharing": loaded.process.shared.as_ref().map(|_| rule.sharing.as_str()),
        "on_store_error": loaded.process.shared.as_ref().map(|_| rule.on_store_error.as_str()),
        "client": client,
        "guarantee": describe_promise(rule),
        "bytes_per_key": key_bytes,
        "keys_in_budget": key_bytes.map(|bytes| loaded.process.store_budget / bytes),
    })
}
