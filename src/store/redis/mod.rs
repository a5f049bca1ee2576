//! The shared store in Redis or Valkey: on one server, a master that sentinels name, or a cluster. A script decides about
//! all limits of a request at once, by the server's clock.
//!
//! In a cluster, keys whose fingerprints begin with the same byte form a shelf, and each shelf is on one server. A request
//! with keys on several shelves takes units on all of them, and gives them back where another shelf refuses. So it never
//! admits too much, and is atomic once the units are back.
//!
//! | file | what it is |
//! |---|---|
//! | `settings`, `address` | the store's settings, and its address as policies write it |
//! | `client` | the client of all workers |
//! | `lane` | the connections of one worker: to one server, or to all of a cluster |
//! | `link` | one connection, replaced whenever it breaks |
//! | `cluster` | which server has which shelf, and a link to each |
//! | `reach` | connects to a server, or to the master that sentinels name |
//! | `bounded` | the bound of a reply's size |
//! | `wire` | calls and replies as bytes |
//! | `script` | the scripts, and the commands that run them |
//! | `cell.lua`, `decide.lua` | the script that decides: the arithmetic, then storage and decision |
//! | `beat.lua` | the script that keeps the list of live gateways |

mod address;
mod bounded;
mod client;
mod cluster;
mod lane;
mod link;
mod reach;
mod script;
mod settings;
pub mod wire;

pub use address::{AddressError, RedisAddress, Topology, parse_host};
pub use client::RedisClient;
pub use settings::Settings;
