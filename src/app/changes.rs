//! The changes that a reload made, for its caller and for the log. They name files and limits, but show no text of a
//! file.

use std::fmt;

use serde_json::{Value, json};

use crate::policy::Ruleset;
use crate::record::insight::Change;

/// Maximum number of files that the log names.
const MAX_FILES: usize = 8;

/// The differences between two configurations.
#[derive(Debug, Default)]
pub struct ReloadChanges {
    /// The names of gateway and policy files, each with `added`, `changed` or `removed`.
    pub files: Vec<(String, &'static str)>,
    /// The limits that were added, changed or removed.
    pub limits: Vec<Change>,
    /// Whether a file changed that the configuration names, such as a certificate, a key or a secret.
    pub other_files: bool,
}

impl ReloadChanges {
    /// Compares the files of two configurations. `is_same_fingerprint` says whether all contents are equal, also of the
    /// files that the configurations name.
    pub(super) fn between(
        before: &Ruleset,
        after: &Ruleset,
        limits: Vec<Change>,
        is_same_fingerprint: bool,
    ) -> ReloadChanges {
        let text_of = |ruleset: &Ruleset, path: &str| {
            let mut files = ruleset.files.iter();
            files.find_map(|(name, text)| (name == path).then(|| text.clone()))
        };
        let mut files = Vec::new();
        for (path, text) in &after.files {
            match text_of(before, path) {
                Some(previous) if previous == *text => {}
                Some(_) => files.push((path.clone(), "changed")),
                None => files.push((path.clone(), "added")),
            }
        }
        let previous_paths = before.files.iter().map(|(path, _)| path);
        let removed = previous_paths.filter(|path| text_of(after, path).is_none());
        files.extend(removed.map(|path| (path.clone(), "removed")));
        ReloadChanges {
            other_files: !is_same_fingerprint && files.is_empty(),
            files,
            limits,
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        !self.other_files && self.files.is_empty() && self.limits.is_empty()
    }

    /// Formats the changes as JSON for the admin API.
    pub fn to_json(&self) -> Value {
        let files = self.files.iter();
        let files = files.map(|(path, how)| json!({ "path": path, "how": how }));
        json!({
            "files": files.collect::<Vec<Value>>(),
            "limits": self.limits,
            "others": self.other_files,
        })
    }
}

impl fmt::Display for ReloadChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let named = self.files.iter().take(MAX_FILES);
        let mut parts: Vec<String> = named.map(|(path, how)| format!("{path} {how}")).collect();
        let more = self.files.len().saturating_sub(MAX_FILES);
        if more > 0 {
            parts.push(format!("{more} more files"));
        }
        if self.other_files {
            parts.push(String::from("a file that the configuration names"));
        }
        if !self.limits.is_empty() {
            parts.push(format!("limits: {}", self.limits.len()));
        }
        f.write_str(&parts.join(", "))
    }
}
