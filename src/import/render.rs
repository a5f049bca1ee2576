//! Prints what an input has become: the files, and the report for people and for programs.

use std::fmt::Write;

use serde_json::json;

use super::Imported;
use super::files::OutputFile;
use super::report::{Fate, MAX_PATH_CHARS, printable};

/// The files in one text, each behind a comment with its path.
pub fn render_files(imported: &Imported) -> String {
    let file_text = |file: &OutputFile| format!("# --- {}\n{}", file.path, file.text);
    imported
        .files
        .iter()
        .map(file_text)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The report for people: a line for each line of the input, notes, files that are needed, and a summary.
pub fn render_report(imported: &Imported) -> String {
    let mut text = String::new();
    for line in &imported.report {
        let _ = write!(
            text,
            "{}:{}: {:7} {}",
            line.file,
            line.line,
            line.fate.as_str(),
            line.text
        );
        if !line.note.is_empty() {
            let _ = write!(text, "\n    {}", line.note);
        }
        text.push('\n');
    }
    for note in &imported.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for file in &imported.needed_files {
        let path = printable(&file.path, MAX_PATH_CHARS);
        let _ = writeln!(text, "needed: {path}");
    }
    let count = |fate| {
        imported
            .report
            .iter()
            .filter(|line| line.fate == fate)
            .count()
    };
    let rules_left = imported.rules_left();
    let _ = writeln!(
        text,
        "{} taken, {} changed, {} left, {rules_left} of those about limits, routes or access",
        count(Fate::Taken),
        count(Fate::Changed),
        count(Fate::Left),
    );
    text
}

/// The report for programs; with `has_files` also the files.
pub fn render_json(imported: &Imported, has_files: bool) -> serde_json::Value {
    let lines: Vec<_> = imported
        .report
        .iter()
        .map(|line| {
            json!({
                "file": line.file, "line": line.line, "fate": line.fate.as_str(),
                "concern": line.concern.as_str(), "text": line.text, "note": line.note,
            })
        })
        .collect();
    let needed: Vec<_> = imported
        .needed_files
        .iter()
        .map(|file| &file.path)
        .collect();
    let mut json = json!({ "report": lines, "notes": imported.notes, "needed_files": needed });
    if has_files {
        let files: Vec<_> = imported
            .files
            .iter()
            .map(|file| json!({ "path": file.path, "text": file.text }))
            .collect();
        json["files"] = files.into();
    }
    json
}
