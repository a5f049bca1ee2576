//! Reads the section `access_log`: which requests are logged, where, and when the gateway rotates the file.

use std::path::PathBuf;

use super::super::context::LoadContext;
use super::super::model::AccessLogConfig;
use super::super::section::{FieldReader, RequiredField, section};
use super::super::settings::{LogDestination, LogRotation, LoggedRequests};
use super::super::table::{Table, TableField, ValueShape, optional};
use super::super::tree::{Node, YamlValue};
use super::field::{SizeField, WholeNumberField};
use super::scalar::PATH_FORMAT;
use super::switch_word::{is_off, is_on, report_mistyped_word, report_switch_word};

section! {
    /// When the file of the access log is rotated.
    pub struct RotateSection, table ROTATE_TABLE = "`rotate`",
        "The gateway itself puts the file aside: FILE becomes FILE.1, that FILE.2, and so on.";
    size: RequiredField<SizeField<MIN_ROTATE_SIZE, MAX_ROTATE_SIZE>>,
        "From which size on.", "100MiB";
    keep: WholeNumberField<u32, 1, MAX_KEPT_FILES> = DEFAULT_KEPT_FILES,
        "How many files are kept beside it.", "5";
}

/// Minimum size in bytes at which a file is rotated: some ten lines.
const MIN_ROTATE_SIZE: u64 = 4 * 1024;
/// Maximum size in bytes at which a file is rotated: 1 TiB.
const MAX_ROTATE_SIZE: u64 = 1 << 40;

/// Maximum number of old files that are kept.
const MAX_KEPT_FILES: u64 = 1000;
/// The number of old files that are kept if the gateway file has none.
const DEFAULT_KEPT_FILES: u32 = 5;

pub static ACCESS_LOG_TABLE: Table = Table {
    name: "`access_log`",
    doc: "Where requests are logged, as JSON lines.",
    fields: &[
        optional(
            "file",
            ValueShape::Format(&PATH_FORMAT),
            "The file, `stdout` or `stderr`. Default: stdout.",
            "access.log",
        ),
        optional(
            "requests",
            ValueShape::Words(&["all", "refused", "off"]),
            "Which requests. Default: all.",
            "refused",
        ),
        optional(
            "rotate",
            ValueShape::Table(&ROTATE_TABLE),
            "When the file is put aside. Default: never.",
            "{ size: 100MiB, keep: 5 }",
        ),
    ],
};

/// Reads `access_log`: a word, the path of a file, or a map.
pub fn read_access_log(cx: &mut LoadContext, node: &Node) -> Option<AccessLogConfig> {
    let YamlValue::Map(_) = node.value else {
        return read_access_log_scalar(cx, node);
    };
    let fields = ACCESS_LOG_TABLE.open(cx, node)?;
    let words = [
        ("all", LoggedRequests::All),
        ("refused", LoggedRequests::Refused),
        ("off", LoggedRequests::Off),
    ];
    let requests = fields
        .get("requests")
        .and_then(|node| cx.read_word(node, &words));
    let mut destination = match fields.get("file") {
        Some(node) => read_destination(cx, node)?,
        None => LogDestination::Stdout,
    };
    if let Some(node) = fields.get("rotate") {
        let rotation = read_rotate(cx, node);
        match &mut destination {
            LogDestination::File { rotate, .. } => *rotate = rotation,
            LogDestination::Stdout | LogDestination::Stderr => {
                let help = "write `file: access.log` beside it, or remove it";
                let message = "`rotate` is for a log that has a file";
                cx.error(fields.location_of("rotate"), message, Some(help.into()));
            }
        }
    }
    Some(AccessLogConfig {
        requests: requests.map_or(LoggedRequests::All, |requests| requests.value),
        destination,
    })
}

/// Reads a word that switches the log on or off, or its destination.
fn read_access_log_scalar(cx: &mut LoadContext, node: &Node) -> Option<AccessLogConfig> {
    let (requests, destination) = match node.scalar() {
        Some(text) if is_off(text) => (LoggedRequests::Off, LogDestination::Stdout),
        Some(text) if is_on(text) => (LoggedRequests::All, LogDestination::Stdout),
        _ => (LoggedRequests::All, read_destination(cx, node)?),
    };
    Some(AccessLogConfig {
        requests,
        destination,
    })
}

/// Reads the path of a file, or the name of a standard stream.
fn read_destination(cx: &mut LoadContext, node: &Node) -> Option<LogDestination> {
    let path = cx.read_text(node, "`stdout`, `stderr`, `off` or a file")?;
    Some(match path.value.as_str() {
        "stdout" | "-" => LogDestination::Stdout,
        "stderr" => LogDestination::Stderr,
        text => {
            if is_off(text) || is_on(text) {
                report_switch_word(
                    cx,
                    &path,
                    "name the file, and to log nothing write `requests: off`",
                );
            } else {
                report_mistyped_word(cx, &path, &["stdout", "stderr", "off"]);
            }
            LogDestination::File {
                path: PathBuf::from(path.value),
                rotate: None,
            }
        }
    })
}

fn read_rotate(cx: &mut LoadContext, node: &Node) -> Option<LogRotation> {
    let section = RotateSection::read(cx, node);
    Some(LogRotation {
        size: section.size? as u64,
        keep: section.keep,
    })
}
