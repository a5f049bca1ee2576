//! [`MemcachedClient`]: the memcached client that all workers of a gateway share. It has the servers, and chooses the
//! server of each counter. Each worker has a connection of its own to each server, so workers never wait for each other.
//!
//! `decide.rs` and `membership.rs` extend the client.

use std::hash::Hasher;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use siphasher::sip::SipHasher13;

use super::bucket_plan::{BucketPlan, NEEDS_ARRIVAL_TIMES};
use super::incarnation::ServerIncarnation;
use super::keys::bucket_key;
use super::link::{MemcachedLink, Replies, unexpected_reply};
use super::settings::{Error, Settings};
use super::wire::{CommandBatch, MetaReply};
use crate::base::clock::Clock;
use crate::store::shared::call::{CallPart, CounterName, StoreError};

/// Maximum length of the prefix of all keys. With it a key has at most the 250 bytes that memcached allows.
const MAX_PREFIX_BYTES: usize = 64;

/// Calls memcached for all workers of a gateway.
pub struct MemcachedClient {
    /// The prefix of all keys, from the settings.
    pub(super) prefix: String,
    /// The servers, sorted by name.
    pub(super) servers: Vec<MemcachedServer>,
    clock: Clock,
}

/// One server, and the connections of all workers to it.
pub(super) struct MemcachedServer {
    /// `host:port`, as all gateways write it.
    pub(super) name: String,
    /// The hash of the name, by which counters are assigned to servers.
    name_hash: u64,
    /// One link for each connection index, that is, for each worker.
    links: Vec<MemcachedLink>,
    /// The server's incarnation when it was last identified; `None` before. Calls fail if the server has another one.
    pub(super) incarnation: RwLock<Option<ServerIncarnation>>,
}

impl MemcachedServer {
    /// The link with this index; [`StoreError::NotConnected`] if there are fewer.
    pub(super) fn link(&self, connection_index: usize) -> Result<&MemcachedLink, StoreError> {
        self.links
            .get(connection_index)
            .ok_or(StoreError::NotConnected)
    }

    /// Sends a batch that `fill` has filled, and waits for its replies.
    ///
    /// # Errors
    ///
    /// When there is no connection, it ends before the replies, too many replies are awaited, or a reply is malformed.
    pub(super) async fn call(
        &self,
        connection_index: usize,
        fill: impl FnOnce(&mut CommandBatch),
    ) -> Result<Replies, StoreError> {
        let link = self.link(connection_index)?;
        let mut batch = link.new_batch();
        fill(&mut batch);
        link.send_batch(batch)?.wait().await
    }
}

impl MemcachedClient {
    /// A client with this many connections to each server. Other methods take the index of a connection.
    ///
    /// # Errors
    ///
    /// When the settings name no server, or the prefix cannot be part of a key.
    pub fn new(
        settings: Settings,
        connection_count: usize,
        clock: Clock,
    ) -> Result<MemcachedClient, Error> {
        let Settings {
            mut servers,
            prefix,
        } = settings;
        if prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Prefix(prefix));
        }
        servers.sort();
        servers.dedup();
        if servers.is_empty() {
            return Err(Error::Servers);
        }
        let server = |name: String| {
            let mut hasher = SipHasher13::new();
            hasher.write(name.as_bytes());
            MemcachedServer {
                name_hash: hasher.finish(),
                links: (0..connection_count)
                    .map(|_| MemcachedLink::new(&name))
                    .collect(),
                incarnation: RwLock::default(),
                name,
            }
        };
        Ok(MemcachedClient {
            prefix,
            servers: servers.into_iter().map(server).collect(),
            clock,
        })
    }

    /// Starts the tasks that keep the connections with this index up, on the caller's runtime. Only the first call for an
    /// index has an effect.
    pub fn keep_connected(&self, connection_index: usize) {
        for server in &self.servers {
            if let Some(link) = server.links.get(connection_index) {
                link.start();
            }
        }
    }

    /// Gives up the connections with this index that are up, and opens new ones.
    pub fn reconnect(&self, connection_index: usize) {
        for server in &self.servers {
            if let Some(link) = server.links.get(connection_index) {
                link.reconnect();
            }
        }
    }

    /// Whether any of the connections with this index is up.
    pub fn is_connected(&self, connection_index: usize) -> bool {
        let links = self
            .servers
            .iter()
            .filter_map(|server| server.links.get(connection_index));
        links.into_iter().any(MemcachedLink::is_connected)
    }

    /// Why one of the connections with this index is down, as text for logs; `None` if all are up.
    pub fn disconnect_cause(&self, connection_index: usize) -> Option<String> {
        let links = self
            .servers
            .iter()
            .filter_map(|server| server.links.get(connection_index));
        links.into_iter().find_map(MemcachedLink::disconnect_cause)
    }

    /// The names of the servers to which the connection with this index is down.
    pub fn unconnected_servers(&self, connection_index: usize) -> impl Iterator<Item = &str> {
        let is_unconnected = move |server: &&MemcachedServer| {
            let link = server.links.get(connection_index);
            !link.is_some_and(MemcachedLink::is_connected)
        };
        self.servers
            .iter()
            .filter(is_unconnected)
            .map(|server| server.name.as_str())
    }

    /// Deletes the counter of a part. Returns whether it existed. If another gateway gives units back at that moment, they
    /// may be subtracted from units that are counted after the deletion.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply, or the limit needs arrival times.
    pub async fn forget_counter(
        &self,
        connection_index: usize,
        part: &CallPart,
    ) -> Result<bool, StoreError> {
        let (now_micros, counter_prefix) = (self.now_micros(), self.counter_prefix(&part.name));
        let plan = BucketPlan::new(&part.spec).ok_or(NEEDS_ARRIVAL_TIMES)?;
        let server = &self.servers[self.server_index(&part.name)];
        let replies = server.call(connection_index, |batch| {
            for (track_index, track) in plan.tracks.iter().enumerate() {
                for bucket_number in track.counting_buckets(now_micros) {
                    batch.delete(&bucket_key(&counter_prefix, track_index, bucket_number));
                }
            }
        });
        let replies = replies.await?;
        let tracks = plan.tracks.iter();
        let bucket_counts = tracks.map(|track| track.counting_buckets(now_micros).count());
        let mut counter_existed = false;
        for index in 0..bucket_counts.sum() {
            match replies.get(index) {
                Some(MetaReply::Done) => counter_existed = true,
                Some(MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        Ok(counter_existed)
    }

    /// The time by the wall clock, in microseconds since the Unix epoch.
    pub(super) fn now_micros(&self) -> u64 {
        u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX)
    }

    /// The index of the server that holds a counter, by rendezvous hashing (Thaler, Ravishankar, 1998): the server with
    /// the highest hash of its name and the counter's. A new server takes an equal part of the counters from each of the
    /// others.
    pub(super) fn server_index(&self, name: &CounterName) -> usize {
        let weight = |server: &MemcachedServer| {
            let mut hasher = SipHasher13::new_with_keys(server.name_hash, 0);
            hasher.write_u64(name.limit);
            hasher.write_u128(name.key.0);
            hasher.finish()
        };
        let weights = self.servers.iter().map(weight).enumerate();
        weights
            .max_by_key(|(_, weight)| *weight)
            .map_or(0, |(index, _)| index)
    }

    /// The common prefix of the keys of a counter's buckets: the prefix of all keys, then the counter's name.
    pub(super) fn counter_prefix(&self, name: &CounterName) -> String {
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
            &client(&["a:1"], &"x".repeat(64))?.counter_prefix(&name),
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
            let (before, after) = (three.server_index(&name), four.server_index(&name));
            counters[after] += 1;
            assert!(after == before || after == 3);
        }
        for count in counters {
            assert!((9_500..10_500).contains(&count), "{counters:?}");
        }
        Ok(())
    }
}
