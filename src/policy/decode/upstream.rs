//! Reads one upstream of the section `upstreams`: its servers, and how the gateway connects to them. Files of
//! certificates are read later, when the model is compiled.

use super::super::context::LoadContext;
use super::super::section::{
    FieldReader, LocatedField, Named, RequiredField, Section, SectionField, section,
};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::timeouts::UpstreamTimeouts;
use super::super::tree::{Located, MapKey, Node, YamlValue};
use super::ValueError;
use super::balance::{BalanceField, EjectConfig, EjectField, HealthConfig};
use super::field::{
    FileNameField, ListField, SecretFileNameField, TimeoutField, WholeNumberField, scalar_fields,
    word_fields,
};
use super::scalar::{parse_name, parse_unix_path};
use crate::base::suggest::nearest_word;
use crate::limit::pressure::Trust;
use crate::net::address::UNIX_PREFIX;
use crate::net::proxy_protocol::ProxyProtocolVersion;
use crate::route::canonical_host::canonical_host;
use crate::upstream::Location;

pub static SERVER_FORMAT: TextFormat = TextFormat {
    name: "server",
    pattern: r"^(https?://[^/\s]+/?|unix:/.+)$",
    doc: "A server: http://HOST[:PORT], or https:// where TLS is spoken to it, or unix:/PATH of its Unix socket.",
};

/// The port of a server whose `http://` URL has none.
const HTTP_PORT: u16 = 80;
/// The port of a server whose `https://` URL has none.
const HTTPS_PORT: u16 = 443;

/// Maximum weight of a server, so that sums of weights stay small.
const MAX_WEIGHT: u64 = 256;
/// Maximum value of `max_requests` and `max_pending`, in requests.
const MAX_REQUESTS_BOUND: u64 = 1_000_000;

section! {
    /// The servers of an upstream, and how the gateway uses them.
    pub struct UpstreamFields, table UPSTREAM_TABLE = "an upstream",
        "Servers that can stand in for each other.", check check_upstream;
    servers: RequiredField<ListField<ServerField>> = Vec::new(), "Its servers.", "[http://192.0.2.11:8080]";
    tls: LocatedField<SectionField<ServerTlsConfig>>,
        "How servers that are written https:// are spoken to.", "{ roots: ca.pem }";
    host: LocatedField<HostChoiceField>,
        "Which `Host` they get: the client's (`client`), that of their URL (`upstream`), or this name. With another than the client's, the client's is in `X-Forwarded-Host` and `Forwarded`. Default: client.", "upstream";
    http2("protocol"): ProtocolField = false, "How they are spoken to.", "h1";
    proxy_protocol: LocatedField<ProxyVersionField>,
        "Begins each connection with a header of the PROXY protocol that names the client. A connection then serves one request only, and `protocol: h2` is not possible. Default: none.", "v2";
    balance: BalanceField, "Which server is next. Default: round_robin.", "least_requests";
    health: SectionField<HealthConfig>, "Asks each server whether it is well.", "{ path: /healthz, every: 5s }";
    eject: EjectField = Some(EjectConfig::default()),
        "When a server is left alone because requests to it fail; never more than half of them. Default: after 3 failures in a row.", "{ after: 3, for: 10s }";
    slow_start: TimeoutField,
        "In what time a server that comes back, or is new after a reload, gets its full share. Default: at once.", "30s";
    max_requests: WholeNumberField<u32, 1, MAX_REQUESTS_BOUND>,
        "Most requests open at a time; above that the answer is 503. Default: no bound.", "1000";
    max_pending: WholeNumberField<u32, 1, MAX_REQUESTS_BOUND>,
        "Most requests that wait for a connection at a time; above that the answer is 503. Default: no bound.", "100";
    load_report: SectionField<LoadReportConfig>,
        "Believes what its servers say of their load in the field endpoint-load-metrics (ORCA), which clients then do not see. Default: the field is passed on and not looked at.", "{ trust: lower }";
    timeouts: SectionField<UpstreamTimeouts> = UpstreamTimeouts::default(),
        "How long things may take.", "{ first_byte: 10s }";
}

/// An upstream and its name.
pub type UpstreamConfig = Named<UpstreamFields>;

section! {
    /// A server that is written as a map.
    pub struct WeightedServer, table WEIGHTED_SERVER_TABLE = "a server", "A server with its weight.";
    url: RequiredField<LocatedField<ServerUrlField>>, "Where it is.", "http://192.0.2.11:8080";
    weight: WholeNumberField<u32, 1, MAX_WEIGHT> = 1, "Its share beside those of the others.", "2";
}

section! {
    /// How the gateway connects to servers with TLS.
    pub struct ServerTlsConfig, table SERVER_TLS_TABLE = "an upstream's `tls`",
        "How servers that are written https:// are spoken to. They are always verified.", check check_own_certificate;
    roots: FileNameField, "The authorities that may vouch for them, in PEM. Default: the system's.", "ca.pem";
    name: LocatedField<HostNameField>,
        "The name that their certificates are for. Default: the host of each.", "shop.internal";
    cert: FileNameField,
        "The certificate chain, in PEM, of the gateway itself, for servers that ask; with `key`.", "gateway.pem";
    key: SecretFileNameField, "Its private key in PEM.", "gateway.key";
}

section! {
    /// How load reports of servers are used.
    pub struct LoadReportConfig, table LOAD_REPORT_TABLE = "an upstream's `load_report`",
        "How far its servers are believed when they say how busy they are.";
    trust: RequiredField<TrustField> = Trust::Lower,
        "lower: a report can only lower what is lent; full: it takes the place of the load that latency shows.", "lower";
    metric: MetricNameField,
        "The named metric that is the load of a server which reports no application_utilization. Default: its cpu_utilization.", "queue";
}

word_fields! {
    /// A field with the version of HTTP; the value says whether it is HTTP/2.
    pub struct ProtocolField: bool = "h1" => false, "h2" => true;
    /// A field with the version of the PROXY protocol.
    pub struct ProxyVersionField: ProxyProtocolVersion =
        "v1" => ProxyProtocolVersion::One, "v2" => ProxyProtocolVersion::Two;
    /// A field that says how far load reports are trusted.
    pub struct TrustField: Trust = "lower" => Trust::Lower, "full" => Trust::Full;
}

scalar_fields! {
    /// A field with the URL of a server.
    pub struct ServerUrlField: ServerConfig =
        ValueShape::Format(&SERVER_FORMAT), "a server such as http://192.0.2.11:8080", parse_server;
    /// A field with the host that servers get.
    pub struct HostChoiceField: HostChoice =
        ValueShape::Format(&HOST_CHOICE_FORMAT), "`client`, `upstream` or a host name", parse_host_choice;
    /// A field with the name in the certificates of servers.
    pub struct HostNameField: String = ValueShape::Text, "a host name";
    /// A field with the name of a metric in load reports.
    pub struct MetricNameField: String = ValueShape::Text, "a name";
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The network address of the server.
    pub location: Location,
    /// Whether the gateway connects with TLS.
    pub tls: bool,
    /// The share of the requests, relative to the weights of the other servers: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
}

impl ServerConfig {
    /// The host of the URL, with its port unless that is the default; `None` for a Unix socket.
    pub fn host(&self) -> Option<String> {
        let default_port = if self.tls { HTTPS_PORT } else { HTTP_PORT };
        match &self.location {
            Location::Host(host, port) if *port == default_port => match host.contains(':') {
                true => Some(format!("[{host}]")),
                false => Some(host.clone()),
            },
            Location::Host(..) => Some(self.location.to_string()),
            Location::Unix(_) => None,
        }
    }

    /// Whether both are the same server, whatever their weights.
    pub fn is_same_server(&self, other: &ServerConfig) -> bool {
        self.location == other.location && self.tls == other.tls
    }
}

/// A field with a server: its URL, or a map with its weight.
pub struct ServerField;

impl FieldReader for ServerField {
    type Value = Located<ServerConfig>;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&SERVER_FORMAT),
        ValueShape::Table(&WEIGHTED_SERVER_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<ServerConfig>> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return LocatedField::<ServerUrlField>::read(cx, node);
        }
        let WeightedServer { url, weight } = WeightedServer::read(cx, node)?;
        Some(url?.map(|server| ServerConfig { weight, ..server }))
    }
}

/// The host that the servers of an upstream get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChoice {
    /// That of the client's request.
    Client,
    /// That of the servers' URL.
    Upstream,
    /// This one, in canonical form.
    Name(String),
}

impl UpstreamFields {
    /// Whether servers get another host than the client's.
    pub fn replaces_host(&self) -> bool {
        let choice = self.host.as_ref().map(|host| &host.value);
        choice.is_some_and(|choice| *choice != HostChoice::Client)
    }
}

static HOST_CHOICE_FORMAT: TextFormat = TextFormat {
    name: "upstream-host",
    pattern: r"^\s*[^\s/@?#]+\s*$",
    doc: "`client`, `upstream`, or a host name, perhaps with a port.",
};

/// Reports fields that do not fit together.
fn check_upstream(cx: &mut LoadContext, _: &MapFields<'_>, upstream: &mut UpstreamFields) {
    check_protocols(cx, upstream);
    check_host(cx, upstream);
}

/// Reports `host: upstream` where the servers have no host or different ones.
fn check_host(cx: &mut LoadContext, upstream: &UpstreamFields) {
    let choice = upstream.host.as_ref();
    let Some(host) = choice.filter(|host| host.value == HostChoice::Upstream) else {
        return;
    };
    let mut hosts = upstream.servers.iter().map(|server| server.value.host());
    let first = hosts.next().flatten();
    let help = "write the name that all of them serve, for instance `host: api.example.com`";
    if first.is_none() && !upstream.servers.is_empty() {
        let message = "a Unix socket has no host";
        cx.error(host.location, message, Some(help.into()));
    } else if hosts.any(|other| other != first) {
        let message = "the servers have different hosts, and a request may go to any of them";
        cx.error(host.location, message, Some(help.into()));
    }
}

/// Reports `proxy_protocol` with HTTP/2: the header names one client, but many clients share a connection of HTTP/2.
fn check_protocols(cx: &mut LoadContext, upstream: &UpstreamFields) {
    if let Some(version) = upstream.proxy_protocol.filter(|_| upstream.http2) {
        let help = "drop one of them";
        cx.error(
            version.location,
            "`proxy_protocol` names one client for each connection, and many share one of `protocol: h2`",
            Some(help.into()),
        );
    }
}

/// Reports a certificate without its key, and a key without its certificate.
fn check_own_certificate(cx: &mut LoadContext, fields: &MapFields<'_>, _: &ServerTlsConfig) {
    for (present, missing) in [("cert", "key"), ("key", "cert")] {
        if fields.has(present) && !fields.has(missing) {
            let message = format!("`{present}` needs `{missing}`");
            cx.error(fields.location_of(present), message, None);
        }
    }
}

/// Reads the upstream that is written under `key`: a map, or only its servers. An invalid name is reported, but kept.
/// Fields with a mistake, which is reported, have their defaults, so the result is never `None`.
pub fn read_upstream(cx: &mut LoadContext, key: &MapKey, node: &Node) -> Option<UpstreamConfig> {
    if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "an upstream") {
        cx.error(key.location, message, help);
    }
    let fields = match node.value {
        YamlValue::Map(_) => UpstreamFields::read(cx, node)?,
        _ => UpstreamFields {
            servers: cx.read_list(node, ServerField::read),
            ..UpstreamFields::default()
        },
    };
    let name = Located {
        value: key.text.clone(),
        location: key.location,
    };
    Some(Named { name, fields })
}

/// Parses `client`, `upstream` or a host. A host without a dot that is nearly one of these words is a mistake.
fn parse_host_choice(text: &str) -> Result<HostChoice, ValueError> {
    let intended = nearest_word(text, ["client", "upstream"]);
    match text.trim() {
        "client" => Ok(HostChoice::Client),
        "upstream" => Ok(HostChoice::Upstream),
        text => match canonical_host(text) {
            Some(_) if intended.is_some() && !text.contains('.') => {
                let help = format!(
                    "did you mean `{}`? A host of this name is written with a dot at its end, `{text}.`",
                    intended.unwrap_or_default()
                );
                Err(ValueError::new(format!("unknown word `{text}`"), help))
            }
            Some(host) => Ok(HostChoice::Name(host.into_owned())),
            None => {
                let message = format!("`{text}` is not a host");
                let help = "write `client`, `upstream`, or a name such as `api.example.com`, without scheme and path";
                Err(ValueError::new(message, help))
            }
        },
    }
}

/// Parses the URL of a server, or `unix:` and the path of its socket. The weight is 1.
fn parse_server(text: &str) -> Result<ServerConfig, ValueError> {
    let text = text.trim();
    if text.starts_with(UNIX_PREFIX) {
        return Ok(ServerConfig {
            location: Location::Unix(parse_unix_path(text)?),
            tls: false,
            weight: 1,
        });
    }
    let Some((scheme, after_scheme)) = text.split_once("://") else {
        let help = match text.starts_with('/') {
            true => format!("write `{UNIX_PREFIX}{text}`"),
            false => format!("write `http://{text}`"),
        };
        let message = format!("`{text}` is not a server: the scheme is missing");
        return Err(ValueError::new(message, help));
    };
    let uses_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => {
            let message = format!("`{scheme}` is not a scheme of servers");
            return Err(ValueError::new(message, "write `http://`"));
        }
    };
    if after_scheme.starts_with(UNIX_PREFIX) {
        let message = "a Unix socket has no scheme; HTTP without TLS is spoken to it";
        return Err(ValueError::new(message, format!("write `{after_scheme}`")));
    }
    let authority = after_scheme.strip_suffix('/').unwrap_or(after_scheme);
    if authority.contains(['/', '?', '#', '@']) {
        let after_userinfo = authority.rsplit('@').next().unwrap_or_default();
        let host = after_userinfo
            .split(['/', '?', '#'])
            .next()
            .unwrap_or_default();
        let message = "a server is a host and a port, without path and password";
        let help =
            format!("write `{scheme}://{host}`: requests keep the path that the client asked for");
        return Err(ValueError::new(message, help));
    }
    let (host, port) = parse_authority(authority, if uses_tls { HTTPS_PORT } else { HTTP_PORT })?;
    Ok(ServerConfig {
        location: Location::Host(host, port),
        tls: uses_tls,
        weight: 1,
    })
}

/// Parses `HOST[:PORT]` to host and port. The host becomes lower case and loses the brackets of an IPv6 address. Port 0
/// is a mistake.
fn parse_authority(text: &str, default_port: u16) -> Result<(String, u16), ValueError> {
    let error = || {
        let message = format!("`{text}` is not a host with a port");
        ValueError::new(message, "write for instance `http://192.0.2.11:8080`")
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
