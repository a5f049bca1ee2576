//! Parses YAML into a tree in which every value knows its location. Bytes, depth, nodes and aliases are bounded, so
//! that no file can hang the gateway or fill its memory. The parser includes no other file, interpolates nothing,
//! and gives no value a meaning.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_yaml::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_yaml::{Location, Options, Spanned};

mod location;
mod syntax;

use location::location_from_parser;
pub use location::{Located, SourceLocation};
pub use syntax::SyntaxError;

/// Maximum size of a configuration file in bytes, far above that of a large gateway file.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Maximum nesting of lists and maps, which bounds the recursion of all readers of the tree.
const MAX_DEPTH: usize = 48;
/// Maximum number of values in a file, keys included.
const MAX_NODES: usize = 50_000;

/// Maximum size in bytes of a file with a long list of networks or overrides.
pub const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of values in a file of overrides, keys included: nearly 200,000 overrides.
const MAX_LIST_NODES: usize = 400_000;

/// A YAML value and its location.
#[derive(Clone, Debug)]
pub struct Node {
    /// The location of the first line of the value.
    pub location: SourceLocation,
    /// The value, with references such as `${env:NAME}` replaced.
    pub value: YamlValue,
    /// The number of opening quotes before the text, 0 or 1. `None` if the file spells the text otherwise (with
    /// escapes or on several lines), so that no location inside it can be computed.
    opening_quotes: Option<u32>,
    /// The text as the file has it, if it has a `$`, so that references in it may have been replaced.
    unfilled_text: Option<Box<str>>,
}

/// The value of a node. Numbers stay text, because only a field's reader knows their unit and bounds.
#[derive(Clone, Debug)]
pub enum YamlValue {
    /// An absent value, or `~`.
    Null,
    /// One of `true` and `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    /// A scalar of any other kind.
    Text(String),
    /// The items of a list.
    List(Vec<Node>),
    /// The entries of a map in the order of the file. A key may occur twice.
    Map(Vec<(MapKey, Node)>),
}

/// A key of a map, which is a field's name or a name that the user chose.
#[derive(Clone, Debug)]
pub struct MapKey {
    /// The location of the key, where diagnostics about missing fields point.
    pub location: SourceLocation,
    /// The key without quotes.
    pub text: String,
}

impl Node {
    /// The kind of the value in words, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            YamlValue::Null => "nothing",
            YamlValue::Bool(_) => "true or false",
            YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "a text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// The text of a scalar; `None` for null, lists and maps.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) | YamlValue::Number(text) => Some(text),
            YamlValue::Bool(true) => Some("true"),
            YamlValue::Bool(false) => Some("false"),
            YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
        }
    }

    /// Replaces `unfilled`, the text of the file, by `filled`, which has values in place of references. The words
    /// `true` and `false` become truth values; other texts stay texts, also numbers.
    pub fn fill_in(&mut self, unfilled: String, filled: String) {
        self.value = match filled.as_str() {
            "true" => YamlValue::Bool(true),
            "false" => YamlValue::Bool(false),
            _ => YamlValue::Text(filled),
        };
        self.unfilled_text = Some(unfilled.into());
    }

    /// The text as the file has it, if references in it may have been replaced. The value itself may then be a secret.
    pub fn unfilled_text(&self) -> Option<&str> {
        self.unfilled_text.as_deref()
    }

    /// The text as the file has it, with its references; `None` for null, lists and maps.
    pub fn text_in_file(&self) -> Option<&str> {
        self.unfilled_text().or_else(|| self.scalar())
    }

    /// The location of a byte range of the text in the file, or of the whole value if the range has no location.
    pub fn location_of(&self, range: std::ops::Range<usize>) -> SourceLocation {
        let text = self
            .text_in_file()
            .and_then(|text| text.get(range.clone()))
            .filter(|text| !text.contains('\n'));
        match (self.opening_quotes, text) {
            (Some(_), Some(text)) => SourceLocation {
                width: count_chars(text).max(1),
                ..self.location_at(range.start)
            },
            _ => self.location,
        }
    }

    /// The location of the word at a byte offset of the text in the file, or of the whole value if the offset has none.
    pub fn location_at(&self, offset: usize) -> SourceLocation {
        let (Some(quotes), Some(text)) = (self.opening_quotes, self.text_in_file()) else {
            return self.location;
        };
        let Some(text_before) = text.get(..offset) else {
            return self.location;
        };
        let skipped_chars = count_chars(text_before) + quotes;
        let word_chars = text[offset..]
            .chars()
            .take_while(|c| !c.is_whitespace())
            .count();
        SourceLocation {
            column: self.location.column.saturating_add(skipped_chars),
            width: u32::try_from(word_chars).unwrap_or(1).max(1),
            further_lines: 0,
            ..self.location
        }
    }
}

fn count_chars(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

/// The bounds of one file.
#[derive(Clone, Copy)]
struct FileBounds {
    max_bytes: usize,
    /// Maximum number of values, keys included.
    max_nodes: usize,
}

/// Parses `text`, the file numbered `file`. An empty text is [`YamlValue::Null`].
///
/// # Errors
///
/// The first part that is not YAML, or a bound that the file exceeds. The parser cannot continue behind it.
pub fn parse(file: u32, text: &str) -> Result<Node, SyntaxError> {
    let bounds = FileBounds {
        max_bytes: MAX_FILE_BYTES,
        max_nodes: MAX_NODES,
    };
    parse_within(file, text, bounds)
}

/// Parses a long list of entries as [`parse`] does, of up to [`MAX_LIST_BYTES`] and [`MAX_LIST_NODES`].
///
/// # Errors
///
/// The same as of [`parse`].
pub fn parse_list(file: u32, text: &str) -> Result<Node, SyntaxError> {
    let bounds = FileBounds {
        max_bytes: MAX_LIST_BYTES,
        max_nodes: MAX_LIST_NODES,
    };
    parse_within(file, text, bounds)
}

fn parse_within(file: u32, text: &str, bounds: FileBounds) -> Result<Node, SyntaxError> {
    if text.len() > bounds.max_bytes {
        return Err(SyntaxError {
            location: SourceLocation::start_of(file),
            message: format!("the file is larger than {} MiB", bounds.max_bytes >> 20),
            help: Some("split it".into()),
        });
    }
    let raw: RawNode = serde_yaml::from_str_with_options(text, parser_options(bounds))
        .map_err(|error| syntax::syntax_error(file, text, &error))?;
    Ok(TreeBuilder { file, text }.build_node(raw))
}

/// The options of the parser. The bounds on aliases keep a small file from becoming a large tree.
fn parser_options(bounds: FileBounds) -> Options {
    let budget = serde_yaml::budget! {
        max_reader_input_bytes: Some(bounds.max_bytes),
        flow_nesting_limit: MAX_DEPTH,
        // A list or a map has an event at its start and one at its end.
        max_events: 2 * bounds.max_nodes,
        max_aliases: 1_000,
        max_anchors: 1_000,
        max_recorded_anchor_events: 20_000,
        max_recorded_anchor_bytes: MAX_FILE_BYTES,
        max_depth: MAX_DEPTH,
        max_documents: 1,
        max_nodes: bounds.max_nodes,
        max_total_scalar_bytes: bounds.max_bytes,
        max_merge_keys: 0,
    };
    let aliases = serde_yaml::alias_limits! {
        max_total_replayed_events: 20_000,
        max_replay_stack_depth: 16,
        max_alias_expansions_per_anchor: 1_000,
    };
    serde_yaml::options! {
        budget: budget,
        // With this policy the visitor gets both of two equal keys, so that a diagnostic can point at both.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        alias_limits: aliases,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// A value as the YAML parser hands it over.
struct RawNode(Spanned<RawValue>);

/// The kinds of values that the YAML parser tells apart.
enum RawValue {
    Null,
    Bool(bool),
    /// A number. Its text is taken from the file.
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

    fn visit_bool<E>(self, is_true: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(is_true))
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
            if entries.len() >= MAX_LIST_NODES {
                return Err(A::Error::custom("the map is too long"));
            }
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

/// Turns the values of the YAML parser into nodes with locations in `text`.
struct TreeBuilder<'t> {
    file: u32,
    text: &'t str,
}

impl TreeBuilder<'_> {
    fn build_node(&self, RawNode(raw): RawNode) -> Node {
        let written_text = self.text_at(&raw.defined);
        let location = self.locate(&raw.defined, written_text);
        let mut opening_quotes = None;
        let value = match raw.value {
            RawValue::Null => YamlValue::Null,
            RawValue::Bool(is_true) => YamlValue::Bool(is_true),
            RawValue::Number => YamlValue::Number(written_text.trim().into()),
            RawValue::Text(text) => {
                let unquoted = written_text.trim_start_matches(['"', '\'']);
                let quotes = written_text.len() - unquoted.len();
                let is_verbatim = written_text
                    .get(quotes.min(1)..)
                    .is_some_and(|after_quote| after_quote.starts_with(&*text));
                opening_quotes = is_verbatim.then_some(u32::from(quotes > 0));
                YamlValue::Text(text)
            }
            RawValue::List(list) => {
                YamlValue::List(list.into_iter().map(|item| self.build_node(item)).collect())
            }
            RawValue::Map(entries) => YamlValue::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (self.build_key(key), self.build_node(value)))
                    .collect(),
            ),
        };
        Node {
            location,
            value,
            opening_quotes,
            unfilled_text: None,
        }
    }

    fn build_key(&self, key: Spanned<String>) -> MapKey {
        let written_text = self.text_at(&key.defined);
        MapKey {
            location: self.locate(&key.defined, written_text),
            text: key.value,
        }
    }

    /// The text of the file at a position of the parser; empty if the parser does not know its length.
    fn text_at(&self, position: &Location) -> &str {
        let span = position.span();
        let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else {
            return "";
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        self.text.get(start..end).unwrap_or("")
    }

    /// The location of a value or a key, whose text in the file is `written_text`.
    fn locate(&self, position: &Location, written_text: &str) -> SourceLocation {
        let mut lines = written_text.trim_end().lines();
        let first_line = lines.next().unwrap_or("").trim_end();
        SourceLocation {
            width: count_chars(first_line).max(1),
            further_lines: u32::try_from(lines.count()).unwrap_or(u32::MAX),
            ..location_from_parser(self.file, position)
        }
    }
}

/// Finds keys that repeat an earlier one. Returns each repeated key, behind the location of the first equal one.
pub fn find_repeated_keys(entries: &[(MapKey, Node)]) -> Vec<(SourceLocation, &MapKey)> {
    let mut first_locations: HashMap<&str, SourceLocation> = HashMap::with_capacity(entries.len());
    let mut repeated_keys = Vec::new();
    for (key, _) in entries {
        match first_locations.get(key.text.as_str()) {
            Some(first_location) => repeated_keys.push((*first_location, key)),
            None => {
                first_locations.insert(&key.text, key.location);
            }
        }
    }
    repeated_keys
}

#[cfg(test)]
mod tests;
