//! Reads the section `record`: whether the gateway keeps a record, where, and to which engines it pushes the record.

use std::path::PathBuf;

use super::super::context::LoadContext;
use super::super::model::RecordConfig;
use super::super::table::{Table, ValueShape, optional};
use super::super::tree::{Node, YamlValue};
use super::push::{DESTINATION_TABLE, read_destinations};
use super::scalar::{PATH_FORMAT, SIZE_FORMAT};
use super::switch_word::{is_off, is_on, report_mistyped_word, report_switch_word};
use crate::record::Settings;

pub static RECORD_TABLE: Table = Table {
    name: "`record`",
    doc: "What happened in every second, for years.",
    fields: &[
        optional(
            "dir",
            ValueShape::Format(&PATH_FORMAT),
            "Its folder. Default: none, the last two or three hours are kept in memory.",
            "data/record",
        ),
        optional(
            "size",
            ValueShape::Format(&SIZE_FORMAT),
            "Most it takes of the disk; the oldest seconds go first, then the oldest minutes. Default: 1GiB.",
            "1GiB",
        ),
        optional(
            "push",
            ValueShape::OneOrList(&ValueShape::Table(&DESTINATION_TABLE)),
            "The engines to which it is sent.",
            "{ to: prometheus, url: http://prom:9090/api/v1/write }",
        ),
    ],
};

/// Reads `record`: a word, the path of a folder, or a map.
pub fn read_record(cx: &mut LoadContext, node: &Node) -> Option<RecordConfig> {
    if matches!(node.value, YamlValue::Map(_)) {
        read_record_map(cx, node)
    } else {
        read_record_scalar(cx, node)
    }
}

fn read_record_map(cx: &mut LoadContext, node: &Node) -> Option<RecordConfig> {
    let fields = RECORD_TABLE.open(cx, node)?;
    let folder = fields
        .get("dir")
        .and_then(|node| cx.read_text(node, "the name of a folder"));
    if let Some(folder) = &folder {
        report_switch_word(cx, folder, "name the folder, or leave `dir` out");
    }
    let size = fields
        .get("size")
        .and_then(|node| cx.read_size(node, Settings::MIN_BYTES, Settings::MAX_BYTES));
    let destinations = fields
        .get("push")
        .map_or_else(Vec::new, |node| read_destinations(cx, node));
    if !fields.has("dir") && fields.has("size") {
        let help = "write `dir: data/record` beside it, or remove it";
        let message = "`size` is for a record that has a folder";
        cx.error(fields.location_of("size"), message, Some(help.into()));
    } else if !fields.has("dir") && !fields.has("push") {
        let help = "for instance `dir: data/record`";
        let message = "`record` needs the field `dir`";
        cx.error(fields.location, message, Some(help.into()));
    }
    let settings = Settings {
        folder: folder.map(|folder| PathBuf::from(folder.value)),
        max_bytes: size.map_or(Settings::DEFAULT_BYTES, |size| size.value as u64),
    };
    Some(RecordConfig::On(settings, destinations))
}

fn read_record_scalar(cx: &mut LoadContext, node: &Node) -> Option<RecordConfig> {
    let path = cx.read_text(node, "`off`, `memory` or a folder")?;
    let folder = match path.value.as_str() {
        word if is_off(word) => return Some(RecordConfig::Off),
        word if word == "memory" || is_on(word) => None,
        _ => {
            report_mistyped_word(cx, &path, &["off", "memory"]);
            Some(PathBuf::from(path.value))
        }
    };
    let settings = Settings {
        folder,
        max_bytes: Settings::DEFAULT_BYTES,
    };
    Some(RecordConfig::On(settings, Vec::new()))
}
