//! What `store` says.

use std::time::Duration;

use super::super::tree::Located;
use crate::store::redis::Address;
use crate::store::snapshot;

/// Where counts live.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Most bytes of counts in memory.
    pub memory: Option<usize>,
    /// Where they are kept when the process ends, as it is written.
    pub snapshots: Option<snapshot::Settings>,
    /// The address of a store that several gateways share.
    pub address: Option<Located<StoreAddress>>,
    /// The file of its password.
    pub password_file: Option<Located<String>>,
    /// How long a request waits for it.
    pub budget: Option<Duration>,
    /// The file of who vouches for its certificate.
    pub roots: Option<Located<String>>,
}

/// The address of a store that several gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// Redis or Valkey.
    Redis(Address),
    /// Servers of memcached.
    Memcached(Vec<String>),
}
