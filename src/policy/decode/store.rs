//! Reads the section `store`: the memory for counts, their snapshots, and the store that several gateways share. A
//! password in an address is hidden from all excerpts.

use std::ops::Range;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, Section, section};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Located, Node, YamlValue};
use super::ValueError;
use super::field::{DurationField, FileNameField, SecretFileNameField, SizeField};
use super::scalar::PATH_FORMAT;
use super::switch_word::{is_off, report_switch_word};
use crate::base::suggest::nearest_word;
use crate::store::redis::{self, AddressError, RedisAddress};
use crate::store::{Settings, shared, snapshot};

/// Minimum of `memory`, in bytes.
const MIN_MEMORY_BYTES: u64 = Settings::MIN_BUDGET_BYTES as u64;
/// Maximum of `memory`, in bytes.
const MAX_MEMORY_BYTES: u64 = Settings::MAX_BUDGET_BYTES as u64;
/// Default of `memory`, in bytes.
const DEFAULT_MEMORY_BYTES: usize = 256 * 1024 * 1024;

/// Minimum of `every`, in milliseconds.
const MIN_INTERVAL_MILLIS: u64 = snapshot::Settings::MIN_INTERVAL.as_millis() as u64;
/// Maximum of `every`, in milliseconds.
const MAX_INTERVAL_MILLIS: u64 = snapshot::Settings::MAX_INTERVAL.as_millis() as u64;

/// Minimum of `budget` in milliseconds, the time that a request waits for the shared store.
const MIN_STORE_WAIT_MILLIS: u64 = 1;
/// Maximum of `budget` in milliseconds: a slower store would delay every request too long.
const MAX_STORE_WAIT_MILLIS: u64 = 1_000;

/// Minimum of `permit_lease`, in milliseconds.
const MIN_PERMIT_LEASE_MILLIS: u64 = shared::Settings::MIN_PERMIT_LEASE.as_millis() as u64;
/// Maximum of `permit_lease`, in milliseconds.
const MAX_PERMIT_LEASE_MILLIS: u64 = shared::Settings::MAX_PERMIT_LEASE.as_millis() as u64;

/// The port of a memcached server whose address has none.
const MEMCACHED_PORT: u16 = 11_211;

section! {
    /// The store of the counts.
    pub struct StoreConfig, table STORE_TABLE = "`store`", "Where counts live.", check check_store;
    memory: SizeField<MIN_MEMORY_BYTES, MAX_MEMORY_BYTES> = DEFAULT_MEMORY_BYTES,
        "Most memory for counts of this gateway.", "256MiB";
    snapshots: SnapshotFolderField,
        "A folder that keeps them when the process ends, for the next one. Default: none, they are forgotten.", "data/counts";
    every: DurationField<MIN_INTERVAL_MILLIS, MAX_INTERVAL_MILLIS> = snapshot::Settings::DEFAULT_INTERVAL,
        "A crash forgives at most what was counted in this time.", "10s";
    address: StoreAddressField, "A store that several gateways share.", "rediss://tollgate:secret@192.0.2.5:6379/0";
    password_file: SecretFileNameField, "The file of the password, where `address` has none.", "redis.password";
    budget: DurationField<MIN_STORE_WAIT_MILLIS, MAX_STORE_WAIT_MILLIS> = shared::Settings::DEFAULT_BUDGET,
        "How long a request waits for it before it is decided without.", "5ms";
    permit_lease: DurationField<MIN_PERMIT_LEASE_MILLIS, MAX_PERMIT_LEASE_MILLIS> = shared::Settings::DEFAULT_PERMIT_LEASE,
        "How long it keeps permits of open requests for a gateway that it does not hear of.", "60s";
    ca: FileNameField,
        "Who vouches for its certificate, as PEM. Default: those whom the system trusts.", "store-ca.pem";
}

static STORE_ADDRESS_FORMAT: TextFormat = TextFormat {
    name: "store_address",
    pattern: r"^(rediss?(\+cluster|\+sentinel)?|memcached)://.+$",
    doc: "redis://user:password@host:6379/0, or with rediss (TLS), +cluster, +sentinel; memcached://a:11211,b:11211.",
};

static STORE_FORMAT: TextFormat = TextFormat {
    name: "store",
    pattern: r"^(memory|(rediss?(\+cluster|\+sentinel)?|memcached)://.+)$",
    doc: "memory, or the address of a shared store.",
};

/// The address of a store that several gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// The address of a Redis or Valkey store.
    Redis(RedisAddress),
    /// The servers of memcached, each as `host:port`, with brackets around an IPv6 address.
    Memcached(Vec<String>),
}

/// A field with the word `memory`, the address of a shared store, or a map.
pub struct StoreField;

impl FieldReader for StoreField {
    type Value = StoreConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&STORE_FORMAT),
        ValueShape::Table(&STORE_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<StoreConfig> {
        if matches!(node.value, YamlValue::Map(_)) {
            return StoreConfig::read(cx, node);
        }
        let expected = "a store: memory, redis://HOST:PORT, or { memory: 256MiB }";
        let address = cx.read_scalar(node, expected, |text| match text {
            "memory" => Ok(None),
            text => parse_address(text).map(Some),
        });
        hide_password(cx, node);
        Some(StoreConfig {
            address: address.flatten().map(|value| Located {
                value,
                location: node.location,
            }),
            ..StoreConfig::default()
        })
    }
}

/// A field with the address of a shared store.
pub struct StoreAddressField;

impl FieldReader for StoreAddressField {
    type Value = Located<StoreAddress>;
    const SHAPE: ValueShape = ValueShape::Format(&STORE_ADDRESS_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<StoreAddress>> {
        hide_password(cx, node);
        let expected = "the address of a store, such as redis://HOST:PORT";
        let value = cx.read_scalar(node, expected, parse_address)?;
        Some(Located {
            value,
            location: node.location,
        })
    }
}

/// A field with the folder of snapshots. A word that switches them off is read as if the field were absent.
pub struct SnapshotFolderField;

impl FieldReader for SnapshotFolderField {
    type Value = String;
    const SHAPE: ValueShape = ValueShape::Format(&PATH_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<String> {
        if node.scalar().is_some_and(is_off) {
            return None;
        }
        let folder = cx.read_text(node, "the name of a folder")?;
        report_switch_word(cx, &folder, "name the folder");
        Some(folder.value)
    }
}

/// Reports fields about snapshots without a folder for them, and fields about a shared store that do not fit `address`.
fn check_store(cx: &mut LoadContext, fields: &MapFields<'_>, store: &StoreConfig) {
    let folder = fields.get("snapshots");
    let has_snapshots = folder.is_some_and(|node| !node.scalar().is_some_and(is_off));
    if fields.has("every") && !has_snapshots {
        let help = "name their folder, for instance `snapshots: data/counts`";
        let message = "`every` says how often snapshots are written, and there are none";
        let location = fields.value_location("every");
        cx.error(location, message, Some(help.into()));
    }
    check_shared_store_fields(cx, fields);
    check_password_file(cx, fields, store.address.as_ref());
    check_ca(cx, fields, store.address.as_ref());
}

/// Reports fields about a shared store if there is no `address`.
fn check_shared_store_fields(cx: &mut LoadContext, fields: &MapFields<'_>) {
    for name in ["budget", "ca", "password_file", "permit_lease"] {
        if fields.has(name) && !fields.has("address") {
            let message = format!("`{name}` is for a store that gateways share");
            let help = "remove it, or write `address: redis://HOST:PORT` beside it";
            cx.error(fields.location_of(name), message, Some(help.into()));
        }
    }
}

/// Reports `password_file` if the address has a password, or if the store is memcached, which has none.
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

/// Finds the range of the password's bytes in an address. Returns `None` without a password, and for one that consists
/// of references, because these show no secret.
fn find_password(address: &str) -> Option<Range<usize>> {
    let userinfo_start = address.find("://")? + "://".len();
    let userinfo_end = address.rfind('@').filter(|end| *end > userinfo_start)?;
    let end_of_reference = |offset: usize| {
        let brace = address[offset..userinfo_end]
            .strip_prefix("${")?
            .find('}')?;
        Some(offset + "${".len() + brace + 1)
    };
    // A colon inside a reference does not separate the user from the password.
    let mut colon = userinfo_start;
    while !address[colon..userinfo_end].starts_with(':') {
        let skipped_char = address[colon..userinfo_end].chars().next()?;
        colon = end_of_reference(colon).unwrap_or(colon + skipped_char.len_utf8());
    }
    let password = colon + 1..userinfo_end;
    let mut offset = password.start;
    while let Some(reference_end) = end_of_reference(offset) {
        offset = reference_end;
    }
    (offset < userinfo_end).then_some(password)
}

/// Parses the address of a shared store.
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

/// Parses servers such as `a:11211,b:11211`. The default port is added where there is none.
fn parse_memcached_servers(servers: &str) -> Result<StoreAddress, ValueError> {
    let servers = servers.trim_end_matches('/').split(',').map(|server| {
        let (host, port) =
            redis::parse_host(server, MEMCACHED_PORT).map_err(|error| address_error(&error))?;
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
