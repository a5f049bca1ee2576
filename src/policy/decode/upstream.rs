//! The servers behind: `upstreams`.

use super::super::collect::Cx;
use super::super::model::{
    CertificateFiles, EjectConfig, LoadReportConfig, Located, ServerConfig, ServerTlsConfig,
    UpstreamConfig,
};
use super::super::table::{Form, Table, ValueShape, may, must, words};
use super::super::timeouts::{UPSTREAM_TIMEOUTS, UpstreamTimeouts};
use super::super::tree::{MapKey, Node, YamlValue};
use super::balance::{BALANCES, EJECT, HASH, HEALTH, balance, eject, health};
use super::leaf::{DURATION, PATH, parse_name, parse_unix};
use super::{ValueError, invalid};
use crate::limit::pressure::Trust;
use crate::net::address::UNIX;
use crate::net::proxy::Version;
use crate::upstream::{Bounds, Location};

/// A server.
pub static SERVER: Form = Form {
    name: "server",
    pattern: r"^(https?://[^/\s]+/?|unix:/.+)$",
    doc: "A server: http://HOST[:PORT], or https:// where TLS is spoken to it, or unix:/PATH of its Unix socket.",
};

static WEIGHTED: Table = Table {
    name: "a server",
    doc: "A server with its weight.",
    fields: &[
        must(
            "url",
            ValueShape::Form(&SERVER),
            "Where it is.",
            "http://10.0.0.11:8080",
        ),
        may(
            "weight",
            ValueShape::Whole(1, MAX_WEIGHT),
            "Its share beside those of the others. Default: 1.",
            "2",
        ),
    ],
};

/// One of several servers.
pub static SERVERS: ValueShape =
    ValueShape::Either(&[ValueShape::Form(&SERVER), ValueShape::Table(&WEIGHTED)]);

/// The largest weight of a server.
const MAX_WEIGHT: u64 = 256;

static SERVER_TLS: Table = Table {
    name: "an upstream's `tls`",
    doc: "How servers that are written https:// are spoken to. They are always verified.",
    fields: &[
        may(
            "roots",
            ValueShape::Form(&PATH),
            "The authorities that may vouch for them, in PEM. Default: the system's.",
            "ca.pem",
        ),
        may(
            "name",
            ValueShape::Text,
            "The name that their certificates are for. Default: the host of each.",
            "shop.internal",
        ),
        may(
            "cert",
            ValueShape::Form(&PATH),
            "The certificate chain, in PEM, of the gateway itself, for servers that ask; with `key`.",
            "gateway.pem",
        ),
        may(
            "key",
            ValueShape::Form(&PATH),
            "Its private key in PEM.",
            "gateway.key",
        ),
    ],
};

static LOAD_REPORT: Table = Table {
    name: "an upstream's `load_report`",
    doc: "How far its servers are believed when they say how busy they are.",
    fields: &[
        must(
            "trust",
            ValueShape::Words(&["lower", "full"]),
            "lower: a report can only lower what is lent; full: it takes the place of the load that latency shows.",
            "lower",
        ),
        may(
            "metric",
            ValueShape::Text,
            "The named metric that is the load of a server which reports no application_utilization. Default: its cpu_utilization.",
            "queue",
        ),
    ],
};

fn load_report(cx: &mut Cx, node: &Node) -> Option<LoadReportConfig> {
    let fields = LOAD_REPORT.open(cx, node)?;
    let words = [("lower", Trust::Lower), ("full", Trust::Full)];
    let trust = fields.get("trust").and_then(|node| cx.word(node, &words));
    let metric = fields
        .get("metric")
        .and_then(|node| cx.text(node, "a name"));
    Some(LoadReportConfig {
        trust: trust?.value,
        metric: metric.map(|at| at.value),
    })
}

/// The largest bound of requests.
const MAX_REQUESTS: u64 = 1_000_000;

/// An upstream with more than servers.
pub static UPSTREAM: Table = Table {
    name: "an upstream",
    doc: "Servers that can stand in for each other.",
    fields: &[
        must(
            "servers",
            ValueShape::Many(&SERVERS),
            "Its servers.",
            "[http://10.0.0.11:8080]",
        ),
        may(
            "tls",
            ValueShape::Table(&SERVER_TLS),
            "How servers that are written https:// are spoken to.",
            "{ roots: ca.pem }",
        ),
        may(
            "protocol",
            ValueShape::Words(&["h1", "h2"]),
            "How they are spoken to. Default: h1.",
            "h1",
        ),
        may(
            "proxy_protocol",
            ValueShape::Words(&["v1", "v2"]),
            "Begins each connection with a header of the PROXY protocol that names the client. A connection then serves one request only, and `protocol: h2` is not possible. Default: none.",
            "v2",
        ),
        may(
            "balance",
            ValueShape::Either(&[
                ValueShape::Words(&words(&BALANCES)),
                ValueShape::Table(&HASH),
            ]),
            "Which server is next. Default: round_robin.",
            "least_requests",
        ),
        may(
            "health",
            ValueShape::Table(&HEALTH),
            "Asks each server whether it is well.",
            "{ path: /healthz, every: 5s }",
        ),
        may(
            "eject",
            ValueShape::Either(&[ValueShape::Words(&["off"]), ValueShape::Table(&EJECT)]),
            "When a server is left alone because requests to it fail; never more than half of them. Default: after 3 failures in a row.",
            "{ after: 3, for: 10s }",
        ),
        may(
            "slow_start",
            ValueShape::Form(&DURATION),
            "In what time a server that comes back, or is new after a reload, gets its full share. Default: at once.",
            "30s",
        ),
        may(
            "max_requests",
            ValueShape::Whole(1, MAX_REQUESTS),
            "Most requests open at a time; above that the answer is 503. Default: no bound.",
            "1000",
        ),
        may(
            "max_pending",
            ValueShape::Whole(1, MAX_REQUESTS),
            "Most requests that wait for a connection at a time; above that the answer is 503. Default: no bound.",
            "100",
        ),
        may(
            "load_report",
            ValueShape::Table(&LOAD_REPORT),
            "Believes what its servers say of their load in the field endpoint-load-metrics (ORCA), which clients then do not see. Default: the field is passed on and not looked at.",
            "{ trust: lower }",
        ),
        may(
            "timeouts",
            ValueShape::Table(&UPSTREAM_TIMEOUTS),
            "How long things may take.",
            "{ first_byte: 10s }",
        ),
    ],
};

fn server_tls(cx: &mut Cx, node: &Node) -> Option<Located<ServerTlsConfig>> {
    let fields = SERVER_TLS.open(cx, node)?;
    let mut text = |name, what| fields.get(name).and_then(|node| cx.text(node, what));
    let roots = text("roots", "the name of a file");
    let name = text("name", "a host name");
    let cert = text("cert", "the name of a file");
    let key = fields.get("key").and_then(|node| cx.secret_file(node));
    for (given, missing) in [("cert", "key"), ("key", "cert")] {
        if fields.has(given) && !fields.has(missing) {
            let message = format!("`{given}` needs `{missing}`");
            cx.error(fields.place_of(given), message, None);
        }
    }
    let own = cert
        .zip(key)
        .map(|(cert, key)| CertificateFiles { cert, key });
    let place = node.place;
    let value = ServerTlsConfig { roots, name, own };
    Some(Located { value, place })
}

/// Reads the upstream that is written under `key`.
pub fn upstream(cx: &mut Cx, key: &MapKey, node: &Node) -> Option<UpstreamConfig> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "an upstream") {
        cx.error(key.place, message, help);
    }
    let name = Located {
        value: key.text.clone(),
        place: key.place,
    };
    let mut upstream = UpstreamConfig {
        name,
        servers: Vec::new(),
        tls: None,
        http2: false,
        proxy: None,
        balance: None,
        health: None,
        eject: EjectConfig::On {
            after: None,
            span: None,
        },
        slow_start: None,
        bounds: Bounds::default(),
        load_report: None,
        timeouts: UpstreamTimeouts::default(),
    };
    if !matches!(node.value, YamlValue::Map(_)) {
        upstream.servers = cx.many(node, server);
        return Some(upstream);
    }
    let fields = UPSTREAM.open(cx, node)?;
    upstream.servers = fields
        .get("servers")
        .map_or_else(Vec::new, |node| cx.many(node, server));
    upstream.tls = fields.get("tls").and_then(|node| server_tls(cx, node));
    let words = [("h1", false), ("h2", true)];
    let protocol = fields
        .get("protocol")
        .and_then(|node| cx.word(node, &words));
    upstream.http2 = protocol.is_some_and(|http2| http2.value);
    let words = [("v1", Version::One), ("v2", Version::Two)];
    upstream.proxy = fields
        .get("proxy_protocol")
        .and_then(|node| cx.word(node, &words));
    if let Some(version) = upstream.proxy.filter(|_| upstream.http2) {
        let help = "drop one of them";
        cx.error(
            version.place,
            "`proxy_protocol` names one client for each connection, and many share one of `protocol: h2`",
            Some(help.into()),
        );
    }
    upstream.load_report = fields
        .get("load_report")
        .and_then(|node| load_report(cx, node));
    upstream.balance = fields.get("balance").and_then(|node| balance(cx, node));
    upstream.health = fields.get("health").and_then(|node| health(cx, node));
    if let Some(node) = fields.get("eject") {
        upstream.eject = eject(cx, node);
    }
    upstream.slow_start = fields.get("slow_start").and_then(|node| cx.timeout(node));
    let mut most = |name| {
        fields
            .get(name)
            .and_then(|node| cx.count(node, MAX_REQUESTS))
    };
    upstream.bounds = Bounds {
        open: most("max_requests"),
        pending: most("max_pending"),
    };
    if let Some(node) = fields.get("timeouts") {
        upstream.timeouts = UpstreamTimeouts::read(cx, node);
    }
    Some(upstream)
}

fn server(cx: &mut Cx, node: &Node) -> Option<Located<ServerConfig>> {
    if matches!(node.value, YamlValue::Map(_)) {
        let fields = WEIGHTED.open(cx, node)?;
        let weight = fields
            .get("weight")
            .and_then(|node| cx.count(node, MAX_WEIGHT));
        let server = fields.get("url").and_then(|node| url(cx, node))?;
        return Some(server.map(|server| ServerConfig {
            weight: weight.unwrap_or(1),
            ..server
        }));
    }
    url(cx, node)
}

fn url(cx: &mut Cx, node: &Node) -> Option<Located<ServerConfig>> {
    cx.read(node, "a server such as http://10.0.0.11:8080", parse_server)
}

fn parse_server(text: &str) -> Result<ServerConfig, ValueError> {
    let text = text.trim();
    if text.starts_with(UNIX) {
        return Ok(ServerConfig {
            location: Location::Unix(parse_unix(text)?),
            tls: false,
            weight: 1,
        });
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let help = match text.starts_with('/') {
            true => format!("write `{UNIX}{text}`"),
            false => format!("write `http://{text}`"),
        };
        return Err(invalid(
            format!("`{text}` is not a server: the scheme is missing"),
            help,
        ));
    };
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => {
            return Err(invalid(
                format!("`{scheme}` is not a scheme of servers"),
                "write `http://`",
            ));
        }
    };
    if rest.starts_with(UNIX) {
        let message = "a Unix socket has no scheme; HTTP without TLS is spoken to it";
        return Err(invalid(message, format!("write `{rest}`")));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '@']) {
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        let help =
            format!("write `{scheme}://{host}`: requests keep the path that the client asked for");
        return Err(invalid(
            "a server is a host and a port, without path and password",
            help,
        ));
    }
    let bad = || {
        invalid(
            format!("`{authority}` is not a host with a port"),
            "write for instance `http://10.0.0.11:8080`",
        )
    };
    let authority: http::uri::Authority = authority.parse().map_err(|_| bad())?;
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => {
            if tls {
                443
            } else {
                80
            }
        }
        Some(port) => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .ok_or_else(bad)?,
        None => return Err(bad()),
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    if port == 0 || host.is_empty() {
        return Err(bad());
    }
    Ok(ServerConfig {
        location: Location::Host(host.to_ascii_lowercase(), port),
        tls,
        weight: 1,
    })
}
