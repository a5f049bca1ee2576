//! The gateway file.

use super::super::collect::Cx;
use super::super::connections::{CONNECTIONS, Connections};
use super::super::model::{AdminConfig, GatewayConfig, StoreConfig, UpstreamConfig};
use super::super::table::{Table, ValueShape, may, must, words};
use super::super::timeouts::{TIMEOUTS, Timeouts};
use super::super::tree::{MapKey, Node, YamlValue};
use super::access_log::{ACCESS_LOG, access_log};
use super::identity::{IDENTITY, identity};
use super::invalid;
use super::leaf::{ADDRESS, HEADER_STYLES, PATH};
use super::limit::{LIMIT, limit};
use super::listen::{ADMIN, LISTENER, admin, listener};
use super::plan::{PLAN, plan};
use super::record::{RECORD, record};
use super::store::{STORE, STORE_WORD, store};
use super::upstream::{SERVER, SERVERS, UPSTREAM, upstream};
use crate::route::Paths;

/// The gateway file.
pub static GATEWAY: Table = Table {
    name: "the gateway file",
    doc: "What tollgate is told once: where it listens, what is behind it, who asks and what holds on every route.",
    fields: &[
        may(
            "version",
            ValueShape::Whole(1, 1),
            "The version of this format.",
            "1",
        ),
        may(
            "workers",
            ValueShape::Whole(1, 1024),
            "Worker threads. Default: one per core.",
            "2",
        ),
        must(
            "listen",
            ValueShape::Many(&ValueShape::Either(&[
                ValueShape::Form(&ADDRESS),
                ValueShape::Table(&LISTENER),
            ])),
            "Where clients connect.",
            "0.0.0.0:8080",
        ),
        may(
            "admin",
            ValueShape::Either(&[
                ValueShape::Words(&["off"]),
                ValueShape::Form(&ADDRESS),
                ValueShape::Table(&ADMIN),
            ]),
            "Where operators connect. Default: 127.0.0.1:9900.",
            "127.0.0.1:9900",
        ),
        may(
            "policies",
            ValueShape::Form(&PATH),
            "The folder of policies, one route per file. Default: policies.",
            "policies",
        ),
        must(
            "upstreams",
            ValueShape::Named(&ValueShape::Either(&[
                ValueShape::Form(&SERVER),
                ValueShape::List(&SERVERS),
                ValueShape::Table(&UPSTREAM),
            ])),
            "The servers behind, by name.",
            "{ shop: [http://10.0.0.11:8080] }",
        ),
        may(
            "identity",
            ValueShape::Table(&IDENTITY),
            "How the gateway knows who asks.",
            "{ token: { bearer: true } }",
        ),
        may(
            "plans",
            ValueShape::Named(&ValueShape::Table(&PLAN)),
            "The plans, by name.",
            "{ free: { multiply: 1 } }",
        ),
        may(
            "timeouts",
            ValueShape::Table(&TIMEOUTS),
            "How long things may take.",
            "{ connect: 2s }",
        ),
        may(
            "connections",
            ValueShape::Table(&CONNECTIONS),
            "How many connections clients may have.",
            "{ per_ip: 200 }",
        ),
        may(
            "limits",
            ValueShape::Named(&ValueShape::Table(&LIMIT)),
            "Limits of every route, by name.",
            "{ per-ip: { key: ip, rate: 10/s } }",
        ),
        may(
            "store",
            ValueShape::Either(&[ValueShape::Form(&STORE_WORD), ValueShape::Table(&STORE)]),
            "Where counts live. Default: 256MiB of memory.",
            "memory",
        ),
        may(
            "record",
            ValueShape::Either(&[
                ValueShape::Flag,
                ValueShape::Words(&["off", "memory"]),
                ValueShape::Form(&PATH),
                ValueShape::Table(&RECORD),
            ]),
            "What happened in every second, for years. Default: memory, the last two or three hours.",
            "{ dir: data/record }",
        ),
        may(
            "access_log",
            ValueShape::Either(&[
                ValueShape::Flag,
                ValueShape::Words(&["stdout", "stderr", "off"]),
                ValueShape::Form(&PATH),
                ValueShape::Table(&ACCESS_LOG),
            ]),
            "Where requests are logged. Default: stdout.",
            "{ file: access.log, requests: refused }",
        ),
        may(
            "headers",
            ValueShape::Words(&words(&HEADER_STYLES)),
            "Which rate-limit headers answers carry. Default: ietf.",
            "ietf",
        ),
        may(
            "paths",
            ValueShape::Words(&words(&PATHS)),
            "Whether a limited route takes the spellings of its path that frameworks take for it (case, formats, what follows a script), where only a broader route on the same upstream takes them as they are, and whether the body of a POST is searched for `_method`. Default: fold.",
            "exact",
        ),
    ],
};

const PATHS: [(&str, Paths); 2] = [("fold", Paths::Fold), ("exact", Paths::Exact)];

/// Reads the gateway file.
pub fn gateway(cx: &mut Cx, node: &Node) -> GatewayConfig {
    let Some(fields) = GATEWAY.open(cx, node) else {
        return GatewayConfig::default();
    };
    if let Some(node) = fields.get("version") {
        cx.read(node, "the version of this format, 1", |text| {
            let help = "write `version: 1`";
            let message = format!("this gateway knows version 1 of the format, not `{text}`");
            (text == "1")
                .then_some(())
                .ok_or_else(|| invalid(message, help))
        });
    }
    let workers = fields
        .get("workers")
        .and_then(|node| cx.whole(node, 1, 1024));
    let access_log = fields
        .get("access_log")
        .and_then(|node| access_log(cx, node));
    let record = fields.get("record").and_then(|node| record(cx, node));
    GatewayConfig {
        workers: workers.and_then(|workers| usize::try_from(workers.value).ok()),
        listen: fields
            .get("listen")
            .map_or_else(Vec::new, |node| cx.many(node, listener)),
        admin: fields
            .get("admin")
            .map(|node| admin(cx, node))
            .unwrap_or_default(),
        policies: fields
            .get("policies")
            .and_then(|node| cx.text(node, "the name of a folder")),
        upstreams: upstreams(cx, fields.get("upstreams")),
        identity: fields
            .get("identity")
            .map(|node| identity(cx, node))
            .unwrap_or_default(),
        plans: each(cx, fields.get("plans"), "plans", plan),
        timeouts: fields
            .get("timeouts")
            .map(|node| Timeouts::read(cx, node))
            .unwrap_or_default(),
        connections: fields
            .get("connections")
            .map(|node| Connections::read(cx, node))
            .unwrap_or_default(),
        limits: each(cx, fields.get("limits"), "limits", |cx, key, node| {
            limit(cx, key, node, true)
        }),
        store: fields
            .get("store")
            .map_or_else(StoreConfig::default, |node| store(cx, node)),
        access_log,
        record,
        headers: fields
            .get("headers")
            .and_then(|node| cx.headers(node))
            .map(|style| style.value),
        paths: fields
            .get("paths")
            .and_then(|node| cx.word(node, &PATHS))
            .map(|paths| paths.value),
    }
}

/// Reads `admin`, and `listen` where there is nothing else to ask, of the gateway file. What is read is filled in.
pub fn endpoints(
    cx: &mut Cx,
    node: &mut Node,
    fill_in: impl Fn(&mut Cx, &mut Node),
) -> GatewayConfig {
    let mut field = |cx: &mut Cx, name: &str| {
        let YamlValue::Map(entries) = &mut node.value else {
            return None;
        };
        let (_, node) = entries.iter_mut().find(|(key, _)| key.text == name)?;
        fill_in(cx, node);
        Some(node.clone())
    };
    let admin = field(cx, "admin").map(|node| admin(cx, &node));
    let admin = admin.unwrap_or_default();
    let listen = match admin {
        AdminConfig::Off => field(cx, "listen"),
        AdminConfig::On { .. } => None,
    };
    let listen = listen.map_or_else(Vec::new, |node| cx.many(&node, listener));
    GatewayConfig {
        listen,
        admin,
        ..GatewayConfig::default()
    }
}

/// Reads each entry of a map with names of the user's choice.
fn each<T>(
    cx: &mut Cx,
    node: Option<&Node>,
    what: &str,
    mut read: impl FnMut(&mut Cx, &MapKey, &Node) -> Option<T>,
) -> Vec<T> {
    let Some(node) = node else { return Vec::new() };
    cx.named(node, what)
        .iter()
        .filter_map(|(key, node)| read(cx, key, node))
        .collect()
}

fn upstreams(cx: &mut Cx, node: Option<&Node>) -> Vec<UpstreamConfig> {
    let Some(node) = node else { return Vec::new() };
    let empty = match &node.value {
        YamlValue::Map(entries) => entries.is_empty(),
        other => matches!(other, YamlValue::Null),
    };
    if empty {
        let help = "name one, for instance `shop: [http://10.0.0.11:8080]`";
        cx.error(node.place, "there are no upstreams", Some(help.into()));
    }
    each(cx, Some(node), "upstreams", upstream)
}
