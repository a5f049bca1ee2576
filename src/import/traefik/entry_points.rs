//! Entry points of the static configuration as listeners, with what they add to each router.

use std::collections::BTreeMap;

use super::fields::fields;
use super::names::Provider;
use crate::import::documents::InputValue;
use crate::import::model::{ImportDraft, ListenerDraft};
use crate::import::nginx::variables::{network_text, parse_network};
use crate::import::report::{Concern, ImportReport, Origin};

/// Maximum number of entry points.
const MAX_ENTRY_POINTS: usize = 60;

/// An entry point.
#[derive(Clone, Debug, Default)]
pub struct EntryPoint {
    /// Its name.
    pub name: String,
    /// Where it listens, as `listen` has it.
    pub address: String,
    /// Whether all its routers are over TLS.
    pub has_tls: bool,
    /// The options of TLS of all its routers; empty for the default.
    pub tls_options: String,
    /// Full names of the middlewares that each of its routers has first.
    pub middlewares: Vec<String>,
    /// Where every request is redirected: the target and the status.
    pub redirect: Option<(String, u16)>,
    /// Whether routers without entry points leave it out.
    pub is_not_default: bool,
    /// Peers that begin connections with a header of the PROXY protocol.
    pub proxy_protocol: Vec<String>,
    /// Where it stands.
    pub at: Origin,
}

/// The entry points, in the order of the input.
#[derive(Debug, Default)]
pub struct EntryPoints {
    /// The entry points.
    pub list: Vec<EntryPoint>,
    /// Whether the static configuration says them.
    pub is_static: bool,
}

impl EntryPoints {
    /// The index of the entry point of this name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|point| point.name == name)
    }

    /// The index of an entry point that no static configuration says, with the port that it usually has.
    pub fn assume(&mut self, name: &str, at: Origin, report: &mut ImportReport) -> Option<usize> {
        if let Some(index) = self.index(name) {
            return Some(index);
        }
        if self.is_static || self.list.len() >= MAX_ENTRY_POINTS {
            return None;
        }
        let port = match name {
            "web" | "http" => 80,
            "websecure" | "https" => 443,
            _ => 8_000 + self.list.len(),
        };
        let address = format!("0.0.0.0:{port}");
        let note = format!(
            "entry points are in the static configuration, which is not given: port {port} is assumed, and middlewares that \
             it may have are not here"
        );
        report.changed(at, Concern::Limits, &format!("entryPoint {name}"), &note);
        self.list.push(EntryPoint {
            name: name.to_owned(),
            address,
            at,
            ..EntryPoint::default()
        });
        Some(self.list.len() - 1)
    }

    /// The ports of the entry points of a set, which has one bit for each.
    pub fn ports(&self, listeners: u64) -> Vec<u16> {
        let is_in = |(index, _): &(usize, &EntryPoint)| listeners & (1 << index) != 0;
        let points = self.list.iter().enumerate().filter(is_in);
        points
            .filter_map(|(_, point)| point.address.rsplit_once(':')?.1.parse().ok())
            .collect()
    }

    /// The indexes of the entry points of routers that name none.
    pub fn defaults(&self) -> Vec<usize> {
        let defaults = self.list.iter().enumerate();
        defaults
            .filter(|(_, point)| !point.is_not_default)
            .map(|(index, _)| index)
            .collect()
    }

    /// Adds the listeners to the draft. Those with TLS have certificates of the list, or one that must be put there.
    pub fn write(
        &self,
        are_tls: &[bool],
        certificates: &[(String, String)],
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) {
        for (point, has_tls) in self.list.iter().zip(are_tls) {
            let mut listener = ListenerDraft {
                name: listener_name(&point.name),
                address: point.address.clone(),
                proxy_protocol: point.proxy_protocol.clone(),
                origin: point.at,
                ..ListenerDraft::default()
            };
            if *has_tls {
                listener.certificates = certificates.to_vec();
                if certificates.is_empty() {
                    let stem = format!("certificates/{}", listener.name);
                    listener
                        .certificates
                        .push((format!("{stem}.pem"), format!("{stem}.key")));
                    let note = format!(
                        "no certificate is in the files: put one at `{stem}.pem` and its key at `{stem}.key`, or write \
                         `tls: {{ acme: {{ domains: ... }} }}` at the listener"
                    );
                    let text = format!("entryPoint {}", point.name);
                    report.changed(point.at, Concern::Routing, &text, &note);
                }
            }
            draft.listeners.push(listener);
        }
    }
}

/// The name of a listener for an entry point.
pub fn listener_name(name: &str) -> String {
    let name = crate::import::names::safe_name(name);
    match name.is_empty() || crate::import::names::is_yaml_word(&name) {
        true => format!("entry-{name}").trim_end_matches('-').to_owned(),
        false => name,
    }
}

/// Reads `entryPoints` of the static configuration.
pub fn read_entry_points(
    value: InputValue<'_>,
    points: &mut EntryPoints,
    report: &mut ImportReport,
) {
    points.is_static = true;
    let mut is_default_named = false;
    let mut listener_names: BTreeMap<String, usize> = BTreeMap::new();
    for (name, at, entry) in value.entries() {
        let text = format!("entryPoint {name}");
        is_default_named |= entry.get("asDefault").is_some_and(InputValue::is_true);
        let address = entry.text_of("address").unwrap_or("");
        if points.list.len() >= MAX_ENTRY_POINTS {
            report.left(
                at,
                Concern::Routing,
                &text,
                "there are too many entry points",
            );
            continue;
        }
        let Some(address) = listen_address(address) else {
            let note = "its address is no address of TCP; write a listener by hand";
            report.left(at, Concern::Routing, &text, note);
            continue;
        };
        let listener = listener_name(name);
        if points.list.iter().any(|point| point.address == address)
            || listener_names.insert(listener, points.list.len()).is_some()
        {
            let note = "another entry point has this name or address";
            report.left(at, Concern::Routing, &text, note);
            continue;
        }
        report.taken(at, Concern::Routing, &text, "");
        let mut point = EntryPoint {
            name: name.to_owned(),
            address,
            at,
            ..EntryPoint::default()
        };
        for (field, at, value) in fields(entry) {
            match field {
                "address" => {}
                "asDefault" => {
                    point.is_not_default = !value.is_true();
                    report.taken(at, Concern::Routing, field, "");
                }
                "http" => read_http(value, &mut point, report),
                "forwardedHeaders" => leave_forwarded(value, at, report),
                "proxyProtocol" => read_proxy_protocol(value, &mut point, report),
                "transport" => report.left(at, Concern::Other, field, "write `timeouts`"),
                "http3" => report.left(
                    at,
                    Concern::Other,
                    field,
                    "write `http3: true` at the listener",
                ),
                _ => report.left(at, Concern::Other, field, "it is not read"),
            }
        }
        points.list.push(point);
    }
    if is_default_named {
        let is_default = |entry: Option<InputValue<'_>>| {
            entry
                .and_then(|entry| entry.get("asDefault"))
                .is_some_and(InputValue::is_true)
        };
        for point in &mut points.list {
            point.is_not_default = !is_default(value.get(&point.name));
        }
    } else {
        points
            .list
            .iter_mut()
            // Traefik's own entry point serves no router that does not name it.
            .for_each(|point| point.is_not_default = point.name == "traefik");
    }
}

fn read_http(value: InputValue<'_>, point: &mut EntryPoint, report: &mut ImportReport) {
    for (field, at, value) in fields(value) {
        match field {
            "middlewares" => {
                for item in value.items_or_self() {
                    let name = Provider::File.reference(item).unwrap_or_default();
                    let text = format!("middleware {name} of the entry point {}", point.name);
                    report.taken(
                        item.origin(),
                        Concern::Limits,
                        &text,
                        "on each of its routers",
                    );
                    point.middlewares.push(name);
                }
            }
            "tls" => {
                point.has_tls = true;
                report.taken(at, Concern::Routing, "tls", "");
                for (field, at, value) in fields(value) {
                    match (field, value.text()) {
                        ("options", Some(name)) => {
                            point.tls_options = Provider::File.full_name(name, None);
                            report.taken(at, Concern::Routing, field, "");
                        }
                        _ => report.left(
                            at,
                            Concern::Other,
                            field,
                            "write `tls: { acme: ... }` at the listener",
                        ),
                    }
                }
            }
            "redirections" => read_redirection(value, at, point, report),
            _ => report.left(at, Concern::Other, field, "it is not read"),
        }
    }
}

fn read_redirection(
    value: InputValue<'_>,
    at: Origin,
    point: &mut EntryPoint,
    report: &mut ImportReport,
) {
    let Some(entry) = value.get("entryPoint") else {
        return report.left(
            at,
            Concern::Routing,
            "redirections",
            "it names no entry point",
        );
    };
    let scheme = entry.text_of("scheme").unwrap_or("https");
    let is_permanent = entry.get("permanent").is_none_or(InputValue::is_true);
    // The target is another entry point, or a port.
    point.redirect = Some((
        format!("{scheme} {}", entry.text_of("to").unwrap_or("")),
        if is_permanent { 308 } else { 307 },
    ));
    report.taken(
        at,
        Concern::Routing,
        "redirections",
        "before each of its routers",
    );
    if entry.get("priority").is_some() {
        let note = "routers of a higher priority than that of the redirection are redirected too";
        report.changed(at, Concern::Routing, "redirections", note);
    }
}

fn leave_forwarded(value: InputValue<'_>, at: Origin, report: &mut ImportReport) {
    for (field, at, value) in fields(value) {
        let networks: Vec<&str> = value.items().filter_map(InputValue::text).collect();
        let text = format!("forwardedHeaders.{field}");
        let note = match field {
            "trustedIPs" => format!(
                "no forwarded address is believed: `ip` is the peer, as in Traefik without `ipStrategy`. For clients of these \
                 proxies write `identity: {{ ip: {{ trusted_proxies: [{}] }} }}`; check then what limits and `allow` mean by `ip`",
                networks.join(", ")
            ),
            _ => "no forwarded address is believed from everybody: name the proxies in `identity: { ip: { trusted_proxies } }`"
                .into(),
        };
        report.left(at, Concern::Limits, &text, &note);
    }
    if value.entries().next().is_none() {
        report.taken(at, Concern::Limits, "forwardedHeaders", "");
    }
}

fn read_proxy_protocol(value: InputValue<'_>, point: &mut EntryPoint, report: &mut ImportReport) {
    for (field, at, value) in fields(value) {
        if field != "trustedIPs" {
            let note =
                "not everybody may name another address; write `proxy_protocol` at the listener";
            report.left(at, Concern::Limits, &format!("proxyProtocol.{field}"), note);
            continue;
        }
        for item in value.items_or_self() {
            let text = item.text().unwrap_or("");
            let shown = format!("proxyProtocol.trustedIPs {text}");
            match parse_network(text) {
                Some(network) => {
                    point.proxy_protocol.push(network_text(network));
                    let note = "these peers must begin each connection with the header";
                    report.changed(item.origin(), Concern::Limits, &shown, note);
                }
                None => report.left(item.origin(), Concern::Limits, &shown, "it is no network"),
            }
        }
    }
}

/// The address of a listener for one of Traefik, such as `:80` or `127.0.0.1:8080/tcp`; `None` for UDP and others.
fn listen_address(address: &str) -> Option<String> {
    let address = address.strip_suffix("/tcp").unwrap_or(address);
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let text = format!("{host}:{port}");
    text.parse::<std::net::SocketAddr>().ok().map(|_| text)
}
