//! Events of the gateway, as notes of the record store them: a start, a stop, a reload of its policies.
//! `app/events.rs` creates them.

use serde::{Deserialize, Serialize};

/// An event of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEvent {
    /// The time of the event, in seconds since 1970.
    pub at: u64,
    /// `started`, `stopped`, `reloaded`, `reload_failed`, `banned`, `ban_lifted` or `ban_ended`.
    pub event: String,
    /// A description for operators.
    pub detail: String,
    /// The limits that a reload changed, of which only the first 100 are stored.
    pub changes: Vec<LimitChange>,
}

/// A limit that a reload changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    /// The name of the limit.
    pub limit: String,
    /// The file and the line where the limit is or was defined.
    #[serde(rename = "at")]
    pub origin: String,
    /// A description of the limit before the reload; `None` if the limit is new.
    pub before: Option<String>,
    /// A description of the limit after the reload; `None` if the limit was removed.
    pub after: Option<String>,
}
