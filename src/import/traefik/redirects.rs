//! Redirects of routers and of whole entry points.

use super::entry_points::{EntryPoints, listener_name};
use super::rules::RedirectRule;
use crate::import::model::{ActionDraft, ImportDraft, RouteDraft};
use crate::import::report::{Concern, ImportReport};
use crate::route::RedirectTarget;
use crate::route::pattern::HostPattern;

/// The ports of listeners with TLS, in order.
pub fn tls_ports(points: &EntryPoints, are_tls: &[bool]) -> Vec<u16> {
    let points = points.list.iter().zip(are_tls);
    points
        .filter(|(_, is_tls)| **is_tls)
        .filter_map(|(point, _)| point.address.rsplit_once(':')?.1.parse().ok())
        .collect()
}

/// Where a redirect leads; `None` if policies cannot say it for this host.
pub fn redirect_target(
    redirect: &RedirectRule,
    host: &HostPattern,
    tls_ports: &[u16],
) -> Option<String> {
    let https_port = match tls_ports.contains(&443) {
        true => Some(443),
        false => tls_ports.first().copied(),
    };
    let is_https = redirect.scheme == "https";
    if redirect.host.is_none()
        && is_https
        && https_port.is_some()
        && redirect.port.is_none_or(|port| Some(port) == https_port)
    {
        return Some("https".into());
    }
    let host = match (&redirect.host, host) {
        (Some(host), _) => host.clone(),
        (None, HostPattern::Exact(host)) => host.to_string(),
        _ => return None,
    };
    let usual = if is_https { 443 } else { 80 };
    let port = redirect.port.filter(|port| *port != usual);
    let target = format!(
        "{}://{host}{}",
        redirect.scheme,
        port.map_or_else(String::new, |port| format!(":{port}"))
    );
    RedirectTarget::parse(&target).is_ok().then_some(target)
}

/// Adds the redirects of whole entry points.
pub fn add_redirects(
    points: &EntryPoints,
    tls_ports: &[u16],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) {
    for point in &points.list {
        let Some((text, status)) = &point.redirect else {
            continue;
        };
        let (scheme, to) = text.split_once(' ').unwrap_or((text, ""));
        let port = match points.index(to).and_then(|index| points.list.get(index)) {
            Some(target) => target.address.rsplit_once(':').map(|(_, port)| port),
            None => to.strip_prefix(':'),
        };
        let redirect = RedirectRule {
            scheme: scheme.to_owned(),
            host: None,
            port: port.and_then(|port| port.parse().ok()),
            status: *status,
        };
        let target = redirect_target(&redirect, &HostPattern::Any, tls_ports)
            .filter(|_| redirect.port.is_some());
        let action = match target {
            Some(to) => ActionDraft::Redirect {
                to,
                status: *status,
            },
            None => {
                let note = format!(
                    "it redirects to `{to}`, where no listener speaks TLS: clients get 503"
                );
                report.left(
                    point.at,
                    Concern::Routing,
                    &format!("entryPoint {}", point.name),
                    &note,
                );
                ActionDraft::not_imported("a redirect")
            }
        };
        draft.routes.push(RouteDraft {
            name: format!("{} redirect", point.name),
            origin: point.at,
            source: format!("entryPoint {}, redirections", point.name),
            paths: vec!["/**".into()],
            listeners: vec![listener_name(&point.name)],
            action,
            ..RouteDraft::default()
        });
    }
}
