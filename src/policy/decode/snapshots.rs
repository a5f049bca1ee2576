//! Reads the fields of `store` about snapshots, which keep the counts on the disk.

use std::path::PathBuf;

use super::super::context::LoadContext;
use super::super::table::MapFields;
use super::switch_word::{is_off, report_switch_word};
use crate::store::snapshot::Settings;

/// Reads `snapshots` and `every` of a store in memory.
pub fn read_snapshots(cx: &mut LoadContext, fields: &MapFields<'_>) -> Option<Settings> {
    let every_node = fields.get("every");
    let every = every_node
        .and_then(|node| cx.read_duration(node, Settings::MIN_INTERVAL, Settings::MAX_INTERVAL));
    let folder_node = fields.get("snapshots");
    let Some(folder_node) = folder_node.filter(|node| !node.scalar().is_some_and(is_off)) else {
        if let Some(node) = every_node {
            let help = "name their folder, for instance `snapshots: data/counts`";
            let message = "`every` says how often snapshots are written, and there are none";
            cx.error(node.location, message, Some(help.into()));
        }
        return None;
    };
    let folder = cx.read_text(folder_node, "the name of a folder")?;
    report_switch_word(cx, &folder, "name the folder");
    Some(Settings {
        folder: PathBuf::from(folder.value),
        interval: every.map_or(Settings::DEFAULT_INTERVAL, |every| every.value),
    })
}
