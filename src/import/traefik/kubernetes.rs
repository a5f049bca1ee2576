//! Resources of Kubernetes: IngressRoute, Middleware, TLSOption and TraefikService.

use super::fields::fields;
use super::input::TraefikInput;
use super::middlewares::references;
use super::names::{NamedObject, Provider};
use super::routers::{
    Router, ServiceUse, UNREAD_FIELD, has_field, read_entry_points, read_priority,
};
use super::services::{MAX_SERVERS, Services, checked_hosts, join_weighted, read_settings};
use crate::import::documents::InputValue;
use crate::import::model::UpstreamDraft;
use crate::import::report::{Concern, ImportReport};

/// Reads a resource, or those of a list, into `input`.
pub fn read_resource<'v>(
    resource: InputValue<'v>,
    input: &mut TraefikInput<'v>,
    report: &mut ImportReport,
) {
    let kind = resource.text_of("kind").unwrap_or("");
    let name = resource
        .at(&["metadata", "name"])
        .and_then(InputValue::text)
        .unwrap_or("");
    let namespace = resource
        .at(&["metadata", "namespace"])
        .and_then(InputValue::text);
    let provider = Provider::Kubernetes(namespace.unwrap_or("default").to_owned());
    let at = resource.origin();
    let text = format!("{kind} {name}");
    let spec = resource.get("spec");
    let named = |value| NamedObject {
        name: provider.full_name(name, None),
        provider: provider.clone(),
        value,
        at,
    };
    match (kind, spec) {
        ("List" | "IngressRouteList" | "MiddlewareList", _) => {
            for item in resource
                .get("items")
                .into_iter()
                .flat_map(InputValue::items)
            {
                // A list in a list is no resource of Kubernetes.
                if item.get("items").is_none() {
                    read_resource(item, input, report);
                }
            }
        }
        ("Middleware", Some(spec)) => input.middlewares.add(named(spec)),
        ("TraefikService", Some(spec)) => input.services.add(named(spec)),
        ("TLSOption", Some(spec)) => {
            input
                .tls
                .add_option(&provider.full_name(name, None), spec, at, report)
        }
        ("IngressRoute", Some(spec)) => {
            report.taken(at, Concern::Routing, &text, "");
            read_ingress_route(spec, name, &provider, input, report);
        }
        ("IngressRouteTCP" | "IngressRouteUDP", _) => {
            report.left(at, Concern::Routing, &text, "tollgate speaks HTTP only");
        }
        ("Ingress", _) => report.left(
            at,
            Concern::Routing,
            &text,
            "import it by `tollgate import ingress`",
        ),
        ("Middleware" | "IngressRoute" | "TLSOption" | "TraefikService", None) => {
            report.left(at, Concern::Routing, &text, "it has no `spec`");
        }
        ("MiddlewareTCP" | "ServersTransport" | "TLSStore", _) => {
            report.left(at, Concern::Other, &text, "it has no counterpart");
        }
        _ => report.left(at, Concern::Other, &text, "it is no resource of Traefik"),
    }
}

fn read_ingress_route<'v>(
    spec: InputValue<'v>,
    name: &str,
    provider: &Provider,
    input: &mut TraefikInput<'v>,
    report: &mut ImportReport,
) {
    let mut has_unread = false;
    for (field, at, value) in fields(spec) {
        match field {
            "routes" | "entryPoints" => {}
            "tls" => {
                let secret = value
                    .text_of("secretName")
                    .or_else(|| value.text_of("certResolver"))
                    .unwrap_or("");
                let note = "certificates of secrets and resolvers are not read: mount one, or write `tls: { acme: ... }`";
                report.left(at, Concern::Other, &format!("tls {secret}"), note);
            }
            _ => {
                report.left(
                    at,
                    Concern::Routing,
                    field,
                    "it is not read: clients get 503",
                );
                has_unread = true;
            }
        }
    }
    let options = spec
        .at(&["tls", "options"])
        .and_then(|options| provider.reference(options));
    let tls_options = has_field(spec, "tls").then(|| options.unwrap_or_default());
    let count = spec
        .get("routes")
        .map_or(0, |routes| routes.items().count());
    for (index, route) in spec
        .get("routes")
        .into_iter()
        .flat_map(InputValue::items)
        .enumerate()
    {
        let name = match count {
            1 => name.to_owned(),
            _ => format!("{name}-{}", index + 1),
        };
        let text = format!("router {name}");
        let Some(rule) = route
            .text_of("match")
            .filter(|rule| !rule.trim().is_empty())
        else {
            report.left(
                route.origin(),
                Concern::Routing,
                &text,
                "it has no `match`, so Traefik does not serve it",
            );
            continue;
        };
        let mut middlewares = references(provider, route.get("middlewares"));
        if has_unread {
            middlewares.push(UNREAD_FIELD.into());
        }
        for (field, at, _) in fields(route) {
            match field {
                "match" | "kind" | "priority" | "middlewares" | "services" => {}
                "syntax" => report.taken(at, Concern::Other, field, "both versions are read"),
                _ => {
                    report.left(
                        at,
                        Concern::Routing,
                        field,
                        "it is not read: clients get 503",
                    );
                    middlewares.push(UNREAD_FIELD.into());
                }
            }
        }
        input.routers.push(Router {
            // Unlike the name, it differs from those of other resources.
            key: format!("{}#{index}", provider.full_name(&name, None)),
            at: route.origin(),
            rule: rule.to_owned(),
            priority: read_priority(route, rule, &text, report),
            entry_points: read_entry_points(spec.get("entryPoints")),
            middlewares,
            service: ServiceUse::Inline(read_services(
                route,
                provider,
                &mut input.services,
                report,
            )),
            tls_options: tls_options.clone(),
            name,
        });
    }
}

/// The servers of the services of a route.
fn read_services(
    route: InputValue<'_>,
    provider: &Provider,
    services: &mut Services<'_>,
    report: &mut ImportReport,
) -> Result<UpstreamDraft, String> {
    let mut parts = Vec::new();
    let mut servers = 0;
    for service in route
        .get("services")
        .into_iter()
        .flat_map(InputValue::items)
    {
        let weight = service.get("weight").map_or(Some(1), InputValue::number);
        let weight = weight.ok_or("a weight is no number")?;
        if weight == 0 {
            report.taken(
                service.origin(),
                Concern::Routing,
                "service",
                "its weight is 0",
            );
            continue;
        }
        let upstream = match service.text_of("kind") {
            Some("TraefikService") => {
                let name = provider.reference(service).ok_or("a service has no name")?;
                services.resolve(&name, report)?
            }
            None | Some("Service") => read_service(service, provider, report)?,
            Some(_) => return Err("a service is of a kind that is not known".into()),
        };
        servers += upstream.servers.len();
        if servers > MAX_SERVERS {
            return Err(format!("its services have more than {MAX_SERVERS} servers"));
        }
        parts.push((upstream, weight));
    }
    let at = route.origin();
    let joined = join_weighted(parts, at);
    checked_hosts(joined.ok_or("its services have no counterpart as one upstream")?)
}

fn read_service(
    service: InputValue<'_>,
    provider: &Provider,
    report: &mut ImportReport,
) -> Result<UpstreamDraft, String> {
    let Provider::Kubernetes(own) = provider else {
        return Err("it is no service of Kubernetes".into());
    };
    let is_label = |text: &str| {
        let is_inner =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&text.len())
            && text.bytes().all(is_inner)
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    let name = service
        .text_of("name")
        .filter(|name| is_label(name))
        .ok_or("it names no service")?;
    let namespace =
        Some(service.text_of("namespace").unwrap_or(own)).filter(|namespace| is_label(namespace));
    let namespace = namespace.ok_or("its namespace is no name")?;
    let written = service.text_of("port").unwrap_or("80");
    let text = format!("service {name}:{written}");
    let port = match written.parse::<u16>() {
        Ok(port) if port > 0 => port,
        _ => {
            let number = if written.contains("https") { 443 } else { 80 };
            let note = format!(
                "the port `{written}` is taken as {number}; write the number that the service has for it"
            );
            report.changed(service.origin(), Concern::Routing, &text, &note);
            number
        }
    };
    let scheme = match service.text_of("scheme") {
        Some(scheme @ ("http" | "https" | "h2c")) => scheme,
        Some(_) => return Err("its scheme is not known".into()),
        None if port == 443 || written.starts_with("https") => "https",
        None => "http",
    };
    report.taken(service.origin(), Concern::Routing, &text, "");
    let url_scheme = if scheme == "https" { "https" } else { "http" };
    let mut upstream = UpstreamDraft {
        servers: vec![(
            format!("{url_scheme}://{name}.{namespace}.svc.cluster.local:{port}"),
            1,
        )],
        http2: scheme == "h2c",
        origin: service.origin(),
        ..UpstreamDraft::default()
    };
    read_settings(service, &mut upstream, report)?;
    Ok(upstream)
}

/// Whether a document is a resource of Kubernetes.
pub fn is_resource(document: InputValue<'_>) -> bool {
    document.get("kind").is_some() || document.get("apiVersion").is_some()
}
