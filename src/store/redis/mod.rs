//! Redis or Valkey: one server, one that sentinels name, or a cluster. A script decides about all limits of
//! a request at once, by the server's clock.
//!
//! In a cluster, keys whose fingerprints begin with the same byte are on one shelf, and each shelf on one
//! server. A request whose keys are on several reserves on all of them and gives back where others refuse,
//! so it is atomic after that, and never admits too much.

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
