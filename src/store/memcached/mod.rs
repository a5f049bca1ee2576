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
//! | `settings` | which servers |
//! | `client` | the client of all workers, and which server has a counter |
//! | `decide` | one call |
//! | `plan` | the arithmetic over buckets |
//! | `keys` | the keys of buckets, and how long their items live |
//! | `membership`, `life` | meets the servers, and lists the gateways; what names a server's life |
//! | `link` | a worker's link to a server: batches and their replies |
//! | `connection`, `traffic` | the task of a link; what is on its way over one connection |
//! | `retired` | a connection that is given up |
//! | `wire` | commands and replies in bytes |

mod client;
mod connection;
mod decide;
mod keys;
mod life;
mod link;
mod membership;
mod plan;
mod retired;
mod settings;
mod traffic;
pub mod wire;

pub use client::MemcachedClient;
pub use settings::{Error, Settings};
