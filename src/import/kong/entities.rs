//! The entities of a declarative configuration, with the references between them resolved.

use std::collections::HashMap;

use crate::import::documents::InputValue;
use crate::import::report::{Concern, ImportReport, Origin, printable};

/// What a name or an id stands for, of one kind of entity; `None` for two entities with one name.
type ByName = HashMap<String, Option<usize>>;

/// A service or a route.
#[derive(Clone, Copy, Debug)]
pub struct KongEntity<'v> {
    /// What it says.
    pub value: InputValue<'v>,
    /// Where it stands.
    pub at: Origin,
    /// Its name, or its id; may be empty.
    pub name: &'v str,
    /// Of a route the index of its service; `None` without one, or if that is not there.
    pub service: Option<usize>,
}

/// A plugin.
#[derive(Clone, Copy, Debug)]
pub struct KongPlugin<'v> {
    /// Its name.
    pub name: &'v str,
    /// What it says.
    pub value: InputValue<'v>,
    /// Where it stands.
    pub at: Origin,
    /// The route that it is for; `None` for all.
    pub route: Option<usize>,
    /// The service that it is for; `None` for all.
    pub service: Option<usize>,
    /// Its settings, which may stand in `_plugin_configs`.
    pub config: Option<InputValue<'v>>,
    /// Why it is not known what it does.
    pub unread: Option<&'static str>,
}

/// The name of a plugin in place of WASM filters, which no plugin of Kong has.
pub const FILTER_CHAIN: &str = "filter_chains";

/// A plugin with the route or the service in which it stands.
type NestedPlugin<'v> = (&'v str, InputValue<'v>, Option<usize>, Option<usize>);

/// All entities of the files.
#[derive(Debug, Default)]
pub struct KongEntities<'v> {
    /// The services, with those that others contain.
    pub services: Vec<KongEntity<'v>>,
    /// The routes, with those that services contain.
    pub routes: Vec<KongEntity<'v>>,
    /// Plugins that are enabled, and for no consumer or group.
    pub plugins: Vec<KongPlugin<'v>>,
    /// Upstreams by their names.
    pub upstreams: HashMap<&'v str, KongEntity<'v>>,
    /// Targets of upstreams that stand beside them, with the names of these.
    pub targets: Vec<(&'v str, InputValue<'v>)>,
    targets_of: HashMap<&'v str, Vec<InputValue<'v>>>,
    /// Names of certificates.
    pub certificates: Vec<String>,
    service_names: ByName,
    route_names: ByName,
    unresolved_routes: Vec<(usize, InputValue<'v>)>,
    unresolved_plugins: Vec<NestedPlugin<'v>>,
    plugin_configs: HashMap<&'v str, InputValue<'v>>,
    /// What the files refer to and do not have.
    missing: Option<(Origin, String)>,
    /// Defaults that are not Kong's own.
    defaults: Option<(Origin, String)>,
}

/// What marks a value that stands elsewhere, for instance in the environment.
pub fn is_reference(text: &str) -> bool {
    text.contains("${{") || text.starts_with("{vault://")
}

impl<'v> KongEntities<'v> {
    /// Reads a document.
    pub fn read(&mut self, root: InputValue<'v>, report: &mut ImportReport) {
        for (field, at, value) in root.entries() {
            match field {
                "services" => value.items().for_each(|service| self.add_service(service)),
                "routes" => value.items().for_each(|route| self.add_route(route, None)),
                "plugins" | FILTER_CHAIN => self.add_plugins(field, value, None, None),
                "consumers" | "consumer_groups" => {
                    for consumer in value.items() {
                        self.leave_consumer(field, consumer, report);
                    }
                }
                "upstreams" => {
                    for upstream in value.items() {
                        let name = upstream.text_of("name").unwrap_or("");
                        self.upstreams.insert(name, entity(upstream, None));
                    }
                }
                "targets" => {
                    for target in value.items() {
                        let upstream = target.get("upstream");
                        let name = upstream.and_then(|upstream| {
                            upstream.text().or_else(|| upstream.text_of("name"))
                        });
                        let name = name.unwrap_or("");
                        self.targets_of.entry(name).or_default().push(target);
                        self.targets.push((name, target));
                    }
                }
                "certificates" => {
                    for certificate in value.items() {
                        self.add_certificate(certificate, report);
                    }
                }
                "_info" if value.get("defaults").is_some() => {
                    self.defaults = self.defaults.take().or_else(|| changed_default(value));
                    report.taken(
                        at,
                        Concern::Other,
                        "_info: defaults",
                        "they are those of Kong",
                    );
                }
                "_plugin_configs" => {
                    self.plugin_configs
                        .extend(value.entries().map(|(name, _, config)| (name, config)));
                    report.taken(at, Concern::Other, field, "where plugins name them");
                }
                "_format_version" | "_transform" | "_comment" | "_info" => {
                    report.taken(at, Concern::Other, field, "")
                }
                "keyauth_credentials"
                | "basicauth_credentials"
                | "jwt_secrets"
                | "hmacauth_credentials"
                | "acls"
                | "oauth2_credentials" => {
                    report.left(
                        at,
                        Concern::Routing,
                        field,
                        "credentials are not read: routes that ask for them answer 503",
                    );
                }
                "_workspace"
                | "_ignore"
                | "vaults"
                | "keys"
                | "key_sets"
                | "ca_certificates"
                | "snis"
                | "consumer_group_consumers"
                | "consumer_group_plugins"
                | "licenses" => {
                    report.left(at, Concern::Other, field, "it is not read");
                }
                _ => report.left(at, Concern::Routing, field, "it is not read"),
            }
        }
    }

    fn add_service(&mut self, service: InputValue<'v>) {
        let index = self.services.len();
        register(&mut self.service_names, service, index);
        self.services.push(entity(service, None));
        for route in service
            .get("routes")
            .into_iter()
            .flat_map(InputValue::items)
        {
            self.add_route(route, Some(index));
        }
        for kind in ["plugins", FILTER_CHAIN] {
            if let Some(plugins) = service.get(kind) {
                self.add_plugins(kind, plugins, None, Some(index));
            }
        }
    }

    fn add_route(&mut self, route: InputValue<'v>, service: Option<usize>) {
        let index = self.routes.len();
        register(&mut self.route_names, route, index);
        self.routes.push(entity(route, service));
        if service.is_none()
            && let Some(service) = route.get("service")
        {
            self.unresolved_routes.push((index, service));
        }
        for kind in ["plugins", FILTER_CHAIN] {
            if let Some(plugins) = route.get(kind) {
                self.add_plugins(kind, plugins, Some(index), None);
            }
        }
    }

    fn add_plugins(
        &mut self,
        kind: &'v str,
        plugins: InputValue<'v>,
        route: Option<usize>,
        service: Option<usize>,
    ) {
        self.unresolved_plugins
            .extend(plugins.items().map(|plugin| (kind, plugin, route, service)));
    }

    fn leave_consumer(&mut self, kind: &str, consumer: InputValue<'v>, report: &mut ImportReport) {
        let names = ["username", "custom_id", "name", "id"];
        let name = names
            .into_iter()
            .find_map(|field| consumer.text_of(field))
            .unwrap_or("");
        let shown = if is_reference(name) {
            "(a reference)"
        } else {
            name
        };
        let text = format!("{} {shown}", kind.trim_end_matches('s'));
        let note = "consumers are not known here: routes that ask who they are answer 503. Write `identity: { user: { api_keys: FILE } }` \
                    with the keys, and `require: user`";
        report.left(consumer.origin(), Concern::Routing, &text, note);
        for plugin in consumer
            .get("plugins")
            .into_iter()
            .flat_map(InputValue::items)
        {
            leave_consumer_plugin(plugin, report);
        }
    }

    fn add_certificate(&mut self, certificate: InputValue<'v>, report: &mut ImportReport) {
        let first_name = certificate.get("snis").and_then(|snis| {
            let first = snis.items().next()?;
            first.text_of("name").or_else(|| first.text())
        });
        let name = first_name.filter(|name| !is_reference(name)).unwrap_or("");
        let name = match crate::import::names::safe_name(name) {
            name if name.is_empty() => format!("certificate-{}", self.certificates.len() + 1),
            name => name,
        };
        let note = format!(
            "put its PEM at `certificates/{name}.pem`, and its key at `certificates/{name}.key`"
        );
        report.changed(
            certificate.origin(),
            Concern::Other,
            &format!("certificate {name}"),
            &note,
        );
        if !self.certificates.contains(&name) && self.certificates.len() < 100 {
            self.certificates.push(name);
        }
    }

    /// Targets that stand beside the upstream of this name.
    pub fn targets_beside(&self, upstream: &str) -> impl Iterator<Item = InputValue<'v>> {
        self.targets_of.get(upstream).into_iter().flatten().copied()
    }

    /// The number of targets of a service.
    pub fn target_count(&self, service: usize) -> usize {
        let host = self.services.get(service).and_then(|service| {
            let url = service.value.text_of("url");
            let host = url.and_then(|url| url.split([':', '/']).nth(3));
            host.or_else(|| service.value.text_of("host"))
        });
        let upstream = host.and_then(|host| Some((host, self.upstreams.get(host)?)));
        upstream.map_or(1, |(host, upstream)| {
            let own = upstream.value.get("targets").map_or(0, InputValue::weight);
            own + 5 * self.targets_of.get(host).map_or(0, Vec::len)
        })
    }

    /// The settings of a plugin, and why they are not known.
    fn config_of(
        &self,
        name: &str,
        plugin: InputValue<'v>,
    ) -> (Option<InputValue<'v>>, Option<&'static str>) {
        let own = plugin.get("config");
        let unknown = plugin.entries().find(|(field, _, value)| {
            !PLUGIN_FIELDS.contains(field) && !value.is_null() && name != FILTER_CHAIN
        });
        let unread = unknown.map(|_| "a field of it is not read");
        let is_ordered = plugin
            .get("ordering")
            .is_some_and(|ordering| ordering.entries().next().is_some());
        let unread =
            unread.or(is_ordered.then_some("its place in the order of plugins is its own"));
        let Some(reference) = plugin.get("_config") else {
            return (own, unread);
        };
        let shared = reference
            .text()
            .and_then(|name| self.plugin_configs.get(name));
        match (own, shared) {
            (None, Some(shared)) => (Some(*shared), unread),
            (None, None) => (None, Some("its `_config` is not in the files")),
            (Some(own), _) => (Some(own), Some("its `_config` stands beside a `config`")),
        }
    }

    /// Why the files mean something else than they say: a plugin is for what is not there, or defaults are changed.
    pub fn refusal(&self) -> Option<&(Origin, String)> {
        self.defaults.as_ref().or(self.missing.as_ref())
    }

    /// A name that two services or two routes have, which Kong refuses.
    pub fn ambiguous_name(&self) -> Option<&str> {
        let mut names = self.service_names.iter().chain(&self.route_names);
        names
            .find(|(_, index)| index.is_none())
            .map(|(name, _)| name.as_str())
    }

    /// Resolves the references of routes and plugins.
    pub fn resolve(&mut self, report: &mut ImportReport) {
        for (index, service) in std::mem::take(&mut self.unresolved_routes) {
            let found = find(&self.service_names, service);
            if found.is_none() {
                report.left(
                    service.origin(),
                    Concern::Routing,
                    "service",
                    "it is not in the files: clients get 503",
                );
            }
            if let Some(route) = self.routes.get_mut(index) {
                route.service = found;
            }
        }
        for plugin in std::mem::take(&mut self.unresolved_plugins) {
            self.resolve_plugin(plugin, report);
        }
    }

    fn resolve_plugin(
        &mut self,
        (kind, plugin, mut route, mut service): NestedPlugin<'v>,
        report: &mut ImportReport,
    ) {
        let name = match kind {
            FILTER_CHAIN => FILTER_CHAIN,
            _ => plugin.text_of("name").unwrap_or(""),
        };
        let text = format!("plugin {name}");
        let at = plugin.origin();
        if plugin.text_of("enabled") == Some("false") {
            return report.taken(at, Concern::Other, &text, "it is not enabled");
        }
        if plugin.get("consumer").is_some() || plugin.get("consumer_group").is_some() {
            return leave_consumer_plugin(plugin, report);
        }
        for (field, names, scope) in [
            ("route", &self.route_names, &mut route),
            ("service", &self.service_names, &mut service),
        ] {
            let Some(reference) = plugin.get(field) else {
                continue;
            };
            *scope = find(names, reference);
            if scope.is_none() {
                let reason = format!("{text} is for a {field} that is not in the files");
                self.missing.get_or_insert((at, reason));
                return;
            }
        }
        let (config, unread) = self.config_of(name, plugin);
        self.plugins.push(KongPlugin {
            name,
            config,
            unread,
            value: plugin,
            at,
            route,
            service,
        });
    }
}

/// The fields of plugins that are read, or that change nothing here.
const PLUGIN_FIELDS: [&str; 15] = [
    "name",
    "id",
    "config",
    "_config",
    "enabled",
    "route",
    "service",
    "consumer",
    "consumer_group",
    "protocols",
    "ordering",
    "tags",
    "instance_name",
    "created_at",
    "updated_at",
];

/// The first of `_info: defaults` by which entities would mean something else than they say.
fn changed_default(info: InputValue<'_>) -> Option<(Origin, String)> {
    // Kong's own defaults, and settings that change neither routes nor limits.
    let is_own = |kind: &str, field: &str, value: InputValue<'_>| match (kind, field) {
        ("service", "protocol") => value.text() == Some("http"),
        ("service", "port") => value.number() == Some(80),
        ("service" | "plugin", "enabled") => value.text() == Some("true"),
        ("route", "path_handling") => value.text() == Some("v0"),
        ("route", "preserve_host") => value.text() == Some("false"),
        ("route", "strip_path") => value.text() == Some("true"),
        ("route", "regex_priority") => value.number() == Some(0),
        ("route", "https_redirect_status_code") => value.number() == Some(426),
        ("route" | "plugin", "protocols") => {
            let has = |name: &str| value.items().any(|item| item.text() == Some(name));
            has("http") && has("https")
        }
        ("service", "connect_timeout" | "read_timeout" | "write_timeout" | "retries") => true,
        ("route", "request_buffering" | "response_buffering") => true,
        ("upstream" | "target", _) => true,
        _ => value.is_null(),
    };
    let kinds = info.get("defaults")?.entries();
    let mut fields = kinds.flat_map(|(kind, _, fields)| {
        fields
            .entries()
            .map(move |(field, at, value)| (kind, field, at, value))
    });
    let (kind, field, at, _) =
        fields.find(|(kind, field, _, value)| !is_own(kind, field, *value))?;
    let reason = format!("`_info: defaults` has another `{field}` for each {kind} than Kong");
    Some((at, printable(&reason, 200)))
}

fn leave_consumer_plugin(plugin: InputValue<'_>, report: &mut ImportReport) {
    let text = format!("plugin {}", plugin.text_of("name").unwrap_or(""));
    let note = "it is for consumers, and routes that know consumers answer 503. With `require: user` write a limit with `for: { user: ... }`";
    report.left(plugin.origin(), Concern::Limits, &text, note);
}

fn entity(value: InputValue<'_>, service: Option<usize>) -> KongEntity<'_> {
    let name = value
        .text_of("name")
        .or_else(|| value.text_of("id"))
        .unwrap_or("");
    KongEntity {
        value,
        at: value.origin(),
        name,
        service,
    }
}

fn register(names: &mut ByName, value: InputValue<'_>, index: usize) {
    for field in ["name", "id"] {
        if let Some(name) = value.text_of(field) {
            let entry = names.entry(name.to_owned()).or_insert(Some(index));
            if *entry != Some(index) {
                *entry = None;
            }
        }
    }
}

fn find(names: &ByName, reference: InputValue<'_>) -> Option<usize> {
    let fields = [
        reference.text(),
        reference.text_of("name"),
        reference.text_of("id"),
    ];
    fields
        .into_iter()
        .flatten()
        .find_map(|name| names.get(name).copied().flatten())
}
