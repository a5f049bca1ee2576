//! Services and their targets as upstreams.

use std::collections::HashMap;

use super::entities::{KongEntities, KongEntity, is_reference};
use crate::import::documents::InputValue;
use crate::import::model::UpstreamDraft;
use crate::import::nginx::upstream::server_url;
use crate::import::numbers::gcd;
use crate::import::report::{Concern, ImportReport};
use crate::route::canonical_host::canonical_host;

/// The largest weight of a server.
const MAX_WEIGHT: u64 = 256;
/// Maximum number of targets of an upstream.
const MAX_TARGETS: usize = 500;

/// A service as it is forwarded to.
#[derive(Clone, Debug)]
pub struct KongUpstream {
    /// The upstream, for routes that do not keep the host of the request.
    pub upstream: UpstreamDraft,
    /// The path that is put before that of the request; empty for none.
    pub path: String,
}

/// Reads a service.
///
/// # Errors
///
/// Why it is no upstream.
pub fn read_service(
    service: &KongEntity<'_>,
    entities: &KongEntities<'_>,
    report: &mut ImportReport,
) -> Result<KongUpstream, String> {
    let value = service.value;
    let url = value.text_of("url");
    let of = |field: &str| value.text_of(field);
    let texts = [url, of("protocol"), of("host"), of("port"), of("path")];
    if texts.into_iter().flatten().any(is_reference) {
        return Err("its address is a reference to a value elsewhere".into());
    }
    let (protocol, host, port, path) = match url {
        Some(url) => split_url(url).ok_or("its URL cannot be read")?,
        None => {
            let port = of("port").map(str::parse::<u16>).transpose();
            let port = port.map_err(|_| "its port is no number")?;
            (
                of("protocol").unwrap_or("http").to_owned(),
                of("host").unwrap_or("").to_owned(),
                port,
                of("path").unwrap_or("").to_owned(),
            )
        }
    };
    let (scheme, is_h2) = match protocol.as_str() {
        "http" => ("http", false),
        "https" => ("https", false),
        "grpc" => ("http", true),
        "grpcs" => ("https", true),
        _ => return Err(format!("tollgate speaks HTTP only, and not {protocol}")),
    };
    let default_port = match (url, scheme) {
        (Some(_), "https") => 443,
        // A service without a port has 80, whatever its protocol.
        _ => 80,
    };
    let mut upstream = UpstreamDraft {
        http2: is_h2,
        host: Some("upstream".into()),
        origin: service.at,
        ..UpstreamDraft::default()
    };
    match entities.upstreams.get(host.as_str()) {
        Some(targets) => read_targets(targets, &host, scheme, entities, &mut upstream, report)?,
        None => {
            canonical_host(&host).ok_or("its host is no host")?;
            let address = format!("{host}:{}", port.unwrap_or(default_port));
            upstream.servers.push((server_url(scheme, &address)?, 1));
        }
    }
    read_settings(value, &mut upstream, report);
    Ok(KongUpstream {
        upstream,
        path: path.trim_end_matches('/').to_owned(),
    })
}

/// Protocol, host, port and path of a URL.
fn split_url(url: &str) -> Option<(String, String, Option<u16>, String)> {
    let (protocol, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (host, port) = split_port(authority)?;
    Some((protocol.to_owned(), host.to_owned(), port, path.to_owned()))
}

fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, Some(port.parse().ok()?))),
        _ => Some((authority, None)),
    }
}

fn read_targets(
    entity: &KongEntity<'_>,
    name: &str,
    scheme: &str,
    entities: &KongEntities<'_>,
    upstream: &mut UpstreamDraft,
    report: &mut ImportReport,
) -> Result<(), String> {
    let value = entity.value;
    let targets = value
        .get("targets")
        .into_iter()
        .flat_map(InputValue::items)
        .chain(entities.targets_beside(name));
    let mut weights: Vec<(String, u64)> = Vec::new();
    let mut by_url: HashMap<String, usize> = HashMap::new();
    for (number, target) in targets.enumerate() {
        if number >= MAX_TARGETS {
            return Err(format!(
                "the upstream {name} has more than {MAX_TARGETS} targets"
            ));
        }
        let address = target
            .text_of("target")
            .or_else(|| target.text())
            .unwrap_or("");
        let text = format!("target {address}");
        let weight = target.get("weight").map_or(Some(100), InputValue::number);
        let split = (!is_reference(address))
            .then(|| split_port(address))
            .flatten();
        let (host, port) =
            split.ok_or_else(|| format!("a target of the upstream {name} cannot be read"))?;
        canonical_host(host)
            .ok_or_else(|| format!("a target of the upstream {name} is no host"))?;
        let weight = weight
            .filter(|weight| *weight <= 65_535)
            .ok_or("a weight of a target cannot be read")?;
        if weight == 0 {
            report.taken(target.origin(), Concern::Routing, &text, "its weight is 0");
            continue;
        }
        report.taken(target.origin(), Concern::Routing, &text, "");
        let url = server_url(scheme, &format!("{host}:{}", port.unwrap_or(8_000)))?;
        let index = *by_url.entry(url.clone()).or_insert(weights.len());
        match weights.get_mut(index) {
            Some((_, other)) => *other += weight,
            None => weights.push((url, weight)),
        }
    }
    if weights.is_empty() {
        return Err(format!("the upstream {name} has no target"));
    }
    let text = format!("upstream {name}");
    let divisor = weights
        .iter()
        .fold(0, |divisor, (_, weight)| gcd(divisor, *weight))
        .max(1);
    let largest = weights
        .iter()
        .map(|(_, weight)| weight / divisor)
        .max()
        .unwrap_or(1);
    report.taken(entity.at, Concern::Routing, &text, "");
    if largest > MAX_WEIGHT {
        report.changed(
            entity.at,
            Concern::Routing,
            &text,
            "weights are rounded to numbers up to 256",
        );
    }
    for (url, weight) in weights {
        let weight = match largest > MAX_WEIGHT {
            true => (weight / divisor * MAX_WEIGHT / largest).max(1),
            false => weight / divisor,
        };
        upstream
            .servers
            .push((url, u32::try_from(weight).unwrap_or(1)));
    }
    for (field, at, value) in value.entries() {
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        match (field, value.text()) {
            ("name" | "id" | "targets" | "tags" | "slots", _) => {}
            ("algorithm", Some("round-robin")) => report.taken(at, Concern::Routing, &text, ""),
            ("algorithm", Some("least-connections" | "latency")) => {
                upstream.balance = "least_requests".into();
                report.changed(
                    at,
                    Concern::Routing,
                    &text,
                    "the server with fewer open requests of two",
                );
            }
            ("algorithm", Some("consistent-hashing")) => {}
            ("hash_on", Some("ip")) => {
                upstream.balance = "{ hash: ip }".into();
                report.taken(at, Concern::Routing, &text, "");
            }
            ("hash_on", Some("none")) => report.taken(at, Concern::Routing, &text, ""),
            ("host_header", Some(host)) if canonical_host(host).is_some() && host.contains('.') => {
                upstream.host = Some(host.to_owned());
                report.taken(at, Concern::Routing, &text, "");
            }
            ("healthchecks", _) => report.left(
                at,
                Concern::Other,
                field,
                "write `health: { path: ... }` at the upstream",
            ),
            ("host_header", _) => {
                return Err(format!("`host_header` of the upstream {name} is no host"));
            }
            _ => report.left(
                at,
                Concern::Other,
                &text,
                "it has no counterpart; write `balance`",
            ),
        }
    }
    Ok(())
}

/// Whether servers with different hosts would each have to get their own.
pub fn has_unclear_host(upstream: &UpstreamDraft) -> bool {
    let host = |url: &str| url.split("://").nth(1).map(str::to_owned);
    let mut hosts = upstream.servers.iter().map(|(url, _)| host(url));
    let first = hosts.next();
    upstream.host.as_deref() == Some("upstream") && hosts.any(|other| Some(other) != first)
}

fn read_settings(value: InputValue<'_>, upstream: &mut UpstreamDraft, report: &mut ImportReport) {
    let mut timeouts: Vec<String> = Vec::new();
    for (field, at, value) in value.entries() {
        let text = format!("{field}: {}", value.text().unwrap_or("..."));
        let millis = value.number();
        match field {
            "name" | "id" | "url" | "protocol" | "host" | "port" | "path" | "routes"
            | "plugins" | "filter_chains" | "tags" | "enabled" => {}
            "connect_timeout" | "read_timeout" => {
                let (word, most) = if field == "connect_timeout" {
                    ("connect", 60_000)
                } else {
                    ("first_byte", 86_400_000)
                };
                let is_new = !timeouts.iter().any(|other| other.starts_with(word));
                match millis.filter(|millis| (1_000..=most).contains(millis) && is_new) {
                    Some(millis) => {
                        timeouts.push(format!("{word}: {millis}ms"));
                        report.taken(at, Concern::Other, &text, "");
                    }
                    None => report.left(
                        at,
                        Concern::Other,
                        &text,
                        "write it under `timeouts` of the upstream",
                    ),
                }
            }
            "retries" => report.left(
                at,
                Concern::Other,
                &text,
                "requests are not repeated; `eject` leaves out failing servers",
            ),
            "tls_verify" if value.is_true() => report.taken(at, Concern::Other, &text, ""),
            "tls_verify" | "ca_certificates" | "client_certificate" | "tls_verify_depth" => {
                report.left(
                    at,
                    Concern::Other,
                    &text,
                    "certificates of servers are verified; write `tls: { roots: FILE }`",
                );
            }
            _ => report.left(at, Concern::Other, &text, "it has no counterpart"),
        }
    }
    if !timeouts.is_empty() {
        upstream
            .fields
            .push(("timeouts", format!("{{ {} }}", timeouts.join(", "))));
    }
}
