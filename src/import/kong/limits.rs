//! `rate-limiting` and `rate-limiting-advanced` as limits.
//!
//! The counters belong to a plugin, so all routes that have it count together. `rate-limiting` counts in windows of the
//! clock in UTC, and so does `fixed-window` with `align: clock`.

use super::entities::{KongPlugin, is_reference};
use crate::import::documents::InputValue;
use crate::import::model::{
    AlgorithmDraft, AmountDraft, IdentityDrafts, IdentityPlace, LimitDraft, RateDraft, ScopeDraft,
};
use crate::import::report::{Concern, ImportReport};

/// Maximum number of windows of a plugin.
const MAX_WINDOWS: usize = 8;

/// Reads a plugin of limits.
pub fn read_limits(
    plugin: &KongPlugin<'_>,
    identities: &mut IdentityDrafts,
    report: &mut ImportReport,
) -> Vec<LimitDraft> {
    let Some(config) = plugin.config else {
        report.left(
            plugin.at,
            Concern::Limits,
            &text_of(plugin),
            "it has no `config`: clients get 503",
        );
        return Vec::new();
    };
    let is_advanced = plugin.name == "rate-limiting-advanced";
    let by = config
        .text_of(if is_advanced {
            "identifier"
        } else {
            "limit_by"
        })
        .unwrap_or("consumer");
    let key = read_key(by, plugin, config, identities, report);
    let amounts = match is_advanced {
        true => advanced_amounts(plugin, config, report),
        false => amounts(plugin, config, report),
    };
    read_settings(config, report);
    let is_hidden = config
        .get("hide_client_headers")
        .is_some_and(InputValue::is_true);
    let limit = |(amount, algorithm): (AmountDraft, AlgorithmDraft)| LimitDraft {
        name: match amount {
            AmountDraft::Quota(_, unit) => format!("{} {unit}", limit_name(plugin)),
            _ => limit_name(plugin),
        },
        origins: vec![plugin.at],
        key: vec![key.clone()],
        amount,
        algorithm,
        scope: ScopeDraft::Listed,
        fields: match is_hidden {
            true => vec![("disclose", "none".into())],
            false => Vec::new(),
        },
        ..LimitDraft::default()
    };
    if !amounts.is_empty() {
        report.note("IPv6: Kong counts each address for itself. tollgate counts a /64 as one client, which is stricter.");
        report.note("`policy` and `strategy`: each gateway counts for itself. To share counts write `store: redis://HOST:6379`.");
        report.note(
            "`ip` is the peer. Kong believes forwarded addresses of `trusted_ips` in kong.conf, which is not read: write \
             `identity: { ip: { trusted_proxies: [...] } }` if it has them.",
        );
    }
    amounts.into_iter().map(limit).collect()
}

/// What the report calls a plugin.
pub fn text_of(plugin: &KongPlugin<'_>) -> String {
    format!("plugin {}", plugin.name)
}

fn limit_name(plugin: &KongPlugin<'_>) -> String {
    match plugin.value.text_of("instance_name") {
        Some(name) if !is_reference(name) => name.to_owned(),
        _ => plugin.name.to_owned(),
    }
}

/// The key of a limit on routes that know no consumer, where Kong counts by the address in place of one.
fn read_key(
    by: &str,
    plugin: &KongPlugin<'_>,
    config: InputValue<'_>,
    identities: &mut IdentityDrafts,
    report: &mut ImportReport,
) -> String {
    let text = format!("{}, by {by}", text_of(plugin));
    let mut everyone = |note: &str| {
        report.changed(plugin.at, Concern::Limits, &text, note);
        "everyone".to_owned()
    };
    match by {
        "ip" | "consumer" | "credential" | "consumer-group" => {
            let note = match by {
                "ip" => "",
                _ => "routes without a consumer count by address, as in Kong",
            };
            report.taken(plugin.at, Concern::Limits, &text, note);
            "ip".into()
        }
        "service" => everyone(
            "all services that have the plugin count together, where Kong counts each service",
        ),
        "path" => everyone(
            "all requests are counted together, where Kong counts those for other paths by address",
        ),
        "header" => {
            let name = config.text_of("header_name").unwrap_or("");
            let is_written = !name.is_empty() && !is_reference(name);
            let word = is_written
                .then(|| identities.word(&IdentityPlace::Header(name.to_owned())))
                .flatten();
            match word {
                Some(word) => {
                    report.taken(plugin.at, Concern::Limits, &text, "");
                    format!("{word} or ip")
                }
                None => {
                    everyone("no limit counts by this header: all clients are counted together")
                }
            }
        }
        _ => everyone("what it counts by is not known: all clients are counted together"),
    }
}

/// The windows of `rate-limiting`.
fn amounts(
    plugin: &KongPlugin<'_>,
    config: InputValue<'_>,
    report: &mut ImportReport,
) -> Vec<(AmountDraft, AlgorithmDraft)> {
    let mut rates = Vec::new();
    let mut amounts = Vec::new();
    for (field, at, value) in config.entries() {
        let seconds = match field {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "month" | "year" => 0,
            _ => continue,
        };
        if value.is_null() {
            continue;
        }
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        let units = value
            .number()
            .filter(|units| (1..=1_000_000_000).contains(units));
        let rate = units.and_then(|units| RateDraft::new(units, seconds.max(1)));
        match (rate, field) {
            (Some(rate), "month" | "year") => {
                let unit = if field == "month" { "month" } else { "year" };
                amounts.push((
                    AmountDraft::Quota(rate.units(), unit),
                    AlgorithmDraft::Sliding,
                ));
                report.taken(at, Concern::Limits, &text, "");
            }
            (Some(rate), _) => {
                rates.push(rate);
                report.taken(at, Concern::Limits, &text, "");
            }
            (None, _) => {
                let note = "it is no number that tollgate counts: clients get 503";
                report.left(at, Concern::Limits, &text, note);
                return Vec::new();
            }
        }
    }
    for rate in rates {
        amounts.push((
            AmountDraft::Rates(vec![rate]),
            AlgorithmDraft::FixedWindow(true),
        ));
    }
    if amounts.is_empty() {
        report.left(
            plugin.at,
            Concern::Limits,
            &text_of(plugin),
            "none of its limits can be read: clients get 503",
        );
    }
    amounts
}

/// The windows of `rate-limiting-advanced`.
fn advanced_amounts(
    plugin: &KongPlugin<'_>,
    config: InputValue<'_>,
    report: &mut ImportReport,
) -> Vec<(AmountDraft, AlgorithmDraft)> {
    let text = text_of(plugin);
    let list = |field: &str| {
        config
            .get(field)
            .map(InputValue::items_or_self)
            .unwrap_or_default()
    };
    let (limits, sizes) = (list("limit"), list("window_size"));
    let is_fixed = config.text_of("window_type") == Some("fixed");
    let mut amounts = Vec::new();
    if limits.len() != sizes.len() || limits.len() > MAX_WINDOWS {
        let note = "`limit` and `window_size` do not belong together: clients get 503";
        report.left(plugin.at, Concern::Limits, &text, note);
        return amounts;
    }
    for (limit, size) in limits.into_iter().zip(sizes) {
        let shown = format!(
            "limit {} in {} s",
            limit.text().unwrap_or("..."),
            size.text().unwrap_or("...")
        );
        let rate = limit
            .number()
            .zip(size.number())
            .and_then(|(limit, size)| RateDraft::new(limit, size));
        let Some(rate) = rate else {
            let note = "it is no rate that tollgate counts: clients get 503";
            report.left(limit.origin(), Concern::Limits, &shown, note);
            return Vec::new();
        };
        let note = match is_fixed {
            true => "windows of weeks and of several days may begin at another time",
            false => {
                "no window that slides has more, where Kong estimates and may admit more or fewer; and refused requests use up \
                 nothing, where Kong counts them unless `disable_penalty` is set"
            }
        };
        report.changed(limit.origin(), Concern::Limits, &shown, note);
        let algorithm = match is_fixed {
            true => AlgorithmDraft::FixedWindow(true),
            false => AlgorithmDraft::Sliding,
        };
        amounts.push((AmountDraft::Rates(vec![rate]), algorithm));
    }
    if amounts.is_empty() {
        report.left(
            plugin.at,
            Concern::Limits,
            &text,
            "none of its limits can be read: clients get 503",
        );
    }
    amounts
}

fn read_settings(config: InputValue<'_>, report: &mut ImportReport) {
    for (field, at, value) in config.entries() {
        if value.is_null() {
            continue;
        }
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        match field {
            "second" | "minute" | "hour" | "day" | "month" | "year" | "limit" | "window_size"
            | "identifier" | "limit_by" => {}
            "header_name"
            | "path"
            | "window_type"
            | "hide_client_headers"
            | "namespace"
            | "disable_penalty" => {
                report.taken(at, Concern::Limits, &text, "");
            }
            "policy" | "strategy" => match value.text() {
                Some("local") => report.taken(at, Concern::Limits, &text, ""),
                _ => report.left(
                    at,
                    Concern::Limits,
                    &text,
                    "to share counts write `store: redis://HOST:6379`",
                ),
            },
            "error_code" if value.text() == Some("429") => {
                report.taken(at, Concern::Other, &text, "")
            }
            "error_code" => report.changed(at, Concern::Other, &text, "a limit answers 429"),
            "error_message" => report.left(
                at,
                Concern::Other,
                "error_message",
                "write `errors` with files",
            ),
            "fault_tolerant" => {
                report.left(
                    at,
                    Concern::Other,
                    &text,
                    "write `on_store_error: open` or `closed` at limits with a store",
                );
            }
            "enforce_consumer_groups" | "consumer_groups" => {
                report.left(
                    at,
                    Concern::Limits,
                    &text,
                    "groups of consumers are not known here",
                );
            }
            _ => report.left(at, Concern::Other, field, "it has no counterpart"),
        }
    }
}
