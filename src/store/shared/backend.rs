//! Redis or memcached behind one type.

use super::call::{Call, CallPart, LiveGateways, StoreError, StoreIdentity, StoreLoss, StoreReply};
use crate::base::clock::Clock;
use crate::store::{memcached, redis};

/// Which store is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Redis or Valkey.
    Redis(redis::Settings),
    /// memcached.
    Memcached(memcached::Settings),
}

impl Backend {
    /// What the store cannot do: sentences without a full stop, for `tollgate check`.
    pub fn limits(&self) -> &'static [&'static str] {
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

/// The client of the store. See [`redis::RedisClient`] for the methods.
// There is one in a process, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub(super) enum BackendClient {
    Redis(Box<redis::RedisClient>),
    Memcached(memcached::MemcachedClient),
}

macro_rules! either {
    ($client:expr, $one:ident => $ask:expr) => {
        match $client {
            BackendClient::Redis($one) => $ask,
            BackendClient::Memcached($one) => $ask,
        }
    };
}

impl BackendClient {
    pub(super) fn new(
        place: &Backend,
        connections: usize,
        clock: &Clock,
    ) -> Result<BackendClient, memcached::Error> {
        Ok(match place {
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

    pub(super) fn tend(&self, number: usize) {
        either!(self, client => client.tend(number));
    }

    pub(super) fn reset(&self, number: usize) {
        either!(self, client => client.reset(number));
    }

    pub(super) fn hurry(&self, number: usize) {
        match self {
            BackendClient::Redis(client) => client.hurry(number),
            // Its links pause for 5 s at most.
            BackendClient::Memcached(_) => {}
        }
    }

    pub(super) fn ready(&self, number: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.ready(number),
            BackendClient::Memcached(client) => client.connected(number),
        }
    }

    /// Connections so far, where the next one may lead to a server with older data under the same mark.
    pub(super) fn made(&self, number: usize) -> u32 {
        match self {
            BackendClient::Redis(client) => client.made(number),
            BackendClient::Memcached(_) => 0,
        }
    }

    /// Whether two connections lead to different servers, of which only one is the master.
    pub(super) fn strays(&self, number: usize, other: usize) -> bool {
        match self {
            BackendClient::Redis(client) => client.strays(number, other),
            BackendClient::Memcached(_) => false,
        }
    }

    /// What the store may have lost while its mark stayed the same.
    pub(super) fn loses(&self) -> StoreLoss {
        match self {
            BackendClient::Redis(_) => StoreLoss::Some,
            // memcached has no replicas.
            BackendClient::Memcached(_) => StoreLoss::Nothing,
        }
    }

    /// Why there is no connection, where errors do not say it.
    pub(super) fn cause(&self, number: usize) -> Option<String> {
        match self {
            // Its errors say it.
            BackendClient::Redis(_) => None,
            BackendClient::Memcached(client) => client.cause(number),
        }
    }

    pub(super) async fn decide(
        &self,
        number: usize,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        either!(self, client => client.decide(number, call).await)
    }

    pub(super) async fn meet(
        &self,
        number: usize,
        known: Option<[u8; 16]>,
        begins: bool,
    ) -> Result<StoreIdentity, StoreError> {
        either!(self, client => client.meet(number, known, begins).await)
    }

    pub(super) async fn beat(
        &self,
        number: usize,
        gateway: Option<u32>,
    ) -> Result<LiveGateways, StoreError> {
        either!(self, client => client.beat(number, gateway).await)
    }

    pub(super) async fn look(&self, number: usize) -> Result<(), StoreError> {
        match self {
            BackendClient::Redis(client) => client.look(number).await,
            // Each call looks at all its servers.
            BackendClient::Memcached(_) => Ok(()),
        }
    }

    pub(super) async fn leave(&self, number: usize, gateway: u32) -> Result<(), StoreError> {
        either!(self, client => client.leave(number, gateway).await)
    }

    pub(super) async fn forget(&self, number: usize, part: &CallPart) -> Result<bool, StoreError> {
        either!(self, client => client.forget(number, part).await)
    }
}
