//! Plugins that refuse requests, or answer them: `ip-restriction`, `request-size-limiting` and `request-termination`.

use ipnet::IpNet;

use super::entities::KongPlugin;
use super::limits::text_of;
use super::plugin_rules::PluginRules;
use crate::import::documents::InputValue;
use crate::import::model::ActionDraft;
use crate::import::nginx::variables::parse_network;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of networks of a list, which each policy repeats.
const MAX_NETWORKS: usize = 256;
/// Maximum length of the body of a response in bytes, which each policy repeats.
const MAX_BODY_BYTES: usize = 4_096;

/// Reads `ip-restriction`: networks of clients that are denied, or the only ones that are admitted.
pub fn read_ip_restriction(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    let text = text_of(plugin);
    let list = |fields: [&str; 2]| -> Option<Vec<IpNet>> {
        let items = fields
            .into_iter()
            .filter_map(|field| config?.get(field))
            .flat_map(InputValue::items_or_self);
        items.map(|item| parse_network(item.text()?)).collect()
    };
    let (allow, deny) = (list(["allow", "whitelist"]), list(["deny", "blacklist"]));
    let is_bounded = |list: &Vec<IpNet>| list.len() <= MAX_NETWORKS;
    let (Some(allow), Some(deny)) = (allow.filter(is_bounded), deny.filter(is_bounded)) else {
        report.left(
            plugin.at,
            Concern::Routing,
            &text,
            "its networks cannot be read, or are too many for each policy: clients get 503. Write `allow: { ip: FILE }`",
        );
        return rules.block("ip-restriction");
    };
    if allow.is_empty() && deny.is_empty() {
        report.left(
            plugin.at,
            Concern::Routing,
            &text,
            "it has no network, and Kong refuses that: clients get 503",
        );
        return rules.block("ip-restriction");
    }
    report.taken(plugin.at, Concern::Routing, &text, "");
    report.note(
        "`ip` is the peer. Kong believes forwarded addresses of `trusted_ips` in kong.conf, which is not read: write \
         `identity: { ip: { trusted_proxies: [...] } }` if it has them.",
    );
    if !allow.is_empty() {
        rules.allow = Some(allow);
    }
    rules.deny = deny;
    for (field, at, value) in config.into_iter().flat_map(InputValue::entries) {
        match field {
            "allow" | "whitelist" | "deny" | "blacklist" => {}
            _ if value.is_null() => {}
            "status" | "message" => report.changed(
                at,
                Concern::Other,
                field,
                "clients get 403 with a problem document",
            ),
            _ => report.left(at, Concern::Other, field, "it has no counterpart"),
        }
    }
}

/// Reads `request-size-limiting`.
pub fn read_size(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    let size = config.and_then(|config| config.get("allowed_payload_size"));
    let size = size.map_or(Some(128), InputValue::number);
    let unit = match config.and_then(|config| config.text_of("size_unit")) {
        None | Some("megabytes") => Some(1_u64 << 20),
        Some("kilobytes") => Some(1 << 10),
        Some("bytes") => Some(1),
        Some(_) => None,
    };
    let bytes = size
        .zip(unit)
        .and_then(|(size, unit)| size.checked_mul(unit))
        .filter(|bytes| *bytes > 0);
    // Only `false` says that a body may come without its length.
    let needs_length = config
        .and_then(|config| config.text_of("require_content_length"))
        .is_some_and(|text| text != "false");
    if needs_length {
        let note = "`require_content_length` refuses requests without a length, which has no counterpart: clients get 503";
        report.left(plugin.at, Concern::Routing, &text_of(plugin), note);
        rules.block("request-size-limiting");
    }
    match bytes {
        Some(bytes) => {
            rules.max_body = Some(bytes);
            report.taken(plugin.at, Concern::Routing, &text_of(plugin), "");
        }
        None => {
            report.left(
                plugin.at,
                Concern::Routing,
                &text_of(plugin),
                "its size cannot be read: clients get 503",
            );
            rules.block("request-size-limiting");
        }
    }
}

/// Reads `request-termination`, which answers in place of the service.
pub fn read_termination(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    let text = text_of(plugin);
    let of = |field: &str| config.and_then(|config| config.get(field));
    if of("trigger").is_some() {
        report.left(
            plugin.at,
            Concern::Routing,
            &text,
            "it answers some requests only: clients get 503",
        );
        return rules.block("request-termination");
    }
    let status = of("status_code").map_or(Some(503), InputValue::number);
    let status = status
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (200..=599).contains(status));
    let Some(status) = status else {
        report.left(
            plugin.at,
            Concern::Routing,
            &text,
            "its status cannot be read: clients get 503",
        );
        return rules.block("request-termination");
    };
    let (body, content_type) = match (
        of("body").and_then(InputValue::text),
        of("message").and_then(InputValue::text),
    ) {
        (Some(body), _) => (
            body.to_owned(),
            of("content_type")
                .and_then(InputValue::text)
                .unwrap_or("application/json")
                .to_owned(),
        ),
        (None, Some(message)) => {
            let json = serde_json::json!({ "message": message });
            (json.to_string(), "application/json".to_owned())
        }
        (None, None) => (String::new(), String::new()),
    };
    if body.len() > MAX_BODY_BYTES {
        let note = "its body is too long for each policy: clients get 503. Write `respond: { body_file: FILE }`";
        report.left(plugin.at, Concern::Routing, &text, note);
        return rules.block("request-termination");
    }
    report.taken(plugin.at, Concern::Routing, &text, "");
    rules.response_action = Some(ActionDraft::Respond {
        status,
        body,
        content_type,
    });
}
