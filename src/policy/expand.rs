//! Fills in `${env:NAME}` and `${file:PATH}` in values of the gateway file. A filled-in text may be a secret: no
//! message, excerpt or page shows it.
//!
//! Bounds: [`MOST`] bytes of one file, and of all that is filled in.

use std::path::Path;

use super::collect::Cx;
use super::filled::{Filled, FilledPart};
use super::source::Files;
use super::text;
use super::tree::{Node, YamlValue};

/// Most bytes that are filled in, of one file and of all together.
const MOST: usize = 256 * 1024;

const KINDS: &str = "write `${env:NAME}` for a variable of the environment or `${file:PATH}` for the content of a file; `$$` is a dollar sign";

/// Fills in what values refer to.
pub fn expand(cx: &mut Cx, files: &dyn Files, base: &Path, node: &mut Node) {
    let mut filler = Filler {
        cx,
        files,
        base,
        room: MOST,
    };
    filler.node(node);
}

struct Filler<'a> {
    cx: &'a mut Cx,
    files: &'a dyn Files,
    base: &'a Path,
    room: usize,
}

/// A mistake: where in the text, its message and its cure.
type ReferenceError = (usize, String, String);

impl Filler<'_> {
    fn node(&mut self, node: &mut Node) {
        match &mut node.value {
            YamlValue::List(list) => list.iter_mut().for_each(|node| self.node(node)),
            YamlValue::Map(entries) => entries.iter_mut().for_each(|(_, node)| self.node(node)),
            YamlValue::Text(text) if text.contains('$') => {
                let text = std::mem::take(text);
                match self.text(&text) {
                    Ok((filled, parts)) => {
                        if !parts.is_empty() {
                            self.cx.filled.push(Filled {
                                place: node.place,
                                text: filled.clone(),
                                written: text.clone(),
                                parts,
                            });
                        }
                        node.fill_in(text, filled);
                    }
                    Err((offset, message, help)) => {
                        node.value = YamlValue::Text(text);
                        let place = node.place_at(offset);
                        self.cx.error(place, message, Some(help));
                        // The readers of its fields would report the same text again.
                        self.cx.mute(node.place);
                    }
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> Result<(String, Vec<FilledPart>), ReferenceError> {
        let mut filled = String::with_capacity(text.len());
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(dollar) = text[at..].find('$').map(|found| at + found) {
            filled.push_str(&text[at..dollar]);
            let rest = &text[dollar + 1..];
            let wrong = |message: String| (dollar, message, KINDS.to_owned());
            at = match rest.chars().next() {
                Some('$') => {
                    filled.push('$');
                    dollar + 2
                }
                Some('{') => {
                    let end = rest.find('}');
                    let end = end.ok_or_else(|| wrong("`${` has no `}`".into()))?;
                    let value = self.value(&rest[1..end], dollar)?;
                    let start = filled.len();
                    if in_userinfo(&text[..dollar], &rest[end + 1..]) {
                        filled.push_str(&escape(&value));
                    } else {
                        filled.push_str(&value);
                    }
                    parts.push(FilledPart {
                        range: start..filled.len(),
                        reference: text[dollar..dollar + end + 2].to_owned(),
                        value,
                    });
                    dollar + end + 2
                }
                Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                    let name: String = rest.chars().take_while(|c| is_of_name(*c)).collect();
                    let help = format!(
                        "write `${{env:{name}}}` for a variable of the environment; `$$` is a dollar sign"
                    );
                    return Err((dollar, format!("`${name}` is not filled in"), help));
                }
                _ => {
                    filled.push('$');
                    dollar + 1
                }
            };
        }
        filled.push_str(&text[at..]);
        Ok((filled, parts))
    }

    /// The text that a reference names.
    fn value(&mut self, reference: &str, at: usize) -> Result<String, ReferenceError> {
        let wrong = |message: String, help: &str| (at, message, help.to_owned());
        let (kind, name) = reference.split_once(':').unwrap_or(("", reference));
        let value = match kind {
            "env" => {
                let set = "set it where the gateway is started, to one line of text";
                let value = self.files.variable(name).ok_or_else(|| {
                    wrong(format!("the environment has no variable `{name}`"), set)
                })?;
                let value = text::secret(&value).map(str::to_owned);
                value.map_err(|_| {
                    let message = format!(
                        "the variable `{name}` of the environment is empty, or is not one line of text"
                    );
                    wrong(message, set)
                })?
            }
            "file" => {
                let bytes = self.files.read(&self.base.join(name), MOST);
                let bytes = bytes.map_err(|reason| {
                    let help = "paths are relative to the folder of the gateway file";
                    wrong(format!("cannot read `{name}`: {reason}"), help)
                })?;
                let text = text::text(bytes);
                let value = text.and_then(|text| text::secret(&text).map(str::to_owned));
                value.map_err(|mistake| {
                    let message = format!("`{name}`: {}", mistake.message);
                    wrong(message, mistake.help)
                })?
            }
            _ => {
                let help = match reference.chars().all(is_of_name) && !reference.is_empty() {
                    true => format!(
                        "write `${{env:{reference}}}` for a variable of the environment, or `${{file:PATH}}` for the content of a file"
                    ),
                    false => KINDS.to_owned(),
                };
                return Err((at, format!("`${{{reference}}}` is not filled in"), help));
            }
        };
        self.room = self.room.checked_sub(value.len()).ok_or_else(|| {
            wrong(
                String::from("more than 256 KiB are filled into this file"),
                "name long files by their own fields",
            )
        })?;
        Ok(value)
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether what stands between is the user or the password of a URL.
fn in_userinfo(before: &str, after: &str) -> bool {
    let (before, after) = (without_references(before), without_references(after));
    let authority = before.split_once("://").map(|(_, rest)| rest);
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    authority.is_some_and(|rest| !rest.contains(['/', '@'])) && after[..end].contains('@')
}

/// A path that is named in one may hold what ends a part of a URL.
fn without_references(text: &str) -> String {
    let mut pieces = text.split("${");
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once('}').map_or("", |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}

/// Escapes a filled-in text, so that none of its characters has a meaning in a URL.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}
