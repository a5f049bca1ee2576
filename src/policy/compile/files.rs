//! Reads the files that the configuration names: certificates, keys, secrets and lists. Each function that reads one
//! reports a mistake to `cx` and then returns `None`. No message about a file of secrets shows its content. A message
//! about an unreadable file of secrets does not show its name either, because the user may have written the secret
//! itself there.

use std::path::Path;

use super::super::context::LoadContext;
use super::super::source::Files;
use super::super::text::{self, TextError};
use super::super::tree::{
    self, Located, MAX_LIST_BYTES, MapKey, Node, SourceLocation, SyntaxError, YamlValue,
};

/// Maximum size of a named file in bytes, enough for the certificates of all public authorities.
const MAX_NAMED_FILE_BYTES: usize = 1024 * 1024;

/// Maximum size of a table of networks in bytes: four times MaxMind's free table of cities.
const MAX_TABLE_FILE_BYTES: usize = 256 * 1024 * 1024;

/// Reads a file that holds no secret. Messages call it `what`, for instance "the certificate".
pub(super) fn read_named_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<Vec<u8>> {
    read_file(cx, files, base, name, what, MAX_NAMED_FILE_BYTES)
}

/// Reads a file of at most `max_bytes`, and removes its byte order mark.
fn read_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
    max_bytes: usize,
) -> Option<Vec<u8>> {
    let bytes = read_bytes(cx, files, base, name, what, max_bytes)?;
    strip_mark(cx, base, name, bytes)
}

/// Reads a file of at most `max_bytes` unchanged.
fn read_bytes(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
    max_bytes: usize,
) -> Option<Vec<u8>> {
    match files.read(&base.join(&name.value), max_bytes) {
        Ok(bytes) => Some(bytes),
        Err(reason) => {
            let message = format!("cannot read {what} `{}`: {reason}", name.value);
            let help = "paths are relative to the folder of the gateway file";
            cx.error(name.location, message, Some(help.into()));
            None
        }
    }
}

/// Reads a list, a text of up to [`MAX_LIST_BYTES`]. Messages call it `what`.
pub(super) fn read_list_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<String> {
    let bytes = read_file(cx, files, base, name, what, MAX_LIST_BYTES)?;
    decode_text(cx, base, name, bytes)
}

/// Reads a table of networks, a binary file of up to [`MAX_TABLE_FILE_BYTES`].
pub(super) fn read_table_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
) -> Option<Vec<u8>> {
    read_bytes(cx, files, base, name, "the table", MAX_TABLE_FILE_BYTES)
}

/// Reads a page, a text of at most `max_bytes`.
pub(super) fn read_page_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    max_bytes: usize,
) -> Option<String> {
    let bytes = read_file(cx, files, base, name, "the page", max_bytes)?;
    decode_text(cx, base, name, bytes)
}

/// Reads the body of a response, of at most `max_bytes`, unchanged.
pub(super) fn read_body_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    max_bytes: usize,
) -> Option<Vec<u8>> {
    read_bytes(cx, files, base, name, "the body", max_bytes)
}

/// Reads a file that holds a secret. Messages say "the file of" and `what`.
pub(super) fn read_secret_file(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<Vec<u8>> {
    match files.read(&base.join(&name.value), MAX_NAMED_FILE_BYTES) {
        Ok(bytes) => strip_mark(cx, base, name, bytes),
        Err(reason) => {
            cx.hide_location(name.location);
            let message = format!("cannot read the file of {what}: {reason}");
            let help = "name a file, relative to the folder of the gateway file; the secret itself does not belong here";
            cx.error(name.location, message, Some(help.into()));
            None
        }
    }
}

/// Removes the byte order mark of a file. Reports a file in UTF-16, and one with a NUL byte.
fn strip_mark(
    cx: &mut LoadContext,
    base: &Path,
    name: &Located<String>,
    bytes: Vec<u8>,
) -> Option<Vec<u8>> {
    text::strip_byte_order_mark(bytes)
        .map_err(|error| report_text_error(cx, base, name, error))
        .ok()
}

/// Decodes the bytes of a file, which must be UTF-8.
fn decode_text(
    cx: &mut LoadContext,
    base: &Path,
    name: &Located<String>,
    bytes: Vec<u8>,
) -> Option<String> {
    text::decode_utf8(bytes)
        .map_err(|error| report_text_error(cx, base, name, error))
        .ok()
}

/// Reads a file that holds secrets as text.
pub(super) fn read_secret_text(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<String> {
    let bytes = read_secret_file(cx, files, base, name, what)?;
    decode_text(cx, base, name, bytes)
}

/// Reads a file that holds secrets as the keys or values of a map in YAML. Returns the beginning of the file and the entries of
/// the map, of which there is at least one. Messages call it "the file of `what`", and `help` says how an entry is written.
pub(super) fn read_secret_map(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    (what, help): (&str, &str),
) -> Option<(SourceLocation, Vec<(MapKey, Node)>)> {
    let text = read_secret_text(cx, files, base, name, what)?;
    let path = base.join(&name.value);
    let file = cx.sources.add_secret(&path.display().to_string());
    let (location, message) = match tree::parse(file, &text) {
        Ok(Node {
            value: YamlValue::Map(entries),
            location,
            ..
        }) if !entries.is_empty() => return Some((location, entries)),
        Ok(root) => (root.location, format!("the file of {what} has no entries")),
        Err(SyntaxError { location, .. }) => (location, format!("the file of {what} is not YAML")),
    };
    cx.error(location, message, Some(help.into()));
    None
}

/// Reads a file whose whole text is one secret.
pub(super) fn read_named_secret(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<String> {
    let text = read_secret_text(cx, files, base, name, what)?;
    trim_named_secret(cx, base, name, &text)
}

/// Trims the text of a file that consists of one secret. Reports what [`text::trim_secret`] does not accept.
pub(super) fn trim_named_secret(
    cx: &mut LoadContext,
    base: &Path,
    name: &Located<String>,
    text: &str,
) -> Option<String> {
    text::trim_secret(text)
        .map(str::to_owned)
        .map_err(|error| report_text_error(cx, base, name, error))
        .ok()
}

/// Reports a mistake inside a named file, at its line and without an excerpt.
fn report_text_error(cx: &mut LoadContext, base: &Path, name: &Located<String>, error: TextError) {
    let path = base.join(&name.value);
    let file = cx.sources.add_secret(&path.display().to_string());
    let location = SourceLocation {
        line: error.line,
        ..SourceLocation::start_of(file)
    };
    cx.error(location, error.message, Some(error.help.into()));
}
