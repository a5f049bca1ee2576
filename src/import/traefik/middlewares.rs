//! Middlewares: those of all providers by their full names, and what a chain of them adds up to.

use std::collections::HashMap;

use super::fields::fields;
use super::headers::read_headers;
use super::limits::{LimitResult, read_in_flight, read_rate_limit};
use super::names::{NamedObject, Provider};
use super::paths::{read_path_change, read_redirect_regex};
use super::rules::{ChainContext, RedirectRule, RouteRules};
use crate::import::budget::TooMuchWork;
use crate::import::documents::InputValue;
use crate::import::field_edits::EditedHead;
use crate::import::nginx::variables::parse_network;
use crate::import::report::{Concern, ImportReport, Origin};

/// Maximum number of middlewares of a router, those of chains included.
pub const MAX_MIDDLEWARES: usize = 64;
/// Maximum number of networks of a list, which each policy repeats.
const MAX_NETWORKS: usize = 256;

/// All middlewares by their full names.
#[derive(Debug, Default)]
pub struct Middlewares<'v> {
    named: HashMap<String, Middleware<'v>>,
}

#[derive(Debug)]
struct Middleware<'v> {
    named: NamedObject<'v>,
    /// Whether another one has this name, so that Traefik has neither.
    is_ambiguous: bool,
    is_used: bool,
    /// How much work it is to read it.
    weight: usize,
}

impl<'v> Middlewares<'v> {
    /// Adds a middleware.
    pub fn add(&mut self, named: NamedObject<'v>) {
        let name = named.name.clone();
        let is_ambiguous = self.named.contains_key(&name);
        let middleware = self.named.entry(name).or_insert_with(|| Middleware {
            weight: named.value.weight(),
            named,
            is_ambiguous,
            is_used: false,
        });
        middleware.is_ambiguous = is_ambiguous;
    }

    /// What middlewares add up to, in order. `at` is the router, called `text`.
    ///
    /// # Errors
    ///
    /// They are too much to read again.
    pub fn resolve(
        &mut self,
        names: &[String],
        at: Origin,
        text: &str,
        cx: &mut ChainContext<'_>,
    ) -> Result<RouteRules, TooMuchWork> {
        let mut rules = RouteRules::default();
        let mut path: Vec<String> = Vec::new();
        let mut count = 0;
        self.walk(names, &mut path, &mut count, &mut rules, (at, text), cx)?;
        Ok(rules)
    }

    fn walk(
        &mut self,
        names: &[String],
        path: &mut Vec<String>,
        count: &mut usize,
        rules: &mut RouteRules,
        user: (Origin, &str),
        cx: &mut ChainContext<'_>,
    ) -> Result<(), TooMuchWork> {
        let (at, text) = user;
        for name in names {
            // Behind a redirect of all requests nothing is reached.
            if rules.redirect.is_some() {
                self.mark_used(name);
                let note = format!(
                    "middleware {name} is behind a redirect of all requests, which never reach it"
                );
                cx.report.taken(at, Concern::Routing, text, &note);
                continue;
            }
            *count += 1;
            if *count > MAX_MIDDLEWARES {
                let note = format!(
                    "more than {MAX_MIDDLEWARES} middlewares are not read: clients get 503"
                );
                cx.report.left(at, Concern::Routing, text, &note);
                rules.block("too many middlewares");
                return Ok(());
            }
            let Some(middleware) = self.named.get_mut(name).filter(|found| !found.is_ambiguous)
            else {
                self.mark_used(name);
                let note = format!(
                    "its middleware {name} is not in the files, or is there twice. It may deny access: clients get 503"
                );
                cx.report.left(at, Concern::Routing, text, &note);
                rules.block("a middleware that is not defined");
                continue;
            };
            middleware.is_used = true;
            cx.budget.read(middleware.weight)?;
            let NamedObject {
                provider,
                value,
                at: defined_at,
                ..
            } = middleware.named.clone();
            let mut kinds = fields(value).filter(|(_, _, value)| !value.is_list());
            let Some((kind, _, settings)) = kinds.next() else {
                cx.report.left(
                    defined_at,
                    Concern::Routing,
                    &format!("middleware {name}"),
                    "it has no kind: clients get 503",
                );
                rules.block("a middleware without a kind");
                continue;
            };
            if kinds.next().is_some() {
                let note = "it has several kinds, and Traefik refuses that: clients get 503";
                cx.report.left(
                    defined_at,
                    Concern::Routing,
                    &format!("middleware {name}"),
                    note,
                );
                rules.block("a middleware of several kinds");
                continue;
            }
            if kind != "chain" {
                read_middleware(kind, name, settings, defined_at, rules, cx);
                continue;
            }
            let shown = format!("chain {name}");
            if path.contains(name) {
                cx.report.left(
                    defined_at,
                    Concern::Routing,
                    &shown,
                    "it contains itself: clients get 503",
                );
                rules.block("a chain that contains itself");
                continue;
            }
            cx.report.taken(defined_at, Concern::Routing, &shown, "");
            let inner = references(&provider, settings.get("middlewares"));
            path.push(name.clone());
            self.walk(&inner, path, count, rules, (defined_at, &shown), cx)?;
            path.pop();
        }
        Ok(())
    }

    fn mark_used(&mut self, name: &str) {
        if let Some(middleware) = self.named.get_mut(name) {
            middleware.is_used = true;
        }
    }

    /// Reports middlewares that no router has.
    pub fn report_unused(&self, report: &mut ImportReport) {
        let mut unused: Vec<&Middleware<'_>> = self
            .named
            .values()
            .filter(|middleware| !middleware.is_used)
            .collect();
        unused.sort_by_key(|middleware| (middleware.named.at, &middleware.named.name));
        for middleware in unused {
            let text = format!("middleware {}", middleware.named.name);
            report.left(
                middleware.named.at,
                Concern::Other,
                &text,
                "no router has it",
            );
        }
    }
}

/// Reads a middleware that is no chain.
fn read_middleware(
    kind: &str,
    name: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    cx: &mut ChainContext<'_>,
) {
    let text = format!("{kind} {name}");
    let short = name.split('@').next().unwrap_or(name);
    match kind {
        "rateLimit" => {
            let result = read_rate_limit(short, value, at, &rules.request, cx);
            add_limits(result, rules);
        }
        "inFlightReq" => {
            let result = read_in_flight(short, value, at, &rules.request, cx);
            add_limits(result, rules);
        }
        "ipAllowList" | "ipWhiteList" => read_allow_list(&text, value, at, rules, cx.report),
        "basicAuth" | "digestAuth" => {
            let note = "passwords of such files are not read: clients get 503. Write `identity: { user: { api_keys: FILE } }` and \
                        `require: user`";
            cx.report.left(at, Concern::Routing, &text, note);
            rules.block("a password");
        }
        "forwardAuth" => {
            let note = "tollgate asks nobody whether to admit a request: clients get 503. Write `identity: user` with `jwt` and \
                        `require: user`";
            cx.report.left(at, Concern::Routing, &text, note);
            rules.block("forwardAuth");
        }
        "redirectScheme" => read_redirect_scheme(&text, value, at, rules, cx),
        "redirectRegex" => read_redirect_regex(&text, value, at, rules, cx),
        "stripPrefix" | "addPrefix" | "stripPrefixRegex" | "replacePath" | "replacePathRegex" => {
            read_path_change(kind, &text, value, at, rules, cx.report);
        }
        "headers" => {
            cx.report.taken(at, Concern::Other, &text, "");
            read_headers(value, rules, cx.is_tls, cx.report);
        }
        "buffering" => read_buffering(&text, value, at, rules, cx.report),
        "compress" => {
            rules.is_compressed = true;
            let note = "all codings and media types that tollgate compresses";
            cx.report.changed(at, Concern::Other, &text, note);
        }
        "passTLSClientCert" => {
            let note = "write `request: { set: { x-client: \"${tls.subject}\" } }`; what clients send under its names is removed";
            cx.report.left(at, Concern::Other, &text, note);
            for field in [
                "x-forwarded-tls-client-cert",
                "x-forwarded-tls-client-cert-info",
            ] {
                if rules
                    .request
                    .edit(EditedHead::Request, field, None)
                    .is_err()
                {
                    rules.block("too many changed headers");
                }
            }
        }
        "circuitBreaker" => {
            cx.report.left(
                at,
                Concern::Other,
                &text,
                "write `eject` at the upstream; it has no conditions",
            );
        }
        "retry" => cx.report.left(
            at,
            Concern::Other,
            &text,
            "requests are not repeated; `eject` leaves out failing servers",
        ),
        "errors" => cx
            .report
            .left(at, Concern::Other, &text, "write `errors` with files"),
        "contentType" | "grpcWeb" => {
            cx.report
                .left(at, Concern::Other, &text, "it has no counterpart")
        }
        _ => {
            let note = "it is not known here, and may deny access: clients get 503";
            cx.report.left(at, Concern::Routing, &text, note);
            rules.block("a middleware that is not known");
        }
    }
}

fn add_limits(result: LimitResult, rules: &mut RouteRules) {
    match result {
        // Of a middleware that a chain has twice the second counts what the first counts.
        LimitResult::Limits(limits) => {
            let is_there = |limit: &crate::import::model::LimitDraft| {
                rules
                    .limits
                    .iter()
                    .any(|other| other.origins == limit.origins && other.name == limit.name)
            };
            let new: Vec<_> = limits
                .into_iter()
                .filter(|limit| !is_there(limit))
                .collect();
            rules.limits.extend(new);
        }
        LimitResult::Blocked(reason) => rules.block(&reason),
    }
}

fn read_allow_list(
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    report: &mut ImportReport,
) {
    let strategy = value.get("ipStrategy");
    let has_forwarded = strategy.is_some_and(|strategy| {
        let has_depth = strategy
            .get("depth")
            .is_some_and(|depth| depth.text() != Some("0"));
        has_depth || strategy.get("excludedIPs").is_some()
    });
    if has_forwarded {
        let note = "it looks at addresses that a proxy tells: clients get 503. Write `identity: { ip: { trusted_proxies: [...] } }` \
                    and `allow: { ip: [...] }`";
        report.left(at, Concern::Routing, text, note);
        return rules.block("an allow list by forwarded addresses");
    }
    let sources = value
        .get("sourceRange")
        .map(InputValue::items_or_self)
        .unwrap_or_default();
    let networks: Option<Vec<_>> = sources
        .iter()
        .map(|item| parse_network(item.text()?.trim()))
        .collect();
    match networks.filter(|networks| !networks.is_empty()) {
        Some(networks) if networks.len() > MAX_NETWORKS => {
            let note = "it has too many networks for each policy: clients get 503. Write them into a file and `allow: { ip: FILE }`";
            report.left(at, Concern::Routing, text, note);
            rules.block("an allow list");
        }
        Some(networks) => {
            report.taken(at, Concern::Routing, text, "");
            rules.allow(networks);
        }
        None => {
            report.left(
                at,
                Concern::Routing,
                text,
                "its networks cannot be read: clients get 503",
            );
            rules.block("an allow list");
        }
    }
    for (field, at, _) in fields(value) {
        match field {
            "sourceRange" | "ipStrategy" => {}
            "rejectStatusCode" => {
                report.changed(at, Concern::Other, field, "other clients get 403")
            }
            _ => report.left(at, Concern::Routing, field, "it is not read"),
        }
    }
}

fn read_redirect_scheme(
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    cx: &mut ChainContext<'_>,
) {
    let scheme = value.text_of("scheme").unwrap_or("");
    if !matches!(scheme, "http" | "https") {
        cx.report.left(
            at,
            Concern::Routing,
            text,
            "it has no scheme that clients use: clients get 503",
        );
        return rules.block("a redirect");
    }
    let port = match value.text_of("port") {
        None | Some("") => None,
        Some(port) => match port.parse::<u16>() {
            Ok(port) => Some(port),
            Err(_) => {
                cx.report.left(
                    at,
                    Concern::Routing,
                    text,
                    "its port is no number: clients get 503",
                );
                return rules.block("a redirect");
            }
        },
    };
    if (scheme == "https") == cx.is_tls {
        let usual = if cx.is_tls { 443 } else { 80 };
        let is_there =
            port.is_none_or(|port| port == usual || cx.ports.iter().all(|own| *own == port));
        if is_there {
            return cx.report.taken(at, Concern::Routing, text, "");
        }
        let note = "it redirects to another port, and only requests that name this port pass: clients get 503";
        cx.report.left(at, Concern::Routing, text, note);
        return rules.block("a redirect to another port");
    }
    cx.report.taken(at, Concern::Routing, text, "");
    rules.redirect = Some(RedirectRule {
        scheme: scheme.to_owned(),
        host: None,
        port,
        status: if value.get("permanent").is_some_and(InputValue::is_true) {
            308
        } else {
            307
        },
    });
}

fn read_buffering(
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    report: &mut ImportReport,
) {
    report.taken(at, Concern::Routing, text, "");
    for (field, at, value) in fields(value) {
        let shown = format!("{field}: {}", value.text().unwrap_or(""));
        match (field, value.number()) {
            ("maxRequestBodyBytes", Some(0)) => {
                report.taken(at, Concern::Routing, &shown, "0 is no limit")
            }
            ("maxRequestBodyBytes", Some(bytes)) => {
                rules.max_body = Some(rules.max_body.map_or(bytes, |other| other.min(bytes)));
                report.taken(at, Concern::Routing, &shown, "");
            }
            ("maxRequestBodyBytes", None) => {
                report.left(
                    at,
                    Concern::Routing,
                    &shown,
                    "it is no size: clients get 503",
                );
                rules.block("a size of bodies");
            }
            ("maxResponseBodyBytes", number) if number != Some(0) => {
                report.left(
                    at,
                    Concern::Limits,
                    &shown,
                    "responses may have any size: clients get 503",
                );
                rules.block("a size of responses");
            }
            _ => report.left(at, Concern::Other, &shown, "bodies are not buffered"),
        }
    }
}

/// The full names of a list of references.
pub fn references(provider: &Provider, list: Option<InputValue<'_>>) -> Vec<String> {
    let items = list.map(InputValue::items_or_self).unwrap_or_default();
    items
        .into_iter()
        .map(|item| provider.reference(item).unwrap_or_else(|| "?".into()))
        .collect()
}
