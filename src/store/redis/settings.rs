//! Which Redis or Valkey is the store.

use super::address::RedisAddress;
use crate::net::Roots;

/// Which store, and the certificate authorities that are trusted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The store's address.
    pub address: RedisAddress,
    /// Trusted authorities; needed with TLS.
    pub roots: Option<Roots>,
    /// The prefix of all keys.
    pub prefix: String,
}
