//! Describes a loaded configuration for `tollgate check`, as text here and as JSON in `describe/json.rs`: the routes in
//! the order in which they match, the limits, the store and the record. Of each limit it says the promise, how far
//! clients control the key, and the memory of its counts. All is computed from the compiled settings, so that it
//! describes what the gateway will do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decode::{DEFAULTS_FILE, format_size};
use super::key_control::{KeyControl, find_key_controls};
use super::load::LoadedConfig;
use super::settings::{AccessLogSettings, ListenerRole, LogFormat, LoggedRequests, Ruleset};
use crate::limit::{
    AccessLists, Algorithm, CountMode, Disclose, LOG_DEFAULT_MAX_QUOTA, OnStoreError, RateLimit,
    Rule, RuleLimit, Sharing, ThrottleMode,
};
use crate::record::Settings;
use crate::route::ErrorPages;

mod json;
mod policies;
mod routes;

pub use json::describe_json;
use routes::describe_error_pages;

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// Describes the configuration as text, with its warnings at the end.
pub fn describe(loaded: &LoadedConfig) -> String {
    let mut writer = DescriptionWriter {
        loaded,
        key_controls: key_controls_of(&loaded.ruleset),
        text: String::new(),
    };
    writer.write_routes();
    writer.write_error_pages();
    writer.write_gateway_lists();
    writer.write_shared_limits();
    writer.write_store();
    writer.write_record();
    writer.write_access_log();
    writer.write_traces();
    for warning in &loaded.warnings {
        let _ = write!(writer.text, "\n{warning}");
    }
    writer.text
}

/// How far clients control the key of each rule, by [`Rule::index`]; `None` for limits that no route has.
fn key_controls_of(ruleset: &Ruleset) -> Vec<Option<KeyControl>> {
    find_key_controls(ruleset.rules.len(), &ruleset.routes, &ruleset.identity)
}

/// The lists of the gateway file. None of them holds where proxies ask by descriptors only.
fn gateway_lists(loaded: &LoadedConfig) -> AccessLists {
    let mut listeners = loaded.process.listen.iter();
    match listeners.all(|listener| listener.role == ListenerRole::RateLimitService) {
        true => AccessLists::default(),
        false => loaded.ruleset.unrouted.access.clone(),
    }
}

/// Writes the description part by part.
struct DescriptionWriter<'l> {
    loaded: &'l LoadedConfig,
    /// The result of [`key_controls_of`].
    key_controls: Vec<Option<KeyControl>>,
    text: String,
}

impl DescriptionWriter<'_> {
    /// Writes the bodies of refusals that the gateway file names, which hold on every route that has no others.
    fn write_error_pages(&mut self) {
        if let Some(pages) = &self.loaded.ruleset.error_pages {
            let pages = describe_error_pages(pages, &ErrorPages::default());
            let _ = writeln!(self.text, "\nbodies of refusals: {pages}");
        }
    }

    /// Writes the lists of the gateway file, which hold for every request over HTTP.
    fn write_gateway_lists(&mut self) {
        let lists = gateway_lists(self.loaded);
        if !lists.is_empty() {
            let _ = writeln!(self.text, "\non every request:");
        }
        for list in lists.iter() {
            let _ = writeln!(self.text, "  {list} ({})", list.origin);
        }
    }

    /// Writes the limits that several routes share, by the file that defines them.
    fn write_shared_limits(&mut self) {
        let rules = self.loaded.ruleset.rules.iter();
        let shared = rules.filter_map(|rule| Some((sharing_file(rule)?, rule)));
        let mut by_file: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
        for (file, rule) in shared {
            by_file.entry(file).or_default().push(rule);
        }
        for (file, rules) in by_file {
            let _ = match file {
                "" => writeln!(self.text, "\nshared between routes:"),
                file => writeln!(self.text, "\nshared between the routes below {file}:"),
            };
            for rule in rules {
                self.write_limit(rule);
            }
        }
    }

    /// Writes the guarantee of a limit, its terms, the memory of its counts, and how far clients control its key. With
    /// a shared store, also how gateways share the limit.
    fn write_limit(&mut self, rule: &Rule) {
        let loaded = self.loaded;
        let out = &mut self.text;
        let _ = writeln!(out, "  {}: {}", rule.name, describe_promise(rule));
        let _ = writeln!(
            out,
            "    {}; {}",
            describe_terms(rule),
            describe_memory_use(rule, loaded)
        );
        if let Some(control) = self.key_controls.get(rule.index).copied().flatten() {
            let ruleset = &loaded.ruleset;
            let description = control.describe(rule, &ruleset.rules, &ruleset.identity);
            let _ = writeln!(out, "    {description}");
        }
        if loaded.process.shared.is_some() {
            let _ = writeln!(out, "    {}", describe_sharing(rule));
            if let Some(change) = describe_algorithm_change(rule) {
                let _ = writeln!(out, "    {change}");
            }
        }
    }

    /// Writes where the counts are kept.
    fn write_store(&mut self) {
        let process = &self.loaded.process;
        let out = &mut self.text;
        let _ = writeln!(
            out,
            "\nCounts take at most {} of memory.",
            format_bytes(process.store_budget)
        );
        let _ = match &process.snapshots {
            Some(settings) => writeln!(
                out,
                "They are kept in {}: a crash forgives at most what was counted in the last {}.",
                settings.folder.display(),
                super::decode::format_duration(settings.interval)
            ),
            None if process.shared.is_some() => Ok(()),
            None => writeln!(out, "They are forgotten when the process ends."),
        };
        if let Some(shared) = &process.shared {
            let _ = writeln!(
                out,
                "Gateways share them through {}; a request waits for it for at most {} ms.",
                shared.backend,
                shared.budget.as_millis()
            );
            for limitation in shared.backend.limitations() {
                let _ = writeln!(out, "  {limitation}.");
            }
        }
    }

    /// Writes where the record is kept and pushed.
    fn write_record(&mut self) {
        let process = &self.loaded.process;
        let out = &mut self.text;
        let _ = match &process.record {
            None => writeln!(out, "What happens is not recorded."),
            Some(Settings { folder: None, .. }) => writeln!(
                out,
                "What happened in the last hours is recorded in memory."
            ),
            Some(Settings {
                folder: Some(folder),
                max_bytes,
            }) => writeln!(
                out,
                "What happens is recorded in {}, which takes at most {} of the disk.",
                folder.display(),
                format_bytes(usize::try_from(*max_bytes).unwrap_or(usize::MAX))
            ),
        };
        for push in &process.push {
            let (name, engine, url) = (&push.name, push.engine, &push.display_url);
            let every = push.step_seconds;
            let _ = writeln!(
                out,
                "  It is pushed to {name} ({engine}) at {url}, a sample for every {every} s."
            );
        }
    }

    /// Writes which requests are traced.
    fn write_traces(&mut self) {
        if let Some(traces) = &self.loaded.process.traces {
            let _ = writeln!(
                self.text,
                "Traces of {} of all requests are sent to {}.",
                traces.sample, traces.display_url
            );
        }
    }

    /// Writes which id requests have, and how they are logged beyond the default.
    fn write_access_log(&mut self) {
        let LoadedConfig {
            process, ruleset, ..
        } = self.loaded;
        let out = &mut self.text;
        if let Some(field) = &ruleset.identity.request_id_field {
            let _ = writeln!(out, "Each request has an id in the header `{field}`.");
        }
        let AccessLogSettings {
            requests,
            format,
            fields,
            ..
        } = &process.access_log;
        if *requests == LoggedRequests::Off {
            return;
        }
        if *format == LogFormat::Combined {
            let _ = writeln!(out, "Requests are logged in the Combined Log Format.");
        }
        if !fields.is_empty() {
            let names: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
            let _ = writeln!(out, "Requests are logged with {}.", names.join(", "));
        }
    }
}

/// Says above or up to which quota the limit would have another default algorithm, so that its counts in the store
/// would begin anew. `None` if the algorithm is written, if gateways do not share the counts, or if no quota has a log
/// by default.
fn describe_algorithm_change(rule: &Rule) -> Option<String> {
    if rule.algorithm_is_written || rule.sharing == Sharing::Local {
        return None;
    }
    let limit = rule.limit.rate()?;
    let default_algorithm = |quota| {
        let max_units = limit.throttle.ceiling(quota);
        Algorithm::default_for(quota, max_units.saturating_mul(limit.max_plan_factor))
    };
    let has_log = |quota: &u32| default_algorithm(*quota) == Algorithm::SlidingLog;
    let max_log_quota = (1..=LOG_DEFAULT_MAX_QUOTA).rev().find(has_log)?;
    let (side, other_algorithm) = match limit.algorithm {
        Algorithm::SlidingLog => ("above", default_algorithm(max_log_quota + 1)),
        _ => ("up to", default_algorithm(max_log_quota)),
    };
    let other_name = other_algorithm.as_str();
    Some(format!(
        "with a number {side} {max_log_quota} it would be {other_name} and its counts begin anew: a written `algorithm` stays"
    ))
}

/// Says how gateways share the limit, and what holds without their store.
fn describe_sharing(rule: &Rule) -> String {
    let without_store = match rule.on_store_error {
        OnStoreError::Local => "without the store each gateway admits its part",
        OnStoreError::Open => "without the store everything passes",
        OnStoreError::Closed => "without the store nothing passes",
    };
    let sharing = match rule.sharing {
        Sharing::Local => return String::from("each gateway counts for itself"),
        Sharing::Strict => String::from("the store is asked about each request"),
        Sharing::Leased if rule.limit.open().is_some() => {
            String::from("gateways take permits in advance")
        }
        Sharing::Leased => {
            let limit = rule.limit.rate();
            let lease_duration = limit.map(RateLimit::lease_life).unwrap_or_default();
            let first_rate = limit.and_then(|limit| limit.windows.first());
            let window = first_rate.map_or(1, |rate| rate.window().0) as f64;
            let share = window / (window + lease_duration.0 as f64);
            format!(
                "the store grants units for {} ms in advance, a steady client gets {:.1} % of the rate",
                lease_duration.0 / NANOS_PER_MILLISECOND,
                (share * 1_000.0).floor() / 10.0
            )
        }
    };
    format!("shared: {sharing}; {without_store}")
}

/// The file that defines a limit whose routes count together: a path such as `shop/_defaults.yaml`, or an empty text
/// for the gateway file. `None` for other limits, which one policy or each route has for itself.
fn sharing_file(rule: &Rule) -> Option<&str> {
    let owner = rule.limit_scope().strip_suffix(rule.name.as_str())?;
    let file = owner.strip_suffix('/').unwrap_or(owner);
    let is_defaults = file.rsplit('/').next() == Some(DEFAULTS_FILE);
    (owner.is_empty() || is_defaults).then_some(file)
}

/// The guarantee of a limit in words, or that a limit in shadow mode refuses nothing.
fn describe_promise(rule: &Rule) -> String {
    let promise = rule.guarantee();
    if rule.shadow {
        let kind = if rule.is_candidate { "try" } else { "shadow" };
        format!("refuses nothing ({kind}); would promise: {promise}")
    } else {
        promise
    }
}

/// The key of a limit, its rates and algorithm or its concurrent requests, and its throttle. Then the clients, the
/// count, the reserve, the condition, the plans and the disclosure, where they are not the defaults.
fn describe_terms(rule: &Rule) -> String {
    let (key, throttle) = (&rule.key, format_throttle(rule.limit.throttle()));
    let mut terms = match &rule.limit {
        RuleLimit::Rate(limit) if limit.is_credits() => format!("by {key}, credits, {throttle}"),
        RuleLimit::Rate(limit) => {
            let rates: Vec<String> = limit.windows.iter().map(ToString::to_string).collect();
            let (rates, algorithm) = (rates.join(" and "), limit.algorithm.as_str());
            format!("by {key}, {rates}, {throttle}, {algorithm}")
        }
        RuleLimit::Open(limit) => format!("by {key}, {} concurrent, {throttle}", limit.max_open),
    };
    if !rule.clients.is_empty() {
        let _ = write!(terms, ", for {}", rule.clients);
    }
    if rule.count != CountMode::All {
        let _ = write!(terms, ", counts {}", rule.count);
    }
    if let Some(reserve) = rule.reservation() {
        let _ = write!(terms, ", reserves {reserve}");
    }
    if let Some(condition) = &rule.condition {
        let _ = write!(terms, " while {}", condition.as_str());
    }
    if rule.plans {
        let _ = write!(
            terms,
            ", times the plan (up to {})",
            rule.limit.max_plan_factor()
        );
    }
    if rule.disclose == Disclose::None {
        terms.push_str(", hidden from clients");
    }
    if let Some(ban) = &rule.ban {
        let _ = write!(terms, ", {ban}");
    }
    terms
}

/// The bytes of the counts of one key, and the number of keys that the store's budget holds if no other limit uses it.
/// Limits on open requests have no counts in the store.
fn describe_memory_use(rule: &Rule, loaded: &LoadedConfig) -> String {
    let Some(key_bytes) = rule.limit.rate().map(RateLimit::bytes_per_key) else {
        return String::from("takes memory for keys with an open request only");
    };
    let key_bytes = key_bytes.max(1);
    let keys = loaded.process.store_budget / key_bytes;
    format!("{key_bytes} B a key, the store holds about {keys} of them")
}

fn format_throttle(throttle: ThrottleMode) -> String {
    match throttle {
        ThrottleMode::Hard => "hard".into(),
        ThrottleMode::Soft { percent } => format!("soft {percent}%"),
        ThrottleMode::Elastic { .. } => "elastic".into(),
    }
}

fn format_bytes(count: usize) -> String {
    format_size(u64::try_from(count).unwrap_or(u64::MAX))
}
