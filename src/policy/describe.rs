//! A loaded configuration in words: routes in the order in which they match, what each limit
//! promises, and what its counts cost.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::compile::reads::may_be_overridden;
use super::keys::{self, KeyControl};
use super::load::LoadedConfig;
use super::settings::Ruleset;
use crate::limit::{
    Algorithm, CountMode, Disclose, LOG_DEFAULT_MAX_QUOTA, Limit, OnStoreError, Rule, RuleLimit,
    Sharing, ThrottleMode,
};
use crate::record::Settings;
use crate::route::pattern::Segment;
use crate::route::{HostPattern, Paths, Pattern, Route};

/// Those that frameworks take for one path, see [`crate::route::RouteTable::find_folded`].
const SPELLINGS: &str = "other spellings of its path (case, formats, what follows a script)";

/// The configuration as text.
pub fn describe(loaded: &LoadedConfig) -> String {
    let mut out = String::new();
    let ruleset = &loaded.ruleset;
    let key_controls = key_controls(ruleset);
    let _ = match ruleset.routes.len() {
        1 => writeln!(out, "1 route:"),
        routes => writeln!(out, "{routes} routes, the most specific first:"),
    };
    for route in ordered(loaded) {
        let upstream = ruleset
            .upstreams
            .get(route.upstream)
            .map_or("", |up| up.name.as_str());
        let host = match route.pattern.host() {
            HostPattern::Any => String::new(),
            host => format!(" on {host}"),
        };
        let _ = writeln!(
            out,
            "\n{}: {}{host} to {upstream}",
            route.name, route.pattern
        );
        if let Some(broader) = broader(loaded, route) {
            let _ = match ruleset.paths {
                Paths::Fold => writeln!(out, "  takes {SPELLINGS} too, before {}", broader.name),
                Paths::Exact => writeln!(out, "  leaves {SPELLINGS} to {}", broader.name),
            };
        }
        if let Some(other) = beside_host(loaded, route) {
            let _ = writeln!(
                out,
                "  holds for its host only: with another `Host` a client reaches {upstream} through {}",
                other.name
            );
        }
        if may_be_overridden(route, &ruleset.routes) {
            let _ = writeln!(
                out,
                "  counts a POST whose body is coded or longer than 1 MiB by the limits of its path's other methods too, for `_method` in it may name any: `paths: exact` where {upstream} reads no `_method`"
            );
        }
        for require in &route.require {
            let _ = writeln!(out, "  requires {}", require.as_str());
        }
        let (shared, own): (Vec<_>, Vec<_>) = route.rules.iter().partition(|rule| shared(rule));
        if !shared.is_empty() {
            let names: Vec<&str> = shared.iter().map(|rule| rule.name.as_str()).collect();
            let _ = writeln!(out, "  shares {}", names.join(", "));
        }
        for rule in own {
            limit(&mut out, rule, loaded, &key_controls);
        }
    }
    let mut shared = ruleset.rules.iter().filter(|rule| shared(rule)).peekable();
    if shared.peek().is_some() {
        let _ = writeln!(out, "\nshared between routes:");
    }
    for rule in shared {
        limit(&mut out, rule, loaded, &key_controls);
    }
    let _ = writeln!(
        out,
        "\nCounts take at most {} of memory.",
        bytes(loaded.process.store_budget)
    );
    let _ = match &loaded.process.snapshots {
        Some(settings) => writeln!(
            out,
            "They are kept in {}: a crash forgives at most what was counted in the last {}.",
            settings.folder.display(),
            super::decode::shown_span(settings.every)
        ),
        None if loaded.process.shared.is_some() => Ok(()),
        None => writeln!(out, "They are forgotten when the process ends."),
    };
    if let Some(shared) = &loaded.process.shared {
        let _ = writeln!(
            out,
            "Gateways share them through {}; a request waits for it for at most {} ms.",
            shared.backend,
            shared.budget.as_millis()
        );
        for limit in shared.backend.limits() {
            let _ = writeln!(out, "  {limit}.");
        }
    }
    let _ = match &loaded.process.record {
        None => writeln!(out, "What happens is not recorded."),
        Some(Settings { folder: None, .. }) => {
            writeln!(
                out,
                "What happened in the last hours is recorded in memory."
            )
        }
        Some(Settings {
            folder: Some(folder),
            most_bytes,
        }) => writeln!(
            out,
            "What happens is recorded in {}, which takes at most {} of the disk.",
            folder.display(),
            bytes(usize::try_from(*most_bytes).unwrap_or(usize::MAX))
        ),
    };
    for push in &loaded.process.push {
        let (name, engine, url, every) = (&push.name, push.engine, &push.display_url, push.every);
        let _ = writeln!(
            out,
            "  It is pushed to {name} ({engine}) at {url}, a sample for every {every} s."
        );
    }
    for note in &loaded.notes {
        let _ = write!(out, "\n{note}");
    }
    out
}

fn key_controls(ruleset: &Ruleset) -> Vec<Option<KeyControl>> {
    keys::key_controls(ruleset.rules.len(), &ruleset.routes, &ruleset.identity)
}

fn limit(
    out: &mut String,
    rule: &Rule,
    loaded: &LoadedConfig,
    key_controls: &[Option<KeyControl>],
) {
    let _ = writeln!(out, "  {}: {}", rule.name, promise(rule));
    let _ = writeln!(out, "    {}; {}", terms(rule), cost(rule, loaded));
    if let Some(control) = key_controls.get(rule.index).copied().flatten() {
        let ruleset = &loaded.ruleset;
        let says = control.says(rule, &ruleset.rules, &ruleset.identity);
        let _ = writeln!(out, "    {says}");
    }
    if loaded.process.shared.is_some() {
        let _ = writeln!(out, "    {}", sharing(rule));
        if let Some(change) = another_number(rule) {
            let _ = writeln!(out, "    {change}");
        }
    }
}

/// From which number on gateways would count otherwise, and begin anew.
fn another_number(rule: &Rule) -> Option<String> {
    if rule.algorithm_is_written || rule.sharing == Sharing::Local {
        return None;
    }
    let limit = rule.limit.rate()?;
    let default = |quota| {
        let most = limit.throttle.ceiling(quota);
        Algorithm::default_for(quota, most.saturating_mul(limit.max_multiply))
    };
    let logs = |quota: &u32| default(*quota) == Algorithm::SlidingLog;
    let most = (1..=LOG_DEFAULT_MAX_QUOTA).rev().find(logs)?;
    let (side, other) = match limit.algorithm {
        Algorithm::SlidingLog => ("above", default(most + 1)),
        _ => ("up to", default(most)),
    };
    let other = other.as_str();
    Some(format!(
        "with a number {side} {most} it would be {other} and its counts begin anew: a written `algorithm` stays"
    ))
}

/// How several gateways hold the limit together, and what holds without their store.
fn sharing(rule: &Rule) -> String {
    let Some(limit) = rule.limit.rate() else {
        return String::from("each gateway counts its own open requests");
    };
    let without = match rule.on_store_error {
        OnStoreError::Local => "without the store each gateway admits its part",
        OnStoreError::Open => "without the store everything passes",
        OnStoreError::Closed => "without the store nothing passes",
    };
    let shared = match rule.sharing {
        Sharing::Local => return String::from("each gateway counts for itself"),
        Sharing::Strict => String::from("the store is asked about each request"),
        Sharing::Leased => {
            let life = limit.lease_life();
            let window = limit.windows.first().map_or(1, |rate| rate.window().0) as f64;
            format!(
                "the store grants units for {} ms in advance, a steady client gets {:.1} % of the rate",
                life.0 / 1_000_000,
                (window / (window + life.0 as f64) * 1_000.0).floor() / 10.0
            )
        }
    };
    format!("shared: {shared}; {without}")
}

/// Whether the limit counts for all its routes together.
fn shared(rule: &Rule) -> bool {
    rule.scope == rule.name.as_str()
}

/// The configuration as JSON.
pub fn describe_json(loaded: &LoadedConfig) -> Value {
    let ruleset = &loaded.ruleset;
    let routes: Vec<Value> = ordered(loaded)
        .into_iter()
        .map(|route| {
            json!({
                "name": &*route.name,
                "match": route.pattern.to_string(),
                "host": match route.pattern.host() {
                    HostPattern::Any => Value::Null,
                    host => host.to_string().into(),
                },
                "upstream": ruleset.upstreams.get(route.upstream).map(|up| up.name.as_str()),
                "broader": broader(loaded, route).map(|broader| &*broader.name),
                "require": route.require.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
                "limits": route.rules.iter().map(|rule| rule.index).collect::<Vec<_>>(),
            })
        })
        .collect();
    let limits: Vec<Value> = ruleset
        .rules
        .iter()
        .zip(key_controls(ruleset))
        .map(|(rule, control)| limit_json(rule, loaded, control))
        .collect();
    let notes: Vec<Value> = loaded
        .notes
        .iter()
        .map(super::Diagnostic::to_json)
        .collect();
    json!({
        "ok": true,
        "routes": routes,
        "limits": limits,
        "store_budget": loaded.process.store_budget,
        "snapshots": loaded.process.snapshots.as_ref().map(|settings| json!({
            "folder": settings.folder.display().to_string(),
            "every": settings.every.as_secs_f64(),
        })),
        "record": loaded.process.record.as_ref().map(|settings| json!({
            "folder": settings.folder.as_ref().map(|folder| folder.display().to_string()),
            "size": settings.most_bytes,
        })),
        "push": loaded.process.push.iter().map(|push| json!({
            "name": push.name,
            "to": push.engine.as_str(),
            "url": push.display_url,
            "every": push.every,
        })).collect::<Vec<_>>(),
        "store": loaded.process.shared.as_ref().map(|shared| shared.backend.to_string()),
        "diagnostics": notes,
    })
}

fn limit_json(rule: &Rule, loaded: &LoadedConfig, control: Option<KeyControl>) -> Value {
    let (rules, identity) = (&loaded.ruleset.rules, &loaded.ruleset.identity);
    let client = control.map(|control| control.to_json(&control.says(rule, rules, identity)));
    let rate = rule.limit.rate();
    let each = rate.map(|limit| limit.bytes_per_key().max(1));
    let windows = rate.map_or(&[][..], |limit| &limit.windows);
    json!({
        "name": rule.name.as_str(),
        "index": rule.index,
        "origin": rule.origin,
        "scope": rule.scope,
        "key": rule.key.iter().map(|part| part.as_str()).collect::<Vec<_>>(),
        "rates": windows.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "concurrent": rule.limit.open().map(|limit| limit.max_open),
        "algorithm": rate.map(|limit| limit.algorithm.as_str()),
        "throttle": throttle(rule.limit.throttle()),
        "count": count(&rule.count),
        "reserve": rule.reserve.as_ref().map(ToString::to_string),
        "plans": rule.plans,
        "shadow": rule.shadow,
        "disclosed": rule.disclose == Disclose::All,
        "sharing": loaded.process.shared.as_ref().map(|_| rule.sharing.as_str()),
        "on_store_error": loaded.process.shared.as_ref().map(|_| rule.on_store_error.as_str()),
        "client": client,
        "guarantee": promise(rule),
        "bytes_per_key": each,
        "keys_in_budget": each.map(|each| loaded.process.store_budget / each),
    })
}

fn promise(rule: &Rule) -> String {
    let promise = rule.guarantee();
    if rule.shadow {
        format!("refuses nothing (shadow); would promise: {promise}")
    } else {
        promise
    }
}

/// Key, rates, and what else is not as usual.
fn terms(rule: &Rule) -> String {
    let key: Vec<&str> = rule.key.iter().map(|part| part.as_str()).collect();
    let (key, throttle) = (key.join(" and "), throttle(rule.limit.throttle()));
    let mut terms = match &rule.limit {
        RuleLimit::Rate(limit) => {
            let rates: Vec<String> = limit.windows.iter().map(ToString::to_string).collect();
            let (rates, algorithm) = (rates.join(" and "), limit.algorithm.as_str());
            format!("by {key}, {rates}, {throttle}, {algorithm}")
        }
        RuleLimit::Open(limit) => format!("by {key}, {} concurrent, {throttle}", limit.max_open),
    };
    if rule.count != CountMode::All {
        let _ = write!(terms, ", counts {}", count(&rule.count));
    }
    if let Some(reserve) = &rule.reserve {
        let _ = write!(terms, ", reserves {reserve}");
    }
    if let Some(condition) = &rule.condition {
        let _ = write!(terms, " while {}", condition.as_str());
    }
    if rule.plans {
        let _ = write!(
            terms,
            ", times the plan (up to {})",
            rule.limit.max_multiply()
        );
    }
    if rule.disclose == Disclose::None {
        terms.push_str(", hidden from clients");
    }
    terms
}

fn cost(rule: &Rule, loaded: &LoadedConfig) -> String {
    let Some(each) = rule.limit.rate().map(Limit::bytes_per_key) else {
        return String::from("takes memory for keys with an open request only");
    };
    let each = each.max(1);
    let keys = loaded.process.store_budget / each;
    format!("{each} B a key, the store holds about {keys} of them")
}

fn throttle(throttle: ThrottleMode) -> String {
    match throttle {
        ThrottleMode::Hard => "hard".into(),
        ThrottleMode::Soft { percent } => format!("soft {percent}%"),
        ThrottleMode::Elastic { .. } => "elastic".into(),
    }
}

fn count(count: &CountMode) -> String {
    match count {
        CountMode::All => "all".into(),
        CountMode::Status { from, to } if from == to => format!("status {from}"),
        CountMode::Status { from, to } => format!("status {from}-{to}"),
        CountMode::CostHeader(name) => format!("cost header {name}"),
        CountMode::CostJson(path) => format!("cost json {}", path.join(".")),
    }
}

fn bytes(count: usize) -> String {
    super::decode::shown_size(u64::try_from(count).unwrap_or(u64::MAX))
}

/// A route that takes other spellings of this one's path on the same upstream, and counts less.
fn broader<'l>(loaded: &'l LoadedConfig, route: &Route) -> Option<&'l Route> {
    let is_literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
    if !route.pattern.segments().iter().any(is_literal) {
        return None;
    }
    let routes = loaded.ruleset.routes.iter().map(AsRef::as_ref);
    let broader = routes.filter(|other: &&Route| {
        other.pattern.is_broader_than(&route.pattern)
            && route.holds_more_than(other)
            && (route.is_as_strict_as(other) || !other.is_as_strict_as(route))
    });
    broader.min_by(|a, b| specificity(&a.pattern, &b.pattern))
}

/// A route that a client takes to the same upstream by naming another host, and that counts less.
fn beside_host<'l>(loaded: &'l LoadedConfig, route: &Route) -> Option<&'l Route> {
    if *route.pattern.host() == HostPattern::Any {
        return None;
    }
    let mut routes = loaded.ruleset.routes.iter().map(AsRef::as_ref);
    routes.find(|other: &&Route| {
        *other.pattern.host() == HostPattern::Any
            && other.pattern.may_share_path(&route.pattern)
            && route.holds_more_than(other)
    })
}

/// The routes as they are matched.
fn ordered(loaded: &LoadedConfig) -> Vec<&Route> {
    let mut routes: Vec<&Route> = loaded.ruleset.routes.iter().map(AsRef::as_ref).collect();
    routes.sort_by(|a, b| specificity(&a.pattern, &b.pattern).then_with(|| a.name.cmp(&b.name)));
    routes
}

/// The more specific pattern first, as [`crate::route::RouteTable`] prefers them.
fn specificity(a: &Pattern, b: &Pattern) -> Ordering {
    let host = |pattern: &Pattern| match pattern.host() {
        HostPattern::Exact(_) => (0, 0),
        HostPattern::Below(name) => (1, usize::MAX - name.len()),
        HostPattern::Any => (2, 0),
    };
    let rank = |segment: &Segment| match segment {
        Segment::Literal(_) => 0,
        Segment::One(_) => 1,
        Segment::Rest => 2,
    };
    let text = |segment: &Segment| match segment {
        Segment::Literal(text) => text.clone(),
        Segment::One(_) | Segment::Rest => "".into(),
    };
    let by_segments = || {
        for (one, other) in a.segments().iter().zip(b.segments()) {
            let order = rank(one)
                .cmp(&rank(other))
                .then_with(|| text(one).cmp(&text(other)));
            if order != Ordering::Equal {
                return order;
            }
        }
        // `/a` before `/a/**`, and `/a/b` before `/a`: the longer path is the more specific.
        let (one, other) = (a.segments().len(), b.segments().len());
        match (a.segments().get(other), b.segments().get(one)) {
            (Some(Segment::Rest), _) => Ordering::Greater,
            (_, Some(Segment::Rest)) => Ordering::Less,
            _ => other.cmp(&one),
        }
    };
    let any = |pattern: &Pattern| pattern.methods().is_any();
    host(a)
        .cmp(&host(b))
        .then_with(by_segments)
        .then_with(|| any(a).cmp(&any(b)))
}
