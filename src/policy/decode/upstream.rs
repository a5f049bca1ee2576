//! Reads one upstream of the section `upstreams`: its servers, and how the gateway connects to them. Files of
//! certificates are read later, when the model is compiled.

use super::super::context::LoadContext;
use super::super::model::{
    CertificateFiles, EjectConfig, LoadReportConfig, Located, ServerConfig, ServerTlsConfig,
    UpstreamConfig,
};
use super::super::table::{MapFields, Table, TextFormat, ValueShape, optional, required, words};
use super::super::timeouts::{UPSTREAM_TIMEOUTS_TABLE, UpstreamTimeouts};
use super::super::tree::{MapKey, Node, YamlValue};
use super::ValueError;
use super::balance::{
    BALANCE_TABLE, BALANCE_WORDS, EJECT_TABLE, HEALTH_TABLE, read_balance, read_eject, read_health,
};
use super::scalar::{DURATION_FORMAT, PATH_FORMAT, parse_name, parse_unix_path};
use crate::limit::pressure::Trust;
use crate::net::address::UNIX_PREFIX;
use crate::net::proxy_protocol::ProxyProtocolVersion;
use crate::upstream::{Bounds, Location};

pub static SERVER_FORMAT: TextFormat = TextFormat {
    name: "server",
    pattern: r"^(https?://[^/\s]+/?|unix:/.+)$",
    doc: "A server: http://HOST[:PORT], or https:// where TLS is spoken to it, or unix:/PATH of its Unix socket.",
};

static WEIGHTED_SERVER_TABLE: Table = Table {
    name: "a server",
    doc: "A server with its weight.",
    fields: &[
        required(
            "url",
            ValueShape::Format(&SERVER_FORMAT),
            "Where it is.",
            "http://10.0.0.11:8080",
        ),
        optional(
            "weight",
            ValueShape::WholeNumber(1, MAX_WEIGHT),
            "Its share beside those of the others. Default: 1.",
            "2",
        ),
    ],
};

/// A server among several: its URL, or a map with its weight.
pub static SERVER_SHAPE: ValueShape = ValueShape::AnyOf(&[
    ValueShape::Format(&SERVER_FORMAT),
    ValueShape::Table(&WEIGHTED_SERVER_TABLE),
]);

/// Maximum weight of a server, so that sums of weights stay small.
const MAX_WEIGHT: u64 = 256;

static SERVER_TLS_TABLE: Table = Table {
    name: "an upstream's `tls`",
    doc: "How servers that are written https:// are spoken to. They are always verified.",
    fields: &[
        optional(
            "roots",
            ValueShape::Format(&PATH_FORMAT),
            "The authorities that may vouch for them, in PEM. Default: the system's.",
            "ca.pem",
        ),
        optional(
            "name",
            ValueShape::Text,
            "The name that their certificates are for. Default: the host of each.",
            "shop.internal",
        ),
        optional(
            "cert",
            ValueShape::Format(&PATH_FORMAT),
            "The certificate chain, in PEM, of the gateway itself, for servers that ask; with `key`.",
            "gateway.pem",
        ),
        optional(
            "key",
            ValueShape::Format(&PATH_FORMAT),
            "Its private key in PEM.",
            "gateway.key",
        ),
    ],
};

static LOAD_REPORT_TABLE: Table = Table {
    name: "an upstream's `load_report`",
    doc: "How far its servers are believed when they say how busy they are.",
    fields: &[
        required(
            "trust",
            ValueShape::Words(&["lower", "full"]),
            "lower: a report can only lower what is lent; full: it takes the place of the load that latency shows.",
            "lower",
        ),
        optional(
            "metric",
            ValueShape::Text,
            "The named metric that is the load of a server which reports no application_utilization. Default: its cpu_utilization.",
            "queue",
        ),
    ],
};

fn read_load_report(cx: &mut LoadContext, node: &Node) -> Option<LoadReportConfig> {
    let fields = LOAD_REPORT_TABLE.open(cx, node)?;
    let words = [("lower", Trust::Lower), ("full", Trust::Full)];
    let trust = fields
        .get("trust")
        .and_then(|node| cx.read_word(node, &words));
    let metric = fields
        .get("metric")
        .and_then(|node| cx.read_text(node, "a name"));
    Some(LoadReportConfig {
        trust: trust?.value,
        metric: metric.map(|at| at.value),
    })
}

/// Maximum value of `max_requests` and `max_pending`.
const MAX_REQUESTS_BOUND: u64 = 1_000_000;

pub static UPSTREAM_TABLE: Table = Table {
    name: "an upstream",
    doc: "Servers that can stand in for each other.",
    fields: &[
        required(
            "servers",
            ValueShape::OneOrList(&SERVER_SHAPE),
            "Its servers.",
            "[http://10.0.0.11:8080]",
        ),
        optional(
            "tls",
            ValueShape::Table(&SERVER_TLS_TABLE),
            "How servers that are written https:// are spoken to.",
            "{ roots: ca.pem }",
        ),
        optional(
            "protocol",
            ValueShape::Words(&["h1", "h2"]),
            "How they are spoken to. Default: h1.",
            "h1",
        ),
        optional(
            "proxy_protocol",
            ValueShape::Words(&["v1", "v2"]),
            "Begins each connection with a header of the PROXY protocol that names the client. A connection then serves one request only, and `protocol: h2` is not possible. Default: none.",
            "v2",
        ),
        optional(
            "balance",
            ValueShape::AnyOf(&[
                ValueShape::Words(&words(&BALANCE_WORDS)),
                ValueShape::Table(&BALANCE_TABLE),
            ]),
            "Which server is next. Default: round_robin.",
            "least_requests",
        ),
        optional(
            "health",
            ValueShape::Table(&HEALTH_TABLE),
            "Asks each server whether it is well.",
            "{ path: /healthz, every: 5s }",
        ),
        optional(
            "eject",
            ValueShape::AnyOf(&[ValueShape::Words(&["off"]), ValueShape::Table(&EJECT_TABLE)]),
            "When a server is left alone because requests to it fail; never more than half of them. Default: after 3 failures in a row.",
            "{ after: 3, for: 10s }",
        ),
        optional(
            "slow_start",
            ValueShape::Format(&DURATION_FORMAT),
            "In what time a server that comes back, or is new after a reload, gets its full share. Default: at once.",
            "30s",
        ),
        optional(
            "max_requests",
            ValueShape::WholeNumber(1, MAX_REQUESTS_BOUND),
            "Most requests open at a time; above that the answer is 503. Default: no bound.",
            "1000",
        ),
        optional(
            "max_pending",
            ValueShape::WholeNumber(1, MAX_REQUESTS_BOUND),
            "Most requests that wait for a connection at a time; above that the answer is 503. Default: no bound.",
            "100",
        ),
        optional(
            "load_report",
            ValueShape::Table(&LOAD_REPORT_TABLE),
            "Believes what its servers say of their load in the field endpoint-load-metrics (ORCA), which clients then do not see. Default: the field is passed on and not looked at.",
            "{ trust: lower }",
        ),
        optional(
            "timeouts",
            ValueShape::Table(&UPSTREAM_TIMEOUTS_TABLE),
            "How long things may take.",
            "{ first_byte: 10s }",
        ),
    ],
};

fn read_server_tls(cx: &mut LoadContext, node: &Node) -> Option<Located<ServerTlsConfig>> {
    let fields = SERVER_TLS_TABLE.open(cx, node)?;
    let mut text = |name, what| fields.get(name).and_then(|node| cx.read_text(node, what));
    let roots = text("roots", "the name of a file");
    let name = text("name", "a host name");
    let cert = text("cert", "the name of a file");
    let key = fields
        .get("key")
        .and_then(|node| cx.read_secret_file_name(node));
    for (present, missing) in [("cert", "key"), ("key", "cert")] {
        if fields.has(present) && !fields.has(missing) {
            let message = format!("`{present}` needs `{missing}`");
            cx.error(fields.location_of(present), message, None);
        }
    }
    let own = cert
        .zip(key)
        .map(|(cert, key)| CertificateFiles { cert, key });
    let location = node.location;
    let value = ServerTlsConfig { roots, name, own };
    Some(Located { value, location })
}

/// Reads the upstream that is written under `key`.
pub fn read_upstream(cx: &mut LoadContext, key: &MapKey, node: &Node) -> Option<UpstreamConfig> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "an upstream") {
        cx.error(key.location, message, help);
    }
    let name = Located {
        value: key.text.clone(),
        location: key.location,
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
        upstream.servers = cx.read_list(node, read_server);
        return Some(upstream);
    }
    let fields = UPSTREAM_TABLE.open(cx, node)?;
    read_fields(cx, &fields, &mut upstream);
    Some(upstream)
}

/// Reads the fields of an upstream that is written as a map.
fn read_fields(cx: &mut LoadContext, fields: &MapFields<'_>, upstream: &mut UpstreamConfig) {
    upstream.servers = fields
        .get("servers")
        .map_or_else(Vec::new, |node| cx.read_list(node, read_server));
    upstream.tls = fields.get("tls").and_then(|node| read_server_tls(cx, node));
    read_protocol(cx, fields, upstream);
    upstream.load_report = fields
        .get("load_report")
        .and_then(|node| read_load_report(cx, node));
    upstream.balance = fields
        .get("balance")
        .and_then(|node| read_balance(cx, node));
    upstream.health = fields.get("health").and_then(|node| read_health(cx, node));
    if let Some(node) = fields.get("eject") {
        upstream.eject = read_eject(cx, node);
    }
    upstream.slow_start = fields
        .get("slow_start")
        .and_then(|node| cx.read_timeout(node));
    let mut read_bound = |name| {
        fields
            .get(name)
            .and_then(|node| cx.read_count(node, MAX_REQUESTS_BOUND))
    };
    upstream.bounds = Bounds {
        open: read_bound("max_requests"),
        pending: read_bound("max_pending"),
    };
    if let Some(node) = fields.get("timeouts") {
        upstream.timeouts = UpstreamTimeouts::read(cx, node);
    }
}

/// Reads `protocol` and `proxy_protocol`, which exclude each other for HTTP/2.
fn read_protocol(cx: &mut LoadContext, fields: &MapFields<'_>, upstream: &mut UpstreamConfig) {
    let http2 = fields
        .get("protocol")
        .and_then(|node| cx.read_word(node, &[("h1", false), ("h2", true)]));
    upstream.http2 = http2.is_some_and(|http2| http2.value);
    upstream.proxy = fields.get("proxy_protocol").and_then(|node| {
        cx.read_word(
            node,
            &[
                ("v1", ProxyProtocolVersion::One),
                ("v2", ProxyProtocolVersion::Two),
            ],
        )
    });
    if let Some(version) = upstream.proxy.filter(|_| upstream.http2) {
        let help = "drop one of them";
        cx.error(
            version.location,
            "`proxy_protocol` names one client for each connection, and many share one of `protocol: h2`",
            Some(help.into()),
        );
    }
}

/// Reads one server: its URL, or a map with its weight.
fn read_server(cx: &mut LoadContext, node: &Node) -> Option<Located<ServerConfig>> {
    if matches!(node.value, YamlValue::Map(_)) {
        let fields = WEIGHTED_SERVER_TABLE.open(cx, node)?;
        let weight = fields
            .get("weight")
            .and_then(|node| cx.read_count(node, MAX_WEIGHT));
        let server = fields.get("url").and_then(|node| read_url(cx, node))?;
        return Some(server.map(|server| ServerConfig {
            weight: weight.unwrap_or(1),
            ..server
        }));
    }
    read_url(cx, node)
}

fn read_url(cx: &mut LoadContext, node: &Node) -> Option<Located<ServerConfig>> {
    cx.read_scalar(node, "a server such as http://10.0.0.11:8080", parse_server)
}

/// Parses the URL of a server, or `unix:` and the path of its socket.
fn parse_server(text: &str) -> Result<ServerConfig, ValueError> {
    let text = text.trim();
    if text.starts_with(UNIX_PREFIX) {
        return Ok(ServerConfig {
            location: Location::Unix(parse_unix_path(text)?),
            tls: false,
            weight: 1,
        });
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let help = match text.starts_with('/') {
            true => format!("write `{UNIX_PREFIX}{text}`"),
            false => format!("write `http://{text}`"),
        };
        let message = format!("`{text}` is not a server: the scheme is missing");
        return Err(ValueError::new(message, help));
    };
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => {
            let message = format!("`{scheme}` is not a scheme of servers");
            return Err(ValueError::new(message, "write `http://`"));
        }
    };
    if rest.starts_with(UNIX_PREFIX) {
        let message = "a Unix socket has no scheme; HTTP without TLS is spoken to it";
        return Err(ValueError::new(message, format!("write `{rest}`")));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '@']) {
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        let message = "a server is a host and a port, without path and password";
        let help =
            format!("write `{scheme}://{host}`: requests keep the path that the client asked for");
        return Err(ValueError::new(message, help));
    }
    let (host, port) = parse_authority(authority, if tls { 443 } else { 80 })?;
    Ok(ServerConfig {
        location: Location::Host(host, port),
        tls,
        weight: 1,
    })
}

/// Parses `HOST[:PORT]`. The host becomes lower case and loses the brackets of an IPv6 address.
fn parse_authority(text: &str, default_port: u16) -> Result<(String, u16), ValueError> {
    let error = || {
        let message = format!("`{text}` is not a host with a port");
        ValueError::new(message, "write for instance `http://10.0.0.11:8080`")
    };
    let authority: http::uri::Authority = text.parse().map_err(|_| error())?;
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => default_port,
        Some(port) => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .ok_or_else(error)?,
        None => return Err(error()),
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    if port == 0 || host.is_empty() {
        return Err(error());
    }
    Ok((host.to_ascii_lowercase(), port))
}
