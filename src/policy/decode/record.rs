//! `record`: where what happens is kept.

use std::path::PathBuf;

use super::super::collect::Cx;
use super::super::model::Record;
use super::super::table::{Shape, Table, may, must};
use super::super::tree::{Node, Value};
use super::gateway::mistyped;
use super::leaf::{PATH, SIZE};
use crate::record::Settings;

/// `record` with more than a folder.
pub static RECORD: Table = Table {
    name: "`record`",
    doc: "What happened in every second, for years.",
    fields: &[
        must("dir", Shape::Form(&PATH), "Its folder.", "data/record"),
        may(
            "size",
            Shape::Form(&SIZE),
            "Most it takes of the disk; the oldest seconds go first, then the oldest minutes. Default: 1GiB.",
            "1GiB",
        ),
    ],
};

/// Reads `record`.
pub fn record(cx: &mut Cx, node: &Node) -> Option<Record> {
    let most_bytes = Settings::USUAL;
    if matches!(node.value, Value::Map(_)) {
        let fields = RECORD.open(cx, node)?;
        let folder = fields
            .get("dir")
            .and_then(|node| cx.text(node, "the name of a folder"));
        let size = fields
            .get("size")
            .and_then(|node| cx.size(node, Settings::LEAST, Settings::MOST));
        return Some(Record::Kept(Settings {
            folder: Some(PathBuf::from(folder?.value)),
            most_bytes: size.map_or(most_bytes, |size| size.value as u64),
        }));
    }
    let path = cx.text(node, "`off`, `memory` or a folder")?;
    let folder = match path.value.as_str() {
        "off" => return Some(Record::Off),
        "memory" => None,
        _ => {
            mistyped(cx, &path, &["off", "memory"]);
            Some(PathBuf::from(path.value))
        }
    };
    Some(Record::Kept(Settings { folder, most_bytes }))
}
