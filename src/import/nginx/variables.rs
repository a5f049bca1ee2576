//! Variables of nginx that `map`, `geo` and `set` define, and texts with variables in them.

use std::collections::HashMap;

use ipnet::IpNet;

use super::syntax::Directive;
use crate::import::report::Origin;

/// How deep variables may be defined by other variables.
const MAX_DEPTH: usize = 8;
/// Maximum number of entries that a map of a map may have.
const MAX_ENTRIES: usize = 10_000;

/// A part of a text of nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// Characters as they are.
    Literal(String),
    /// The variable of this name, without `$`, in small letters.
    Variable(String),
}

/// The names of the variables of a text.
pub fn variable_names(parts: &[TextPart]) -> Vec<&str> {
    let names = parts.iter().filter_map(|part| match part {
        TextPart::Variable(name) => Some(name.as_str()),
        TextPart::Literal(_) => None,
    });
    names.collect()
}

/// Splits a text into literals and variables: `$name` and `${name}`.
pub fn split_text(text: &str) -> Vec<TextPart> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after_name) = match after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'))
        {
            Some((name, after_name)) => (name, after_name),
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        if name.is_empty() || !name.chars().all(is_name) {
            literal.push('$');
            rest = after;
            continue;
        }
        if !literal.is_empty() {
            parts.push(TextPart::Literal(std::mem::take(&mut literal)));
        }
        parts.push(TextPart::Variable(name.to_ascii_lowercase()));
        rest = after_name;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(TextPart::Literal(literal));
    }
    parts
}

/// What a map looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapSource {
    /// The client's address; patterns are networks.
    Address,
    /// Another text; patterns are texts.
    Text(String),
}

/// A pattern of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapPattern {
    /// A network around the client's address.
    Network(IpNet),
    /// The whole text, in small letters: nginx does not look at the case.
    Exact(String),
    /// Anything that has no counterpart, such as a regular expression.
    Other(String),
}

/// A variable that `map` or `geo` defines.
#[derive(Clone, Debug)]
pub struct MapVariable {
    /// What it looks at.
    pub source: MapSource,
    /// Patterns with their values.
    pub entries: Vec<(MapPattern, String)>,
    /// The value for all else.
    pub default: String,
    /// The directives that define it.
    pub origins: Vec<Origin>,
}

impl MapVariable {
    /// The value for a text that the map looks at.
    pub fn value_of(&self, text: &str) -> &str {
        let text = text.to_ascii_lowercase();
        let mut entries = self.entries.iter();
        let found = entries.find(|(pattern, _)| *pattern == MapPattern::Exact(text.clone()));
        found.map_or(&*self.default, |(_, value)| value)
    }
}

/// All variables that the input defines.
#[derive(Debug, Default)]
pub struct VariableTable {
    maps: HashMap<String, MapVariable>,
}

impl VariableTable {
    /// Adds the variable that a `map` or a `geo` defines. Returns notes about parts that are not read.
    pub fn add(&mut self, directive: &Directive) -> Vec<String> {
        let variable = |text: &str| text.trim_start_matches('$').to_ascii_lowercase();
        let is_geo = directive.name == "geo";
        let (source, name) = match (is_geo, directive.arguments.as_slice()) {
            (true, [name]) => (MapSource::Address, variable(name)),
            (true, [source, name]) if is_address(&variable(source)) => {
                (MapSource::Address, variable(name))
            }
            (false, [source, name]) if is_address(&variable(source)) => {
                (MapSource::Address, variable(name))
            }
            (_, [source, name]) => (MapSource::Text(source.clone()), variable(name)),
            _ => return vec!["it is not written as nginx reads it".into()],
        };
        let mut map = MapVariable {
            source,
            entries: Vec::new(),
            default: String::new(),
            origins: vec![directive.origin],
        };
        let mut notes = Vec::new();
        for entry in directive.children() {
            let value = entry.argument(0).to_owned();
            match (entry.name.as_str(), entry.arguments.len()) {
                ("default", 1) => map.default = value,
                ("volatile", 0) | ("hostnames", 0) => {}
                ("proxy", 1) if is_geo => notes.push(format!(
                    "`proxy {value}` belongs into `trusted_proxies` of the gateway file"
                )),
                ("delete" | "ranges" | "proxy_recursive", _) if is_geo => {
                    notes.push(format!("`{}` is not read", entry.text()));
                }
                ("include", 1) => {
                    notes.push(format!(
                        "`include {value}` is not followed: its entries are missing"
                    ));
                }
                (network, 1)
                    if !is_geo && map.source == MapSource::Address && network.contains('/') =>
                {
                    notes.push(format!(
                        "`{network}` is no address, so it matches none in a `map`, as in nginx"
                    ));
                }
                (_, 1) => map
                    .entries
                    .push((read_pattern(&map.source, &entry.name), value)),
                _ => notes.push(format!("`{}` is not read", entry.text())),
            }
        }
        self.maps.insert(name, map);
        notes
    }

    /// The variable with this name, with other variables that it looks at followed to the one that a request has. `None`
    /// if no `map` and no `geo` defines it.
    pub fn get(&self, name: &str) -> Option<MapVariable> {
        let mut map = self.maps.get(name)?.clone();
        for _ in 0..MAX_DEPTH {
            let MapSource::Text(text) = &map.source else {
                break;
            };
            let parts = split_text(text);
            let [TextPart::Variable(inner)] = parts.as_slice() else {
                break;
            };
            let Some(inner) = self.maps.get(inner) else {
                break;
            };
            map = compose(inner, &map)?;
        }
        Some(map)
    }
}

/// The map that looks up in `outer` what `inner` says.
fn compose(inner: &MapVariable, outer: &MapVariable) -> Option<MapVariable> {
    if inner.entries.len() > MAX_ENTRIES {
        return None;
    }
    let lookup = |value: &String| outer.value_of(value).to_owned();
    let entries = inner.entries.iter();
    Some(MapVariable {
        source: inner.source.clone(),
        entries: entries
            .map(|(pattern, value)| (pattern.clone(), lookup(value)))
            .collect(),
        default: lookup(&inner.default),
        origins: [inner.origins.clone(), outer.origins.clone()].concat(),
    })
}

fn read_pattern(source: &MapSource, text: &str) -> MapPattern {
    match source {
        MapSource::Address => match parse_network(text) {
            Some(network) => MapPattern::Network(network),
            None => MapPattern::Other(text.to_owned()),
        },
        MapSource::Text(_)
            if text.starts_with('~') || text.starts_with('*') || text.contains('$') =>
        {
            MapPattern::Other(text.to_owned())
        }
        MapSource::Text(_) => {
            let text = text.strip_prefix('\\').unwrap_or(text);
            MapPattern::Exact(text.to_ascii_lowercase())
        }
    }
}

/// Whether a variable is the client's address.
pub fn is_address(name: &str) -> bool {
    matches!(name, "remote_addr" | "binary_remote_addr")
}

/// Parses an address or a network; bits behind its prefix do not count.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<std::net::IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().ok()?,
    };
    Some(network.trunc())
}

/// A network as policies write it: a single address without its prefix.
pub fn network_text(network: IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_variables() {
        let literal = |text: &str| TextPart::Literal(text.into());
        let variable = |text: &str| TextPart::Variable(text.into());
        for (text, parts) in [
            ("$a", vec![variable("a")]),
            (
                "x${A}y$b.c",
                vec![
                    literal("x"),
                    variable("a"),
                    literal("y"),
                    variable("b"),
                    literal(".c"),
                ],
            ),
            ("$", vec![literal("$")]),
            ("a$/${", vec![literal("a$/${")]),
            ("", vec![]),
        ] {
            assert_eq!(split_text(text), parts, "{text}");
        }
    }
}
