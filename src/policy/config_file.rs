//! Reads one configuration file to a tree of values, within the bounds of its size and of the size of all files. It gives
//! no value a meaning.

use std::path::Path;

use super::context::LoadContext;
use super::source::Files;
use super::text;
use super::tree::{self, MAX_FILE_BYTES, Node, SourceLocation};

/// Maximum size in bytes of the gateway file, all policies and all defaults together, which bounds the memory of
/// loading. Files that they name have bounds of their own.
const MAX_TOTAL_BYTES: usize = 32 * 1024 * 1024;

/// Reads and parses one file, and returns its number in [`LoadContext::sources`] and its tree. Adds its size in bytes
/// to `total_bytes`, the size of all files so far. `None` for a mistake or an empty file, which is reported.
pub fn read_tree(
    cx: &mut LoadContext,
    files: &dyn Files,
    path: &Path,
    total_bytes: &mut usize,
) -> Option<(u32, Node)> {
    let name = path.display().to_string();
    let bytes = match files.read(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let file = cx.sources.add(&name, String::new());
            cx.error(
                SourceLocation::start_of(file),
                format!("cannot read this file: {reason}"),
                None,
            );
            return None;
        }
    };
    *total_bytes = total_bytes.saturating_add(bytes.len());
    if *total_bytes > MAX_TOTAL_BYTES {
        let file = cx.sources.add(&name, String::new());
        let message =
            "all files together are larger than 32 MiB; this one and those behind it are not read";
        cx.error(SourceLocation::start_of(file), message, None);
        return None;
    }
    let text = match text::decode_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let file = cx.sources.add(&name, String::new());
            let location = SourceLocation {
                line: error.line,
                ..SourceLocation::start_of(file)
            };
            cx.error(location, error.message, Some(error.help.into()));
            return None;
        }
    };
    let file = cx.sources.add(&name, text);
    match tree::parse(file, cx.sources.text(file)) {
        Ok(node) if report_empty_file(cx, file, &node) => None,
        Ok(node) => Some((file, node)),
        Err(tree::SyntaxError {
            location,
            message,
            help,
        }) => {
            cx.error(location, message, help);
            None
        }
    }
}

/// Reports a file without content, and returns whether the file has none. Messages about missing fields would not help.
fn report_empty_file(cx: &mut LoadContext, file: u32, node: &Node) -> bool {
    let is_empty = matches!(node.value, tree::YamlValue::Null);
    if is_empty {
        let location = SourceLocation::start_of(file);
        let help = "write its fields, or remove the file";
        cx.error(location, "the file is empty", Some(help.into()));
    }
    is_empty
}
