//! `upstream` and `proxy_pass`: the servers behind, and the path that they get.

use std::collections::HashMap;

use rustls::pki_types::ServerName;

use super::syntax::Directive;
use super::variables::{TextPart, split_text, variable_names};
use crate::import::model::{ImportDraft, UpstreamDraft};
use crate::import::report::{Concern, ImportReport};
use crate::route::canonical_host::canonical_host;

/// Maximum number of servers of an upstream.
const MAX_SERVERS: usize = 1_000;

/// A group of servers by its name in nginx.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Hosts with ports, or `unix:` and a path, with weights.
    servers: Vec<(String, u32)>,
    balance: String,
}

/// The groups of `upstream` blocks.
#[derive(Debug, Default)]
pub struct UpstreamTable {
    groups: HashMap<String, Group>,
}

/// Where `proxy_pass` leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassTarget {
    /// The name of the upstream in the draft.
    pub upstream: String,
    /// The path that takes the place of the location's; `None` if requests keep theirs.
    pub path: Option<String>,
}

/// What a location says of the servers behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassSettings {
    /// The value of `proxy_set_header Host`; `None` for the default of nginx, the name in `proxy_pass`.
    pub host: Option<String>,
    /// `proxy_connect_timeout` in milliseconds.
    pub connect_millis: Option<u64>,
    /// `proxy_read_timeout` in milliseconds.
    pub read_millis: Option<u64>,
}

impl UpstreamTable {
    /// Adds the group of an `upstream` block.
    pub fn add(
        &mut self,
        directive: &Directive,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) {
        let mut group = Group::default();
        report.taken(directive.origin, Concern::Routing, &directive.text(), "");
        for child in directive.children() {
            let (at, text) = (child.origin, child.text());
            match child.name.as_str() {
                "server" => read_server(child, &mut group, report),
                "least_conn" => {
                    group.balance = "least_requests".into();
                    report.taken(at, Concern::Routing, &text, "");
                }
                "ip_hash" => {
                    group.balance = "{ hash: ip }".into();
                    let note =
                        "the whole address counts; nginx takes the first three numbers of IPv4";
                    report.changed(at, Concern::Routing, &text, note);
                }
                "hash" => read_hash(child, &mut group, draft, report),
                "keepalive" | "keepalive_timeout" | "keepalive_requests" | "keepalive_time"
                | "zone" => {
                    report.taken(
                        at,
                        Concern::Other,
                        &text,
                        "connections to servers are kept and shared anyway",
                    );
                }
                "random" => {
                    group.balance = "least_requests".into();
                    let note = "of two servers drawn by weight, the one with fewer open requests";
                    report.changed(at, Concern::Routing, &text, note);
                }
                "sticky" | "sticky_cookie_insert" => {
                    let note = "write `balance: { hash: NAME }` with an identity of the cookie";
                    report.left(at, Concern::Routing, &text, note);
                }
                _ => report.left(
                    at,
                    Concern::Other,
                    &text,
                    "it has no counterpart in an upstream",
                ),
            }
        }
        if group.servers.len() > MAX_SERVERS {
            group.servers.truncate(MAX_SERVERS);
            let note = format!("only the first {MAX_SERVERS} servers are written");
            report.left(directive.origin, Concern::Routing, &directive.text(), &note);
        }
        self.groups.insert(directive.argument(0).to_owned(), group);
    }

    /// The target of a `proxy_pass` or `grpc_pass`; an upstream is added to the draft.
    ///
    /// # Errors
    ///
    /// Why there is no such upstream.
    pub fn resolve(
        &self,
        directive: &Directive,
        variables: &HashMap<String, String>,
        settings: &PassSettings,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) -> Result<PassTarget, String> {
        let is_grpc = directive.name == "grpc_pass";
        let url = substitute(directive.argument(0), variables)?;
        let (scheme, rest) = match url.split_once("://") {
            Some(("http" | "grpc", rest)) => ("http", rest),
            Some(("https" | "grpcs", rest)) => ("https", rest),
            None if is_grpc => ("http", url.as_str()),
            _ => return Err("its URL has no scheme that tollgate speaks".into()),
        };
        let (authority, path) = split_authority(rest);
        let group = self.groups.get(authority);
        let mut upstream = UpstreamDraft {
            http2: is_grpc,
            origin: directive.origin,
            ..UpstreamDraft::default()
        };
        match group {
            Some(group) => {
                upstream.balance.clone_from(&group.balance);
                for (server, weight) in &group.servers {
                    upstream
                        .servers
                        .push((server_url(scheme, server)?, *weight));
                }
            }
            None => upstream.servers.push((server_url(scheme, authority)?, 1)),
        }
        if upstream.servers.is_empty() {
            return Err(format!("no server of `{authority}` is left"));
        }
        let is_tls = scheme == "https"
            && upstream
                .servers
                .iter()
                .all(|(url, _)| url.starts_with("https:"));
        if scheme == "https" && !is_tls {
            return Err("a Unix socket is spoken to without TLS".into());
        }
        if is_tls {
            let note = "certificates of servers are verified, which nginx does not do by default; for your own authority write \
                        `tls: { roots: FILE }`";
            report.changed(directive.origin, Concern::Routing, &directive.text(), note);
        }
        self.set_host(
            directive,
            settings,
            authority,
            group.is_some(),
            &mut upstream,
            report,
        );
        let timeouts: Vec<String> = [
            ("connect", settings.connect_millis),
            ("first_byte", settings.read_millis),
        ]
        .into_iter()
        .filter_map(|(name, millis)| Some(format!("{name}: {}ms", millis?)))
        .collect();
        if !timeouts.is_empty() {
            upstream
                .fields
                .push(("timeouts", format!("{{ {} }}", timeouts.join(", "))));
        }
        let hint = match group.is_some() || authority.starts_with("unix:") {
            true => authority.trim_start_matches("unix:").to_owned(),
            false => format!("to {authority}"),
        };
        Ok(PassTarget {
            upstream: draft.add_upstream(&hint, upstream),
            path,
        })
    }

    fn set_host(
        &self,
        directive: &Directive,
        settings: &PassSettings,
        authority: &str,
        is_group: bool,
        upstream: &mut UpstreamDraft,
        report: &mut ImportReport,
    ) {
        let wanted = match settings.host.as_deref() {
            Some("$host" | "$http_host" | "$host:$server_port" | "$host:$proxy_port") => return,
            Some("$proxy_host") | None if is_group => authority.to_owned(),
            Some("$proxy_host") | None => {
                upstream.host = (!authority.starts_with("unix:")).then(|| "upstream".into());
                return;
            }
            Some(host) => host.to_owned(),
        };
        // A name without a dot could be one of the words of the field.
        let host = match wanted.contains(['.', ':']) {
            true => wanted.clone(),
            false => format!("{wanted}."),
        };
        match canonical_host(&host) {
            Some(_) if !wanted.contains('$') => upstream.host = Some(host),
            _ => {
                let note = format!("`{wanted}` is no host; servers get the client's host");
                report.changed(directive.origin, Concern::Routing, &directive.text(), &note);
            }
        }
    }
}

/// Replaces variables whose value is known. The URI of the request at the end is what happens anyway.
fn substitute(text: &str, variables: &HashMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let parts = split_text(text);
    let names = variable_names(&parts);
    if text.len() > 4_096 {
        return Err("its URL is too long".into());
    }
    for part in &parts {
        match part {
            TextPart::Literal(text) => out.push_str(text),
            TextPart::Variable(name) if variables.contains_key(name) => {
                out.push_str(variables.get(name).map_or("", String::as_str));
            }
            TextPart::Variable(name)
                if name == "request_uri" || name == "is_args" || name == "args" => {}
            TextPart::Variable(name)
                if name == "uri" && names.ends_with(&["uri", "is_args", "args"]) => {}
            TextPart::Variable(name) => {
                return Err(format!(
                    "`${name}` chooses the server for each request; write an upstream for each server, and a policy for each host or path"
                ));
            }
        }
    }
    Ok(out)
}

/// Host and port, or `unix:` and the path of a socket; and the path behind them.
fn split_authority(rest: &str) -> (&str, Option<String>) {
    if let Some(socket) = rest.strip_prefix("unix:") {
        return match socket.split_once(':') {
            Some((path, uri)) => (
                rest.get(..path.len() + 5).unwrap_or(rest),
                Some(uri.to_owned()),
            ),
            None => (rest, None),
        };
    }
    match rest.find('/') {
        Some(slash) => {
            let (authority, path) = rest.split_at(slash);
            (authority, Some(path.to_owned()))
        }
        None => (rest, None),
    }
}

/// The URL of a server as upstreams have it.
///
/// # Errors
///
/// The text is no host with a port, and no socket.
pub fn server_url(scheme: &str, server: &str) -> Result<String, String> {
    let fail = || {
        format!(
            "`{}` is no server",
            crate::import::report::printable(server, 60)
        )
    };
    if let Some(path) = server.strip_prefix("unix:") {
        let is_path = path.starts_with('/') && !path.ends_with('/') && path.len() <= 107;
        return match is_path && path.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(format!("unix:{path}")),
            false => Err(fail()),
        };
    }
    let authority: http::uri::Authority = server.parse().map_err(|_| fail())?;
    // The name of a server with TLS must be one that a certificate can have.
    let is_name = |host: &str| ServerName::try_from(host.trim_matches(['[', ']'])).is_ok();
    let is_valid = !server.contains('@')
        && (scheme != "https" || is_name(authority.host()))
        && !authority.host().trim_matches(['[', ']']).is_empty()
        && (authority.as_str() == authority.host()
            || authority.port_u16().is_some_and(|port| port > 0));
    match is_valid {
        true => Ok(format!("{scheme}://{server}")),
        false => Err(fail()),
    }
}

fn read_server(directive: &Directive, group: &mut Group, report: &mut ImportReport) {
    let (at, text) = (directive.origin, directive.text());
    let server = directive.argument(0);
    if let Err(reason) = server_url("http", server) {
        return report.left(at, Concern::Routing, &text, &reason);
    }
    let has = |word: &str| directive.arguments.iter().any(|argument| argument == word);
    if has("down") {
        let note = "it gets no requests in nginx, so it is not written";
        return report.taken(at, Concern::Routing, &text, note);
    }
    if has("backup") {
        let note = "a server for the time in which no other one is well has no counterpart; it is not written";
        return report.left(at, Concern::Routing, &text, note);
    }
    let weight = directive
        .parameter("weight")
        .map_or(Some(1), |weight| weight.parse::<u32>().ok());
    let weight = weight.unwrap_or(1);
    report.taken(at, Concern::Routing, &text, "");
    if !(1..=256).contains(&weight) {
        report.changed(at, Concern::Routing, &text, "a weight is from 1 to 256");
    }
    if directive.parameter("max_fails").is_some() || directive.parameter("fail_timeout").is_some() {
        let note = "a server rests after three failures in a row, for 10 s at first; `eject` of the upstream changes that";
        report.changed(at, Concern::Routing, &text, note);
    }
    if directive.parameter("max_conns").is_some() {
        let note =
            "a bound for each server has no counterpart; `max_requests` bounds the whole upstream";
        report.left(at, Concern::Limits, &text, note);
    }
    group
        .servers
        .push((server.to_owned(), weight.clamp(1, 256)));
}

fn read_hash(
    directive: &Directive,
    group: &mut Group,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) {
    let (at, text) = (directive.origin, directive.text());
    let parts = split_text(directive.argument(0));
    if let [TextPart::Variable(name)] = parts.as_slice()
        && super::variables::is_address(name)
    {
        group.balance = "{ hash: ip }".into();
        return report.taken(at, Concern::Routing, &text, "");
    }
    let _ = draft;
    let note = "servers can be chosen by `ip`, `user`, `token` or `plan`: write `balance: { hash: user }`; here they take turns";
    report.left(at, Concern::Routing, &text, note);
}
