//! Which Redis or Valkey is the store.

use super::address::RedisAddress;
use crate::net::Roots;

/// Where the store is, and whom its certificates are believed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where.
    pub address: RedisAddress,
    /// Needed where TLS is spoken.
    pub roots: Option<Roots>,
    /// What all keys begin with.
    pub prefix: String,
}
