//! Finds redirects that lead back to themselves, directly or over other redirects. A client would follow them in a circle.
//!
//! It follows one request of each route: with one of its methods, to the plainest path that it takes. A redirect that
//! leaves the gateway, for another host or port, ends the search.

use std::borrow::Cow;
use std::collections::HashSet;

use http::{Method, Uri};

use super::super::context::LoadContext;
use super::super::decode::PolicyConfig;
use super::super::settings::{ListenerSettings, Ruleset};
use crate::route::canonical_host::without_port;
use crate::route::pattern::Segment;
use crate::route::{
    HostPattern, PathChange, Pattern, RedirectTarget, Route, RouteAction, normalise,
};

/// The text that stands for any segment of a path, and for any label of a host.
const ANY_TEXT: &str = "x";

/// Maximum number of redirects that are followed. Browsers follow about 20.
const MAX_STEPS: usize = 16;

/// Reports each policy with a redirect that leads back to it.
pub(super) fn report_loops(cx: &mut LoadContext, ruleset: &Ruleset, policies: &[PolicyConfig]) {
    for route in &ruleset.routes {
        let RouteAction::Redirect(_) = route.action else {
            continue;
        };
        if !leads_back(ruleset, route) {
            continue;
        }
        let mut policies = policies.iter();
        let policy = policies.find(|policy| *policy.name == *route.name);
        if let Some(redirect) = policy.and_then(|policy| policy.redirect.as_ref()) {
            let message = "this redirect leads back to itself, so clients would follow it for ever";
            let help = "lead to a path or a host that another policy takes";
            cx.error(redirect.location, message, Some(help.into()));
        }
    }
}

/// A request on its way over redirects.
struct Step {
    listener_index: usize,
    host: Option<String>,
    path: String,
}

/// Whether a request of this route is sent back to it, at some listener.
fn leads_back(ruleset: &Ruleset, route: &Route) -> bool {
    let methods = route.pattern.methods();
    let method = match methods.contains(&Method::GET) {
        true => Method::GET,
        false => methods.iter().next().cloned().unwrap_or_default(),
    };
    let listeners = ruleset.listeners.iter().enumerate();
    let mut steps = listeners
        .filter(|(_, listener)| {
            listener.redirect.is_none() && route.holds_on(listener.name.as_deref())
        })
        .map(|(listener_index, _)| Step {
            listener_index,
            host: plain_host(&route.pattern),
            path: plain_path(&route.pattern),
        });
    steps.any(|first_step| {
        let mut seen_steps = HashSet::new();
        let mut step = first_step;
        for _ in 0..MAX_STEPS {
            let listener = &ruleset.listeners[step.listener_index];
            if let Some(redirect) = &listener.redirect {
                match next_step(ruleset, &redirect.target, None, step) {
                    Some(next) => step = next,
                    None => return false,
                }
                continue;
            }
            let table_index = ruleset.listener_table_index(listener.name.as_deref());
            let table = ruleset.table_at(table_index);
            let host = step.host.as_deref();
            let Some(index) = table.find(host, &method, &step.path).route_index() else {
                return false;
            };
            let is_new = seen_steps.insert((step.listener_index, index, step.host.clone()));
            if !is_new {
                return index == route.index;
            }
            let route = &ruleset.routes[index];
            let RouteAction::Redirect(redirect) = &route.action else {
                return false;
            };
            let path_change = route.path_change.as_deref();
            match next_step(ruleset, &redirect.target, path_change, step) {
                Some(next) => step = next,
                None => return false,
            }
        }
        false
    })
}

/// Where a redirect sends a request; `None` if that is not at this gateway.
fn next_step(
    ruleset: &Ruleset,
    target: &RedirectTarget,
    path_change: Option<&PathChange>,
    step: Step,
) -> Option<Step> {
    let rest = match path_change {
        Some(path_change) => path_change.rest(&step.path).ok()?,
        None => &step.path,
    };
    if let RedirectTarget::Https { port } = target {
        return Some(Step {
            listener_index: find_listener(ruleset, true, port.unwrap_or(443))?,
            path: normalise(rest).map_or_else(|_| "/".into(), Cow::into_owned),
            host: step.host,
        });
    }
    let location = target.location(step.host.as_deref(), rest, None)?;
    let uri: Uri = location.parse().ok()?;
    let path = normalise(uri.path()).ok()?.into_owned();
    let Some(authority) = uri.authority() else {
        return Some(Step { path, ..step });
    };
    let is_https = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    Some(Step {
        listener_index: find_listener(ruleset, is_https, port)?,
        host: Some(without_port(authority.as_str()).to_owned()),
        path,
    })
}

/// The listener at a port, with or without TLS.
fn find_listener(ruleset: &Ruleset, is_tls: bool, port: u16) -> Option<usize> {
    let is_at_port = |listener: &ListenerSettings| {
        listener.certificates.is_empty() != is_tls
            && listener
                .address
                .tcp()
                .is_some_and(|address| address.port() == port)
    };
    ruleset.listeners.iter().position(is_at_port)
}

/// A host that the pattern takes; `None` if it takes requests without one.
fn plain_host(pattern: &Pattern) -> Option<String> {
    match pattern.host() {
        HostPattern::Any => None,
        HostPattern::Exact(name) => Some(name.to_string()),
        HostPattern::Below(name) => Some(format!("{ANY_TEXT}.{name}")),
    }
}

/// A path that the pattern takes.
fn plain_path(pattern: &Pattern) -> String {
    let segments = pattern.segments().iter();
    let texts = segments.map(|segment| match segment {
        Segment::Literal(text) => text,
        Segment::One(_) | Segment::Rest => ANY_TEXT,
    });
    let path: String = texts.flat_map(|text| ["/", text]).collect();
    match path.is_empty() {
        true => "/".into(),
        false => path,
    }
}
