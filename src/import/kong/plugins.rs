//! Plugins: which one of each name a route has, and what it does.

use std::collections::HashMap;

use ipnet::IpNet;

use super::entities::{KongEntities, KongPlugin};
use super::limits::{read_limits, text_of};
use super::plugin_rules::PluginRules;
use super::transformers::{read_cors, read_request_transformer, read_response_transformer};
use crate::import::documents::InputValue;
use crate::import::model::{ActionDraft, ImportDraft, LimitDraft};
use crate::import::nginx::variables::parse_network;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of networks of a list, which each policy repeats.
const MAX_NETWORKS: usize = 256;
/// Maximum number of plugins that count together.
const MAX_TOGETHER: usize = 32;
/// Maximum length of the body of a response in bytes, which each policy repeats.
const MAX_BODY_BYTES: usize = 4_096;

/// The plugins by what they are for.
pub struct PluginIndex {
    by_scope: HashMap<(Option<usize>, Option<usize>), Vec<usize>>,
    /// Limits of the draft that a plugin has become, by its index.
    limits: HashMap<usize, Vec<usize>>,
    /// Plugins of limits by the namespace in which they count.
    namespaces: HashMap<String, Vec<usize>>,
    used: Vec<bool>,
}

impl PluginIndex {
    /// Sorts plugins by what they are for.
    pub fn new(entities: &KongEntities<'_>) -> PluginIndex {
        let mut by_scope: HashMap<_, Vec<usize>> = HashMap::new();
        let mut namespaces: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, plugin) in entities.plugins.iter().enumerate() {
            by_scope
                .entry((plugin.route, plugin.service))
                .or_default()
                .push(index);
            let namespace = plugin
                .value
                .at(&["config", "namespace"])
                .and_then(InputValue::text);
            if let Some(namespace) = namespace.filter(|_| plugin.name == "rate-limiting-advanced") {
                namespaces
                    .entry(namespace.to_owned())
                    .or_default()
                    .push(index);
            }
        }
        PluginIndex {
            by_scope,
            limits: HashMap::new(),
            namespaces,
            used: vec![false; entities.plugins.len()],
        }
    }

    /// The plugins of a route, of each name the one that is for it most specifically; and the names of which two are.
    pub fn of_route(&self, entities: &KongEntities<'_>, route: usize) -> (Vec<usize>, Vec<String>) {
        let service = entities.routes.get(route).and_then(|route| route.service);
        let mut scopes = vec![(Some(route), None)];
        if service.is_some() {
            scopes.insert(0, (Some(route), service));
            scopes.push((None, service));
        }
        scopes.push((None, None));
        let mut chosen: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut twice = Vec::new();
        for (rank, scope) in scopes.iter().enumerate() {
            for index in self.by_scope.get(scope).into_iter().flatten() {
                let Some(plugin) = entities.plugins.get(*index) else {
                    continue;
                };
                match chosen.get(plugin.name) {
                    None => {
                        chosen.insert(plugin.name, (rank, *index));
                    }
                    Some((earlier, _)) if *earlier == rank => twice.push(plugin.name.to_owned()),
                    Some(_) => {}
                }
            }
        }
        let mut plugins: Vec<usize> = chosen.into_values().map(|(_, index)| index).collect();
        plugins.sort_unstable();
        (plugins, twice)
    }

    /// What plugins do with the requests of a route.
    pub fn rules(
        &mut self,
        plugins: &[usize],
        entities: &KongEntities<'_>,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) -> PluginRules {
        let mut rules = PluginRules::default();
        for index in plugins {
            if let Some(used) = self.used.get_mut(*index) {
                *used = true;
            }
            let Some(plugin) = entities.plugins.get(*index) else {
                continue;
            };
            match plugin.name {
                "rate-limiting" | "rate-limiting-advanced" => {
                    match self.limits_of(*index, entities, draft, report) {
                        Some(limits) if limits.is_empty() => rules.block("a limit"),
                        Some(limits) => rules.limits.extend(limits),
                        None => rules.block("a namespace of many plugins"),
                    }
                }
                _ => read_plugin(plugin, &mut rules, report),
            }
            if !matches!(plugin.value.text_of("enabled"), None | Some("true")) {
                let note = "whether it is enabled is not known: clients get 503";
                report.left(plugin.at, Concern::Routing, &text_of(plugin), note);
                rules.block("a plugin that may be enabled");
            }
            let has_all_protocols = plugin.value.get("protocols").is_none_or(|protocols| {
                let has = |name: &str| protocols.items().any(|item| item.text() == Some(name));
                has("http") && has("https")
            });
            if !has_all_protocols {
                let note = "it holds for some protocols only, and others may have another plugin: clients get 503";
                report.left(plugin.at, Concern::Routing, &text_of(plugin), note);
                rules.block("a plugin for some protocols");
            }
        }
        rules
    }

    /// The limits of a plugin; `None` if too many count together. Plugins of one namespace count together, so each of
    /// them has the limits of all.
    fn limits_of(
        &mut self,
        index: usize,
        entities: &KongEntities<'_>,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) -> Option<Vec<usize>> {
        let namespace = entities.plugins.get(index).and_then(|plugin| {
            let namespace = plugin.value.at(&["config", "namespace"])?.text()?;
            self.namespaces.get(namespace)
        });
        let together = namespace.cloned().unwrap_or_else(|| vec![index]);
        let is_shared = together.len() > 1;
        if together.len() > MAX_TOGETHER {
            let plugin = entities.plugins.get(index)?;
            let note = "too many plugins count together in its namespace: clients get 503";
            report.left(plugin.at, Concern::Limits, &text_of(plugin), note);
            return None;
        }
        let mut all = Vec::new();
        for member in together.into_iter().chain([index]) {
            let Some(plugin) = entities.plugins.get(member) else {
                continue;
            };
            if is_shared {
                let note = "plugins of its namespace count together: each of their routes has the limits of all";
                report.changed(plugin.at, Concern::Limits, &text_of(plugin), note);
            }
            let limits = self.limits.entry(member).or_insert_with(|| {
                let limits = read_limits(plugin, &mut draft.identities, report);
                let mut indexes = Vec::new();
                for limit in limits {
                    // Limits of a namespace that are the same are one.
                    let same = all.iter().copied().find(|other| {
                        draft.limits.get(*other).is_some_and(|other: &LimitDraft| {
                            is_shared
                                && other.amount == limit.amount
                                && other.key == limit.key
                                && other.algorithm == limit.algorithm
                        })
                    });
                    indexes.push(same.unwrap_or_else(|| draft.add_limit(limit)));
                }
                indexes
            });
            for limit in limits.iter() {
                if !all.contains(limit) {
                    all.push(*limit);
                }
            }
        }
        Some(all)
    }

    /// Reports plugins that no route has.
    pub fn report_unused(&self, entities: &KongEntities<'_>, report: &mut ImportReport) {
        for (plugin, is_used) in entities.plugins.iter().zip(&self.used) {
            if !is_used {
                report.left(
                    plugin.at,
                    Concern::Other,
                    &text_of(plugin),
                    "no route has it: others are more specific",
                );
            }
        }
    }
}

fn read_plugin(plugin: &KongPlugin<'_>, rules: &mut PluginRules, report: &mut ImportReport) {
    let text = text_of(plugin);
    let config = plugin.value.get("config");
    match plugin.name {
        "ip-restriction" => read_ip_restriction(plugin, config, rules, report),
        "request-size-limiting" => read_size(plugin, config, rules, report),
        "request-termination" => read_termination(plugin, config, rules, report),
        "cors" => read_cors(plugin, config, rules, report),
        "request-transformer" | "request-transformer-advanced" => {
            read_request_transformer(plugin, config, rules, report);
        }
        "response-transformer" | "response-transformer-advanced" => {
            read_response_transformer(plugin, config, rules, report);
        }
        "response-ratelimiting" => {
            let note = "its costs are names with numbers in one header; let the upstream answer with a number and write \
                        `count: cost header NAME`";
            report.left(plugin.at, Concern::Limits, &text, note);
        }
        "proxy-cache" | "proxy-cache-advanced" => {
            report.left(plugin.at, Concern::Other, &text, "responses are not cached");
        }
        "correlation-id" => report.left(
            plugin.at,
            Concern::Other,
            &text,
            "write `request_id: x-request-id` in the gateway file",
        ),
        "file-log" | "http-log" | "tcp-log" | "udp-log" | "syslog" | "loggly" | "statsd"
        | "statsd-advanced" | "datadog" | "prometheus" | "zipkin" | "opentelemetry"
        | "kafka-log" | "grpc-web" => {
            report.left(
                plugin.at,
                Concern::Other,
                &text,
                "write `access_log`, `traces` or `record` in the gateway file",
            );
        }
        "key-auth"
        | "key-auth-enc"
        | "basic-auth"
        | "jwt"
        | "hmac-auth"
        | "oauth2"
        | "oauth2-introspection"
        | "openid-connect"
        | "ldap-auth"
        | "ldap-auth-advanced"
        | "mtls-auth"
        | "vault-auth"
        | "session"
        | "acl" => {
            let note = match config.and_then(|config| config.get("anonymous")) {
                Some(_) => {
                    "consumers are not known here, and an anonymous one has plugins of its own: clients get 503. Write limits with \
                     `for: { user: absent }`"
                }
                None => {
                    "consumers are not known here: clients get 503. Write `identity: { user: ... }` with keys or `jwt`, and \
                     `require: user`"
                }
            };
            report.left(plugin.at, Concern::Routing, &text, note);
            rules.block(plugin.name);
        }
        "bot-detection" => {
            let note = "it refuses clients by their `User-Agent`: clients get 503. Leave it out to serve them, and write `deny` with an \
                        identity of that header";
            report.left(plugin.at, Concern::Routing, &text, note);
            rules.block("bot-detection");
        }
        _ => {
            let note = "it is not known here, and may deny access: clients get 503";
            report.left(plugin.at, Concern::Routing, &text, note);
            rules.block("a plugin that is not known");
        }
    }
}

fn read_ip_restriction(
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

fn read_size(
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

fn read_termination(
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
