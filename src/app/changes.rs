//! What a reload has changed, for its caller and the log.

use std::fmt;

use serde_json::{Value, json};

use crate::policy::Ruleset;
use crate::record::insight::Change;

/// Maximum number of files that the log names.
const MAX_FILES: usize = 8;

/// Changes between two configurations.
#[derive(Debug, Default)]
pub struct Changes {
    /// Files of the configuration, each `added`, `changed` or `removed`.
    pub files: Vec<(String, &'static str)>,
    /// Changed limits.
    pub limits: Vec<Change>,
    /// Whether another file changed: a certificate, a key, a secret.
    pub others: bool,
}

impl Changes {
    /// Compares two configurations; `same` says whether all files that were read are equal.
    pub(super) fn between(
        before: &Ruleset,
        after: &Ruleset,
        limits: Vec<Change>,
        same: bool,
    ) -> Changes {
        let text = |ruleset: &Ruleset, path: &str| {
            let mut files = ruleset.files.iter();
            files.find_map(|(name, text)| (name == path).then(|| text.clone()))
        };
        let mut files = Vec::new();
        for (path, is) in &after.files {
            match text(before, path) {
                Some(was) if was == *is => {}
                Some(_) => files.push((path.clone(), "changed")),
                None => files.push((path.clone(), "added")),
            }
        }
        let gone = before.files.iter().map(|(path, _)| path);
        let gone = gone.filter(|path| text(after, path).is_none());
        files.extend(gone.map(|path| (path.clone(), "removed")));
        Changes {
            others: !same && files.is_empty(),
            files,
            limits,
        }
    }

    /// Whether anything has changed.
    pub fn any(&self) -> bool {
        self.others || !self.files.is_empty() || !self.limits.is_empty()
    }

    /// As JSON for the admin API.
    pub fn to_json(&self) -> Value {
        let files = self.files.iter();
        let files = files.map(|(path, how)| json!({ "path": path, "how": how }));
        json!({
            "files": files.collect::<Vec<Value>>(),
            "limits": self.limits,
            "others": self.others,
        })
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.any() {
            return f.write_str("nothing");
        }
        let named = self.files.iter().take(MAX_FILES);
        let mut parts: Vec<String> = named.map(|(path, how)| format!("{path} {how}")).collect();
        let more = self.files.len().saturating_sub(MAX_FILES);
        if more > 0 {
            parts.push(format!("{more} more files"));
        }
        if self.others {
            parts.push(String::from("a file that the configuration names"));
        }
        if !self.limits.is_empty() {
            parts.push(format!("limits: {}", self.limits.len()));
        }
        f.write_str(&parts.join(", "))
    }
}
