//! Pushing: the record is sent to engines that keep and draw it for many gateways.
//!
//! The record is the queue. For each destination a [`cursor`] says which seconds it has. What is behind is sent in the order of
//! time, in [batches](batch), by one of three protocols: [`remote_write`], [`graphite`], [`otlp`]. All of it happens on one
//! thread (`pusher.rs`), which nothing waits for. `batch.rs` explains why nothing is lost or counted twice.
//!
//! Bounds: [`MOST`] destinations; for each one batch of some 5,000 samples in memory, and two numbers for each series.

pub mod batch;
pub mod cursor;
mod deliver;
mod destination;
pub mod graphite;
pub mod otlp;
mod outage_log;
mod piece;
mod proto;
mod pusher;
pub mod remote_write;
pub mod row;
mod sender;
mod settings;

pub use self::destination::{DestinationStatus, LiveSeries, PushContext};
pub use self::pusher::Pusher;
pub use self::settings::{Engine, Settings};

/// Most destinations.
pub const MOST: usize = 16;
