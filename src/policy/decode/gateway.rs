//! Reads the gateway file: its own fields here, and each section with the reader of its module.

use super::super::connections::{CONNECTIONS_TABLE, Connections};
use super::super::context::LoadContext;
use super::super::model::{AdminConfig, GatewayConfig, StoreConfig, UpstreamConfig};
use super::super::table::{Table, ValueShape, optional, required, words};
use super::super::timeouts::{TIMEOUTS_TABLE, Timeouts};
use super::super::tree::{MapKey, Node, YamlValue};
use super::ValueError;
use super::access_log::{ACCESS_LOG_TABLE, read_access_log};
use super::identity::{IDENTITY_TABLE, read_identity};
use super::limit::{LIMIT_TABLE, LimitFile, read_limit};
use super::listen::{ADMIN_TABLE, LISTENER_TABLE, read_admin, read_listener};
use super::plan::{PLAN_TABLE, read_plan};
use super::record::{RECORD_TABLE, read_record};
use super::scalar::{ADDRESS_FORMAT, HEADER_STYLE_WORDS, PATH_FORMAT};
use super::store::{STORE_FORMAT, STORE_TABLE, read_store};
use super::upstream::{SERVER_FORMAT, SERVER_SHAPE, UPSTREAM_TABLE, read_upstream};
use crate::route::PathMatching;

/// Maximum number of worker threads, far above the cores of a machine.
const MAX_WORKERS: u64 = 1024;

pub static GATEWAY_TABLE: Table = Table {
    name: "the gateway file",
    doc: "What tollgate is told once: where it listens, what is behind it, who asks and what holds on every route.",
    fields: &[
        optional(
            "version",
            ValueShape::WholeNumber(1, 1),
            "The version of this format.",
            "1",
        ),
        optional(
            "workers",
            ValueShape::WholeNumber(1, MAX_WORKERS),
            "Worker threads. Default: one per core.",
            "2",
        ),
        required(
            "listen",
            ValueShape::OneOrList(&ValueShape::AnyOf(&[
                ValueShape::Format(&ADDRESS_FORMAT),
                ValueShape::Table(&LISTENER_TABLE),
            ])),
            "Where clients connect.",
            "0.0.0.0:8080",
        ),
        optional(
            "admin",
            ValueShape::AnyOf(&[
                ValueShape::Words(&["off"]),
                ValueShape::Format(&ADDRESS_FORMAT),
                ValueShape::Table(&ADMIN_TABLE),
            ]),
            "Where operators connect. Default: 127.0.0.1:9900.",
            "127.0.0.1:9900",
        ),
        optional(
            "policies",
            ValueShape::Format(&PATH_FORMAT),
            "The folder of policies, one route per file. Default: policies.",
            "policies",
        ),
        required(
            "upstreams",
            ValueShape::NamedMap(&ValueShape::AnyOf(&[
                ValueShape::Format(&SERVER_FORMAT),
                ValueShape::List(&SERVER_SHAPE),
                ValueShape::Table(&UPSTREAM_TABLE),
            ])),
            "The servers behind, by name.",
            "{ shop: [http://10.0.0.11:8080] }",
        ),
        optional(
            "identity",
            ValueShape::Table(&IDENTITY_TABLE),
            "How the gateway knows who asks.",
            "{ token: { bearer: true } }",
        ),
        optional(
            "plans",
            ValueShape::NamedMap(&ValueShape::Table(&PLAN_TABLE)),
            "The plans, by name.",
            "{ free: { multiply: 1 } }",
        ),
        optional(
            "timeouts",
            ValueShape::Table(&TIMEOUTS_TABLE),
            "How long things may take.",
            "{ connect: 2s }",
        ),
        optional(
            "connections",
            ValueShape::Table(&CONNECTIONS_TABLE),
            "How many connections clients may have.",
            "{ per_ip: 200 }",
        ),
        optional(
            "limits",
            ValueShape::NamedMap(&ValueShape::Table(&LIMIT_TABLE)),
            "Limits of every route, by name.",
            "{ per-ip: { key: ip, rate: 10/s } }",
        ),
        optional(
            "store",
            ValueShape::AnyOf(&[
                ValueShape::Format(&STORE_FORMAT),
                ValueShape::Table(&STORE_TABLE),
            ]),
            "Where counts live. Default: 256MiB of memory.",
            "memory",
        ),
        optional(
            "record",
            ValueShape::AnyOf(&[
                ValueShape::Bool,
                ValueShape::Words(&["off", "memory"]),
                ValueShape::Format(&PATH_FORMAT),
                ValueShape::Table(&RECORD_TABLE),
            ]),
            "What happened in every second, for years. Default: memory, the last two or three hours.",
            "{ dir: data/record }",
        ),
        optional(
            "access_log",
            ValueShape::AnyOf(&[
                ValueShape::Bool,
                ValueShape::Words(&["stdout", "stderr", "off"]),
                ValueShape::Format(&PATH_FORMAT),
                ValueShape::Table(&ACCESS_LOG_TABLE),
            ]),
            "Where requests are logged. Default: stdout.",
            "{ file: access.log, requests: refused }",
        ),
        optional(
            "headers",
            ValueShape::Words(&words(&HEADER_STYLE_WORDS)),
            "Which rate-limit headers answers carry. Default: ietf.",
            "ietf",
        ),
        optional(
            "paths",
            ValueShape::Words(&words(&PATHS_WORDS)),
            "Whether a limited route takes the spellings of its path that frameworks take for it (case, formats, what follows a script), where only a broader route on the same upstream takes them as they are, and whether the body of a POST is searched for `_method`. Default: fold.",
            "exact",
        ),
    ],
};

const PATHS_WORDS: [(&str, PathMatching); 2] =
    [("fold", PathMatching::Fold), ("exact", PathMatching::Exact)];

/// Reads the gateway file.
pub fn read_gateway(cx: &mut LoadContext, node: &Node) -> GatewayConfig {
    let Some(fields) = GATEWAY_TABLE.open(cx, node) else {
        return GatewayConfig::default();
    };
    if let Some(node) = fields.get("version") {
        cx.read_scalar(node, "the version of this format, 1", |text| {
            let help = "write `version: 1`";
            let message = format!("this gateway knows version 1 of the format, not `{text}`");
            (text == "1")
                .then_some(())
                .ok_or_else(|| ValueError::new(message, help))
        });
    }
    let workers = fields
        .get("workers")
        .and_then(|node| cx.read_whole_number(node, 1, MAX_WORKERS));
    let access_log = fields
        .get("access_log")
        .and_then(|node| read_access_log(cx, node));
    let record = fields.get("record").and_then(|node| read_record(cx, node));
    GatewayConfig {
        workers: workers.and_then(|workers| usize::try_from(workers.value).ok()),
        listen: fields
            .get("listen")
            .map_or_else(Vec::new, |node| cx.read_list(node, read_listener)),
        admin: fields
            .get("admin")
            .map(|node| read_admin(cx, node))
            .unwrap_or_default(),
        policies: fields
            .get("policies")
            .and_then(|node| cx.read_text(node, "the name of a folder")),
        upstreams: read_upstreams(cx, fields.get("upstreams")),
        identity: fields
            .get("identity")
            .map(|node| read_identity(cx, node))
            .unwrap_or_default(),
        plans: read_named_entries(cx, fields.get("plans"), "plans", read_plan),
        timeouts: fields
            .get("timeouts")
            .map(|node| Timeouts::read(cx, node))
            .unwrap_or_default(),
        connections: fields
            .get("connections")
            .map(|node| Connections::read(cx, node))
            .unwrap_or_default(),
        limits: read_named_entries(cx, fields.get("limits"), "limits", |cx, key, node| {
            read_limit(cx, key, node, LimitFile::Gateway)
        }),
        store: fields
            .get("store")
            .map_or_else(StoreConfig::default, |node| read_store(cx, node)),
        access_log,
        record,
        headers: fields
            .get("headers")
            .and_then(|node| cx.read_header_style(node))
            .map(|style| style.value),
        paths: fields
            .get("paths")
            .and_then(|node| cx.read_word(node, &PATHS_WORDS))
            .map(|paths| paths.value),
    }
}

/// Reads `admin` of the gateway file, and `listen` if the admin listener is switched off. No other field is read;
/// `expand` replaces the references in these two.
pub fn read_endpoints(
    cx: &mut LoadContext,
    node: &mut Node,
    expand: impl Fn(&mut LoadContext, &mut Node),
) -> GatewayConfig {
    let mut expanded_field = |cx: &mut LoadContext, name: &str| {
        let YamlValue::Map(entries) = &mut node.value else {
            return None;
        };
        let (_, node) = entries.iter_mut().find(|(key, _)| key.text == name)?;
        expand(cx, node);
        Some(node.clone())
    };
    let admin = expanded_field(cx, "admin").map(|node| read_admin(cx, &node));
    let admin = admin.unwrap_or_default();
    let listen = match admin {
        AdminConfig::Off => expanded_field(cx, "listen"),
        AdminConfig::On { .. } => None,
    };
    let listen = listen.map_or_else(Vec::new, |node| cx.read_list(&node, read_listener));
    GatewayConfig {
        listen,
        admin,
        ..GatewayConfig::default()
    }
}

/// Reads each entry of a map whose keys the user chooses. Messages call the entries `kind`.
fn read_named_entries<T>(
    cx: &mut LoadContext,
    node: Option<&Node>,
    kind: &str,
    mut read_entry: impl FnMut(&mut LoadContext, &MapKey, &Node) -> Option<T>,
) -> Vec<T> {
    let Some(node) = node else { return Vec::new() };
    cx.named_entries(node, kind)
        .iter()
        .filter_map(|(key, value)| read_entry(cx, key, value))
        .collect()
}

fn read_upstreams(cx: &mut LoadContext, node: Option<&Node>) -> Vec<UpstreamConfig> {
    let Some(node) = node else { return Vec::new() };
    let is_empty = match &node.value {
        YamlValue::Map(entries) => entries.is_empty(),
        other => matches!(other, YamlValue::Null),
    };
    if is_empty {
        let help = "name one, for instance `shop: [http://10.0.0.11:8080]`";
        cx.error(node.location, "there are no upstreams", Some(help.into()));
    }
    read_named_entries(cx, Some(node), "upstreams", read_upstream)
}
