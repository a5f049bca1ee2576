//! Reads the section `store`: the memory for counts, their snapshots, and the store that several gateways share. A
//! password in an address is hidden from all excerpts.

use std::ops::Range;
use std::time::Duration;

use super::super::context::LoadContext;
use super::super::model::{Located, StoreAddress, StoreConfig};
use super::super::table::{MapFields, Table, TextFormat, ValueShape, optional};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::scalar::{DURATION_FORMAT, PATH_FORMAT, SIZE_FORMAT};
use super::snapshots::read_snapshots;
use crate::base::suggest::nearest_word;
use crate::store::Settings;
use crate::store::redis::{self, AddressError, RedisAddress};

/// Minimum of `budget`, the time that a request waits for the shared store.
const MIN_STORE_WAIT: Duration = Duration::from_millis(1);
/// Maximum of `budget`: a slower store would delay every request too long.
const MAX_STORE_WAIT: Duration = Duration::from_secs(1);

/// The port of a memcached server without one.
const MEMCACHED_PORT: u16 = 11_211;

pub static STORE_TABLE: Table = Table {
    name: "`store`",
    doc: "Where counts live.",
    fields: &[
        optional(
            "memory",
            ValueShape::Format(&SIZE_FORMAT),
            "Most memory for counts of this gateway. Default: 256MiB.",
            "256MiB",
        ),
        optional(
            "snapshots",
            ValueShape::Format(&PATH_FORMAT),
            "A folder that keeps them when the process ends, for the next one. Default: none, they are forgotten.",
            "data/counts",
        ),
        optional(
            "every",
            ValueShape::Format(&DURATION_FORMAT),
            "A crash forgives at most what was counted in this time. Default: 10s.",
            "10s",
        ),
        optional(
            "address",
            ValueShape::Format(&STORE_ADDRESS_FORMAT),
            "A store that several gateways share.",
            "rediss://tollgate:secret@10.0.0.5:6379/0",
        ),
        optional(
            "password_file",
            ValueShape::Format(&PATH_FORMAT),
            "The file of the password, where `address` has none.",
            "redis.password",
        ),
        optional(
            "budget",
            ValueShape::Format(&DURATION_FORMAT),
            "How long a request waits for it before it is decided without. Default: 5ms.",
            "5ms",
        ),
        optional(
            "ca",
            ValueShape::Format(&PATH_FORMAT),
            "Who vouches for its certificate, as PEM. Default: those whom the system trusts.",
            "store-ca.pem",
        ),
    ],
};

static STORE_ADDRESS_FORMAT: TextFormat = TextFormat {
    name: "store_address",
    pattern: r"^(rediss?(\+cluster|\+sentinel)?|memcached)://.+$",
    doc: "redis://user:password@host:6379/0, or with rediss (TLS), +cluster, +sentinel; memcached://a:11211,b:11211.",
};

pub static STORE_FORMAT: TextFormat = TextFormat {
    name: "store",
    pattern: r"^(memory|(rediss?(\+cluster|\+sentinel)?|memcached)://.+)$",
    doc: "memory, or the address of a shared store.",
};

/// Reads `store`: the word `memory`, the address of a shared store, or a map.
pub fn read_store(cx: &mut LoadContext, node: &Node) -> StoreConfig {
    if !matches!(node.value, YamlValue::Map(_)) {
        return read_store_scalar(cx, node);
    }
    let Some(fields) = STORE_TABLE.open(cx, node) else {
        return StoreConfig::default();
    };
    check_shared_store_fields(cx, &fields);
    let budget = fields
        .get("budget")
        .and_then(|node| cx.read_duration(node, MIN_STORE_WAIT, MAX_STORE_WAIT));
    let snapshots = read_snapshots(cx, &fields);
    let address = fields.get("address").and_then(|node| {
        hide_password(cx, node);
        let expected = "the address of a store, such as redis://HOST:PORT";
        cx.read_scalar(node, expected, parse_address)
    });
    let password_file = fields
        .get("password_file")
        .and_then(|node| cx.read_secret_file_name(node));
    check_password_file(cx, &fields, address.as_ref());
    check_ca(cx, &fields, address.as_ref());
    let (min, max) = (
        Settings::MIN_BUDGET_BYTES as u64,
        Settings::MAX_BUDGET_BYTES as u64,
    );
    StoreConfig {
        snapshots,
        address,
        memory: fields
            .get("memory")
            .and_then(|node| cx.read_size(node, min, max))
            .map(|size| size.value),
        password_file,
        budget: budget.map(|budget| budget.value),
        roots: fields
            .get("ca")
            .and_then(|node| cx.read_text(node, "the name of a file")),
    }
}

fn read_store_scalar(cx: &mut LoadContext, node: &Node) -> StoreConfig {
    let expected = "a store: memory, redis://HOST:PORT, or { memory: 256MiB }";
    let address = cx.read_scalar(node, expected, |text| match text {
        "memory" => Ok(None),
        text => parse_address(text).map(Some),
    });
    hide_password(cx, node);
    StoreConfig {
        address: address.and_then(|address| {
            let location = address.location;
            address.value.map(|value| Located { value, location })
        }),
        ..StoreConfig::default()
    }
}

/// Reports fields that only a shared store has.
fn check_shared_store_fields(cx: &mut LoadContext, fields: &MapFields<'_>) {
    for name in ["budget", "ca", "password_file"] {
        if fields.has(name) && !fields.has("address") {
            let message = format!("`{name}` is for a store that gateways share");
            let help = "remove it, or write `address: redis://HOST:PORT` beside it";
            cx.error(fields.location_of(name), message, Some(help.into()));
        }
    }
}

/// Reports `password_file` if the address has a password, or if the store takes none.
fn check_password_file(
    cx: &mut LoadContext,
    fields: &MapFields<'_>,
    address: Option<&Located<StoreAddress>>,
) {
    if !fields.has("password_file") {
        return;
    }
    let location = fields.location_of("password_file");
    match address.map(|address| &address.value) {
        Some(StoreAddress::Redis(redis)) if redis.password.is_some() => {
            let message = "`address` has a password already";
            cx.error(location, message, Some("keep one of them".into()));
        }
        Some(StoreAddress::Memcached(_)) => {
            let message = "memcached has no password";
            cx.error(location, message, Some("remove it".into()));
        }
        _ => {}
    }
}

/// Reports `ca` for a store that does not use TLS.
fn check_ca(cx: &mut LoadContext, fields: &MapFields<'_>, address: Option<&Located<StoreAddress>>) {
    let has_tls = |address: &Located<StoreAddress>| matches!(&address.value, StoreAddress::Redis(redis) if redis.uses_tls);
    if fields.has("ca") && address.is_some_and(|address| !has_tls(address)) {
        let message = "`ca` is for a store that speaks TLS";
        let help = "write rediss:// to speak TLS, or remove it";
        cx.error(fields.location_of("ca"), message, Some(help.into()));
    }
}

/// Keeps a password that is written in an address out of excerpts, and out of the texts that the admin API shows.
fn hide_password(cx: &mut LoadContext, node: &Node) {
    if let Some(password) = node.text_in_file().and_then(find_password) {
        cx.hide_location(node.location_of(password));
    }
}

/// Finds the bytes of the password in an address. Returns `None` for a password that consists of references, because
/// these show no secret.
fn find_password(address: &str) -> Option<Range<usize>> {
    let start = address.find("://")? + 3;
    let end = address.rfind('@').filter(|end| *end > start)?;
    let end_of_reference = |offset: usize| {
        let brace = address[offset..end].strip_prefix("${")?.find('}')?;
        Some(offset + "${".len() + brace + 1)
    };
    // A colon inside a reference does not separate the user from the password.
    let mut colon = start;
    while !address[colon..end].starts_with(':') {
        let next = address[colon..end].chars().next()?;
        colon = end_of_reference(colon).unwrap_or(colon + next.len_utf8());
    }
    let password = colon + 1..end;
    let mut offset = password.start;
    while let Some(reference_end) = end_of_reference(offset) {
        offset = reference_end;
    }
    (offset < end).then_some(password)
}

fn parse_address(text: &str) -> Result<StoreAddress, ValueError> {
    let (scheme, servers) = text.split_once("://").unwrap_or((text, ""));
    if scheme == "memcached" {
        return parse_memcached_servers(servers);
    }
    let address = RedisAddress::parse(text).map_err(|error| match error {
        AddressError::Scheme => {
            let schemes = [
                "memory",
                "redis",
                "rediss",
                "redis+cluster",
                "redis+sentinel",
                "memcached",
            ];
            let help = match nearest_word(scheme, schemes) {
                Some("memory") => String::from("did you mean `memory`?"),
                Some(scheme) => format!("write `{scheme}://HOST:PORT`"),
                None => String::from("write `memory` or `redis://HOST:PORT`"),
            };
            ValueError::new(format!("`{scheme}` is not a store"), help)
        }
        error => address_error(&error),
    })?;
    Ok(StoreAddress::Redis(address))
}

/// Parses servers such as `a:11211,b:11211`.
fn parse_memcached_servers(servers: &str) -> Result<StoreAddress, ValueError> {
    let servers = servers.trim_end_matches('/').split(',').map(|server| {
        let (host, port) =
            redis::parse_host(server, MEMCACHED_PORT).map_err(|e| address_error(&e))?;
        Ok(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        })
    });
    let servers = servers.collect::<Result<Vec<String>, ValueError>>()?;
    Ok(StoreAddress::Memcached(servers))
}

fn address_error(error: &AddressError) -> ValueError {
    ValueError::new("this is no address of a store", error.to_string())
}
