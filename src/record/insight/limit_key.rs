//! The name of a key, as lists and log lines show it. Counting uses its hash instead.

use serde::{Deserialize, Serialize};

/// A key of a limit, as operators read it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LimitKey {
    /// The name of the limit.
    pub limit: String,
    /// The identities of the key and their values, such as `ip=203.0.113.9`.
    pub key: String,
}
