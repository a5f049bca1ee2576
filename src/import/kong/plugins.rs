//! Plugins: which one of each name a route has, and what it does.

use std::collections::{HashMap, HashSet};

use super::access::{read_ip_restriction, read_size, read_termination};
use super::entities::{FILTER_CHAIN, KongEntities, KongPlugin};
use super::limits::{read_limits, text_of};
use super::plugin_rules::PluginRules;
use super::transformers::{read_cors, read_request_transformer, read_response_transformer};
use crate::import::budget::{TooMuchWork, WorkBudget};
use crate::import::documents::InputValue;
use crate::import::model::{ImportDraft, LimitDraft};
use crate::import::report::{Concern, ImportReport};

/// Maximum number of plugins that count together.
const MAX_TOGETHER: usize = 32;

/// The plugins by what they are for.
pub struct PluginIndex {
    by_scope: HashMap<(Option<usize>, Option<usize>), Vec<usize>>,
    /// Limits of the draft that a plugin has become, by its index.
    limits: HashMap<usize, Vec<usize>>,
    /// Plugins of limits by the namespace in which they count.
    namespaces: HashMap<String, Vec<usize>>,
    used: Vec<bool>,
    /// How much work it is to read each plugin.
    weights: Vec<usize>,
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
            let namespace = plugin.config.and_then(|config| config.text_of("namespace"));
            if let Some(namespace) = namespace.filter(|_| plugin.name == "rate-limiting-advanced") {
                namespaces
                    .entry(namespace.to_owned())
                    .or_default()
                    .push(index);
            }
        }
        let weights = entities.plugins.iter().map(|plugin| {
            let config = plugin.config.map_or(0, InputValue::weight);
            plugin.value.weight() + config
        });
        PluginIndex {
            by_scope,
            limits: HashMap::new(),
            namespaces,
            used: vec![false; entities.plugins.len()],
            weights: weights.collect(),
        }
    }

    /// The plugins of a route, of each name the one that is for it most specifically. Two of one name and for the same
    /// requests are both there.
    ///
    /// # Errors
    ///
    /// They are too many to go through for each route.
    pub fn of_route(
        &self,
        entities: &KongEntities<'_>,
        route: usize,
        budget: &mut WorkBudget,
    ) -> Result<Vec<usize>, TooMuchWork> {
        let service = entities.routes.get(route).and_then(|route| route.service);
        let mut scopes = vec![(Some(route), None)];
        if service.is_some() {
            scopes.insert(0, (Some(route), service));
            scopes.push((None, service));
        }
        scopes.push((None, None));
        let mut chosen: HashMap<&str, usize> = HashMap::new();
        let mut plugins = Vec::new();
        for (rank, scope) in scopes.iter().enumerate() {
            let of_scope = self.by_scope.get(scope).map_or(&[][..], Vec::as_slice);
            budget.read(of_scope.len())?;
            for index in of_scope {
                let Some(plugin) = entities.plugins.get(*index) else {
                    continue;
                };
                // Filters of a service and of a route hold both.
                let first = *chosen.entry(plugin.name).or_insert(rank);
                if first == rank || plugin.name == FILTER_CHAIN {
                    plugins.push(*index);
                }
            }
        }
        plugins.sort_unstable();
        Ok(plugins)
    }

    /// What plugins do with the requests of a route.
    ///
    /// # Errors
    ///
    /// They are too much to read again.
    pub fn rules(
        &mut self,
        plugins: &[usize],
        entities: &KongEntities<'_>,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
        budget: &mut WorkBudget,
    ) -> Result<PluginRules, TooMuchWork> {
        let mut rules = PluginRules::default();
        let mut names = HashSet::new();
        for index in plugins {
            budget.read(self.weights.get(*index).copied().unwrap_or(1))?;
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
            if let Some(reason) = plugin.unread {
                let note = format!("{reason}: clients get 503");
                report.left(plugin.at, Concern::Limits, &text_of(plugin), &note);
                rules.block("a plugin that is not read");
            }
            if !names.insert(plugin.name) && plugin.name != FILTER_CHAIN {
                let note = "another plugin of this name is for the same requests: clients get 503";
                report.left(plugin.at, Concern::Limits, &text_of(plugin), note);
                rules.block("two plugins of one name");
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
        Ok(rules)
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
        let namespace: Option<&Vec<usize>> = entities.plugins.get(index).and_then(|plugin| {
            let namespace = plugin.config?.text_of("namespace")?;
            self.namespaces.get(namespace)
        });
        let is_shared = namespace.is_some_and(|together| together.len() > 1);
        if namespace.is_some_and(|together| together.len() > MAX_TOGETHER) {
            let plugin = entities.plugins.get(index)?;
            let note = "too many plugins count together in its namespace: clients get 503";
            report.left(plugin.at, Concern::Limits, &text_of(plugin), note);
            return None;
        }
        let together = namespace.cloned().unwrap_or_else(|| vec![index]);
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
            // A member that is not read may be stricter than the others.
            if limits.is_empty() {
                return Some(Vec::new());
            }
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
    let config = plugin.config;
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
                        `count: cost header NAME`. Clients get 503";
            report.left(plugin.at, Concern::Limits, &text, note);
            rules.block("response-ratelimiting");
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
        FILTER_CHAIN => {
            let note = "WASM filters may deny access: clients get 503";
            report.left(plugin.at, Concern::Routing, FILTER_CHAIN, note);
            rules.block("WASM filters");
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
