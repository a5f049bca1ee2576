//! Events of the gateway: a start, a stop, a reload of its policies.

use serde::{Deserialize, Serialize};

/// An event, as notes of the record keep it.
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
    /// The former limit; none if it is new.
    pub before: Option<String>,
    /// The present limit; none if it was removed.
    pub after: Option<String>,
}
