//! The shared store in memcached 1.6 or later, on one server or several. A counter is a set of items, each with the units
//! of one stretch of time: a bucket.
//!
//! A call first increments a request's buckets, which memcached does atomically, then reads all buckets that count, in
//! one round trip. Units that turn out to be too many are given back. Of two requests, the one that increments last sees
//! the other's units. So with equal clocks, never too many are admitted. Where many ask for the last units at once, they
//! may see each other and all be refused, although one would fit. A request that wants more than it needs then asks again
//! for what it needs.
//!
//! What memcached cannot do, and what this store therefore does not promise:
//!
//! - Times are those of the gateways' clocks. If the clocks differ by `d`, units may be free up to `d` too early. In a
//!   sliding window, a gateway with a slow clock counts all units of one that is up to 50 ms ahead. Of a gateway further
//!   ahead, it may overlook the latest units.
//! - There is no log of single units: a limit with one is counted in 60 buckets of each window, which admit at least 60
//!   of 61 units. Nothing is lent, and calls for limits that need arrival times (GCRA, leaky bucket) fail.
//! - A server without free memory evicts counters, whose units are forgiven. With `-M` the call fails instead.
//! - The store does not count what each gateway was granted. So a give-back whose reply is lost is never repeated, and its
//!   units may count until they leave their window.
//! - A restart loses everything, which the mark shows with the next call. Each gateway then reports the units that it was
//!   granted before, once for each counter. They count if the report comes within ten seconds of the restart, or if the
//!   counter has no units. Units that a gateway admitted without the store always count, once.
//! - Where a connection breaks before the reply, its units count until they leave their window. A connection that this
//!   gateway gives up is still read for up to ten minutes instead.
//! - Networks around a key are not counted.
//!
//! Each counter is on one server, by rendezvous hashing; while that server is away, calls for the counter fail. Each server
//! has an item that names the incarnation of its data. The store's mark is a hash of all incarnations, so the restart of
//! any server changes it. All servers hold the same secret, and each holds a list of live gateways.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | servers and prefix, and why they cannot be used |
//! | `client` | the client of all workers, and which server holds a counter |
//! | `decide` | carries out one call |
//! | `taking` | which parts of a call take units, and whether it is admitted |
//! | `bucket_plan` | the arithmetic over buckets |
//! | `keys` | the keys of buckets, and when their items expire |
//! | `membership` | identifies the servers, and lists the live gateways |
//! | `incarnation` | the item that names a server's data |
//! | `link` | a worker's link to a server: batches of commands, and their replies |
//! | `connection` | the task of a link |
//! | `traffic` | the batches under way over one connection |
//! | `retired` | reads connections that were given up |
//! | `entries` | entries that gateways share beside counts |
//! | `permits` | permits of open requests that gateways share |
//! | `wire` | commands and replies as bytes |

mod bucket_plan;
mod client;
mod connection;
mod decide;
mod entries;
mod incarnation;
mod keys;
mod link;
mod membership;
mod permits;
mod retired;
mod settings;
mod taking;
mod traffic;
pub mod wire;

pub use client::MemcachedClient;
pub use settings::{Error, Settings};
