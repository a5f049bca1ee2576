//! The servers of a backend as an upstream.

use super::notes;
use super::section::ConfigSection;
use super::syntax::ConfigLine;
use crate::import::model::UpstreamDraft;
use crate::import::nginx::upstream::server_url;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of servers of an upstream.
const MAX_SERVERS: usize = 1_000;
/// Options of servers with a value that change nothing here.
const OPTIONS_WITH_VALUE: [&str; 32] = [
    "inter",
    "fastinter",
    "downinter",
    "rise",
    "fall",
    "port",
    "addr",
    "cookie",
    "id",
    "init-addr",
    "init-state",
    "resolvers",
    "resolve-prefer",
    "resolve-net",
    "resolve-opts",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "error-limit",
    "slowstart",
    "track",
    "pool-max-conn",
    "pool-purge-delay",
    "pool-low-conn",
    "max-reuse",
    "minconn",
    "maxqueue",
    "alpn",
    "check-alpn",
    "check-proto",
    "check-sni",
];

/// What a server line says.
#[derive(Clone, Debug, Default)]
struct ServerOptions {
    is_tls: bool,
    is_checked: bool,
    is_backup: bool,
    is_disabled: bool,
    weight: Option<u32>,
    max_connections: Option<u64>,
    proxy_protocol: Option<&'static str>,
    http2: bool,
    differences: Vec<String>,
    /// Why the server cannot be written.
    reason: Option<String>,
}

/// Reads the servers of a section and how they are used. `None` if no server is left. Every line about servers is
/// reported.
pub fn read_upstream(section: &ConfigSection, report: &mut ImportReport) -> Option<UpstreamDraft> {
    let mut upstream = UpstreamDraft {
        origin: section.header.origin,
        ..UpstreamDraft::default()
    };
    let mut defaults = ServerOptions::default();
    let (mut is_checked, mut check_path, mut proxy_protocol) = (false, None, None);
    let (mut bounds, mut timeouts) = (Vec::new(), Vec::<(&str, u64)>::new());
    for line in &section.lines {
        let (at, text) = (line.origin, &line.text);
        let is_known = !line.has_variable && !line.is_conditional;
        match (line.word(0), line.word(1)) {
            ("server" | "server-template" | "default-server" | "balance" | "dispatch", _)
                if !is_known =>
            {
                report.left(at, Concern::Routing, text, notes::VARIABLE);
            }
            ("default-server", _) => {
                read_options(line.rest(1), &mut defaults);
                report.taken(at, Concern::Routing, text, "");
            }
            ("server" | "server-template", _) => {
                let is_template = line.word(0) == "server-template";
                let start = if is_template { 3 } else { 2 };
                let mut options = defaults.clone();
                read_options(line.rest(start + 1), &mut options);
                let Some(server) = add_server(line, line.word(start), &options, report) else {
                    continue;
                };
                is_checked |= options.is_checked;
                upstream.http2 |= options.http2;
                proxy_protocol = proxy_protocol.or(options.proxy_protocol);
                bounds.push(options.max_connections);
                upstream.servers.push(server);
            }
            ("balance", _) => read_balance(line, &mut upstream, report),
            ("option", "httpchk") => {
                let path = line.words.iter().skip(2).find(|word| word.starts_with('/'));
                check_path = Some(path.cloned().unwrap_or_else(|| "/".into()));
                report.taken(at, Concern::Other, text, "as `health` of the upstream");
            }
            ("http-check", "send") => {
                let uri = line.words.iter().skip_while(|word| *word != "uri").nth(1);
                if let Some(uri) = uri {
                    check_path = Some(uri.clone());
                }
                report.taken(at, Concern::Other, text, "as `health` of the upstream");
            }
            ("timeout", "connect" | "server") if is_known => {
                let (name, most) = match line.word(1) {
                    "connect" => ("connect", 60_000),
                    _ => ("first_byte", 86_400_000),
                };
                match parse_millis(line.word(2)).filter(|millis| (1..=most).contains(millis)) {
                    Some(millis) => {
                        timeouts.retain(|(other, _)| *other != name);
                        timeouts.push((name, millis));
                        report.taken(at, Concern::Other, text, "");
                    }
                    None => report.left(
                        at,
                        Concern::Other,
                        text,
                        "write it under `timeouts` of the upstream",
                    ),
                }
            }
            ("dispatch", _) => report.left(at, Concern::Routing, text, "write it as a server"),
            _ => {}
        }
    }
    if upstream.servers.len() > MAX_SERVERS {
        upstream.servers.truncate(MAX_SERVERS);
        let note = format!("only the first {MAX_SERVERS} servers are written");
        report.left(
            section.header.origin,
            Concern::Routing,
            &section.header.text,
            &note,
        );
    }
    let bound = bounds.iter().try_fold(0_u64, |sum, bound: &Option<u64>| {
        bound.map(|bound| sum.saturating_add(bound))
    });
    if let Some(bound) = bound.filter(|bound| (1..=1_000_000).contains(bound)) {
        upstream.fields.push(("max_requests", bound.to_string()));
    }
    if let Some(version) = proxy_protocol.filter(|_| !upstream.http2) {
        upstream.fields.push(("proxy_protocol", version.into()));
    }
    if is_checked {
        let is_path = |path: &String| {
            path.starts_with('/')
                && path
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b))
        };
        let health = match check_path.filter(is_path) {
            Some(path) => format!("{{ path: {path} }}"),
            None => "{ tcp: true }".into(),
        };
        upstream.fields.push(("health", health));
    }
    if !timeouts.is_empty() {
        let timeouts: Vec<String> = timeouts
            .iter()
            .map(|(name, millis)| format!("{name}: {millis}ms"))
            .collect();
        upstream
            .fields
            .push(("timeouts", format!("{{ {} }}", timeouts.join(", "))));
    }
    (!upstream.servers.is_empty()).then_some(upstream)
}

fn add_server(
    line: &ConfigLine,
    address: &str,
    options: &ServerOptions,
    report: &mut ImportReport,
) -> Option<(String, u32)> {
    let (at, text) = (line.origin, &line.text);
    if let Some(reason) = &options.reason {
        report.left(at, Concern::Routing, text, reason);
        return None;
    }
    if options.is_disabled || options.weight == Some(0) {
        let note = "it gets no requests in HAProxy, so it is not written";
        report.taken(at, Concern::Routing, text, note);
        return None;
    }
    if options.is_backup {
        let note = "a server for the time in which no other one is well has no counterpart; it is not written";
        report.left(at, Concern::Routing, text, note);
        return None;
    }
    let address = address
        .trim_start_matches("ipv4@")
        .trim_start_matches("ipv6@");
    let socket = address.strip_prefix("unix@").unwrap_or(address);
    let is_socket = socket.starts_with('/');
    let has_port = is_socket
        || address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
    if !has_port {
        let note = "its port is that of the client's connection; write it";
        report.left(at, Concern::Routing, text, note);
        return None;
    }
    let scheme = if options.is_tls { "https" } else { "http" };
    let url = match is_socket {
        true if socket.contains("//") => Err("its path has two slashes".into()),
        true if options.is_tls => Err("a Unix socket is spoken to without TLS".into()),
        true => server_url(scheme, &format!("unix:{socket}")),
        false => server_url(scheme, address),
    };
    let url = match url {
        Ok(url) => url,
        Err(reason) => {
            report.left(at, Concern::Routing, text, &reason);
            return None;
        }
    };
    report.taken(at, Concern::Routing, text, "");
    if line.word(0) == "server-template" {
        let note = "each address of the name is a server, however many there are";
        report.changed(at, Concern::Routing, text, note);
    }
    for difference in &options.differences {
        report.changed(at, Concern::Routing, text, difference);
    }
    if options.max_connections.is_some() {
        let note = "`max_requests` bounds the whole upstream, if all its servers have a bound; more get 503, and do not wait";
        report.changed(at, Concern::Limits, text, note);
    }
    Some((url, options.weight.unwrap_or(1).clamp(1, 256)))
}

fn read_options(words: &[String], options: &mut ServerOptions) {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "check" => options.is_checked = true,
            "no-check" => options.is_checked = false,
            "backup" => options.is_backup = true,
            "disabled" => options.is_disabled = true,
            "enabled" => options.is_disabled = false,
            "ssl" => {
                options.is_tls = true;
                options.differences.push(
                    "certificates of servers are verified; for your own authority write `tls: { roots: FILE }`".into(),
                );
            }
            "no-ssl" => options.is_tls = false,
            "verify" | "ca-file" | "verifyhost" | "crl-file" | "ssl-min-ver" | "ssl-max-ver"
            | "ciphers" | "ciphersuites" => {
                words.next();
            }
            "sni" => {
                words.next();
                options.differences.push(
                    "the name in the handshake is that of the server; write `tls: { name: … }`"
                        .into(),
                );
            }
            "crt" => {
                words.next();
                options.differences.push(
                    "no certificate is shown to it; write `tls: { cert, key }` at the upstream"
                        .into(),
                );
            }
            "weight" => options.weight = words.next().and_then(|weight| weight.parse().ok()),
            "maxconn" => {
                options.max_connections = words
                    .next()
                    .and_then(|most| most.parse().ok())
                    .filter(|most| *most > 0);
            }
            "send-proxy" => options.proxy_protocol = Some("v1"),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                options.proxy_protocol = Some("v2");
            }
            "proto" => match words.next() {
                Some("h2") => options.http2 = true,
                Some("h1") => options.http2 = false,
                _ => options.reason = Some("its protocol is not spoken".into()),
            },
            "check-ssl" | "check-send-proxy" | "agent-check" | "non-stick" | "tfo" | "stick"
            | "no-send-proxy" | "no-backup" | "ssl-reuse" | "no-ssl-reuse" | "no-tls-tickets" => {}
            "agent-port" | "agent-inter" | "agent-addr" | "agent-send" | "namespace" | "source"
            | "usesrc" => {
                words.next();
            }
            "redir" | "socks4" | "rhttp" | "guid" | "tcp-ut" | "ws" | "shard" | "log-proto" => {
                words.next();
                options.reason = Some(format!("`{word}` of a server has no counterpart"));
            }
            _ if OPTIONS_WITH_VALUE.contains(&word) => {
                words.next();
            }
            _ => options.differences.push(format!(
                "`{}` is not read",
                crate::import::report::printable(word, 40)
            )),
        }
    }
}

fn read_balance(line: &ConfigLine, upstream: &mut UpstreamDraft, report: &mut ImportReport) {
    let (at, text) = (line.origin, &line.text);
    match line.word(1) {
        "roundrobin" | "static-rr" => {
            upstream.balance.clear();
            report.taken(at, Concern::Routing, text, "");
        }
        "leastconn" => {
            upstream.balance = "least_requests".into();
            report.taken(at, Concern::Routing, text, "");
        }
        "source" => {
            upstream.balance = "{ hash: ip }".into();
            report.taken(at, Concern::Routing, text, "");
        }
        "first" | "random" => {
            upstream.balance = "least_requests".into();
            let note = "of two servers drawn by weight, the one with fewer open requests";
            report.changed(at, Concern::Routing, text, note);
        }
        _ => {
            let note = "servers can be chosen by `ip`, `user`, `token` or `plan`: write `balance: { hash: user }`; here they take turns";
            report.left(at, Concern::Routing, text, note);
        }
    }
}

/// A time such as `5s`, `500ms`, `2m` or `5000`, in milliseconds.
pub fn parse_millis(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let micros = match text.get(digits.len()..)? {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    Some(
        digits
            .parse::<u64>()
            .ok()?
            .checked_mul(micros)?
            .div_ceil(1_000),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_milliseconds() {
        for (text, millis) in [
            ("5s", Some(5_000)),
            ("250", Some(250)),
            ("10us", Some(1)),
            ("2m", Some(120_000)),
            ("x", None),
            ("5 s", None),
        ] {
            assert_eq!(parse_millis(text), millis, "{text}");
        }
    }
}
