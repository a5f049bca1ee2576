//! `access_log`: where requests are logged.

use std::path::PathBuf;

use super::super::collect::Cx;
use super::super::model::AccessLogConfig;
use super::super::settings::{LogTo, Logged, Rotate};
use super::super::table::{Table, ValueShape, may, must};
use super::super::tree::{Node, YamlValue};
use super::leaf::{PATH, SIZE};
use super::switch::{is_off, is_on, mistyped, no_switch};

static ROTATE: Table = Table {
    name: "`rotate`",
    doc: "The gateway itself puts the file aside: FILE becomes FILE.1, that FILE.2, and so on.",
    fields: &[
        must(
            "size",
            ValueShape::Form(&SIZE),
            "From which size on.",
            "100MiB",
        ),
        may(
            "keep",
            ValueShape::Whole(1, 1000),
            "How many files are kept beside it. Default: 5.",
            "5",
        ),
    ],
};

/// `access_log` with more than a file.
pub static ACCESS_LOG: Table = Table {
    name: "`access_log`",
    doc: "Where requests are logged, as JSON lines.",
    fields: &[
        may(
            "file",
            ValueShape::Form(&PATH),
            "The file, `stdout` or `stderr`. Default: stdout.",
            "access.log",
        ),
        may(
            "requests",
            ValueShape::Words(&["all", "refused", "off"]),
            "Which requests. Default: all.",
            "refused",
        ),
        may(
            "rotate",
            ValueShape::Table(&ROTATE),
            "When the file is put aside. Default: never.",
            "{ size: 100MiB, keep: 5 }",
        ),
    ],
};

/// Smallest and largest size at which a file is put aside.
const SIZES: (u64, u64) = (4 * 1024, 1 << 40);

/// Files that are kept when nothing is said.
const KEEP: u32 = 5;

/// Reads `access_log`.
pub fn access_log(cx: &mut Cx, node: &Node) -> Option<AccessLogConfig> {
    let YamlValue::Map(_) = node.value else {
        return plain(cx, node);
    };
    let fields = ACCESS_LOG.open(cx, node)?;
    let words = [
        ("all", Logged::All),
        ("refused", Logged::Refused),
        ("off", Logged::Off),
    ];
    let requests = fields
        .get("requests")
        .and_then(|node| cx.word(node, &words));
    let file = fields.get("file");
    let mut to = file.map_or(Some(LogTo::Stdout), |node| file_of(cx, node))?;
    if let Some(node) = fields.get("rotate") {
        let rotate = rotate(cx, node);
        match &mut to {
            LogTo::File { rotate: own, .. } => *own = rotate,
            LogTo::Stdout | LogTo::Stderr => {
                let help = "write `file: access.log` beside it, or remove it";
                let message = "`rotate` is for a log that has a file";
                cx.error(fields.place_of("rotate"), message, Some(help.into()));
            }
        }
    }
    Some(AccessLogConfig {
        requests: requests.map_or(Logged::All, |requests| requests.value),
        to,
    })
}

/// A word or a file.
fn plain(cx: &mut Cx, node: &Node) -> Option<AccessLogConfig> {
    let off = node.text().is_some_and(is_off);
    let to = match node.text() {
        Some(text) if is_off(text) || is_on(text) => LogTo::Stdout,
        _ => file_of(cx, node)?,
    };
    let requests = if off { Logged::Off } else { Logged::All };
    Some(AccessLogConfig { requests, to })
}

/// A file, or a stream of the process.
fn file_of(cx: &mut Cx, node: &Node) -> Option<LogTo> {
    let path = cx.text(node, "`stdout`, `stderr`, `off` or a file")?;
    Some(match path.value.as_str() {
        "stdout" | "-" => LogTo::Stdout,
        "stderr" => LogTo::Stderr,
        text => {
            if is_off(text) || is_on(text) {
                no_switch(
                    cx,
                    &path,
                    "name the file, and to log nothing write `requests: off`",
                );
            } else {
                mistyped(cx, &path, &["stdout", "stderr", "off"]);
            }
            LogTo::File {
                path: PathBuf::from(path.value),
                rotate: None,
            }
        }
    })
}

fn rotate(cx: &mut Cx, node: &Node) -> Option<Rotate> {
    let fields = ROTATE.open(cx, node)?;
    let keep = fields.get("keep");
    let keep = keep.and_then(|node| cx.whole(node, 1, 1000));
    let keep = keep.and_then(|keep| u32::try_from(keep.value).ok());
    let size = fields.get("size");
    let size = size.and_then(|node| cx.size(node, SIZES.0, SIZES.1))?;
    Some(Rotate {
        size: size.value as u64,
        keep: keep.unwrap_or(KEEP),
    })
}
