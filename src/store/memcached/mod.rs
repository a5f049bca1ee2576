//! memcached 1.6 and later, one server or several: counters in buckets of time.
//!
//! A request's buckets are incremented first, which memcached does atomically, then everything that counts
//! is read, in one round trip; what turns out to be too much is taken back. Of two requests the one whose
//! increments come last sees the other, so that never too many are admitted. That some see each other and
//! all are refused, though one would fit, happens where many ask for the last units at once. A request that
//! wants more than it needs then asks a second time for what it needs.
//!
//! What memcached cannot do, and what this store therefore does not promise:
//!
//! - Times are those of the gateways' own clocks. Clocks that differ by `d` free units up to `d` too early;
//!   below 50 ms of difference no unit is overlooked, above it a slow clock may overlook what a fast one has
//!   taken within that time.
//! - It keeps no log of single units: a limit that would have one is counted in 60 buckets of each window,
//!   which admit at least 60 of 61. It lends nothing, and knows no arrival times (GCRA, leaky bucket).
//! - A server that needs room evicts what it likes, and that forgives what was counted. With `-M` it says
//!   so instead, and the call fails.
//! - It keeps no totals of gateways, so that a give-back is done once and never repeated, and one that
//!   may have been lost is lost: the units count until they leave their window.
//! - It forgets everything when it restarts, which the mark shows with the next call. What gateways were
//!   granted before counts again in the first ten seconds of the new life, once for each gateway and counter; later
//!   only where nothing is counted for the counter yet. What they admitted without the store always counts, once.
//! - Where a connection breaks between a request and its reply, what was counted for it stays counted until
//!   it leaves its window, and nobody has it. One that this gateway gives up is read to the end instead.
//! - Networks around a key are not counted.
//!
//! Each counter is on one server, by rendezvous hashing, and a server that is away fails the calls of its
//! counters. Each server has an item of its own that names its life; the store's mark is a hash of all, so
//! that any server's restart makes another. All hold the same secret and a list of gateways.
//!
//! | file | what it is |
//! |---|---|
//! | `wire` | commands and replies in bytes |
//! | `link` | a worker's connection to a server |
//! | `replies` | what a server said to a batch, and what of it is taken back |
//! | `retired` | a connection that is given up |
//! | `plan` | the arithmetic over buckets |
//! | `decide` | one call |
//! | `life` | marks, the secret, and who is there |

mod decide;
mod life;
mod link;
mod plan;
mod replies;
mod retired;
pub mod wire;

use std::borrow::Cow;
use std::hash::Hasher;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use siphasher::sip::SipHasher13;

use self::life::Life;
use self::link::Link;
use self::plan::{Plan, Track};
use self::replies::Replies;
use self::wire::{Batch, Reply};
use super::shared::call::{Failure, Name, Part};
use crate::base::clock::Clock;

/// Longest time to live that memcached takes for a span; what is longer is a date.
const LONGEST_SPAN: u64 = 30 * 86_400;
/// The last date that memcached knows.
const LAST_DATE: u64 = i32::MAX as u64;
/// The time to live of what does not expire.
const NEVER: u64 = 0;
/// Seconds that an item lives longer than it counts: memcached's clock has whole seconds and may be behind.
const SLACK: u64 = 2;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers as `host:port`; all gateways name them alike, in any order.
    pub servers: Vec<String>,
    /// What all keys begin with, at most 64 visible ASCII characters.
    pub prefix: String,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no server.
    #[error("memcached needs a server")]
    Servers,
    /// The prefix cannot be part of a key.
    #[error("`{0}` is no prefix of keys: at most 64 visible ASCII characters")]
    Prefix(String),
}

/// Talks to the store for all workers of a gateway.
pub struct Client {
    prefix: String,
    servers: Vec<Server>,
    clock: Clock,
}

struct Server {
    name: String,
    seed: u64,
    links: Vec<Link>,
    /// As it was met last.
    life: RwLock<Option<Life>>,
}

impl Server {
    fn link(&self, number: usize) -> Result<&Link, Failure> {
        self.links.get(number).ok_or(Failure::Away)
    }

    async fn ask(&self, number: usize, fill: impl FnOnce(&mut Batch)) -> Result<Replies, Failure> {
        let link = self.link(number)?;
        let mut batch = link.batch();
        fill(&mut batch);
        link.ask(batch)?.replies().await
    }
}

impl Client {
    /// For so many workers and whoever else asks: connections are numbered from 0.
    pub fn new(settings: Settings, connections: usize, clock: Clock) -> Result<Client, Error> {
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
            Server {
                seed: hash.finish(),
                links: (0..connections).map(|_| Link::new(&name)).collect(),
                life: RwLock::default(),
                name,
            }
        };
        Ok(Client {
            prefix,
            servers: servers.into_iter().map(server).collect(),
            clock,
        })
    }

    /// Sees to it that somebody connects, on the runtime of the caller: to be called from there at least
    /// once; more often does nothing.
    pub fn tend(&self, number: usize) {
        for server in &self.servers {
            if let Some(link) = server.links.get(number) {
                link.begin();
            }
        }
    }

    /// Connects anew.
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
        links.into_iter().any(Link::connected)
    }

    /// Why there is no connection to a server, if there is one like that.
    pub fn cause(&self, number: usize) -> Option<String> {
        let links = self
            .servers
            .iter()
            .filter_map(|server| server.links.get(number));
        links.into_iter().find_map(Link::cause)
    }

    /// Servers to which there is no connection.
    pub fn away(&self, number: usize) -> impl Iterator<Item = &str> {
        let away = move |server: &&Server| !server.links.get(number).is_some_and(Link::connected);
        self.servers
            .iter()
            .filter(away)
            .map(|server| server.name.as_str())
    }

    /// Forgets a part's counter; whether there was one. What others give back meanwhile may be taken from
    /// what is counted after.
    pub async fn forget(&self, number: usize, part: &Part) -> Result<bool, Failure> {
        let (now, name) = (self.now(), self.name(&part.name));
        let plan = Plan::new(&part.spec).ok_or(IMPOSSIBLE)?;
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
                Some(Reply::Done) => found = true,
                Some(Reply::Missing) => {}
                other => return Err(replies::unexpected(other)),
            }
        }
        Ok(found)
    }

    /// Microseconds since the Unix epoch.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().as_micros()).unwrap_or(u64::MAX)
    }

    /// The place of the server that a counter is on.
    fn place(&self, name: &Name) -> usize {
        let weight = |server: &Server| {
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

    /// What the keys of a counter begin with.
    fn name(&self, name: &Name) -> String {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&name.limit.to_be_bytes());
        bytes[8..].copy_from_slice(&name.key.0.to_be_bytes());
        let mut key = format!("{}:", self.prefix);
        URL_SAFE_NO_PAD.encode_string(bytes, &mut key);
        key
    }
}

const IMPOSSIBLE: Failure = Failure::Said(Cow::Borrowed(
    "memcached cannot keep arrival times (gcra, leaky-bucket)",
));

fn bucket_key(name: &str, track: usize, bucket: u64) -> String {
    format!("{name}:{track}.{bucket}")
}

/// The time to live of a bucket, as memcached wants it.
fn life_of(track: &Track, bucket: u64, now: u64) -> u64 {
    life_until(track.ends(bucket), now)
}

/// The time to live of what counts until `end`.
fn life_until(end: u64, now: u64) -> u64 {
    let seconds = end
        .saturating_sub(now)
        .div_ceil(1_000_000)
        .saturating_add(SLACK);
    if seconds <= LONGEST_SPAN {
        return seconds;
    }
    let date = seconds.saturating_add(now / 1_000_000);
    if date > LAST_DATE { NEVER } else { date }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Nanos;
    use crate::limit::Fingerprint;

    const DAY: u64 = 86_400 * 1_000_000;

    fn client(servers: &[&str], prefix: &str) -> Result<Client, Error> {
        let settings = Settings {
            servers: servers.iter().map(|name| (*name).to_owned()).collect(),
            prefix: prefix.to_owned(),
        };
        Client::new(settings, 1, Clock::manual(Nanos::ZERO))
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
        let name = Name {
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
    fn long_lives_are_dates() {
        let now = 1_700_000_000 * 1_000_000;
        for (end, life) in [
            (now, 2),
            (now + 1, 3),
            (now + 30 * DAY - 2_000_000, 30 * 86_400),
            (now + 30 * DAY, 1_700_000_000 + 30 * 86_400 + 2),
            (now + 20 * 365 * DAY, NEVER),
        ] {
            assert_eq!(life_until(end, now), life, "{}", end - now);
        }
    }

    #[test]
    fn a_server_more_takes_its_share_from_all_and_nothing_else_moves() -> Result<(), Error> {
        let (three, four) = (
            client(&["a:1", "b:1", "c:1"], "x")?,
            client(&["d:1", "c:1", "b:1", "a:1"], "x")?,
        );
        let mut counters = [0; 4];
        for key in 0..40_000 {
            let name = Name {
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
