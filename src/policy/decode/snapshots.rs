//! Where counts are kept when the process ends.

use std::path::PathBuf;

use super::super::collect::Cx;
use super::super::table::MapFields;
use super::switch::{is_off, no_switch};
use crate::store::snapshot::Settings;

/// Reads `snapshots` and `every` of a store in memory.
pub fn snapshots(cx: &mut Cx, fields: &MapFields<'_>) -> Option<Settings> {
    let every = fields.get("every").map(|node| {
        let span = cx.span(node, Settings::SHORTEST, Settings::LONGEST);
        (node, span.map(|span| span.value))
    });
    let folder = fields.get("snapshots");
    let Some(folder) = folder.filter(|node| !node.text().is_some_and(is_off)) else {
        if let Some((node, _)) = every {
            let help = "name their folder, for instance `snapshots: data/counts`";
            let message = "`every` says how often snapshots are written, and there are none";
            cx.error(node.place, message, Some(help.into()));
        }
        return None;
    };
    let folder = cx.text(folder, "the name of a folder")?;
    no_switch(cx, &folder, "name the folder");
    let every = every.and_then(|(_, span)| span);
    Some(Settings {
        folder: PathBuf::from(folder.value),
        every: every.unwrap_or(Settings::USUAL),
    })
}
