//! Replaces the references `${env:NAME}` and `${file:PATH}` in values of the gateway file by the texts that they name.
//! Such a text may be a secret, so `filled_value.rs` hides it in messages and pages.
//!
//! Bounds: [`MAX_FILLED_BYTES`] for each file and for all replacements together.

use std::path::Path;

use super::context::LoadContext;
use super::filled_value::{FilledReference, FilledValue};
use super::source::Files;
use super::text;
use super::tree::{Node, YamlValue};

/// Maximum size in bytes of a file that replaces a reference, and of all replacements together.
const MAX_FILLED_BYTES: usize = 256 * 1024;

const REFERENCE_HELP: &str = "write `${env:NAME}` for a variable of the environment or `${file:PATH}` for the content of a file; `$$` is a dollar sign";

/// Replaces the references in a value and in all values inside it, but not in keys. Paths are relative to `base`, the
/// folder of the gateway file. Mistakes are reported to `cx`.
pub fn expand(cx: &mut LoadContext, files: &dyn Files, base: &Path, node: &mut Node) {
    let mut expander = Expander {
        cx,
        files,
        base,
        remaining_bytes: MAX_FILLED_BYTES,
    };
    expander.expand_node(node);
}

/// Replaces the references of one file.
struct Expander<'a> {
    cx: &'a mut LoadContext,
    files: &'a dyn Files,
    /// The folder of the gateway file, to which paths are relative.
    base: &'a Path,
    /// The bytes that further replacements may have.
    remaining_bytes: usize,
}

/// A mistake in a text with references.
struct ReferenceError {
    /// The byte offset of the reference in the text.
    offset: usize,
    message: String,
    help: String,
}

impl ReferenceError {
    fn new(offset: usize, message: impl Into<String>, help: impl Into<String>) -> ReferenceError {
        ReferenceError {
            offset,
            message: message.into(),
            help: help.into(),
        }
    }
}

impl Expander<'_> {
    fn expand_node(&mut self, node: &mut Node) {
        match &mut node.value {
            YamlValue::List(list) => list.iter_mut().for_each(|node| self.expand_node(node)),
            YamlValue::Map(entries) => entries
                .iter_mut()
                .for_each(|(_, node)| self.expand_node(node)),
            YamlValue::Text(text) if text.contains('$') => {
                let text = std::mem::take(text);
                self.expand_scalar(node, text);
            }
            _ => {}
        }
    }

    /// Replaces the references of `text`, which was moved out of `node`, and puts the result into `node`.
    fn expand_scalar(&mut self, node: &mut Node, text: String) {
        match self.expand_text(&text) {
            Ok((filled_text, references)) => {
                if !references.is_empty() {
                    self.cx.filled.push(FilledValue {
                        location: node.location,
                        filled_text: filled_text.clone(),
                        unfilled_text: text.clone(),
                        references,
                    });
                }
                node.fill_in(text, filled_text);
            }
            Err(ReferenceError {
                offset,
                message,
                help,
            }) => {
                node.value = YamlValue::Text(text);
                let location = node.location_at(offset);
                self.cx.error(location, message, Some(help));
                // The reader of the field would report the same text again.
                self.cx.mute_location(node.location);
            }
        }
    }

    /// Replaces each `${…}` by the text that it names, and `$$` by `$`. In the userinfo of a URL, the replacement is
    /// percent-encoded. Returns the new text and its references.
    ///
    /// # Errors
    ///
    /// The first mistake: a reference without `}`, one that names nothing readable, or a name such as `$NAME`. Also
    /// replacements of more than [`MAX_FILLED_BYTES`] in all.
    fn expand_text(
        &mut self,
        text: &str,
    ) -> Result<(String, Vec<FilledReference>), ReferenceError> {
        let mut filled_text = String::with_capacity(text.len());
        let mut references = Vec::new();
        let mut copied_until = 0;
        while let Some(distance) = text[copied_until..].find('$') {
            let dollar = copied_until + distance;
            filled_text.push_str(&text[copied_until..dollar]);
            let after_dollar = &text[dollar + 1..];
            copied_until = match after_dollar.chars().next() {
                Some('$') => {
                    filled_text.push('$');
                    dollar + 2
                }
                Some('{') => {
                    let closing_brace = after_dollar.find('}').ok_or_else(|| {
                        ReferenceError::new(dollar, "`${` has no `}`", REFERENCE_HELP)
                    })?;
                    let value = self.read_replacement(&after_dollar[1..closing_brace], dollar)?;
                    let value_start = filled_text.len();
                    if is_in_userinfo(&text[..dollar], &after_dollar[closing_brace + 1..]) {
                        filled_text.push_str(&escape_for_url(&value));
                    } else {
                        filled_text.push_str(&value);
                    }
                    let reference_end = dollar + 1 + closing_brace + 1;
                    references.push(FilledReference {
                        range: value_start..filled_text.len(),
                        reference: text[dollar..reference_end].to_owned(),
                        value,
                    });
                    reference_end
                }
                Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                    let name: String = after_dollar
                        .chars()
                        .take_while(|c| is_name_char(*c))
                        .collect();
                    let help = format!(
                        "write `${{env:{name}}}` for a variable of the environment; `$$` is a dollar sign"
                    );
                    let message = format!("`${name}` is not filled in");
                    return Err(ReferenceError::new(dollar, message, help));
                }
                _ => {
                    filled_text.push('$');
                    dollar + 1
                }
            };
        }
        filled_text.push_str(&text[copied_until..]);
        Ok((filled_text, references))
    }

    /// Reads the text that replaces `reference`, such as `env:NAME`. `offset` is the byte offset of the reference in
    /// the value, for errors.
    fn read_replacement(
        &mut self,
        reference: &str,
        offset: usize,
    ) -> Result<String, ReferenceError> {
        let (kind, name) = reference.split_once(':').unwrap_or(("", reference));
        let value = match kind {
            "env" => self.read_variable(name, offset)?,
            "file" => self.read_file(name, offset)?,
            _ => {
                let help = match reference.chars().all(is_name_char) && !reference.is_empty() {
                    true => format!(
                        "write `${{env:{reference}}}` for a variable of the environment, or `${{file:PATH}}` for the content of a file"
                    ),
                    false => REFERENCE_HELP.to_owned(),
                };
                let message = format!("`${{{reference}}}` is not filled in");
                return Err(ReferenceError::new(offset, message, help));
            }
        };
        self.remaining_bytes = self
            .remaining_bytes
            .checked_sub(value.len())
            .ok_or_else(|| {
                let message = "more than 256 KiB are filled into this file";
                ReferenceError::new(offset, message, "name long files by their own fields")
            })?;
        Ok(value)
    }

    /// Reads a variable of the environment, which must be one line of text. Blanks at its ends are removed.
    fn read_variable(&self, name: &str, offset: usize) -> Result<String, ReferenceError> {
        let help = "set it where the gateway is started, to one line of text";
        let value = self.files.environment_variable(name).ok_or_else(|| {
            let message = format!("the environment has no variable `{name}`");
            ReferenceError::new(offset, message, help)
        })?;
        let value = text::trim_secret(&value).map(str::to_owned);
        value.map_err(|_| {
            let message = format!(
                "the variable `{name}` of the environment is empty, or is not one line of text"
            );
            ReferenceError::new(offset, message, help)
        })
    }

    /// Reads a file of at most [`MAX_FILLED_BYTES`], which must be one line of text. Blanks at its ends are removed.
    fn read_file(&self, path: &str, offset: usize) -> Result<String, ReferenceError> {
        let bytes = self.files.read(&self.base.join(path), MAX_FILLED_BYTES);
        let bytes = bytes.map_err(|reason| {
            let help = "paths are relative to the folder of the gateway file";
            ReferenceError::new(offset, format!("cannot read `{path}`: {reason}"), help)
        })?;
        let text = text::decode_utf8(bytes);
        let value = text.and_then(|text| text::trim_secret(&text).map(str::to_owned));
        value.map_err(|error| {
            let message = format!("`{path}`: {}", error.message);
            ReferenceError::new(offset, message, error.help)
        })
    }
}

/// Whether the name of a variable may have this character.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a reference between these two texts is in the userinfo of a URL, `scheme://USER:PASSWORD@host`.
fn is_in_userinfo(before: &str, after: &str) -> bool {
    // A path in a reference may contain characters that delimit the parts of a URL.
    let before = remove_references(before);
    let after = remove_references(after);
    let authority = before.split_once("://").map(|(_, authority)| authority);
    let authority_end = after.find(['/', '?', '#']).unwrap_or(after.len());
    authority.is_some_and(|authority| !authority.contains(['/', '@']))
        && after[..authority_end].contains('@')
}

/// Removes references such as `${file:a/b}` from a text, and all text after one without `}`.
fn remove_references(text: &str) -> String {
    let mut pieces = text.split("${");
    let before_references = pieces.next().unwrap_or_default();
    let after_references = pieces.map(|piece| piece.split_once('}').map_or("", |(_, after)| after));
    std::iter::once(before_references)
        .chain(after_references)
        .collect()
}

/// Percent-encodes a text, so that none of its characters has a meaning in a URL.
fn escape_for_url(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
