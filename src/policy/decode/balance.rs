//! Reads the fields `balance`, `health` and `eject` of an upstream: how its servers share requests, and when one of
//! them receives none.

use std::time::Duration;

use super::super::context::LoadContext;
use super::super::model::{EjectConfig, HealthConfig, Located};
use super::super::table::{Table, ValueShape, optional, required, words};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::scalar::DURATION_FORMAT;
use crate::limit::Identity;
use crate::upstream::Balance;

/// Maximum number of checks or requests in a row that decide about a server.
const MAX_IN_A_ROW: u64 = 1_000;

/// Minimum interval and timeout of health checks, so that checks do not load the servers.
const MIN_CHECK_TIME: Duration = Duration::from_millis(100);
/// Maximum interval and timeout of health checks: a day.
const MAX_CHECK_TIME: Duration = Duration::from_secs(86_400);

/// How a server is chosen, unless a key decides.
#[derive(Clone, Copy)]
pub enum BalanceWord {
    RoundRobin,
    LeastRequests,
}

pub const BALANCE_WORDS: [(&str, BalanceWord); 2] = [
    ("round_robin", BalanceWord::RoundRobin),
    ("least_requests", BalanceWord::LeastRequests),
];

/// The identities that may choose a server. An email address is not among them, because it is in the body.
const HASH_KEY_WORDS: [(&str, Identity); 4] = [
    ("ip", Identity::Ip),
    ("user", Identity::User),
    ("token", Identity::Token),
    ("plan", Identity::Plan),
];

pub static BALANCE_TABLE: Table = Table {
    name: "`balance`",
    doc: "Which server is next.",
    fields: &[required(
        "hash",
        ValueShape::OneOrList(&ValueShape::Words(&words(&HASH_KEY_WORDS))),
        "Requests with the same identity, or list of them, go to the same server as long as it is well; those without, in turn.",
        "user",
    )],
};

pub static HEALTH_TABLE: Table = Table {
    name: "`health`",
    doc: "Asks each server whether it is well.",
    fields: &[
        optional(
            "path",
            ValueShape::Text,
            "A GET for this path must be answered with 2xx or 3xx.",
            "/healthz",
        ),
        optional(
            "tcp",
            ValueShape::Bool,
            "It must take a connection; instead of `path`.",
            "true",
        ),
        optional(
            "every",
            ValueShape::Format(&DURATION_FORMAT),
            "How often. Default: 5s.",
            "5s",
        ),
        optional(
            "timeout",
            ValueShape::Format(&DURATION_FORMAT),
            "How long an answer may take. Default: 2s, or `every` if that is less.",
            "2s",
        ),
        optional(
            "fall",
            ValueShape::WholeNumber(1, MAX_IN_A_ROW),
            "Failures in a row that take a server out. Default: 3; the very first check is enough.",
            "3",
        ),
        optional(
            "rise",
            ValueShape::WholeNumber(1, MAX_IN_A_ROW),
            "Successes in a row that bring it back. Default: 2.",
            "2",
        ),
    ],
};

pub static EJECT_TABLE: Table = Table {
    name: "`eject`",
    doc: "When a server is left alone. A request fails that gets no connection, no answer or none in time, or 502, 503 or 504.",
    fields: &[
        optional(
            "after",
            ValueShape::WholeNumber(1, MAX_IN_A_ROW),
            "Failures in a row. Default: 3.",
            "3",
        ),
        optional(
            "for",
            ValueShape::Format(&DURATION_FORMAT),
            "For how long the first time; the n-th time in a row n times as long, up to 5m. Default: 10s.",
            "10s",
        ),
    ],
};

/// Reads `balance`: a word, or a map with the key that chooses the server.
pub fn read_balance(cx: &mut LoadContext, node: &Node) -> Option<Located<Balance>> {
    if matches!(node.value, YamlValue::Map(_)) {
        let fields = BALANCE_TABLE.open(cx, node)?;
        let node = fields.get("hash")?;
        let identities = cx.read_list(node, |cx, item| {
            cx.read_word(item, &HASH_KEY_WORDS).map(|at| at.value)
        });
        return Some(Located {
            value: Balance::Hash(identities),
            location: node.location,
        });
    }
    let word = cx.read_word(node, &BALANCE_WORDS)?;
    Some(word.map(|word| match word {
        BalanceWord::RoundRobin => Balance::RoundRobin,
        BalanceWord::LeastRequests => Balance::LeastRequests,
    }))
}

/// Reads `health`, which has a path to request, or only connects.
pub fn read_health(cx: &mut LoadContext, node: &Node) -> Option<HealthConfig> {
    let fields = HEALTH_TABLE.open(cx, node)?;
    let method = fields.require_one_of(cx, &["path", "tcp"]);
    if let Some(tcp) = fields.get("tcp").and_then(|node| cx.read_bool(node))
        && !tcp.value
    {
        let help = "write `tcp: true`, or `path: /healthz`";
        cx.error(
            tcp.location,
            "`tcp: false` asks for nothing",
            Some(help.into()),
        );
    }
    let path = fields.get("path").and_then(|node| {
        cx.read_scalar(node, "a path such as /healthz", |text| {
            let fits = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
            fits.then(|| text.to_owned()).ok_or_else(|| {
                ValueError::new(
                    format!("`{text}` is not a path"),
                    "write for instance `/healthz`",
                )
            })
        })
    });
    let mut read_time = |name| {
        let node = fields.get(name)?;
        cx.read_duration(node, MIN_CHECK_TIME, MAX_CHECK_TIME)
            .map(|time| time.value)
    };
    let (every, timeout) = (read_time("every"), read_time("timeout"));
    let mut read_count = |name| {
        fields
            .get(name)
            .and_then(|node| cx.read_count(node, MAX_IN_A_ROW))
    };
    let (fall, rise) = (read_count("fall"), read_count("rise"));
    method.map(|_| HealthConfig {
        path: path.map(|path| path.value),
        every,
        timeout,
        fall,
        rise,
    })
}

/// Reads `eject`: the word `off`, or a map.
pub fn read_eject(cx: &mut LoadContext, node: &Node) -> EjectConfig {
    if !matches!(node.value, YamlValue::Map(_)) {
        cx.read_scalar(node, "`off` or `{ after: 3, for: 10s }`", |text| {
            let help = "write `off`, or for instance `{ after: 3, for: 10s }`";
            let error = || ValueError::new(format!("unknown word `{text}`"), help);
            (text == "off").then_some(()).ok_or_else(error)
        });
        return EjectConfig::Off;
    }
    let fields = EJECT_TABLE.open(cx, node);
    let field = |name| fields.as_ref().and_then(|fields| fields.get(name));
    EjectConfig::On {
        after: field("after").and_then(|node| cx.read_count(node, MAX_IN_A_ROW)),
        span: field("for").and_then(|node| cx.read_timeout(node)),
    }
}
