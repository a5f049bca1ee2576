//! Reads trees into the model, field by field. Every field is read, whatever is wrong with its neighbours.

mod access_log;
mod balance;
mod gateway;
mod identity;
mod leaf;
mod limit;
mod listen;
mod plan;
mod push;
mod record;
mod route;
mod snapshots;
mod store;
mod switch;
mod upstream;

pub use gateway::{GATEWAY, endpoints, gateway};
pub(super) use leaf::{Delay, Wait, Whole, shown_size, shown_span};
pub use route::{POLICY, policy};

use super::collect::Cx;
use super::former;
use super::model::Located;
use super::table::MapFields;
use super::tree::{MapKey, Node, SourcePlace, YamlValue};
use crate::base::suggest::{listed, nearest};

/// What is wrong with a value, and where in its text.
struct ValueError {
    message: String,
    help: Option<String>,
    offset: Option<usize>,
}

fn invalid(message: impl Into<String>, help: impl Into<String>) -> ValueError {
    ValueError {
        message: message.into(),
        help: Some(help.into()),
        offset: None,
    }
}

impl Cx {
    /// Reads a scalar; `what` names the expected value in messages, with an example.
    fn read<T>(
        &mut self,
        node: &Node,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<Located<T>> {
        let Some(text) = node.text() else {
            self.error(
                node.place,
                format!("expected {what}, found {}", node.kind()),
                None,
            );
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Located {
                value,
                place: node.place,
            }),
            Err(ValueError {
                message,
                help,
                offset,
            }) => {
                if let Some(written) = node.written() {
                    self.unfit(node.place, written, what);
                    return None;
                }
                let place = offset.map_or(node.place, |offset| node.place_at(offset));
                self.error(place, message, help);
                None
            }
        }
    }

    /// Reads one thing or a list of them. An empty list is a mistake.
    fn many<T>(
        &mut self,
        node: &Node,
        mut each: impl FnMut(&mut Cx, &Node) -> Option<T>,
    ) -> Vec<T> {
        match &node.value {
            YamlValue::List(list) => {
                if list.is_empty() {
                    let help = "write at least one, or leave the field out";
                    self.error(node.place, "the list is empty", Some(help.into()));
                }
                list.iter().filter_map(|item| each(self, item)).collect()
            }
            _ => each(self, node).into_iter().collect(),
        }
    }

    /// The entries of a map whose names the user chooses; `what` says what they name.
    fn named<'n>(&mut self, node: &'n Node, what: &str) -> &'n [(MapKey, Node)] {
        match &node.value {
            YamlValue::Map(entries) => {
                self.repeated(entries);
                entries
            }
            YamlValue::Null => &[],
            _ => {
                let message = format!("expected a map of {what} by name, found {}", node.kind());
                self.error(node.place, message, Some("write `name: …` for each".into()));
                &[]
            }
        }
    }

    /// Reads one of a fixed set of words.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        words: &[(&'static str, T)],
    ) -> Option<Located<T>> {
        let names = || words.iter().map(|(word, _)| *word);
        let what = listed(names());
        self.read(node, &what, |text| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let help = match (former::word(text, names()), nearest(text, names())) {
                    (Some(help), _) => help.into(),
                    (None, Some(word)) => format!("did you mean `{word}`?"),
                    (None, None) => format!("write {what}"),
                };
                invalid(format!("unknown word `{text}`"), help)
            })
        })
    }

    /// Reads `true` or `false`.
    fn flag(&mut self, node: &Node) -> Option<Located<bool>> {
        match node.value {
            YamlValue::Flag(value) => Some(Located {
                value,
                place: node.place,
            }),
            _ => {
                let message = format!("expected `true` or `false`, found {}", node.kind());
                self.error(node.place, message, None);
                None
            }
        }
    }

    /// Reads a whole number within bounds.
    fn whole(&mut self, node: &Node, from: u64, to: u64) -> Option<Located<u64>> {
        self.read(node, "a whole number", |text| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = plain.then(|| text.parse::<u64>().ok()).flatten();
            number
                .filter(|number| (from..=to).contains(number))
                .ok_or_else(|| {
                    let message = format!("`{text}` is not a whole number from {from} to {to}");
                    ValueError {
                        message,
                        help: None,
                        offset: None,
                    }
                })
        })
    }

    /// Reads the name of a file that holds secrets. If it is no name, it may be the secret itself: no excerpt shows it.
    fn secret_file(&mut self, node: &Node) -> Option<Located<String>> {
        let file = self.text(node, "the name of a file");
        if file.is_none() {
            self.hide(SourcePlace {
                width: u32::MAX,
                ..node.place
            });
            self.hide_value(node);
        }
        file
    }

    /// Reads a text that must not be empty.
    fn text(&mut self, node: &Node, what: &str) -> Option<Located<String>> {
        self.read(node, what, |text| {
            if text.trim().is_empty() {
                return Err(invalid("this text is empty", format!("write {what}")));
            }
            if text.chars().any(char::is_control) {
                return Err(invalid(
                    "this text has control characters",
                    format!("write {what} without them"),
                ));
            }
            Ok(text.to_owned())
        })
    }
}

impl MapFields<'_> {
    /// Reads a field with a text that must not be empty; `what` says what is wanted.
    fn text(&self, cx: &mut Cx, name: &str, what: &str) -> Option<String> {
        let node = self.get(name)?;
        cx.text(node, what).map(|text| text.value)
    }
}

#[cfg(test)]
mod tests;
