//! `record`: where what happens is kept.

use std::path::PathBuf;

use super::super::collect::Cx;
use super::super::model::RecordConfig;
use super::super::table::{Table, ValueShape, may};
use super::super::tree::{Node, YamlValue};
use super::leaf::{PATH, SIZE};
use super::push::{PUSH, push};
use super::switch::{is_off, is_on, mistyped, no_switch};
use crate::record::Settings;

/// `record` with more than a folder.
pub static RECORD: Table = Table {
    name: "`record`",
    doc: "What happened in every second, for years.",
    fields: &[
        may(
            "dir",
            ValueShape::Form(&PATH),
            "Its folder. Default: none, the last two or three hours are kept in memory.",
            "data/record",
        ),
        may(
            "size",
            ValueShape::Form(&SIZE),
            "Most it takes of the disk; the oldest seconds go first, then the oldest minutes. Default: 1GiB.",
            "1GiB",
        ),
        may(
            "push",
            ValueShape::Many(&ValueShape::Table(&PUSH)),
            "The engines to which it is sent.",
            "{ to: prometheus, url: http://prom:9090/api/v1/write }",
        ),
    ],
};

/// Reads `record`.
pub fn record(cx: &mut Cx, node: &Node) -> Option<RecordConfig> {
    let most_bytes = Settings::USUAL;
    if matches!(node.value, YamlValue::Map(_)) {
        let fields = RECORD.open(cx, node)?;
        let folder = fields
            .get("dir")
            .and_then(|node| cx.text(node, "the name of a folder"));
        if let Some(folder) = &folder {
            no_switch(cx, folder, "name the folder, or leave `dir` out");
        }
        let size = fields
            .get("size")
            .and_then(|node| cx.size(node, Settings::LEAST, Settings::MOST));
        let to = fields.get("push");
        let to = to.map_or_else(Vec::new, |node| push(cx, node));
        if !fields.has("dir") && fields.has("size") {
            let help = "write `dir: data/record` beside it, or remove it";
            let message = "`size` is for a record that has a folder";
            cx.error(fields.place_of("size"), message, Some(help.into()));
        } else if !fields.has("dir") && !fields.has("push") {
            let help = "for instance `dir: data/record`";
            let message = "`record` needs the field `dir`";
            cx.error(fields.place, message, Some(help.into()));
        }
        let settings = Settings {
            folder: folder.map(|folder| PathBuf::from(folder.value)),
            most_bytes: size.map_or(most_bytes, |size| size.value as u64),
        };
        return Some(RecordConfig::Kept(settings, to));
    }
    let path = cx.text(node, "`off`, `memory` or a folder")?;
    let folder = match path.value.as_str() {
        text if is_off(text) => return Some(RecordConfig::Off),
        text if text == "memory" || is_on(text) => None,
        _ => {
            mistyped(cx, &path, &["off", "memory"]);
            Some(PathBuf::from(path.value))
        }
    };
    Some(RecordConfig::Kept(
        Settings { folder, most_bytes },
        Vec::new(),
    ))
}
