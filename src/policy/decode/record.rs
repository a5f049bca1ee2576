//! Reads the section `record`: whether the gateway keeps a record, where, and to which engines it pushes the record.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, Section, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Node, YamlValue};
use super::field::{FolderNameField, SizeField};
use super::push::DestinationsField;
use super::scalar::PATH_FORMAT;
use super::switch_word::{is_off, is_on, report_mistyped_word, report_switch_word};
use crate::record::Settings;

section! {
    /// Where the record is kept, and to which destinations it is pushed.
    pub struct RecordConfig, table RECORD_TABLE = "`record`",
        "What happened in every second, for years.", check check_record;
    dir: FolderNameField,
        "Its folder. Default: none, the last two or three hours are kept in memory.", "data/record";
    size: SizeField<{ Settings::MIN_BYTES }, { Settings::MAX_BYTES }> = Settings::DEFAULT_BYTES as usize,
        "Most it takes of the disk; the oldest seconds go first, then the oldest minutes.", "1GiB";
    push: DestinationsField = Vec::new(),
        "The engines to which it is sent.", "{ to: prometheus, url: http://prom:9090/api/v1/write }";
}

/// A field with a word, with the path of a folder, or with a map. A word that switches the record off is read as
/// [`None`]; `memory` or a word for on is a record without a folder.
pub struct RecordField;

impl FieldReader for RecordField {
    type Value = Option<RecordConfig>;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Bool,
        ValueShape::Words(&["off", "memory"]),
        ValueShape::Format(&PATH_FORMAT),
        ValueShape::Table(&RECORD_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Option<RecordConfig>> {
        if matches!(node.value, YamlValue::Map(_)) {
            return RecordConfig::read(cx, node).map(Some);
        }
        let path = cx.read_text(node, "`off`, `memory` or a folder")?;
        let dir = match path.value.as_str() {
            word if is_off(word) => return Some(None),
            word if word == "memory" || is_on(word) => None,
            _ => {
                report_mistyped_word(cx, &path, &["off", "memory"]);
                Some(path)
            }
        };
        Some(Some(RecordConfig {
            dir,
            ..RecordConfig::default()
        }))
    }
}

/// Checks that the map has a folder or a destination, and `size` only with a folder. Reports a folder whose name is a
/// word for on or off.
fn check_record(cx: &mut LoadContext, fields: &MapFields<'_>, record: &RecordConfig) {
    if let Some(dir) = &record.dir {
        report_switch_word(cx, dir, "name the folder, or leave `dir` out");
    }
    if !fields.has("dir") && fields.has("size") {
        let help = "write `dir: data/record` beside it, or remove it";
        let message = "`size` is for a record that has a folder";
        cx.error(fields.location_of("size"), message, Some(help.into()));
    } else if !fields.has("dir") && !fields.has("push") {
        let help = "for instance `dir: data/record`";
        let message = "`record` needs the field `dir`";
        cx.error(fields.location, message, Some(help.into()));
    }
}
