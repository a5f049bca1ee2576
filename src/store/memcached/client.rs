//! The client of all workers: its servers, and which of them has a counter.

use std::hash::Hasher;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use siphasher::sip::SipHasher13;

use super::keys::bucket_key;
use super::life::Life;
use super::link::{MemcachedLink, Replies, unexpected};
use super::plan::{BucketPlan, IMPOSSIBLE};
use super::settings::{Error, Settings};
use super::wire::{CommandBatch, MetaReply};
use crate::base::clock::Clock;
use crate::store::shared::call::{CallPart, CounterName, StoreError};

/// Asks the store for all workers of a gateway.
pub struct MemcachedClient {
    pub(super) prefix: String,
    pub(super) servers: Vec<MemcachedServer>,
    clock: Clock,
}

/// One server, and the connections of all workers to it.
pub(super) struct MemcachedServer {
    pub(super) name: String,
    seed: u64,
    links: Vec<MemcachedLink>,
    /// The server's life when it was met last.
    pub(super) life: RwLock<Option<Life>>,
}

impl MemcachedServer {
    pub(super) fn link(&self, number: usize) -> Result<&MemcachedLink, StoreError> {
        self.links.get(number).ok_or(StoreError::NotConnected)
    }

    pub(super) async fn ask(
        &self,
        number: usize,
        fill: impl FnOnce(&mut CommandBatch),
    ) -> Result<Replies, StoreError> {
        let link = self.link(number)?;
        let mut batch = link.batch();
        fill(&mut batch);
        link.ask(batch)?.replies().await
    }
}

impl MemcachedClient {
    /// A client with this many connections to each server, numbered from 0.
    ///
    /// # Errors
    ///
    /// When the settings name no server, or the prefix cannot be part of a key.
    pub fn new(
        settings: Settings,
        connections: usize,
        clock: Clock,
    ) -> Result<MemcachedClient, Error> {
        let Settings {
            mut servers,
            prefix,
        } = settings;
        if prefix.len() > 64 || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Prefix(prefix));
        }
        servers.sort();
        servers.dedup();
        if servers.is_empty() {
            return Err(Error::Servers);
        }
        let server = |name: String| {
            let mut hash = SipHasher13::new();
            hash.write(name.as_bytes());
            MemcachedServer {
                seed: hash.finish(),
                links: (0..connections)
                    .map(|_| MemcachedLink::new(&name))
                    .collect(),
                life: RwLock::default(),
                name,
            }
        };
        Ok(MemcachedClient {
            prefix,
            servers: servers.into_iter().map(server).collect(),
            clock,
        })
    }

    /// Starts the task that connects, on the caller's runtime. Only the first call has an effect.
    pub fn tend(&self, number: usize) {
        for server in &self.servers {
            if let Some(link) = server.links.get(number) {
                link.begin();
            }
        }
    }

    /// Gives up the connections for new ones.
    pub fn reset(&self, number: usize) {
        for server in &self.servers {
            if let Some(link) = server.links.get(number) {
                link.again();
            }
        }
    }

    /// Whether there is a connection to any server.
    pub fn connected(&self, number: usize) -> bool {
        let links = self
            .servers
            .iter()
            .filter_map(|server| server.links.get(number));
        links.into_iter().any(MemcachedLink::connected)
    }

    /// Why there is no connection to some server.
    pub fn cause(&self, number: usize) -> Option<String> {
        let links = self
            .servers
            .iter()
            .filter_map(|server| server.links.get(number));
        links.into_iter().find_map(MemcachedLink::cause)
    }

    /// The servers without a connection.
    pub fn away(&self, number: usize) -> impl Iterator<Item = &str> {
        let away = move |server: &&MemcachedServer| {
            !server
                .links
                .get(number)
                .is_some_and(MemcachedLink::connected)
        };
        self.servers
            .iter()
            .filter(away)
            .map(|server| server.name.as_str())
    }

    /// Forgets the counter of a part. Returns whether there was one. Units that others give back at the same time may be
    /// subtracted from later ones.
    pub async fn forget(&self, number: usize, part: &CallPart) -> Result<bool, StoreError> {
        let (now, name) = (self.now(), self.name(&part.name));
        let plan = BucketPlan::new(&part.spec).ok_or(IMPOSSIBLE)?;
        let asked = self.servers[self.place(&part.name)].ask(number, |batch| {
            for (index, track) in plan.tracks.iter().enumerate() {
                for bucket in track.numbers(now) {
                    batch.delete(&bucket_key(&name, index, bucket));
                }
            }
        });
        let replies = asked.await?;
        let mut found = false;
        for place in 0..plan
            .tracks
            .iter()
            .map(|track| track.numbers(now).count())
            .sum()
        {
            match replies.get(place) {
                Some(MetaReply::Done) => found = true,
                Some(MetaReply::Missing) => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(found)
    }

    /// Microseconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX)
    }

    /// The index of the server that has a counter.
    pub(super) fn place(&self, name: &CounterName) -> usize {
        let weight = |server: &MemcachedServer| {
            let mut hash = SipHasher13::new_with_keys(server.seed, 0);
            hash.write_u64(name.limit);
            hash.write_u128(name.key.0);
            hash.finish()
        };
        let weights = self.servers.iter().map(weight).enumerate();
        weights
            .max_by_key(|(_, weight)| *weight)
            .map_or(0, |(place, _)| place)
    }

    /// The common prefix of a counter's keys.
    pub(super) fn name(&self, name: &CounterName) -> String {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&name.limit.to_be_bytes());
        bytes[8..].copy_from_slice(&name.key.0.to_be_bytes());
        let mut key = format!("{}:", self.prefix);
        URL_SAFE_NO_PAD.encode_string(bytes, &mut key);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Nanos;
    use crate::limit::Fingerprint;
    use crate::store::memcached::Error;

    fn client(servers: &[&str], prefix: &str) -> Result<MemcachedClient, Error> {
        let settings = Settings {
            servers: servers.iter().map(|name| (*name).to_owned()).collect(),
            prefix: prefix.to_owned(),
        };
        MemcachedClient::new(settings, 1, Clock::manual(Nanos::ZERO))
    }

    #[test]
    fn settings_that_make_no_keys_are_refused() {
        assert!(client(&["a:1"], "tollgate").is_ok());
        assert_eq!(client(&[], "x").err(), Some(Error::Servers));
        for prefix in ["a b", "a\r\n", "ä", &"x".repeat(65)] {
            let error = client(&["a:1"], prefix).err();
            assert_eq!(error, Some(Error::Prefix(prefix.to_owned())));
        }
    }

    #[test]
    fn keys_fit() -> Result<(), Error> {
        let name = CounterName {
            limit: u64::MAX,
            key: Fingerprint(u128::MAX),
        };
        let key = bucket_key(
            &client(&["a:1"], &"x".repeat(64))?.name(&name),
            15,
            u64::MAX,
        );
        assert!(key.len() <= 250 && key.bytes().all(|byte| byte.is_ascii_graphic()));
        Ok(())
    }

    #[test]
    fn a_server_more_takes_its_share_from_all_and_nothing_else_moves() -> Result<(), Error> {
        let (three, four) = (
            client(&["a:1", "b:1", "c:1"], "x")?,
            client(&["d:1", "c:1", "b:1", "a:1"], "x")?,
        );
        let mut counters = [0; 4];
        for key in 0..40_000 {
            let name = CounterName {
                limit: 1,
                key: Fingerprint(key),
            };
            let (before, after) = (three.place(&name), four.place(&name));
            counters[after] += 1;
            assert!(after == before || after == 3);
        }
        for count in counters {
            assert!((9_500..10_500).contains(&count), "{counters:?}");
        }
        Ok(())
    }
}
