//! The settings of a store in Redis or Valkey.

use super::address::RedisAddress;
use crate::net::Roots;

/// The store's address, how its servers are verified, and the prefix of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the servers are, and how to log in to them.
    pub address: RedisAddress,
    /// Certificate authorities by which servers are verified. With TLS no connection is made if they are `None`.
    pub roots: Option<Roots>,
    /// The prefix of all keys.
    pub prefix: String,
}
