//! The composition root: builds everything in order, reloads it, and stops it.
//!
//! Read `start.rs` for the order, `reload.rs` for what a reload swaps, and `shutdown.rs` for the end. `gateway.rs` has
//! the type that holds all parts.

mod changes;
mod control;
mod error;
mod events;
mod figures;
mod gateway;
mod listeners;
mod notes;
mod pushing;
mod recording;
mod reload;
mod reset_limits;
mod servers;
mod shutdown;
mod snapshots;
mod start;

pub use changes::Changes;
pub use error::Error;
pub use gateway::App;
pub use reload::Reloaded;
