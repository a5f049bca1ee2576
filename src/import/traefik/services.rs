//! Services as upstreams.

use std::collections::{HashMap, HashSet};

use super::durations::{duration_text, parse_nanos};
use super::fields::fields;
use super::names::{NamedObject, Provider};
use crate::import::documents::InputValue;
use crate::import::model::UpstreamDraft;
use crate::import::nginx::upstream::server_url;
use crate::import::numbers::gcd;
use crate::import::report::{Concern, ImportReport, Origin};
use crate::import::yaml_text::gateway_scalar;
use crate::route::canonical_host::canonical_host;

/// Maximum number of services within a service.
const MAX_PARTS: usize = 64;
/// The largest weight of a server.
const MAX_WEIGHT: u64 = 256;
/// Maximum number of servers of an upstream.
pub const MAX_SERVERS: usize = 500;

/// All services by their full names.
#[derive(Debug, Default)]
pub struct Services<'v> {
    named: HashMap<String, (NamedObject<'v>, bool)>,
    used: HashSet<String>,
    /// What services of routers have become.
    resolved: HashMap<String, ServiceResult>,
}

/// A service as an upstream, or why it is none.
pub type ServiceResult = Result<UpstreamDraft, String>;

impl<'v> Services<'v> {
    /// Adds a service. Of two with one name neither is served.
    pub fn add(&mut self, named: NamedObject<'v>) {
        let name = named.name.clone();
        let is_ambiguous = self.named.contains_key(&name);
        let entry = self.named.entry(name).or_insert((named, false));
        entry.1 = is_ambiguous;
    }

    /// The upstream of the service with this full name.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn resolve(&mut self, name: &str, report: &mut ImportReport) -> ServiceResult {
        if let Some(known) = self.resolved.get(name) {
            return known.clone();
        }
        let mut budget = MAX_PARTS;
        let upstream = self.resolve_within(name, &mut budget, report);
        let upstream = upstream.and_then(checked_hosts);
        self.resolved.insert(name.to_owned(), upstream.clone());
        upstream
    }

    fn resolve_within(
        &mut self,
        name: &str,
        budget: &mut usize,
        report: &mut ImportReport,
    ) -> ServiceResult {
        if name.ends_with("@internal") {
            return Err(format!(
                "`{name}` is part of Traefik; operators use the listener `admin` here"
            ));
        }
        if *budget == 0 {
            return Err("its services contain each other, or there are too many".into());
        }
        *budget -= 1;
        self.used.insert(name.to_owned());
        let found = self
            .named
            .get(name)
            .filter(|(_, is_ambiguous)| !is_ambiguous);
        let Some((named, _)) = found else {
            return Err(format!(
                "its service {name} is not in the files, or is there twice"
            ));
        };
        let named = named.clone();
        let mut kinds = fields(named.value);
        let Some((kind, at, value)) = kinds.next() else {
            return Err(format!("its service {name} has no kind"));
        };
        if let Some((field, ..)) = kinds.next() {
            return Err(format!("`{field}` of its service {name} is not read"));
        }
        let text = format!("{kind} {name}");
        let upstream = match kind {
            "loadBalancer" => read_load_balancer(&text, value, at, report),
            "weighted" => self.read_weighted(&text, value, at, &named.provider, budget, report),
            "mirroring" | "failover" => {
                let main = value
                    .get("service")
                    .and_then(|main| named.provider.reference(main));
                let main = main.ok_or_else(|| format!("{text} names no service"))?;
                let note = match kind {
                    "mirroring" => "requests are not copied to other services",
                    _ => "the other service is not used; add its servers to the upstream",
                };
                report.left(at, Concern::Other, &text, note);
                self.resolve_within(&main, budget, report)
            }
            _ => Err(format!("{text} is no kind of service that is known")),
        }?;
        Ok(upstream)
    }

    fn read_weighted(
        &mut self,
        text: &str,
        value: InputValue<'_>,
        at: Origin,
        provider: &Provider,
        budget: &mut usize,
        report: &mut ImportReport,
    ) -> ServiceResult {
        let mut parts = Vec::new();
        for item in value
            .get("services")
            .into_iter()
            .flat_map(InputValue::items)
        {
            let name = provider
                .reference(item)
                .ok_or_else(|| format!("{text} has a service without a name"))?;
            let weight = item.get("weight").map_or(Some(1), InputValue::number);
            let weight = weight.ok_or_else(|| format!("{text} has a weight that is no number"))?;
            if weight > 0 {
                parts.push((self.resolve_within(&name, budget, report)?, weight));
            }
        }
        report.taken(at, Concern::Routing, text, "");
        if value.get("sticky").is_some() {
            report.left(
                at,
                Concern::Other,
                text,
                "clients do not stay at one server; write `balance: { hash: ip }`",
            );
        }
        join_weighted(parts, at).ok_or_else(|| {
            format!("the services of {text} differ in more than their servers, or their weights have no counterpart")
        })
    }

    /// Reports services that no router has.
    pub fn report_unused(&self, report: &mut ImportReport) {
        let is_unused =
            |(name, _): &(&String, &(NamedObject<'_>, bool))| !self.used.contains(*name);
        let mut unused: Vec<_> = self.named.iter().filter(is_unused).collect();
        unused.sort_by_key(|(name, (named, _))| (named.at, *name));
        for (name, (named, _)) in unused {
            report.left(
                named.at,
                Concern::Other,
                &format!("service {name}"),
                "no router has it",
            );
        }
    }
}

/// The same upstream, unless its servers have different hosts and get these.
///
/// # Errors
///
/// They do.
pub fn checked_hosts(upstream: UpstreamDraft) -> ServiceResult {
    let host = |url: &str| url.split("://").nth(1).map(str::to_owned);
    let mut hosts = upstream.servers.iter().map(|(url, _)| host(url));
    let first = hosts.next();
    if upstream.host.is_some() && hosts.any(|other| Some(other) != first) {
        return Err("its servers have different hosts, of which a request could get any: write an upstream for each".into());
    }
    Ok(upstream)
}

/// One upstream of the servers of all parts, each with its share; `None` if it is no such upstream.
pub fn join_weighted(parts: Vec<(UpstreamDraft, u64)>, at: Origin) -> Option<UpstreamDraft> {
    let (first, _) = parts.first()?;
    let count: usize = parts.iter().map(|(part, _)| part.servers.len()).sum();
    if count > MAX_SERVERS {
        return None;
    }
    let mut joined = UpstreamDraft {
        servers: Vec::new(),
        origin: at,
        ..first.clone()
    };
    let is_alike = |(part, _): &(UpstreamDraft, u64)| {
        part.host == joined.host
            && part.http2 == joined.http2
            && part.balance == joined.balance
            && part.fields == joined.fields
    };
    if !parts.iter().all(is_alike) {
        return None;
    }
    // The share of a server is that of its service, divided by the servers' weights there.
    let mut common = 1_u64;
    for (part, _) in &parts {
        let total: u64 = part
            .servers
            .iter()
            .map(|(_, weight)| u64::from(*weight))
            .sum();
        common = common.checked_mul(total / gcd(common, total).max(1))?;
        if common > 1 << 32 {
            return None;
        }
    }
    let mut shares: Vec<(String, u64)> = Vec::new();
    for (part, weight) in &parts {
        let total: u64 = part
            .servers
            .iter()
            .map(|(_, weight)| u64::from(*weight))
            .sum();
        for (url, own) in &part.servers {
            let share = weight
                .checked_mul(u64::from(*own))?
                .checked_mul(common / total.max(1))?;
            match shares.iter_mut().find(|(other, _)| other == url) {
                Some((_, other)) => *other = other.checked_add(share)?,
                None => shares.push((url.clone(), share)),
            }
        }
    }
    let divisor = shares
        .iter()
        .fold(0, |divisor, (_, share)| gcd(divisor, *share))
        .max(1);
    for (url, share) in shares {
        let weight = u32::try_from(share / divisor)
            .ok()
            .filter(|_| share / divisor <= MAX_WEIGHT)?;
        joined.servers.push((url, weight));
    }
    Some(joined)
}

fn read_load_balancer(
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    report: &mut ImportReport,
) -> ServiceResult {
    let mut upstream = UpstreamDraft {
        origin: at,
        ..UpstreamDraft::default()
    };
    let mut urls = HashSet::new();
    for server in value.get("servers").into_iter().flat_map(InputValue::items) {
        let url = server
            .text_of("url")
            .or_else(|| server.text())
            .unwrap_or("");
        if server
            .get("preservePath")
            .is_some_and(|kept| kept.text() != Some("false"))
        {
            return Err(format!(
                "{text} keeps the path of a server's URL, which has no counterpart"
            ));
        }
        let weight = server.get("weight").map_or(Some(1), InputValue::number);
        if weight == Some(0) {
            report.taken(
                server.origin(),
                Concern::Routing,
                &format!("server {url}"),
                "its weight is 0",
            );
            continue;
        }
        let weight = weight
            .filter(|weight| *weight <= MAX_WEIGHT)
            .and_then(|weight| u32::try_from(weight).ok());
        let weight = weight.ok_or_else(|| format!("{text} has a weight beyond {MAX_WEIGHT}"))?;
        let (url, is_h2) =
            read_url(url).ok_or_else(|| format!("{text} has a server that is no URL"))?;
        upstream.http2 |= is_h2;
        report.taken(
            server.origin(),
            Concern::Routing,
            &format!("server {url}"),
            "",
        );
        if upstream.servers.len() >= MAX_SERVERS {
            return Err(format!("{text} has more than {MAX_SERVERS} servers"));
        }
        if urls.insert(url.clone()) {
            upstream.servers.push((url, weight));
        }
    }
    if upstream.servers.is_empty() {
        return Err(format!("{text} has no server"));
    }
    report.taken(at, Concern::Routing, text, "");
    read_settings(value, &mut upstream, report)?;
    Ok(upstream)
}

/// The address of a server, without a path, which Traefik does not use; and whether it speaks HTTP/2 without TLS.
fn read_url(url: &str) -> Option<(String, bool)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
        _ => (authority, None),
    };
    canonical_host(host)?;
    let (scheme, is_h2) = match scheme {
        "http" => ("http", false),
        "h2c" => ("http", true),
        "https" => ("https", false),
        _ => return None,
    };
    let default = if scheme == "https" { 443 } else { 80 };
    let url = server_url(scheme, &format!("{host}:{}", port.unwrap_or(default))).ok()?;
    Some((url, is_h2))
}

/// Reads what a load balancer, or a service of an IngressRoute, says beside its servers.
///
/// # Errors
///
/// A field that is not known, and that may deny requests.
pub fn read_settings(
    value: InputValue<'_>,
    upstream: &mut UpstreamDraft,
    report: &mut ImportReport,
) -> Result<(), String> {
    for (field, at, value) in fields(value) {
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        match field {
            "servers" | "name" | "namespace" | "port" | "kind" | "weight" | "scheme" => {}
            "passHostHeader" => {
                if !value.is_true() {
                    upstream.host = Some("upstream".into());
                }
                report.taken(at, Concern::Routing, &text, "");
            }
            "healthCheck" => read_health(value, at, upstream, report),
            "strategy" => match value.text() {
                Some("p2c" | "leasttime") => {
                    upstream.balance = "least_requests".into();
                    report.changed(
                        at,
                        Concern::Routing,
                        &text,
                        "the server with fewer open requests of two",
                    );
                }
                Some("wrr" | "RoundRobin") => report.taken(at, Concern::Routing, &text, ""),
                _ => report.left(at, Concern::Other, &text, "write `balance`"),
            },
            "sticky" => {
                report.left(
                    at,
                    Concern::Other,
                    "sticky",
                    "clients do not stay at one server; write `balance: { hash: ip }`",
                );
            }
            "serversTransport" => {
                report.left(
                    at,
                    Concern::Other,
                    &text,
                    "certificates of servers are verified; write `tls: { roots: FILE }`",
                );
            }
            "passiveHealthCheck" | "responseForwarding" | "nativeLB" | "nodePortLB" => {
                report.left(at, Concern::Other, &text, "it has no counterpart");
            }
            _ => return Err(format!("`{field}` of its service is not read")),
        }
    }
    Ok(())
}

fn read_health(
    value: InputValue<'_>,
    at: Origin,
    upstream: &mut UpstreamDraft,
    report: &mut ImportReport,
) {
    let path = value.text_of("path").unwrap_or("");
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path {
        return report.left(
            at,
            Concern::Other,
            "healthCheck",
            "its path cannot be read; write `health`",
        );
    }
    report.taken(at, Concern::Other, "healthCheck", "");
    let mut parts = vec![format!("path: {}", gateway_scalar(path))];
    for (field, at, value) in fields(value) {
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        let nanos = value
            .text()
            .and_then(parse_nanos)
            .filter(|nanos| (1_000_000_000..=60_000_000_000).contains(nanos));
        match (field, nanos) {
            ("path", _) => {}
            ("interval", Some(nanos)) => parts.push(format!("every: {}", duration_text(nanos))),
            ("timeout", Some(nanos)) => parts.push(format!("timeout: {}", duration_text(nanos))),
            _ => report.left(
                at,
                Concern::Other,
                &text,
                "it has no counterpart in `health`",
            ),
        }
    }
    upstream
        .fields
        .push(("health", format!("{{ {} }}", parts.join(", "))));
}
