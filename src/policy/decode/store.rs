//! `store`: where counts live.

use std::ops::Range;
use std::time::Duration;

use super::super::collect::Cx;
use super::super::model::{Located, StoreAddress, StoreConfig};
use super::super::table::{Form, Table, ValueShape, may};
use super::super::tree::{Node, YamlValue};
use super::leaf::{DURATION, PATH, SIZE};
use super::snapshots::snapshots;
use super::{ValueError, invalid};
use crate::base::suggest::nearest;
use crate::store::Settings;
use crate::store::redis::{self, AddressError, RedisAddress};

/// Where counts live.
pub static STORE: Table = Table {
    name: "`store`",
    doc: "Where counts live.",
    fields: &[
        may(
            "memory",
            ValueShape::Form(&SIZE),
            "Most memory for counts of this gateway. Default: 256MiB.",
            "256MiB",
        ),
        may(
            "snapshots",
            ValueShape::Form(&PATH),
            "A folder that keeps them when the process ends, for the next one. Default: none, they are forgotten.",
            "data/counts",
        ),
        may(
            "every",
            ValueShape::Form(&DURATION),
            "A crash forgives at most what was counted in this time. Default: 10s.",
            "10s",
        ),
        may(
            "address",
            ValueShape::Form(&STORE_ADDRESS),
            "A store that several gateways share.",
            "rediss://tollgate:secret@10.0.0.5:6379/0",
        ),
        may(
            "password_file",
            ValueShape::Form(&PATH),
            "The file of the password, where `address` has none.",
            "redis.password",
        ),
        may(
            "budget",
            ValueShape::Form(&DURATION),
            "How long a request waits for it before it is decided without. Default: 5ms.",
            "5ms",
        ),
        may(
            "ca",
            ValueShape::Form(&PATH),
            "Who vouches for its certificate, as PEM. Default: those whom the system trusts.",
            "store-ca.pem",
        ),
    ],
};

static STORE_ADDRESS: Form = Form {
    name: "store_address",
    pattern: r"^(rediss?(\+cluster|\+sentinel)?|memcached)://.+$",
    doc: "redis://user:password@host:6379/0, or with rediss (TLS), +cluster, +sentinel; memcached://a:11211,b:11211.",
};

/// The same in a word.
pub static STORE_WORD: Form = Form {
    name: "store",
    pattern: r"^(memory|(rediss?(\+cluster|\+sentinel)?|memcached)://.+)$",
    doc: "memory, or the address of a shared store.",
};

/// Reads `store`.
pub fn store(cx: &mut Cx, node: &Node) -> StoreConfig {
    if !matches!(node.value, YamlValue::Map(_)) {
        let expected = "a store: memory, redis://HOST:PORT, or { memory: 256MiB }";
        let address = cx.read(node, expected, |text| match text {
            "memory" => Ok(None),
            text => address(text).map(Some),
        });
        hide_password(cx, node);
        return StoreConfig {
            address: address.and_then(|at| {
                let place = at.place;
                at.value.map(|value| Located { value, place })
            }),
            ..StoreConfig::default()
        };
    }
    let Some(fields) = STORE.open(cx, node) else {
        return StoreConfig::default();
    };
    let expected = "the address of a store, such as redis://HOST:PORT";
    let (least, most) = (Settings::LEAST as u64, Settings::MOST as u64);
    let mut shared_only = |name| {
        if fields.has(name) && !fields.has("address") {
            let message = format!("`{name}` is for a store that gateways share");
            let help = "remove it, or write `address: redis://HOST:PORT` beside it";
            cx.error(fields.place_of(name), message, Some(help.into()));
        }
    };
    shared_only("budget");
    shared_only("ca");
    shared_only("password_file");
    let budget = fields.get("budget").and_then(|node| {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(1));
        cx.span(node, least, most)
    });
    let snapshots = snapshots(cx, &fields);
    let address = fields.get("address").and_then(|node| {
        hide_password(cx, node);
        cx.read(node, expected, address)
    });
    let password_file = fields
        .get("password_file")
        .and_then(|node| cx.secret_file(node));
    if fields.has("password_file") {
        let place = fields.place_of("password_file");
        match address.as_ref().map(|at| &at.value) {
            Some(StoreAddress::Redis(to)) if to.password.is_some() => {
                let message = "`address` has a password already";
                cx.error(place, message, Some("keep one of them".into()));
            }
            Some(StoreAddress::Memcached(_)) => {
                let message = "memcached has no password";
                cx.error(place, message, Some("remove it".into()));
            }
            _ => {}
        }
    }
    let plain =
        |at: &Located<StoreAddress>| !matches!(&at.value, StoreAddress::Redis(to) if to.tls);
    if fields.has("ca") && address.as_ref().is_some_and(plain) {
        let message = "`ca` is for a store that speaks TLS";
        let help = "write rediss:// to speak TLS, or remove it";
        cx.error(fields.place_of("ca"), message, Some(help.into()));
    }
    StoreConfig {
        snapshots,
        address,
        memory: fields
            .get("memory")
            .and_then(|node| cx.size(node, least, most))
            .map(|size| size.value),
        password_file,
        budget: budget.map(|budget| budget.value),
        roots: fields
            .get("ca")
            .and_then(|node| cx.text(node, "the name of a file")),
    }
}

/// Keeps a password that is written in an address from all who may read the file through the gateway.
fn hide_password(cx: &mut Cx, node: &Node) {
    if let Some(password) = node.as_written().and_then(password) {
        cx.hide(node.place_of(password));
    }
}

/// Where the password of an address stands, unless references are all that stands there.
fn password(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + 3;
    let end = text.rfind('@').filter(|end| *end > start)?;
    let after_reference = |at: usize| {
        let closes = text[at..end].strip_prefix("${")?.find('}')?;
        Some(at + "${".len() + closes + 1)
    };
    // A colon inside of a reference divides nothing.
    let mut at = start;
    while !text[at..end].starts_with(':') {
        let next = text[at..end].chars().next()?;
        at = after_reference(at).unwrap_or(at + next.len_utf8());
    }
    let password = at + 1..end;
    at += 1;
    while let Some(after) = after_reference(at) {
        at = after;
    }
    (at < end).then_some(password)
}

fn address(text: &str) -> Result<StoreAddress, ValueError> {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let odd = |cause: String| invalid("this is no address of a store", cause);
    if scheme == "memcached" {
        let servers = rest.trim_end_matches('/').split(',');
        let servers = servers.map(|server| redis::host(server, 11_211));
        let servers = servers.collect::<Result<Vec<_>, _>>();
        let servers = servers.map_err(|error| odd(error.to_string()))?;
        let servers = servers
            .into_iter()
            .map(|(host, port)| match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            });
        return Ok(StoreAddress::Memcached(servers.collect()));
    }
    let address = RedisAddress::parse(text).map_err(|error| match error {
        AddressError::Scheme => {
            let known = [
                "memory",
                "redis",
                "rediss",
                "redis+cluster",
                "redis+sentinel",
                "memcached",
            ];
            let help = match nearest(scheme, known) {
                Some("memory") => String::from("did you mean `memory`?"),
                Some(scheme) => format!("write `{scheme}://HOST:PORT`"),
                None => String::from("write `memory` or `redis://HOST:PORT`"),
            };
            invalid(format!("`{scheme}` is not a store"), help)
        }
        error => odd(error.to_string()),
    })?;
    Ok(StoreAddress::Redis(address))
}
