//! The composition root: builds all parts of a gateway in order, reloads its configuration, and ends it. It handles no
//! request itself.
//!
//! `start.rs` has the order, `reload.rs` the parts that a reload replaces, and `shutdown.rs` the end. `gateway.rs` has
//! the type that holds all parts.

mod changes;
mod control;
mod error;
mod events;
mod gateway;
mod key_sets;
mod listeners;
mod live_metrics;
mod note_writer;
mod pusher;
mod recording;
mod reload;
mod reset_warnings;
mod servers;
mod shutdown;
mod snapshots;
mod start;

pub use changes::ReloadChanges;
pub use error::Error;
pub use gateway::App;
pub use reload::ReloadReport;
