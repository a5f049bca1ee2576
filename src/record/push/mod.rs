//! Pushing sends the record to metrics engines, which store and draw the series of many gateways.
//!
//! The record itself is the queue: no second copy waits to be sent. A [`cursor`] says up to which second a destination
//! has everything. Later seconds are sent oldest first, in [batches](batch), over [`remote_write`], [`graphite`] or
//! [`otlp`]. One thread does all of it (`pusher.rs`), and no request ever waits for that thread. [`progress`] explains
//! why no count is lost or sent twice.
//!
//! Bounds: [`MAX_DESTINATIONS`]; for each of them one batch of about 5,000 samples in memory, and four numbers per
//! series.

pub mod batch;
pub mod cursor;
mod deliver;
mod destination;
pub mod graphite;
pub mod otlp;
mod outage_log;
pub mod progress;
mod proto_message;
mod pusher;
pub mod remote_write;
mod request_range;
pub mod row;
mod sender;
mod settings;

pub use self::destination::{DestinationStatus, LiveSeries, PushContext};
pub use self::pusher::Pusher;
pub use self::settings::{Engine, Settings};

/// Most destinations of one gateway. Each has a task, a batch in memory and a cursor file.
pub const MAX_DESTINATIONS: usize = 16;
