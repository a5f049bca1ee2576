//! What was done to the gateway: it was started, or its policies were changed.

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// In seconds since 1970.
    pub at: u64,
    /// What: `started`, `stopped`, `reloaded` or `reload_failed`.
    pub event: String,
    /// More of it, for people.
    pub detail: String,
    /// Limits that are others now.
    pub changes: Vec<Change>,
}

/// A limit that is another now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its name.
    pub limit: String,
    /// Where it is written, or was.
    pub at: String,
    /// What it was; nothing if it is new.
    pub before: Option<String>,
    /// What it is; nothing if it is gone.
    pub after: Option<String>,
}
