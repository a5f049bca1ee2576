//! How servers share requests and when they are taken out: `balance`, `health`, `eject`.

use std::time::Duration;

use super::super::collect::Cx;
use super::super::model::{EjectConfig, HealthConfig, Located};
use super::super::table::{Table, ValueShape, may, must, words};
use super::super::tree::{Node, YamlValue};
use super::invalid;
use super::leaf::DURATION;
use crate::limit::Identity;
use crate::upstream::Balance;

/// The words for ways to choose a server, and whether its open requests decide.
pub const BALANCES: [(&str, bool); 2] = [("round_robin", false), ("least_requests", true)];

/// The identities that may choose a server: those that the head of a request holds.
const KEYS: [(&str, Identity); 4] = [
    ("ip", Identity::Ip),
    ("user", Identity::User),
    ("token", Identity::Token),
    ("plan", Identity::Plan),
];

/// A server chosen by a key.
pub static HASH: Table = Table {
    name: "`balance`",
    doc: "Which server is next.",
    fields: &[must(
        "hash",
        ValueShape::Many(&ValueShape::Words(&words(&KEYS))),
        "Requests with the same identity, or list of them, go to the same server as long as it is well; those without, in turn.",
        "user",
    )],
};

/// Checks.
pub static HEALTH: Table = Table {
    name: "`health`",
    doc: "Asks each server whether it is well.",
    fields: &[
        may(
            "path",
            ValueShape::Text,
            "A GET for this path must be answered with 2xx or 3xx.",
            "/healthz",
        ),
        may(
            "tcp",
            ValueShape::Flag,
            "It must take a connection; instead of `path`.",
            "true",
        ),
        may(
            "every",
            ValueShape::Form(&DURATION),
            "How often. Default: 5s.",
            "5s",
        ),
        may(
            "timeout",
            ValueShape::Form(&DURATION),
            "How long an answer may take. Default: 2s, or `every` if that is less.",
            "2s",
        ),
        may(
            "fall",
            ValueShape::Whole(1, MOST),
            "Failures in a row that take a server out. Default: 3; the very first check is enough.",
            "3",
        ),
        may(
            "rise",
            ValueShape::Whole(1, MOST),
            "Successes in a row that bring it back. Default: 2.",
            "2",
        ),
    ],
};

/// Passive ejection.
pub static EJECT: Table = Table {
    name: "`eject`",
    doc: "When a server is left alone. A request fails that gets no connection, no answer or none in time, or 502, 503 or 504.",
    fields: &[
        may(
            "after",
            ValueShape::Whole(1, MOST),
            "Failures in a row. Default: 3.",
            "3",
        ),
        may(
            "for",
            ValueShape::Form(&DURATION),
            "For how long the first time; the n-th time in a row n times as long, up to 5m. Default: 10s.",
            "10s",
        ),
    ],
};

/// Most checks or requests in a row.
const MOST: u64 = 1_000;

/// Reads `balance`.
pub fn balance(cx: &mut Cx, node: &Node) -> Option<Located<Balance>> {
    if matches!(node.value, YamlValue::Map(_)) {
        let fields = HASH.open(cx, node)?;
        let node = fields.get("hash")?;
        let identities = cx.many(node, |cx, item| cx.word(item, &KEYS).map(|at| at.value));
        return Some(Located {
            value: Balance::Hash(identities),
            place: node.place,
        });
    }
    let least = cx.word(node, &BALANCES)?;
    Some(least.map(|least| {
        if least {
            Balance::LeastRequests
        } else {
            Balance::RoundRobin
        }
    }))
}

/// Reads `health`.
pub fn health(cx: &mut Cx, node: &Node) -> Option<HealthConfig> {
    let fields = HEALTH.open(cx, node)?;
    let way = fields.one_of(cx, &["path", "tcp"]);
    if let Some(tcp) = fields.get("tcp").and_then(|node| cx.flag(node))
        && !tcp.value
    {
        let help = "write `tcp: true`, or `path: /healthz`";
        cx.error(
            tcp.place,
            "`tcp: false` asks for nothing",
            Some(help.into()),
        );
    }
    let path = fields.get("path").and_then(|node| {
        cx.read(node, "a path such as /healthz", |text| {
            let fits = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
            fits.then(|| text.to_owned()).ok_or_else(|| {
                invalid(
                    format!("`{text}` is not a path"),
                    "write for instance `/healthz`",
                )
            })
        })
    });
    let mut span = |name| {
        let node = fields.get(name)?;
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(86_400));
        cx.span(node, least, most).map(|span| span.value)
    };
    let (every, timeout) = (span("every"), span("timeout"));
    let mut times = |name| fields.get(name).and_then(|node| cx.count(node, MOST));
    let (fall, rise) = (times("fall"), times("rise"));
    way.map(|_| HealthConfig {
        path: path.map(|path| path.value),
        every,
        timeout,
        fall,
        rise,
    })
}

/// Reads `eject`.
pub fn eject(cx: &mut Cx, node: &Node) -> EjectConfig {
    if !matches!(node.value, YamlValue::Map(_)) {
        cx.read(node, "`off` or `{ after: 3, for: 10s }`", |text| {
            let help = "write `off`, or for instance `{ after: 3, for: 10s }`";
            let told = || invalid(format!("unknown word `{text}`"), help);
            (text == "off").then_some(()).ok_or_else(told)
        });
        return EjectConfig::Off;
    }
    let fields = EJECT.open(cx, node);
    let get = |name| fields.as_ref().and_then(|fields| fields.get(name));
    EjectConfig::On {
        after: get("after").and_then(|node| cx.count(node, MOST)),
        span: get("for").and_then(|node| cx.timeout(node)),
    }
}
