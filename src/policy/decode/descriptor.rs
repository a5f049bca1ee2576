//! Reads `domain` and `entries` of a policy: the descriptors that it matches in place of HTTP requests. Reading an entry
//! with several values defines the identity of its key for the process, so that limits, which are read later, can name it.

use super::super::context::LoadContext;
use super::super::section::FieldReader;
use super::super::table::{TextFormat, ValueShape};
use super::super::tree::{MapKey, Node, YamlValue};
use super::ValueError;
use super::field::scalar_fields;
use crate::identity::ADDRESS_KEYS;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{CustomIdentity, Identity};
use crate::route::descriptor::MAX_ENTRIES;
use crate::route::{EntryPattern, ValuePattern};

/// Maximum bytes of a domain, of a key and of a value that policies write.
const MAX_TEXT_BYTES: usize = 255;
/// Maximum bytes of the name of an identity that an entry defines.
const MAX_NAME_BYTES: usize = 64;

/// The word for every value.
const ANY: &str = "any";

/// Words that mean something else where names of identities stand.
const RESERVED_NAMES: [&str; 5] = ["and", "everyone", "or", PREFLIGHT, "route"];

static ENTRY_VALUE_FORMAT: TextFormat = TextFormat {
    name: "entry-value",
    pattern: r"^[^\x00-\x1f]{0,255}$",
    doc: "The value of an entry, TEXT* for all that begin so, or any.",
};

scalar_fields! {
    /// A field with the domain of descriptors.
    pub struct DomainField: String = ValueShape::Text, "a domain such as edge", parse_domain;
}

/// A field with the entries of descriptors, by key. Empty after a mistake in one of them, which is reported.
pub struct EntriesField;

impl FieldReader for EntriesField {
    type Value = Vec<EntryPattern>;
    const SHAPE: ValueShape = ValueShape::TextMap(&ValueShape::OneOrList(&ValueShape::Format(
        &ENTRY_VALUE_FORMAT,
    )));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<EntryPattern>> {
        if !matches!(node.value, YamlValue::Map(_) | YamlValue::Null) {
            let message = format!("expected a map of entries, found {}", node.kind());
            let help = "write `name: value` for each, without dashes";
            cx.error(node.location, message, Some(help.into()));
            return None;
        }
        let written = cx.named_entries(node, "entries");
        report_second_address(cx, written);
        let is_empty = written.is_empty();
        if is_empty && matches!(node.value, YamlValue::Map(_) | YamlValue::Null) {
            let help = "write for instance `entries: { remote_address: any }`";
            cx.error(node.location, "there is no entry", Some(help.into()));
        }
        let mut entries = Vec::new();
        for (key, node) in written {
            if let Err(ValueError { message, help, .. }) = check_key(&key.text) {
                cx.error(key.location, message, help);
                continue;
            }
            read_entry(cx, key, node, &mut entries);
        }
        let is_read = |key: &str| entries.iter().any(|entry| &*entry.key == key);
        if !written.iter().all(|(key, _)| is_read(&key.text)) {
            entries.clear();
        }
        let fixed = entries.iter().filter(|entry| is_fixed(entry));
        cx.fixed_entries = fixed.map(|entry| entry.key.to_string()).collect();
        if entries.len() > MAX_ENTRIES {
            let message = format!("a descriptor has at most {MAX_ENTRIES} entries here");
            let help = "leave out entries that no policy needs, also where the proxy makes them";
            cx.error(node.location, message, Some(help.into()));
        }
        Some(entries)
    }
}

/// Reports a second key that names the address of the client, because limits by `ip` would count one of them only.
fn report_second_address(cx: &mut LoadContext, written: &[(MapKey, Node)]) {
    let is_address = |key: &&MapKey| ADDRESS_KEYS.contains(&key.text.as_str());
    let mut keys = written.iter().map(|(key, _)| key).filter(is_address);
    let Some(first) = keys.next() else { return };
    // A key that stands there twice is a mistake of its own.
    if let Some(second) = keys.find(|key| key.text != first.text) {
        let message = format!(
            "`{}` and `{}` both name the address of the client",
            first.text, second.text
        );
        let help = "leave one of them out, also where the proxy makes the descriptor";
        cx.error(second.location, message, Some(help.into()));
    }
}

/// Whether an entry has one value in all descriptors that the policy matches.
fn is_fixed(entry: &EntryPattern) -> bool {
    matches!(entry.value, ValuePattern::Exact(_))
}

/// Reads the values of one key.
fn read_entry(cx: &mut LoadContext, key: &MapKey, node: &Node, entries: &mut Vec<EntryPattern>) {
    let mut add = |value| {
        entries.push(EntryPattern {
            key: key.text.as_str().into(),
            value,
        });
    };
    if let YamlValue::List(_) = node.value {
        let values = cx.read_list(node, |cx, node| {
            cx.read_scalar(node, "a value of the entry", parse_value_text)
        });
        values
            .into_iter()
            .for_each(|text| add(ValuePattern::Exact(text.into())));
        return;
    }
    let Some(value) = cx.read_scalar(node, "a value of the entry", parse_value) else {
        return;
    };
    if !matches!(value, ValuePattern::Exact(_))
        && let Err(ValueError { message, help, .. }) = define_identity(&key.text)
    {
        cx.error(key.location, message, help);
        return;
    }
    add(value);
}

fn parse_domain(text: &str) -> Result<String, ValueError> {
    let text = super::parse_text(text, "a domain such as edge")?;
    match text.len() > MAX_TEXT_BYTES {
        true => Err(ValueError::new(
            format!("a domain has at most {MAX_TEXT_BYTES} bytes"),
            "write the domain that the proxy sends",
        )),
        false => Ok(text),
    }
}

/// Checks the key of an entry.
fn check_key(key: &str) -> Result<(), ValueError> {
    let is_valid =
        !key.is_empty() && key.len() <= MAX_TEXT_BYTES && !key.chars().any(char::is_control);
    match is_valid {
        true => Ok(()),
        false => Err(ValueError::new(
            format!("`{}` is not a key of an entry", key.escape_debug()),
            "write 1 to 255 bytes without control characters",
        )),
    }
}

/// Parses a value that must be equal. It may be empty.
fn parse_value_text(text: &str) -> Result<String, ValueError> {
    if text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        return Err(ValueError::new(
            "this is not a value of an entry",
            "write at most 255 bytes without control characters",
        ));
    }
    Ok(text.to_owned())
}

fn parse_value(text: &str) -> Result<ValuePattern, ValueError> {
    let text = parse_value_text(text)?;
    let before_end = text.strip_suffix('*').unwrap_or(&text);
    if before_end.contains('*') {
        let message = format!("`{text}` has a `*` before its end");
        let help = format!(
            "`*` stands for the rest of a value, and only at its end; write `[{text:?}]` for exactly this text"
        );
        return Err(ValueError::new(message, help));
    }
    Ok(match text.strip_suffix('*') {
        _ if text == ANY => ValuePattern::Any,
        Some("") => ValuePattern::Any,
        Some(prefix) => ValuePattern::Prefix(prefix.into()),
        None => ValuePattern::Exact(text.into()),
    })
}

/// Defines the identity of an entry with several values, unless it is built in.
fn define_identity(key: &str) -> Result<(), ValueError> {
    if RESERVED_NAMES.contains(&key) {
        let message = format!("`{key}` has another meaning in the keys of limits");
        let help =
            "give the entry another key where the proxy makes it, or write its one value here";
        return Err(ValueError::new(message, help));
    }
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts_with_letter = key.starts_with(|c: char| c.is_ascii_alphabetic());
    if !starts_with_letter || key.len() > MAX_NAME_BYTES || !key.chars().all(is_name_char) {
        let message = format!("`{key}` is not a name by which limits can count");
        let help = "give the entry a key of 1 to 64 letters, digits, `-`, `_` or `.` where the proxy makes it, starting with a letter";
        return Err(ValueError::new(message, help));
    }
    if Identity::BUILT_IN
        .iter()
        .any(|identity| identity.as_str() == key)
    {
        return Ok(());
    }
    CustomIdentity::define(key).map(|_| ()).ok_or_else(|| {
        let message = format!(
            "this is more than {} identities and keys of entries with several values",
            CustomIdentity::MAX
        );
        let help = "use fewer; if reloads have renamed some, restart the gateway";
        ValueError::new(message, help)
    })
}
