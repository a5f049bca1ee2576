//! The changes that a reload made, as JSON for the admin API and as text for the log. They name files and describe
//! limits, but show no text of a file.

use std::fmt;

use serde_json::{Value, json};

use crate::policy::Ruleset;
use crate::record::insight::LimitChange;

/// The largest number of files that the text for the log names.
const MAX_NAMED_FILES: usize = 8;

/// The differences between two configurations.
#[derive(Debug, Default)]
pub struct ReloadChanges {
    /// The gateway and policy files that differ, at most as many as both configurations have together.
    pub files: Vec<FileChange>,
    /// The limits that were added, changed or removed, at most as many as both configurations have together.
    pub limits: Vec<LimitChange>,
    /// Whether something changed that `files` does not show: a file that the configuration names, such as a certificate
    /// or a key, or a password in a text. `false` if `files` has an entry.
    pub only_named_files_changed: bool,
}

/// A gateway or policy file that differs between two configurations.
#[derive(Debug)]
pub struct FileChange {
    /// The path, as the configuration names it.
    pub path: String,
    /// How the file differs.
    pub kind: FileChangeKind,
}

/// How a file differs between two configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChangeKind {
    /// Only the new configuration has the file.
    Added,
    /// Both have the file, with different contents.
    Changed,
    /// Only the old configuration has the file.
    Removed,
}

impl ReloadChanges {
    /// Compares the files of two configurations, and adds the changed `limits`. `has_same_contents` says whether
    /// everything that was read is equal, also files that the configurations name.
    pub(super) fn compare(
        before: &Ruleset,
        after: &Ruleset,
        limits: Vec<LimitChange>,
        has_same_contents: bool,
    ) -> ReloadChanges {
        let text_of = |ruleset: &Ruleset, path: &str| {
            let mut files = ruleset.files.iter();
            files.find_map(|(name, text)| (name == path).then(|| text.clone()))
        };
        let mut files = Vec::new();
        for (path, text) in &after.files {
            match text_of(before, path) {
                Some(text_before) if text_before == *text => {}
                Some(_) => files.push(FileChange::new(path, FileChangeKind::Changed)),
                None => files.push(FileChange::new(path, FileChangeKind::Added)),
            }
        }
        let paths_before = before.files.iter().map(|(path, _)| path);
        let removed_paths = paths_before.filter(|path| text_of(after, path).is_none());
        files.extend(removed_paths.map(|path| FileChange::new(path, FileChangeKind::Removed)));
        ReloadChanges {
            only_named_files_changed: !has_same_contents && files.is_empty(),
            files,
            limits,
        }
    }

    /// Whether neither a file nor a limit has changed.
    pub fn is_empty(&self) -> bool {
        !self.only_named_files_changed && self.files.is_empty() && self.limits.is_empty()
    }

    /// Formats the changes as JSON for the admin API.
    pub fn to_json(&self) -> Value {
        let files = self.files.iter();
        let files = files.map(|file| json!({ "path": file.path, "how": file.kind.as_str() }));
        json!({
            "files": files.collect::<Vec<Value>>(),
            "limits": self.limits,
            "others": self.only_named_files_changed,
        })
    }
}

impl FileChange {
    fn new(path: &str, kind: FileChangeKind) -> FileChange {
        let path = path.to_owned();
        FileChange { path, kind }
    }
}

impl FileChangeKind {
    /// The word for the kind in the log and in the admin API.
    fn as_str(self) -> &'static str {
        match self {
            FileChangeKind::Added => "added",
            FileChangeKind::Changed => "changed",
            FileChangeKind::Removed => "removed",
        }
    }
}

/// The text for the log.
impl fmt::Display for ReloadChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let named_files = self.files.iter().take(MAX_NAMED_FILES);
        let mut parts: Vec<String> = named_files
            .map(|file| format!("{} {}", file.path, file.kind.as_str()))
            .collect();
        let unnamed_count = self.files.len().saturating_sub(MAX_NAMED_FILES);
        if unnamed_count > 0 {
            parts.push(format!("{unnamed_count} more files"));
        }
        if self.only_named_files_changed {
            parts.push(String::from("a file that the configuration names"));
        }
        if !self.limits.is_empty() {
            parts.push(format!("limits: {}", self.limits.len()));
        }
        f.write_str(&parts.join(", "))
    }
}
