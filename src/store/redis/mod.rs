//! Redis or Valkey: one server, a master that sentinels name, or a cluster. A script decides about all limits of a request
//! at once, by the server's clock.
//!
//! In a cluster, keys whose fingerprints begin with the same byte form a shelf, and each shelf is on one server. A request
//! with keys on several shelves reserves on all of them, and gives back where others refuse. So it never admits too much,
//! and is atomic once the units are back.
//!
//! | file | what it is |
//! |---|---|
//! | `settings`, `address` | which store, as policies write it |
//! | `client` | asks the store for all workers |
//! | `lane` | what one worker has: a connection, or those of a cluster |
//! | `link` | one connection, made anew whenever it breaks |
//! | `cluster` | which server has which shelf, and a link to each |
//! | `reach` | how a server is reached: directly, or through sentinels |
//! | `bounded` | an upper bound for a reply |
//! | `wire` | calls and replies in bytes |

mod address;
mod bounded;
mod client;
mod cluster;
mod lane;
mod link;
mod reach;
mod settings;
pub mod wire;

pub use address::{AddressError, RedisAddress, Topology, host};
pub use client::RedisClient;
pub use settings::Settings;
