//! Gateways and what they ask.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate::base::clock::{Clock, Nanos};
use tollgate::limit::{Algorithm, Fingerprint, Rate, RateLimit, Scale, ThrottleMode};
use tollgate::store::memcached::{MemcachedClient, Settings};
use tollgate::store::shared::call::{Call, CallPart, CounterName, StoreError, StoreReply};

use crate::common::MAX_WAIT;
use tollgate::store::Taking;

/// Runs a test's asynchronous part.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// A clock that stands at a whole minute of about now, as dates in memcached need.
pub fn clock() -> Clock {
    let minutes = Clock::system().wall().as_secs() / 60;
    Clock::manual(Nanos::from_secs(minutes * 60))
}

/// A gateway that has met its servers.
pub struct Gateway {
    pub client: MemcachedClient,
    pub clock: Clock,
    pub number: u32,
    servers: usize,
}

impl Gateway {
    /// Connects to all servers, and meets them.
    pub async fn start(servers: &[SocketAddr], clock: &Clock, number: u32) -> Gateway {
        let gateway = Gateway::new(servers, clock, number);
        gateway.ready(servers.len()).await;
        gateway.client.identify(0, None, true).await.unwrap();
        gateway
    }

    pub fn new(servers: &[SocketAddr], clock: &Clock, number: u32) -> Gateway {
        let settings = Settings {
            servers: servers.iter().map(SocketAddr::to_string).collect(),
            prefix: "tollgate".to_owned(),
        };
        Gateway {
            client: MemcachedClient::new(settings, 1, clock.clone()).unwrap(),
            clock: clock.clone(),
            number,
            servers: servers.len(),
        }
    }

    /// Waits until so many servers are connected.
    pub async fn ready(&self, servers: usize) {
        self.client.keep_connected(0);
        until(|| self.servers - self.client.unconnected_servers(0).count() >= servers).await;
    }

    pub async fn decide(&self, parts: &[CallPart]) -> Result<StoreReply, StoreError> {
        self.ask(Taking::All, parts).await
    }

    pub async fn ask(&self, taking: Taking, parts: &[CallPart]) -> Result<StoreReply, StoreError> {
        let call = Call {
            gateway: self.number,
            taking,
            parts: parts.into(),
        };
        self.client.decide(0, &call).await
    }

    /// Units that count in the first window of a part, after all that this gateway has sent before.
    pub async fn used(&self, part: &CallPart) -> u32 {
        let said = self
            .ask(Taking::Nothing, std::slice::from_ref(part))
            .await
            .unwrap();
        said.counters[0].used_units[0]
    }

    /// Waits until so many units count, which should be soon.
    pub async fn counts(&self, part: &CallPart, units: u32) {
        let used = async {
            while self.used(part).await != units {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(MAX_WAIT, used).await;
        assert!(
            in_time.is_ok(),
            "{} count, not {units}",
            self.used(part).await
        );
    }
}

/// Waits for what should happen at once.
pub async fn until(mut happens: impl FnMut() -> bool) {
    let step = Duration::from_millis(2);
    for _ in 0..MAX_WAIT.as_millis() / step.as_millis() {
        if happens() {
            return;
        }
        tokio::time::sleep(step).await;
    }
    panic!("it does not happen");
}

/// A limit on one window.
pub fn limit(algorithm: Algorithm, quota: u32, window: Nanos) -> RateLimit {
    RateLimit {
        windows: vec![Rate::new(quota, window).unwrap()],
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

/// One unit for one key of a limit.
pub fn part(limit: &RateLimit, key: u128) -> CallPart {
    part_at(limit, key, Nanos::ZERO)
}

/// One unit for one key of a limit, of a gateway whose clock shows `wall`.
pub fn part_at(limit: &RateLimit, key: u128, wall: Nanos) -> CallPart {
    let key = Fingerprint(key);
    let name = CounterName { limit: 7, key };
    CallPart::new(name, limit.spec(key, Scale::plan(1), wall), 1)
}

/// A part of `quota` units a minute.
pub fn minute(quota: u32, key: u128) -> CallPart {
    part(
        &limit(Algorithm::SlidingWindow, quota, Nanos::from_secs(60)),
        key,
    )
}

/// A part with another cost and another want.
pub fn units(part: &CallPart, cost: u32, want: u32) -> CallPart {
    CallPart {
        cost,
        wanted_units: want,
        ..part.clone()
    }
}

/// The most stamps, in microseconds, in any window of so many.
pub fn most_in(window: u64, stamps: &mut [u64]) -> usize {
    stamps.sort_unstable();
    let inside = |(place, stamp): (usize, &u64)| {
        let end = stamps.partition_point(|other| *other < stamp + window);
        end - place
    };
    stamps.iter().enumerate().map(inside).max().unwrap_or(0)
}
