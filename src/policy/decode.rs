//! Declares the fields of the files, and reads trees into the model that is made of them: what the files say, before
//! anything checks whether their parts fit together.
//!
//! A mistake in one field does not stop the reading of the others, so that all mistakes are reported. A field that
//! could not be read has its default, or is absent if it has none. Whether fields fit together is checked here only
//! within one section.
//!
//! | file | what it reads |
//! |---|---|
//! | `gateway`, `route` | the gateway file; a policy file |
//! | `answer` | `redirect` and `respond` of a policy, which the gateway answers by itself |
//! | `defaults` | `_defaults.yaml`, and which of its fields a policy inherits |
//! | `field_changes` | the header fields that a policy changes |
//! | `limit`, `plan`, `identity` | one limit; one plan; the section `identity` |
//! | `compress`, `cors`, `error_pages` | the fields `compress` and `cors`; the section `errors` |
//! | `client_list` | `deny` and `allow` |
//! | `listen`, `upstream`, `balance` | listeners; an upstream; how its servers are chosen and checked |
//! | `store`, `record`, `push`, `access_log`, `traces` | the sections of these names |
//! | `field`, `scalar`, `switch_word` | values that several sections share |

mod access_log;
mod answer;
mod balance;
mod bans;
mod client_list;
mod compress;
mod cors;
mod decide;
mod defaults;
mod descriptor;
mod error_pages;
mod field;
mod field_changes;
mod gateway;
mod identity;
mod limit;
mod listen;
mod plan;
mod push;
mod record;
mod required;
mod route;
mod scalar;
mod store;
mod switch_word;
mod traces;
mod upstream;

pub use access_log::{LOGGED_NAMES, REQUEST_ID_NAME, logged_field};
pub use answer::{RedirectConfig, ResponseConfig};
pub use balance::HealthConfig;
pub use client_list::ClientListConfig;
pub use cors::CorsChoice;
pub(super) use defaults::DEFAULTS_TABLE;
pub use defaults::{
    DEFAULTS_FILE, DefaultsConfig, InheritedFields, PolicyFiles, inherit_fields, read_defaults,
};
pub use error_pages::{ErrorPageConfig, find_error_page};
pub(super) use field::{DelayField, TimeoutField, WholeNumberField, word_fields};
pub use field_changes::FieldChangesConfig;
pub(super) use gateway::GATEWAY_TABLE;
pub use gateway::{GatewayConfig, read_endpoints, read_gateway};
pub use identity::{
    ApiKeySource, CustomConfig, ISSUER_SEPARATOR, IpConfig, KeySet, NetworksItem, PlanSourceConfig,
    TlsPart, UserConfig,
};
pub use limit::{
    KeyPartConfig, LimitConfig, LimitVariant, OverrideConfig, RatesConfig, ThrottleConfig,
    read_override, split_by_plan, split_with_candidates,
};
pub use listen::{AcmeConfig, AdminConfig, ListenerConfig};
pub use required::{
    RequiredIdentity, find_user_sources, requirable_sources, required_user_sources,
};
pub(super) use route::POLICY_TABLE;
pub use route::{LimitUse, PolicyConfig, read_policy};
pub use scalar::parse_duration_text;
pub(in crate::policy) use scalar::parse_network;
pub(super) use scalar::{format_duration, format_size};
pub use store::{StoreAddress, StoreConfig};
pub use upstream::{HostChoice, ServerConfig, UpstreamConfig};

use super::context::LoadContext;
use super::former_names;
use super::tree::{Located, MapKey, Node, SourceLocation, YamlValue};
use crate::base::suggest::{list_words, nearest_word};

/// Why the text of a value is invalid.
pub(in crate::policy) struct ValueError {
    /// What is wrong with the text.
    pub(in crate::policy) message: String,
    /// What the user can do; `None` if the message says it.
    pub(in crate::policy) help: Option<String>,
    /// The byte offset of the mistake in the text; `None` if the whole text is invalid.
    offset: Option<usize>,
}

impl ValueError {
    /// A mistake in the whole text.
    pub(in crate::policy) fn new(
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ValueError {
        ValueError {
            message: message.into(),
            help: Some(help.into()),
            offset: None,
        }
    }
}

/// Parses a text that is not empty and has no control characters. Messages name the expected text as `expected`.
fn parse_text(text: &str, expected: &str) -> Result<String, ValueError> {
    if text.trim().is_empty() {
        let help = format!("write {expected}");
        return Err(ValueError::new("this text is empty", help));
    }
    if text.chars().any(char::is_control) {
        let help = format!("write {expected} without them");
        return Err(ValueError::new("this text has control characters", help));
    }
    Ok(text.to_owned())
}

impl LoadContext {
    /// Reads a scalar with `parse`. Messages name the expected value as `expected`.
    fn read_scalar<T>(
        &mut self,
        node: &Node,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        let Some(text) = node.scalar() else {
            self.error(
                node.location,
                format!("expected {expected}, found {}", node.kind()),
                None,
            );
            return None;
        };
        let error = match parse(text) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        // The error's message shows the value, which may be a secret once a reference was replaced.
        if let Some(unfilled_text) = node.unfilled_text() {
            self.report_unfit_value(node.location, unfilled_text, expected);
            return None;
        }
        let location_in_text = error.offset.map(|offset| node.location_at(offset));
        let location = location_in_text.unwrap_or(node.location);
        self.error(location, error.message, error.help);
        None
    }

    /// Reads one value, or a list of values, and leaves out those with a mistake. An empty list is a mistake.
    fn read_list<T>(
        &mut self,
        node: &Node,
        mut read_item: impl FnMut(&mut LoadContext, &Node) -> Option<T>,
    ) -> Vec<T> {
        match &node.value {
            YamlValue::List(list) => {
                if list.is_empty() {
                    let help = "write at least one, or leave the field out";
                    self.error(node.location, "the list is empty", Some(help.into()));
                }
                list.iter()
                    .filter_map(|item| read_item(self, item))
                    .collect()
            }
            _ => read_item(self, node).into_iter().collect(),
        }
    }

    /// The entries of a map whose keys the user chooses; empty for no value, or if `node` is no map. Reports that, and
    /// keys that occur twice. Messages call the entries `kind`.
    fn named_entries<'n>(&mut self, node: &'n Node, kind: &str) -> &'n [(MapKey, Node)] {
        match &node.value {
            YamlValue::Map(entries) => {
                self.report_repeated_keys(entries);
                entries
            }
            YamlValue::Null => &[],
            _ => {
                let message = format!("expected a map of {kind} by name, found {}", node.kind());
                self.error(
                    node.location,
                    message,
                    Some("write `name: …` for each".into()),
                );
                &[]
            }
        }
    }

    /// Reads one of a fixed set of words, and returns its meaning: the second element of its pair.
    pub(super) fn read_word<T: Clone>(
        &mut self,
        node: &Node,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let expected = list_words(names());
        self.read_scalar(node, &expected, |text| {
            let pair = words.iter().find(|(word, _)| *word == text);
            pair.map(|(_, meaning)| meaning.clone())
                .ok_or_else(|| unknown_word(text, names()))
        })
    }

    /// Reads `true` or `false`.
    fn read_bool(&mut self, node: &Node) -> Option<bool> {
        match node.value {
            YamlValue::Bool(value) => Some(value),
            _ => {
                let message = format!("expected `true` or `false`, found {}", node.kind());
                self.error(node.location, message, None);
                None
            }
        }
    }

    /// Reads a whole number from `min` to `max`, both included.
    fn read_whole_number(&mut self, node: &Node, min: u64, max: u64) -> Option<u64> {
        self.read_scalar(node, "a whole number", |text| {
            let has_only_digits =
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = has_only_digits.then(|| text.parse::<u64>().ok()).flatten();
            number
                .filter(|number| (min..=max).contains(number))
                .ok_or_else(|| {
                    let message = format!("`{text}` is not a whole number from {min} to {max}");
                    ValueError {
                        message,
                        help: None,
                        offset: None,
                    }
                })
        })
    }

    /// Reads the name of a file that holds secrets. An invalid name may be the secret itself, so no excerpt shows it.
    fn read_secret_file_name(&mut self, node: &Node) -> Option<Located<String>> {
        let file = self.read_text(node, "the name of a file");
        if file.is_none() {
            self.hide_location(SourceLocation {
                width: u32::MAX,
                ..node.location
            });
            self.hide_node(node);
        }
        file
    }

    /// Reads a text that is not empty and has no control characters.
    fn read_text(&mut self, node: &Node, expected: &str) -> Option<Located<String>> {
        let value = self.read_scalar(node, expected, |text| parse_text(text, expected))?;
        Some(Located {
            value,
            location: node.location,
        })
    }
}

/// The mistake of a word that is none of `words`.
fn unknown_word(word: &str, words: impl Iterator<Item = &'static str> + Clone) -> ValueError {
    let help = match (
        former_names::help_for_word(word, words.clone()),
        nearest_word(word, words.clone()),
    ) {
        (Some(help), _) => help.into(),
        (None, Some(word)) => format!("did you mean `{word}`?"),
        (None, None) => format!("write {}", list_words(words)),
    };
    ValueError::new(format!("unknown word `{word}`"), help)
}

#[cfg(test)]
mod tests;
