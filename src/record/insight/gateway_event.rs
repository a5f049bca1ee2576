//! Events of the gateway, as notes of the record store them: a start, a stop, a reload of its policies, an order of an
//! operator. `app/events.rs` creates them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An event of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEvent {
    /// The time of the event, in seconds since 1970.
    pub at: u64,
    /// `started`, `stopped`, `reloaded`, `reload_failed`, `banned`, `ban_lifted`, `ban_ended`, `granted`, `grant_revoked`,
    /// `grant_ended`, `key_added`, `key_revoked`, `key_ended`, `ordered`, `order_refused` or `events_dropped`.
    pub event: String,
    /// A description for operators.
    pub detail: String,
    /// The limits that a reload changed, of which only the first 100 are stored.
    pub changes: Vec<LimitChange>,
    /// Who ordered what; for `ordered`, `order_refused` and `events_dropped` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditEntry>,
}

/// What an operator has ordered, or has tried to order, at the admin listener. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The name of the operator; empty if it is not known.
    pub by: String,
    /// The address that the order came from.
    pub peer: String,
    /// What was ordered, such as `ban`; the method and the path of a request that was refused before.
    pub action: String,
    /// On whom, such as `user=alice`; empty if it is about the whole gateway.
    pub target: String,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
    /// `done`, `done in part` and why, `failed; may be done in part`, or why it was not done.
    pub result: String,
}

impl AuditEntry {
    /// The result of an order that was carried out.
    pub const DONE: &str = "done";

    /// The start of the result of an order of which a part was carried out.
    pub const DONE_IN_PART: &str = "done in part";

    /// The result of an order whose outcome is not known.
    pub const FAILED: &str = "failed; may be done in part";

    /// Whether the order was carried out.
    pub fn is_done(&self) -> bool {
        self.result == AuditEntry::DONE
    }

    /// Whether the order may have changed something.
    pub fn may_have_effect(&self) -> bool {
        self.result.starts_with(AuditEntry::DONE) || self.result == AuditEntry::FAILED
    }
}

/// A line for operators, without the time.
impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by.as_str() {
            "" => "somebody",
            by => by,
        };
        write!(f, "{by} at {}: {}", self.peer, self.action)?;
        for (before, text) in [(" ", &self.target), (": ", &self.reason)] {
            if !text.is_empty() {
                write!(f, "{before}{text}")?;
            }
        }
        write!(f, " ({})", self.result)
    }
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
