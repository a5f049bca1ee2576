//! The composition root: builds all parts of a gateway in order, reloads its configuration, and ends it. It handles no
//! request itself.
//!
//! `gateway.rs` has the type that holds all parts. `start.rs` has the order in which they are built, `reload.rs` what a
//! reload replaces, and `shutdown.rs` the end. `metrics_recorder.rs` and
//! `note_writer.rs` write the record.

mod control;
mod error;
mod events;
mod gateway;
mod key_set_fetcher;
mod listeners;
mod live_metrics;
mod metrics_recorder;
mod note_writer;
mod pusher;
mod reload;
mod reload_changes;
mod reset_warnings;
mod series_table;
mod servers;
mod shutdown;
mod snapshots;
mod start;

pub use error::Error;
pub use gateway::Gateway;
pub use reload::ReloadReport;
pub use reload_changes::ReloadChanges;
