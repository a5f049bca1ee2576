//! Imports Ingress resources of Kubernetes, with the annotations of ingress-nginx.

use std::collections::HashSet;

use super::documents::{InputValue, read_all_documents};
use super::error::ImportError;
use super::files::InputFile;
use super::model::{ActionDraft, ImportDraft, ListenerDraft, RouteDraft};
use super::report::{Concern, ImportReport};
use annotations::read_annotations;
use backend::read_backend;
use paths::{RulePath, read_path};
use settings::{Annotations, networks};

mod annotations;
mod backend;
mod limits;
mod paths;
mod settings;

/// Where the gateway listens in a container.
const ADDRESS: &str = "0.0.0.0:8080";

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is no YAML and no JSON.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let documents = read_all_documents(files)?;
    draft.listeners.push(ListenerDraft {
        address: ADDRESS.into(),
        ..ListenerDraft::default()
    });
    let mut guarded_hosts = HashSet::new();
    for document in &documents {
        read_resource(document.root(), draft, &mut guarded_hosts, report);
    }
    refuse_guarded_hosts(draft, &guarded_hosts, report);
    add_missing_rests(draft);
    Ok(())
}

/// Reads a resource, or those of a list. Adds hosts that are guarded as a whole by what is not imported.
fn read_resource(
    resource: InputValue<'_>,
    draft: &mut ImportDraft,
    guarded_hosts: &mut HashSet<String>,
    report: &mut ImportReport,
) {
    let kind = resource.text_of("kind").unwrap_or("");
    let name = resource
        .at(&["metadata", "name"])
        .and_then(InputValue::text)
        .unwrap_or("");
    let text = format!("{kind} {name}");
    let at = resource.origin();
    match kind {
        "List" | "IngressList" => {
            for item in resource
                .get("items")
                .into_iter()
                .flat_map(InputValue::items)
            {
                read_resource(item, draft, guarded_hosts, report);
            }
        }
        "Ingress" => {
            report.taken(at, Concern::Routing, &text, "");
            let reader = IngressReader {
                resource,
                name,
                draft,
                guarded_hosts,
                report,
            };
            reader.read();
        }
        "ConfigMap" => read_config_map(resource, draft, report),
        "" => report.left(at, Concern::Other, "document", "it has no `kind`"),
        _ => report.left(
            at,
            Concern::Other,
            &text,
            "only Ingress and ConfigMap are read",
        ),
    }
}

/// Reads the settings of the controller.
fn read_config_map(resource: InputValue<'_>, draft: &mut ImportDraft, report: &mut ImportReport) {
    let data = resource.get("data");
    let is_forwarded = data
        .and_then(|data| data.get("use-forwarded-headers"))
        .is_some_and(InputValue::is_true);
    for (key, at, value) in data.into_iter().flat_map(InputValue::entries) {
        let text = format!("{key}: {}", value.text().unwrap_or(""));
        match key {
            "use-forwarded-headers" => report.taken(at, Concern::Routing, &text, ""),
            "proxy-real-ip-cidr" if is_forwarded => {
                let (networks, bad) = networks(value.text().unwrap_or(""));
                for network in networks {
                    if !draft.trusted_proxies.contains(&network) {
                        draft.trusted_proxies.push(network);
                    }
                }
                match bad.is_empty() {
                    true => report.taken(at, Concern::Routing, &text, ""),
                    false => report.left(at, Concern::Routing, &text, "not all of it are networks"),
                }
            }
            "limit-req-status-code" | "limit-conn-status-code" => match value.text() {
                Some("429") => report.taken(at, Concern::Limits, &text, ""),
                _ => report.changed(
                    at,
                    Concern::Limits,
                    &text,
                    "a limit answers 429, with `Retry-After`",
                ),
            },
            _ => report.left(
                at,
                Concern::Other,
                &text,
                "a setting of the controller that is not read",
            ),
        }
    }
}

/// One Ingress while it is read.
struct IngressReader<'r, 'v> {
    resource: InputValue<'v>,
    name: &'r str,
    draft: &'r mut ImportDraft,
    guarded_hosts: &'r mut HashSet<String>,
    report: &'r mut ImportReport,
}

impl IngressReader<'_, '_> {
    fn read(mut self) {
        let spec = self.resource.get("spec");
        let annotations = self.resource.at(&["metadata", "annotations"]);
        let settings = read_annotations(annotations, self.name, self.draft, self.report);
        if settings.is_canary {
            let note = "a canary takes a part of the requests of another Ingress, which has no counterpart";
            let text = format!("Ingress {}", self.name);
            return self
                .report
                .left(self.resource.origin(), Concern::Routing, &text, note);
        }
        let Some(spec) = spec else { return };
        for (field, at, value) in spec.entries() {
            match field {
                "rules" | "defaultBackend" | "backend" => {}
                "ingressClassName" => self.report.taken(at, Concern::Other, field, ""),
                "tls" => self.read_tls(value),
                _ => self
                    .report
                    .left(at, Concern::Other, field, "it is not read"),
            }
        }
        for rule in spec.get("rules").into_iter().flat_map(InputValue::items) {
            self.read_rule(rule, &settings);
        }
        let default = spec.get("defaultBackend").or_else(|| spec.get("backend"));
        if let Some(default) = default {
            self.report
                .taken(default.origin(), Concern::Routing, "defaultBackend", "");
            let paths = RulePath {
                paths: vec!["/**".into()],
                ..RulePath::default()
            };
            self.add_route(
                default,
                "defaultBackend",
                Vec::new(),
                paths,
                default,
                &settings,
            );
        }
    }

    fn read_tls(&mut self, tls: InputValue<'_>) {
        for entry in tls.items() {
            let secret = entry.text_of("secretName").unwrap_or("SECRET");
            let text = format!("tls {secret}");
            let note = "certificates of secrets are not read: mount it, and use the line at the end of the gateway file. Until \
                        then there is no TLS, and nothing is redirected to it";
            self.report
                .left(entry.origin(), Concern::Routing, &text, note);
            let name = super::names::safe_name(secret);
            let line = format!(
                "For TLS: listen: [{{ address: 0.0.0.0:8443, tls: {{ cert: /tls/{name}/tls.crt, key: /tls/{name}/tls.key }} }}]"
            );
            if !self.draft.comments.contains(&line) {
                self.draft.comments.push(line);
            }
        }
    }

    fn read_rule(&mut self, rule: InputValue<'_>, settings: &Annotations) {
        let host = rule.text_of("host").unwrap_or("");
        let text = format!("host {}", if host.is_empty() { "*" } else { host });
        let mut hosts: Vec<String> = Vec::new();
        if !host.is_empty() {
            hosts.push(host.to_owned());
            hosts.extend(settings.aliases.iter().cloned());
        }
        if settings.is_check_of_hosts {
            let own_hosts = hosts.iter().cloned();
            let any_host = host.is_empty().then(String::new);
            self.guarded_hosts.extend(own_hosts.chain(any_host));
        }
        let is_host = |host: &String| crate::route::pattern::HostPattern::parse(host).is_ok();
        if !hosts.iter().all(is_host) {
            return self
                .report
                .left(rule.origin(), Concern::Routing, &text, "it is no host");
        }
        self.report
            .taken(rule.origin(), Concern::Routing, &text, "");
        if let Some(target) = &settings.app_root
            && !hosts.is_empty()
        {
            let route = self.base_route(rule, "app-root", &hosts, "/");
            self.draft.routes.push(RouteDraft {
                paths: vec!["/".into()],
                action: ActionDraft::Redirect {
                    to: target.clone(),
                    status: 302,
                },
                ..route
            });
        }
        for path in rule
            .at(&["http", "paths"])
            .into_iter()
            .flat_map(InputValue::items)
        {
            let written = path.text_of("path").unwrap_or("/");
            let text = format!("path {written}");
            let read = read_path(
                written,
                path.text_of("pathType").unwrap_or("ImplementationSpecific"),
                settings,
            );
            match read {
                Ok(read) => {
                    self.report
                        .taken(path.origin(), Concern::Routing, &text, "");
                    for difference in &read.differences {
                        self.report
                            .changed(path.origin(), Concern::Routing, &text, difference);
                    }
                    let backend = path.get("backend").unwrap_or(path);
                    self.add_route(path, &text, hosts.clone(), read, backend, settings);
                }
                Err(reason) => {
                    let concern = match settings.limits.is_empty() {
                        true => Concern::Routing,
                        false => Concern::Limits,
                    };
                    self.report.left(path.origin(), concern, &text, &reason);
                }
            }
        }
    }

    fn base_route(
        &self,
        at: InputValue<'_>,
        source: &str,
        hosts: &[String],
        path: &str,
    ) -> RouteDraft {
        let host = hosts.first().map_or("", String::as_str);
        let path = if path.trim_matches('/').is_empty() {
            "root"
        } else {
            path
        };
        RouteDraft {
            name: format!("{} {host} {path}", self.name),
            origin: at.origin(),
            source: format!("Ingress {}, {source}", self.name),
            hosts: hosts.to_vec(),
            ..RouteDraft::default()
        }
    }

    fn add_route(
        &mut self,
        at: InputValue<'_>,
        source: &str,
        hosts: Vec<String>,
        path: RulePath,
        backend: InputValue<'_>,
        settings: &Annotations,
    ) {
        let first = path
            .paths
            .first()
            .map_or("/", String::as_str)
            .trim_end_matches("/**")
            .to_owned();
        let mut route = self.base_route(at, source, &hosts, &first);
        route.paths = path.paths;
        route.limits = settings.limit_uses();
        route.max_body = settings.max_body;
        if !settings.deny.is_empty() {
            route.deny.push(("ip".into(), settings.deny.clone()));
        }
        if !settings.allow.is_empty() {
            route.allow.push(("ip".into(), settings.allow.clone()));
        }
        if let Some((to, status)) = &settings.redirect {
            route.action = ActionDraft::Redirect {
                to: to.clone(),
                status: *status,
            };
            route.max_body = None;
            self.draft.routes.push(route);
            return;
        }
        let namespace = self
            .resource
            .at(&["metadata", "namespace"])
            .and_then(InputValue::text)
            .unwrap_or("default");
        match read_backend(backend, namespace, settings) {
            Ok(read) => {
                for difference in &read.differences {
                    self.report
                        .changed(backend.origin(), Concern::Routing, &read.text, difference);
                }
                self.report
                    .taken(backend.origin(), Concern::Routing, &read.text, "");
                let name = self.draft.add_upstream(&read.hint, read.upstream);
                match settings.unread_check {
                    Some(check) => {
                        route.withheld_upstream = Some(name);
                        route.action = ActionDraft::not_imported(check);
                        route.max_body = None;
                    }
                    None => {
                        route.action = ActionDraft::Upstream(name);
                        route.strip = path.strip;
                    }
                }
            }
            Err(reason) => {
                let note = format!("{reason}. Clients get 503");
                self.report
                    .left(backend.origin(), Concern::Routing, "backend", &note);
                route.action = ActionDraft::not_imported("a backend");
                route.max_body = None;
            }
        }
        self.draft.routes.push(route);
    }
}

/// Answers 503 on all routes of hosts that some Ingress guards as a whole by what is not imported.
fn refuse_guarded_hosts(
    draft: &mut ImportDraft,
    guarded: &HashSet<String>,
    report: &mut ImportReport,
) {
    for route in &mut draft.routes {
        let is_guarded = match route.hosts.is_empty() {
            true => guarded.contains(""),
            false => route.hosts.iter().any(|host| guarded.contains(host)),
        };
        if is_guarded && matches!(route.action, ActionDraft::Upstream(_)) {
            route.withhold("what another Ingress checks for its whole host");
            let note = "an Ingress of its host checks certificates or has a snippet for all paths: clients get 503";
            report.left(route.origin, Concern::Routing, &route.source, note);
        }
    }
}

/// Adds a 404 for hosts without a route for all their paths, if there are routes for all hosts. These would take the
/// paths otherwise, which ingress-nginx does not do.
fn add_missing_rests(draft: &mut ImportDraft) {
    if draft.routes.iter().all(|route| !route.hosts.is_empty()) {
        return;
    }
    let is_rest = |route: &&RouteDraft| route.paths.iter().any(|path| path == "/**");
    let mut missing: Vec<RouteDraft> = Vec::new();
    for route in draft.routes.iter().filter(|route| !route.hosts.is_empty()) {
        let has_rest = |host: &String| {
            let mut routes = draft.routes.iter().filter(is_rest);
            routes.any(|route| route.hosts.contains(host))
                || missing.iter().any(|route| route.hosts.contains(host))
        };
        let hosts: Vec<String> = route
            .hosts
            .iter()
            .filter(|host| !has_rest(host))
            .cloned()
            .collect();
        if !hosts.is_empty() {
            missing.push(RouteDraft {
                name: format!("{} rest", route.name),
                origin: route.origin,
                source: "all other paths of the host".into(),
                paths: vec!["/**".into()],
                hosts,
                action: ActionDraft::respond(404),
                ..RouteDraft::default()
            });
        }
    }
    draft.routes.extend(missing);
}
