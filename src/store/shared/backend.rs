//! [`Backend`]: Redis or memcached behind one type, with the settings of the chosen store and its client. No other file
//! calls their clients.

use super::call::{
    Call, CallPart, HeartbeatSender, LiveGateways, StoreError, StoreIdentity, StoreLoss, StoreReply,
};
use super::permit_lease::LeaseStep;
use super::shared_entries::StoredEntry;
use crate::base::clock::{Clock, Nanos};
use crate::store::permits::permit_call::{PermitCall, PermitReply};
use crate::store::{memcached, redis};

/// The kind of the shared store, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Redis, or Valkey with the same protocol.
    Redis(redis::Settings),
    /// One or more servers of memcached.
    Memcached(memcached::Settings),
}

impl Backend {
    /// What the store cannot do, for `tollgate check`: sentences without a full stop.
    pub fn limitations(&self) -> &'static [&'static str] {
        match self {
            Backend::Redis(_) => &[],
            Backend::Memcached(_) => &[
                "several limits of a request are not taken in one step: never too much is admitted, but of several that ask for the last units at once all may be refused",
                "windows are counted in 60 buckets, by the clocks of the gateways: clocks that differ by d free units up to d early",
                "memcached forgets counters when it is full, unless it runs with -M, and all of them when it restarts",
                "it knows neither TLS nor passwords here, nor the networks around IPv6 addresses",
            ],
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Backend::Redis(settings) => settings.address.fmt(f),
            Backend::Memcached(settings) => write!(f, "memcached://{}", settings.servers.join(",")),
        }
    }
}

/// The client of the store. Its methods do what those of [`redis::RedisClient`] do. A connection index is a worker's
/// index, or [`SharedStore::background_connection`](super::SharedStore::background_connection).
// There is one in a process, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub(super) enum BackendClient {
    Redis(Box<redis::RedisClient>),
    Memcached(memcached::MemcachedClient),
}

/// Calls a method that both clients have.
macro_rules! with_client {
    ($backend:expr, $client:ident => $call:expr) => {
        match $backend {
            BackendClient::Redis($client) => $call,
            BackendClient::Memcached($client) => $call,
        }
    };
}

impl BackendClient {
    /// A client with this many connections. Redis does not fail here.
    ///
    /// # Errors
    ///
    /// When the settings of memcached name no server, or its prefix cannot be part of a key.
    pub(super) fn new(
        backend: &Backend,
        connection_count: usize,
        clock: &Clock,
    ) -> Result<BackendClient, memcached::Error> {
        Ok(match backend {
            Backend::Redis(settings) => BackendClient::Redis(Box::new(redis::RedisClient::new(
                settings.clone(),
                connection_count,
                clock.clone(),
            ))),
            Backend::Memcached(settings) => {
                let settings = settings.clone();
                BackendClient::Memcached(memcached::MemcachedClient::new(
                    settings,
                    connection_count,
                    clock.clone(),
                )?)
            }
        })
    }

    pub(super) fn keep_connected(&self, connection_index: usize) {
        with_client!(self, client => client.keep_connected(connection_index));
    }

    pub(super) fn reconnect(&self, connection_index: usize) {
        with_client!(self, client => client.reconnect(connection_index));
    }

    pub(super) fn skip_delay(&self, connection_index: usize) {
        match self {
            BackendClient::Redis(client) => client.skip_delay(connection_index),
            // Links to memcached pause for 7.5 s at most between two attempts.
            BackendClient::Memcached(_) => {}
        }
    }

    /// Whether there is a connection to the store; for memcached, to any of its servers.
    pub(super) fn is_ready(&self, connection_index: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.is_ready(connection_index),
            BackendClient::Memcached(client) => client.is_connected(connection_index),
        }
    }

    /// How often the connection was made. Always 0 for memcached, where no other server can take over under the same mark.
    pub(super) fn connection_count(&self, connection_index: usize) -> u32 {
        match self {
            BackendClient::Redis(client) => client.connection_count(connection_index),
            BackendClient::Memcached(_) => 0,
        }
    }

    /// Whether two connections lead to different servers, of which only one is the master.
    pub(super) fn leads_elsewhere(&self, connection_index: usize, other_index: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.leads_elsewhere(connection_index, other_index),
            BackendClient::Memcached(_) => false,
        }
    }

    /// What the store may have lost while its mark stayed the same.
    pub(super) fn possible_loss(&self) -> StoreLoss {
        match self {
            BackendClient::Redis(_) => StoreLoss::Part,
            // memcached has no replicas.
            BackendClient::Memcached(_) => StoreLoss::Nothing,
        }
    }

    /// Why there is no connection to a server of memcached; `None` if all are connected. Also `None` for Redis, whose
    /// errors name the cause.
    pub(super) fn disconnect_cause(&self, connection_index: usize) -> Option<String> {
        match self {
            BackendClient::Redis(_) => None,
            BackendClient::Memcached(client) => client.disconnect_cause(connection_index),
        }
    }

    pub(super) async fn decide(
        &self,
        connection_index: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        with_client!(self, client => client.decide(connection_index, call).await)
    }

    pub(super) async fn set_permits(
        &self,
        connection_index: usize,
        call: &PermitCall,
    ) -> Result<PermitReply, StoreError> {
        with_client!(self, client => client.set_permits(connection_index, call).await)
    }

    pub(super) async fn keep_permit_lease(
        &self,
        connection_index: usize,
        lease: u64,
        step: LeaseStep,
        life: Nanos,
    ) -> Result<(), StoreError> {
        with_client!(self, client => {
            client.keep_permit_lease(connection_index, lease, step, life).await
        })
    }

    pub(super) async fn identify(
        &self,
        connection_index: usize,
        known_secret: Option<[u8; 16]>,
        may_initialize: bool,
    ) -> Result<StoreIdentity, StoreError> {
        with_client!(self, client => {
            client.identify(connection_index, known_secret, may_initialize).await
        })
    }

    pub(super) async fn send_heartbeat(
        &self,
        connection_index: usize,
        sender: Option<HeartbeatSender>,
    ) -> Result<LiveGateways, StoreError> {
        with_client!(self, client => client.send_heartbeat(connection_index, sender).await)
    }

    pub(super) async fn check_marks(&self, connection_index: usize) -> Result<(), StoreError> {
        match self {
            BackendClient::Redis(client) => client.check_marks(connection_index).await,
            // Each call checks the servers that it needs.
            BackendClient::Memcached(_) => Ok(()),
        }
    }

    pub(super) async fn remove_gateway(
        &self,
        connection_index: usize,
        gateway: u32,
    ) -> Result<(), StoreError> {
        with_client!(self, client => client.remove_gateway(connection_index, gateway).await)
    }

    pub(super) async fn forget_counter(
        &self,
        connection_index: usize,
        part: &CallPart,
    ) -> Result<bool, StoreError> {
        with_client!(self, client => client.forget_counter(connection_index, part).await)
    }
    pub(super) async fn entries_version(
        &self,
        connection_index: usize,
    ) -> Result<Vec<u8>, StoreError> {
        with_client!(self, client => client.entries_version(connection_index).await)
    }

    pub(super) async fn read_entries(
        &self,
        connection_index: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        with_client!(self, client => client.read_entries(connection_index).await)
    }

    pub(super) async fn write_entries(
        &self,
        connection_index: usize,
        entries: &[StoredEntry],
    ) -> Result<(), StoreError> {
        with_client!(self, client => client.write_entries(connection_index, entries).await)
    }
}
