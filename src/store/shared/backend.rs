//! Redis or memcached behind one type: the settings of the chosen store, and its client. The rest of the crate calls no
//! store directly.

use super::call::{Call, CallPart, LiveGateways, StoreError, StoreIdentity, StoreLoss, StoreReply};
use crate::base::clock::Clock;
use crate::store::{memcached, redis};

/// The kind of the shared store, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Redis or Valkey.
    Redis(redis::Settings),
    /// memcached.
    Memcached(memcached::Settings),
}

impl Backend {
    /// What the store cannot do: sentences without a full stop, for `tollgate check`.
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

/// The client of the store; the methods are those of [`redis::RedisClient`].
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
    pub(super) fn new(
        backend: &Backend,
        connections: usize,
        clock: &Clock,
    ) -> Result<BackendClient, memcached::Error> {
        Ok(match backend {
            Backend::Redis(settings) => BackendClient::Redis(Box::new(redis::RedisClient::new(
                settings.clone(),
                connections,
                clock.clone(),
            ))),
            Backend::Memcached(settings) => {
                let settings = settings.clone();
                BackendClient::Memcached(memcached::MemcachedClient::new(
                    settings,
                    connections,
                    clock.clone(),
                )?)
            }
        })
    }

    pub(super) fn keep_connected(&self, connection: usize) {
        with_client!(self, client => client.keep_connected(connection));
    }

    pub(super) fn reconnect(&self, connection: usize) {
        with_client!(self, client => client.reconnect(connection));
    }

    pub(super) fn skip_delay(&self, connection: usize) {
        match self {
            BackendClient::Redis(client) => client.skip_delay(connection),
            // Its links pause for 5 s at most.
            BackendClient::Memcached(_) => {}
        }
    }

    pub(super) fn is_ready(&self, connection: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.is_ready(connection),
            BackendClient::Memcached(client) => client.is_connected(connection),
        }
    }

    /// How often it has connected, where the next connection may lead to a server with older data under the same mark.
    pub(super) fn connection_count(&self, connection: usize) -> u32 {
        match self {
            BackendClient::Redis(client) => client.connection_count(connection),
            BackendClient::Memcached(_) => 0,
        }
    }

    /// Whether two connections lead to different servers, of which only one is the master.
    pub(super) fn leads_elsewhere(&self, connection: usize, other: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.leads_elsewhere(connection, other),
            BackendClient::Memcached(_) => false,
        }
    }

    /// What the store may have lost while its mark stayed the same.
    pub(super) fn possible_loss(&self) -> StoreLoss {
        match self {
            BackendClient::Redis(_) => StoreLoss::Some,
            // memcached has no replicas.
            BackendClient::Memcached(_) => StoreLoss::Nothing,
        }
    }

    /// Why there is no connection, where errors do not name the cause.
    pub(super) fn disconnect_cause(&self, connection: usize) -> Option<String> {
        match self {
            // Its errors name the cause.
            BackendClient::Redis(_) => None,
            BackendClient::Memcached(client) => client.disconnect_cause(connection),
        }
    }

    pub(super) async fn decide(
        &self,
        connection: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        with_client!(self, client => client.decide(connection, call).await)
    }

    pub(super) async fn identify(
        &self,
        connection: usize,
        known_secret: Option<[u8; 16]>,
        may_initialize: bool,
    ) -> Result<StoreIdentity, StoreError> {
        with_client!(self, client => {
            client.identify(connection, known_secret, may_initialize).await
        })
    }

    pub(super) async fn send_beat(
        &self,
        connection: usize,
        gateway: Option<u32>,
    ) -> Result<LiveGateways, StoreError> {
        with_client!(self, client => client.send_beat(connection, gateway).await)
    }

    pub(super) async fn check_marks(&self, connection: usize) -> Result<(), StoreError> {
        match self {
            BackendClient::Redis(client) => client.check_marks(connection).await,
            // Each call checks the servers that it needs.
            BackendClient::Memcached(_) => Ok(()),
        }
    }

    pub(super) async fn remove_gateway(
        &self,
        connection: usize,
        gateway: u32,
    ) -> Result<(), StoreError> {
        with_client!(self, client => client.remove_gateway(connection, gateway).await)
    }

    pub(super) async fn forget_counter(
        &self,
        connection: usize,
        part: &CallPart,
    ) -> Result<bool, StoreError> {
        with_client!(self, client => client.forget_counter(connection, part).await)
    }
}
