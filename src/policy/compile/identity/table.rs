//! Reads tables of networks in the MaxMind DB format: <https://maxmind.github.io/MaxMind-DB/>. The whole file is read at
//! load, so that a damaged one is a mistake then. A request only searches the ranges that were made of it.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use maxminddb::{MaxMindDbError, PathElement, Reader, WithinOptions};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::super::super::context::LoadContext;
use super::super::super::source::Files;
use super::super::super::tree::Located;
use super::super::files::read_table_file;
use crate::base::suggest::{list_words, nearest_word};
use crate::identity::user_name;
use crate::limit::{NetworkTable, NetworkTableBuilder};

/// Maximum number of networks that are read, those without data included. Branches of a damaged tree may lead into each
/// other, so that the tree has many more networks than bytes.
const MAX_NETWORKS: usize = 32 * 1024 * 1024;

/// Maximum number of ranges in memory: 128 MiB, at 32 bytes each. Tables of countries have a few hundred thousand.
const MAX_RANGES: usize = 4 * 1024 * 1024;

/// The length of the prefix `::/96`, under which tables have the networks of IPv4.
const IPV4_PREFIX_BITS: u8 = 96;

/// Maximum number of fields that a message names.
const MAX_LISTED_FIELDS: usize = 8;

/// Reads what the table says in `field` of each network. An address has no name if its network lacks the field, or if
/// the value is no valid name. `None` if the table cannot be used, which is reported.
pub(super) fn read_table(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
    field: &Located<String>,
) -> Option<NetworkTable> {
    let bytes = read_table_file(cx, files, base, file)?;
    let (location, message, help) = match parse_table(&bytes, &field.value) {
        Ok(table) => return Some(table),
        Err(TableError::Damaged(error)) => (
            file.location,
            format!("`{}` is no intact MaxMind DB file: {error}", file.value),
            String::from("fetch the file again; a table has the ending `.mmdb`"),
        ),
        Err(TableError::TooLarge) => (
            file.location,
            format!(
                "`{}` has more than {MAX_NETWORKS} networks, or {MAX_RANGES} ranges with values of their own",
                file.value
            ),
            String::from("name a field that more networks share, such as the country"),
        ),
        Err(TableError::NoValue(kind)) => (
            field.location,
            format!("`{}` is {kind} in `{}`", field.value, file.value),
            String::from("name a field with a text, a whole number, `true` or `false`"),
        ),
        Err(TableError::Unknown(fields)) => {
            let fields = fields.iter().map(String::as_str);
            let help = match nearest_word(&field.value, fields.clone()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!(
                    "the first network has {}",
                    list_words(fields.take(MAX_LISTED_FIELDS))
                ),
            };
            let message = format!(
                "no network in `{}` has the field `{}`",
                file.value, field.value
            );
            (field.location, message, help)
        }
    };
    cx.error(location, message, Some(help));
    None
}

/// Why a table cannot be used.
#[derive(Debug)]
enum TableError {
    /// The file cannot be decoded.
    Damaged(MaxMindDbError),
    /// The table has more networks than [`MAX_NETWORKS`], or more ranges than [`MAX_RANGES`].
    TooLarge,
    /// In some record the field has a value of this kind, which cannot be an identity.
    NoValue(&'static str),
    /// No network has a valid name in the field. The first one with data has these fields; none if its record has no
    /// form in JSON.
    Unknown(Vec<String>),
}

impl From<MaxMindDbError> for TableError {
    fn from(error: MaxMindDbError) -> TableError {
        TableError::Damaged(error)
    }
}

/// Parses a table. Dots in `field` lead into maps, as in `country.iso_code`; a part that is a number leads into a list.
fn parse_table(bytes: &[u8], field: &str) -> Result<NetworkTable, TableError> {
    let reader = Reader::from_source(bytes)?;
    let path: Vec<PathElement<'_>> = field
        .split('.')
        .map(|part| {
            part.parse()
                .map_or(PathElement::Key(part), PathElement::Index)
        })
        .collect();
    let mut table = NetworkTableBuilder::default();
    let mut name_indexes = NameIndexes::default();
    // Many networks share a record, so each record is decoded once. The key is the offset of the record.
    let mut name_by_record: HashMap<usize, Option<usize>> = HashMap::new();
    let mut first_fields = None;
    // Networks without data are counted too.
    let options = WithinOptions::default().include_networks_without_data();
    for (network_count, network) in reader.networks(options)?.enumerate() {
        if network_count == MAX_NETWORKS || table.range_count() > MAX_RANGES {
            return Err(TableError::TooLarge);
        }
        let network = network?;
        let Some(record) = network.offset() else {
            continue;
        };
        if first_fields.is_none() {
            let mut fields = Vec::new();
            // The fields are only for a message, so a record with values that JSON does not have counts as empty.
            let first_record = network.decode::<Value>().unwrap_or_default();
            list_fields(&first_record.unwrap_or_default(), "", &mut fields);
            first_fields = Some(fields);
        }
        let name = match name_by_record.get(&record) {
            Some(name) => *name,
            None => {
                let name = match network.decode_path::<TableValue>(&path) {
                    Ok(None) => None,
                    // A text that is no valid name, such as an empty or a very long one, counts as an absent field.
                    Ok(Some(TableValue::Name(name))) => user_name::parse(name.trim()),
                    Ok(Some(TableValue::Other(kind))) => return Err(TableError::NoValue(kind)),
                    // In an intact record, the path leads through a value that is no map and no list. Then the field is
                    // absent.
                    Err(error) => match network.decode::<IgnoredAny>() {
                        Ok(_) => None,
                        Err(_) => return Err(error.into()),
                    },
                };
                let name = name.map(|name| name_indexes.index_of(name));
                name_by_record.insert(record, name);
                name
            }
        };
        if let Some(name) = name {
            let network = network.network()?;
            // Never fails: no path in the tree is longer than an address.
            let Ok(network) = IpNet::new(network.network(), network.prefix()) else {
                continue;
            };
            table.push(network, name);
            // Tables have all IPv4 networks under `::/96`, so a network that contains it contains all IPv4 addresses.
            if network.addr().is_ipv6()
                && network.addr().is_unspecified()
                && network.prefix_len() <= IPV4_PREFIX_BITS
            {
                table.push(IpNet::V4(Ipv4Net::default()), name);
            }
        }
    }
    if name_indexes.names.is_empty() {
        return Err(TableError::Unknown(first_fields.unwrap_or_default()));
    }
    Ok(table.finish(name_indexes.names))
}

/// The values of the field, each once and in the order of the table, with the index of each.
#[derive(Default)]
struct NameIndexes {
    names: Vec<Arc<str>>,
    indexes: HashMap<Arc<str>, usize>,
}

impl NameIndexes {
    fn index_of(&mut self, name: Arc<str>) -> usize {
        *self.indexes.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }
}

/// Adds the paths of the fields in `value` to `fields`. `value` is a record, or the part of it at `path`. Of a list
/// only the first entry is searched.
fn list_fields(value: &Value, path: &str, fields: &mut Vec<String>) {
    let path_below = |part: &str| match path {
        "" => part.to_owned(),
        path => format!("{path}.{part}"),
    };
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                list_fields(value, &path_below(key), fields);
            }
        }
        Value::Array(list) => {
            if let Some(first) = list.first() {
                list_fields(first, &path_below("0"), fields);
            }
        }
        Value::Null => {}
        _ => fields.push(path.to_owned()),
    }
}

/// The value of a field in a record.
enum TableValue {
    /// A text, a whole number or a truth value, as a text that can be an identity.
    Name(String),
    /// A value of this kind, which cannot be an identity.
    Other(&'static str),
}

impl<'de> Deserialize<'de> for TableValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TableValue, D::Error> {
        deserializer.deserialize_any(TableValueVisitor)
    }
}

struct TableValueVisitor;

impl<'de> Visitor<'de> for TableValueVisitor {
    type Value = TableValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<TableValue, E> {
        Ok(TableValue::Name(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<TableValue, E> {
        Ok(TableValue::Name(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<TableValue, E> {
        Ok(TableValue::Name(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<TableValue, E> {
        Ok(TableValue::Name(number.to_string()))
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<TableValue, E> {
        Ok(TableValue::Name(is_true.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<TableValue, E> {
        Ok(TableValue::Other("a number with a fraction"))
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<TableValue, E> {
        Ok(TableValue::Other("a string of bytes"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<TableValue, A::Error> {
        Ok(TableValue::Other("a map"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<TableValue, A::Error> {
        Ok(TableValue::Other("a list"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    const COUNTRIES: &[u8] = include_bytes!("../../../../tests/tables/GeoLite2-Country-Test.mmdb");
    const NUMBERS: &[u8] = include_bytes!("../../../../tests/tables/GeoLite2-ASN-Test.mmdb");

    #[track_caller]
    fn check(bytes: &[u8], field: &str, ip: &str, expected: Option<&str>) {
        let table = parse_table(bytes, field).unwrap();
        let name = table.find(ip.parse().unwrap());
        assert_eq!(name.map(|name| &**name), expected, "{field} of {ip}");
    }

    #[test]
    fn what_tables_say() {
        check(COUNTRIES, "country.iso_code", "81.2.69.160", Some("GB"));
        check(COUNTRIES, "country.iso_code", "2001:218::1", Some("JP"));
        check(COUNTRIES, "country.iso_code", "192.0.2.1", None);
        check(
            COUNTRIES,
            "country.is_in_european_union",
            "81.2.69.160",
            None,
        );
        check(
            COUNTRIES,
            "country.is_in_european_union",
            "89.160.20.112",
            Some("true"),
        );
        check(
            NUMBERS,
            "autonomous_system_number",
            "1.128.0.0",
            Some("1221"),
        );
        check(
            NUMBERS,
            "autonomous_system_number",
            "1.159.255.255",
            Some("1221"),
        );
        check(
            NUMBERS,
            "autonomous_system_organization",
            "12.81.96.1",
            None,
        );
    }

    #[test]
    fn every_address_has_what_a_search_of_the_file_finds() {
        let reader = Reader::from_source(COUNTRIES).unwrap();
        let table = parse_table(COUNTRIES, "country.iso_code").unwrap();
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        for network in reader.networks(WithinOptions::default()).unwrap() {
            let network = network.unwrap().network().unwrap();
            for ip in [network.network(), network.broadcast()] {
                let expected = reader.lookup(ip).unwrap().decode_path::<String>(&path);
                let name = table.find(ip).map(|name| name.to_string());
                assert_eq!(name, expected.unwrap(), "{ip}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_damaged_table_is_an_error_or_a_table(
            length in 0..COUNTRIES.len(),
            is_cut: bool,
            changes in proptest::collection::vec((0..COUNTRIES.len(), any::<u8>()), 0..8),
        ) {
            let mut bytes = COUNTRIES.to_vec();
            for (offset, byte) in changes {
                bytes[offset] = byte;
            }
            if is_cut {
                bytes.truncate(length);
            }
            if let Ok(table) = parse_table(&bytes, "country.iso_code") {
                let _ = table.find(IpAddr::from([81, 2, 69, 160]));
            }
        }
    }
}
