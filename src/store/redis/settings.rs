//! The settings of a store in Redis or Valkey.

use super::address::RedisAddress;
use crate::net::Roots;

/// The store's address, how its servers are verified, and the prefix of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The store's address.
    pub address: RedisAddress,
    /// Certificate authorities that servers are verified by; needed with TLS.
    pub roots: Option<Roots>,
    /// The prefix of all keys.
    pub prefix: String,
}
