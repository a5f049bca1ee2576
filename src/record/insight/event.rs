//! Events of the gateway, as notes of the record store them: a start, a stop, a reload of its policies.

use serde::{Deserialize, Serialize};

/// An event of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEvent {
    /// Seconds since 1970.
    pub at: u64,
    /// `started`, `stopped`, `reloaded` or `reload_failed`.
    pub event: String,
    /// A description for operators.
    pub detail: String,
    /// The limits that a reload changed.
    pub changes: Vec<Change>,
}

/// A limit that a reload changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The name of the limit.
    pub limit: String,
    /// The file and line where it is or was defined.
    pub at: String,
    /// A description of the limit before the reload; nothing if it is new.
    pub before: Option<String>,
    /// A description of the limit after the reload; nothing if it was removed.
    pub after: Option<String>,
}
