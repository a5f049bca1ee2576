//! The model of the section `store`, as the gateway file writes it.

use std::time::Duration;

use super::super::tree::Located;
use crate::store::redis::RedisAddress;
use crate::store::snapshot;

/// The store of the counts.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Maximum memory for counts in bytes.
    pub memory: Option<usize>,
    /// The snapshots of the counts; their folder is still relative to the gateway file.
    pub snapshots: Option<snapshot::Settings>,
    /// The address of a store that several gateways share.
    pub address: Option<Located<StoreAddress>>,
    /// The file of the shared store's password.
    pub password_file: Option<Located<String>>,
    /// How long a request may wait for the shared store.
    pub budget: Option<Duration>,
    /// The file of the authorities that verify the shared store's certificate.
    pub roots: Option<Located<String>>,
}

/// The address of a store that several gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// The address of a Redis or Valkey store.
    Redis(RedisAddress),
    /// The servers of memcached, each as `host:port`.
    Memcached(Vec<String>),
}
