//! Whatever store it is.

use super::call::{Beats, Call, Failure, Lost, Met, Part, Said};
use crate::base::clock::Clock;
use crate::store::{memcached, redis};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Redis or Valkey.
    Redis(redis::Settings),
    /// memcached.
    Memcached(memcached::Settings),
}

impl Place {
    /// What a store cannot do, one sentence without a full stop each.
    pub fn limits(&self) -> &'static [&'static str] {
        match self {
            Place::Redis(_) => &[],
            Place::Memcached(_) => &[
                "several limits of a request are not taken in one step: never too much is admitted, but of several that ask for the last units at once all may be refused",
                "windows are counted in 60 buckets, by the clocks of the gateways: clocks that differ by d free units up to d early",
                "memcached forgets counters when it is full, unless it runs with -M, and all of them when it restarts",
                "it knows neither TLS nor passwords here, nor the networks around IPv6 addresses",
            ],
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Redis(settings) => settings.address.fmt(f),
            Place::Memcached(settings) => write!(f, "memcached://{}", settings.servers.join(",")),
        }
    }
}

/// Talks to it. See [`redis::Client`] for what each does.
// One for each process.
#[allow(clippy::large_enum_variant)]
pub(super) enum Client {
    Redis(Box<redis::Client>),
    Memcached(memcached::Client),
}

macro_rules! either {
    ($client:expr, $one:ident => $ask:expr) => {
        match $client {
            Client::Redis($one) => $ask,
            Client::Memcached($one) => $ask,
        }
    };
}

impl Client {
    pub(super) fn new(
        place: &Place,
        connections: usize,
        clock: &Clock,
    ) -> Result<Client, memcached::Error> {
        Ok(match place {
            Place::Redis(settings) => Client::Redis(Box::new(redis::Client::new(
                settings.clone(),
                connections,
                clock.clone(),
            ))),
            Place::Memcached(settings) => {
                let settings = settings.clone();
                Client::Memcached(memcached::Client::new(
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
            Client::Redis(client) => client.hurry(number),
            // Its links do not wait for longer the more often they fail.
            Client::Memcached(_) => {}
        }
    }

    pub(super) fn ready(&self, number: usize) -> bool {
        match self {
            Client::Redis(client) => client.ready(number),
            Client::Memcached(client) => client.connected(number),
        }
    }

    /// Connections so far, where the next may lead to a server that knows less under the same mark.
    pub(super) fn made(&self, number: usize) -> u32 {
        match self {
            Client::Redis(client) => client.made(number),
            Client::Memcached(_) => 0,
        }
    }

    /// Whether two connections lead to different servers of which only one may be asked.
    pub(super) fn strays(&self, number: usize, other: usize) -> bool {
        match self {
            Client::Redis(client) => client.strays(number, other),
            Client::Memcached(_) => false,
        }
    }

    /// What it may have lost while its mark stayed the same.
    pub(super) fn loses(&self) -> Lost {
        match self {
            Client::Redis(_) => Lost::Some,
            // It has no replicas.
            Client::Memcached(_) => Lost::Nothing,
        }
    }

    /// Why nothing can be asked, where failures do not say.
    pub(super) fn cause(&self, number: usize) -> Option<String> {
        match self {
            // It says so with each failure.
            Client::Redis(_) => None,
            Client::Memcached(client) => client.cause(number),
        }
    }

    pub(super) async fn decide(&self, number: usize, call: &Call) -> Result<Said, Failure> {
        either!(self, client => client.decide(number, call).await)
    }

    pub(super) async fn meet(
        &self,
        number: usize,
        known: Option<[u8; 16]>,
        begins: bool,
    ) -> Result<Met, Failure> {
        either!(self, client => client.meet(number, known, begins).await)
    }

    pub(super) async fn beat(&self, number: usize, gateway: Option<u32>) -> Result<Beats, Failure> {
        either!(self, client => client.beat(number, gateway).await)
    }

    pub(super) async fn look(&self, number: usize) -> Result<(), Failure> {
        match self {
            Client::Redis(client) => client.look(number).await,
            // Its calls look at all servers.
            Client::Memcached(_) => Ok(()),
        }
    }

    pub(super) async fn leave(&self, number: usize, gateway: u32) -> Result<(), Failure> {
        either!(self, client => client.leave(number, gateway).await)
    }

    pub(super) async fn forget(&self, number: usize, part: &Part) -> Result<bool, Failure> {
        either!(self, client => client.forget(number, part).await)
    }
}
