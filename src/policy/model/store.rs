//! The section `store` as written.

use std::time::Duration;

use super::super::tree::Located;
use crate::store::redis::RedisAddress;
use crate::store::snapshot;

/// Where counts live.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// The most bytes of counts in memory.
    pub memory: Option<usize>,
    /// The snapshots of the counts, with the folder as written.
    pub snapshots: Option<snapshot::Settings>,
    /// The address of a store that several gateways share.
    pub address: Option<Located<StoreAddress>>,
    /// The file of its password.
    pub password_file: Option<Located<String>>,
    /// How long a request may wait for it.
    pub budget: Option<Duration>,
    /// The file of the authorities that verify its certificate.
    pub roots: Option<Located<String>>,
}

/// The address of a store that several gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// Redis or Valkey.
    Redis(RedisAddress),
    /// Servers of memcached.
    Memcached(Vec<String>),
}
