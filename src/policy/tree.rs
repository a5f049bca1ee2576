//! Parses YAML into a tree in which every value knows its place. Bytes, depth, nodes and aliases are bounded, so
//! that no file can hang the gateway or fill its memory. Nothing is included, interpolated or guessed, and no value
//! gets a meaning here.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_yaml::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_yaml::{Location, Options, Spanned};

mod place;
mod syntax;

use place::place_of;
pub use place::{Located, SourcePlace};
pub use syntax::SyntaxError;

/// Most bytes of one file of configuration.
pub const MAX_FILE: usize = 1024 * 1024;
/// Deepest nesting of lists and maps.
const MAX_DEPTH: usize = 48;
/// Most values of one file, keys included.
const MAX_NODES: usize = 50_000;

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// The first line of the value in its file.
    pub place: SourcePlace,
    /// The value, filled in where it refers to something.
    pub value: YamlValue,
    /// How many characters stand before the text in the file: the opening quote. Absent where the
    /// text is not written as it reads (escapes, several lines).
    quote: Option<u32>,
    /// The text of the file, where a reference was filled in.
    written: Option<Box<str>>,
}

/// A value of YAML.
#[derive(Clone, Debug)]
pub enum YamlValue {
    /// Nothing, or `~`.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A number, as it is written.
    Number(String),
    /// Any other scalar.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file. A key may occur twice.
    Map(Vec<(MapKey, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub struct MapKey {
    /// Its place.
    pub place: SourcePlace,
    /// Its text.
    pub text: String,
}

impl Node {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            YamlValue::Null => "nothing",
            YamlValue::Flag(_) => "true or false",
            YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "a text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// The scalar as it is written; none for lists, maps and nothing.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) | YamlValue::Number(text) => Some(text),
            YamlValue::Flag(true) => Some("true"),
            YamlValue::Flag(false) => Some("false"),
            YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
        }
    }

    /// Replaces the text of the file by a filled-in one.
    pub fn fill_in(&mut self, written: String, text: String) {
        self.value = match text.as_str() {
            "true" => YamlValue::Flag(true),
            "false" => YamlValue::Flag(false),
            _ => YamlValue::Text(text),
        };
        self.written = Some(written.into());
    }

    /// The text of the file, where a reference was filled in. The value itself may then be a secret.
    pub fn written(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// The text as the file has it, before anything was filled in.
    pub fn as_written(&self) -> Option<&str> {
        self.written().or_else(|| self.text())
    }

    /// The place of a part of the text as it is written, or of all where that cannot be told.
    pub fn place_of(&self, part: std::ops::Range<usize>) -> SourcePlace {
        let text = self
            .as_written()
            .and_then(|text| text.get(part.clone()))
            .filter(|text| !text.contains('\n'));
        match (self.quote, text) {
            (Some(_), Some(part_text)) => SourcePlace {
                width: count(part_text).max(1),
                ..self.place_at(part.start)
            },
            _ => self.place,
        }
    }

    /// The place of the rest of the text from a byte offset on, as far as it can be told.
    pub fn place_at(&self, offset: usize) -> SourcePlace {
        let (Some(quote), Some(text)) = (self.quote, self.as_written()) else {
            return self.place;
        };
        let Some(before) = text.get(..offset) else {
            return self.place;
        };
        let skipped = count(before) + quote;
        let rest = text[offset..]
            .chars()
            .take_while(|c| !c.is_whitespace())
            .count();
        SourcePlace {
            column: self.place.column.saturating_add(skipped),
            width: u32::try_from(rest).unwrap_or(1).max(1),
            more: 0,
            ..self.place
        }
    }
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

/// Reads `text`, the file numbered `file`. An empty text is [`Value::Null`].
///
/// # Errors
///
/// The first part that is not YAML or costs too much; what follows cannot be judged.
pub fn parse(file: u32, text: &str) -> Result<Node, SyntaxError> {
    let start = SourcePlace {
        file,
        line: 1,
        column: 1,
        width: 1,
        more: 0,
    };
    let refuse = |message: &str, help: &str| SyntaxError {
        place: start,
        message: message.into(),
        help: Some(help.into()),
    };
    if text.len() > MAX_FILE {
        return Err(refuse("the file is larger than 1 MiB", "split it"));
    }
    let raw: RawNode = serde_yaml::from_str_with_options(text, options())
        .map_err(|error| syntax::error(file, text, &error))?;
    Ok(NodeReader { file, text }.node(raw))
}

fn options() -> Options {
    let budget = serde_yaml::budget! {
        max_reader_input_bytes: Some(MAX_FILE),
        flow_nesting_limit: MAX_DEPTH,
        max_events: 2 * MAX_NODES,
        max_aliases: 1_000,
        max_anchors: 1_000,
        max_recorded_anchor_events: 20_000,
        max_recorded_anchor_bytes: MAX_FILE,
        max_depth: MAX_DEPTH,
        max_documents: 1,
        max_nodes: MAX_NODES,
        max_total_scalar_bytes: MAX_FILE,
        max_merge_keys: 0,
    };
    let aliases = serde_yaml::alias_limits! {
        max_total_replayed_events: 20_000,
        max_replay_stack_depth: 16,
        max_alias_expansions_per_anchor: 1_000,
    };
    serde_yaml::options! {
        budget: budget,
        // Both of a pair of equal keys are wanted, to say where they are.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        alias_limits: aliases,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// A value as the YAML reader hands it over.
struct RawNode(Spanned<RawValue>);

enum RawValue {
    Null,
    Flag(bool),
    Number,
    Text(String),
    List(Vec<RawNode>),
    Map(Vec<(Spanned<String>, RawNode)>),
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawNode, D::Error> {
        Spanned::deserialize(deserializer).map(RawNode)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawValue, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<RawValue, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<RawValue, E> {
        Ok(RawValue::Flag(flag))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<RawValue, E> {
        Ok(RawValue::Text(text))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<RawValue, E> {
        Err(E::custom("binary values are not supported"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            if entries.len() >= MAX_NODES {
                return Err(A::Error::custom("the map is too long"));
            }
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

/// Turns the values of the YAML reader into nodes.
struct NodeReader<'t> {
    file: u32,
    text: &'t str,
}

impl NodeReader<'_> {
    fn node(&self, RawNode(raw): RawNode) -> Node {
        let written = self.written(&raw.defined);
        let place = self.place(&raw.defined, written);
        let mut quote = None;
        let value = match raw.value {
            RawValue::Null => YamlValue::Null,
            RawValue::Flag(flag) => YamlValue::Flag(flag),
            RawValue::Number => YamlValue::Number(written.trim().into()),
            RawValue::Text(text) => {
                let opening = written.len() - written.trim_start_matches(['"', '\'']).len();
                let as_written = written
                    .get(opening.min(1)..)
                    .is_some_and(|w| w.starts_with(&*text));
                quote = as_written.then_some(u32::from(opening > 0));
                YamlValue::Text(text)
            }
            RawValue::List(list) => {
                YamlValue::List(list.into_iter().map(|item| self.node(item)).collect())
            }
            RawValue::Map(entries) => YamlValue::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (self.key(key), self.node(value)))
                    .collect(),
            ),
        };
        Node {
            place,
            value,
            quote,
            written: None,
        }
    }

    fn key(&self, key: Spanned<String>) -> MapKey {
        let written = self.written(&key.defined);
        MapKey {
            place: self.place(&key.defined, written),
            text: key.value,
        }
    }

    fn written(&self, at: &Location) -> &str {
        let span = at.span();
        let (Some(from), Some(length)) = (span.byte_offset(), span.byte_len()) else {
            return "";
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        self.text.get(from..to).unwrap_or("")
    }

    fn place(&self, at: &Location, written: &str) -> SourcePlace {
        let mut lines = written.trim_end().lines();
        let first = lines.next().unwrap_or("").trim_end();
        SourcePlace {
            width: count(first).max(1),
            more: u32::try_from(lines.count()).unwrap_or(u32::MAX),
            ..place_of(self.file, at)
        }
    }
}

/// The entries that repeat an earlier key: place of the earlier one, and the later key.
pub fn repeated(entries: &[(MapKey, Node)]) -> Vec<(SourcePlace, &MapKey)> {
    let mut first: HashMap<&str, SourcePlace> = HashMap::with_capacity(entries.len());
    let mut again = Vec::new();
    for (key, _) in entries {
        match first.get(key.text.as_str()) {
            Some(place) => again.push((*place, key)),
            None => {
                first.insert(&key.text, key.place);
            }
        }
    }
    again
}

#[cfg(test)]
mod tests;
