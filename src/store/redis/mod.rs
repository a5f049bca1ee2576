//! The shared store in Redis or Valkey: on one server, a master that sentinels name, or a cluster. A script decides about
//! all limits of a request at once, by the server's clock.
//!
//! In a cluster, keys whose fingerprints begin with the same byte form a partition, and each partition is on one server. A
//! request with keys in several partitions takes units in all of them, and gives them back if another partition refuses or
//! fails. So never too much is admitted, but the units count until they are back.
//!
//! | file | what it is |
//! |---|---|
//! | `settings`, `address` | the store's settings, and its address as policies write it |
//! | `client` | the client of all workers |
//! | `worker_connections` | the connections of one worker: to one server, or to all of a cluster |
//! | `link` | one connection, replaced whenever it breaks |
//! | `cluster` | which server has which partition, and a link to each |
//! | `partitions` | calls and marks where a store has several partitions |
//! | `connect` | connects to a server, or to the master that sentinels name |
//! | `bounded_socket` | the bound of a reply's size |
//! | `entries` | entries that gateways share beside counts |
//! | `permits` | permits of open requests that gateways share |
//! | `wire` | calls and replies as bytes |
//! | `script` | the scripts, and the commands that run them |
//! | `cell.lua`, `decide.lua` | the script that decides: the arithmetic, then storage and decision |
//! | `heartbeat.lua` | the script that keeps the list of live gateways |
//! | `entries.lua` | the script that stores entries that gateways share |
//! | `permits.lua`, `lease.lua` | the scripts that set a gateway's permits, and that keep its lease |

mod address;
mod bounded_socket;
mod client;
mod cluster;
mod connect;
mod entries;
mod link;
mod partitions;
mod permits;
mod script;
mod settings;
pub mod wire;
mod worker_connections;

pub use address::{AddressError, RedisAddress, Topology, parse_host};
pub use client::RedisClient;
pub use settings::Settings;
