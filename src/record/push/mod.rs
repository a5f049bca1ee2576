//! Pushing sends the record to metrics engines, which store and draw the series of many gateways.
//!
//! The record itself is the queue: no second copy waits to be sent. A [`cursor`] says up to which second a destination
//! has everything. Later seconds are sent oldest first, in [batches](batch), over [`remote_write`], [`graphite`] or
//! [`otlp`]. One thread does all of it, and no client's request ever waits for that thread. [`progress`] explains why
//! no count is lost or sent twice.
//!
//! | module | content |
//! |---|---|
//! | [`settings`](Settings) | the settings of a destination |
//! | `pusher` | the thread, with a task for each destination |
//! | `destination` | what the thread shares with reloads and the admin API |
//! | `sender` | sends batches to one destination, and retries |
//! | [`progress`] | chooses the seconds and the series of the next batch |
//! | [`cursor`] | the saved part of the progress |
//! | [`batch`], [`row`] | the samples of some steps; those of one series |
//! | `request_range` | splits a batch into requests |
//! | `deliver` | sends a request and decides what its response means |
//! | [`remote_write`], [`graphite`], [`otlp`] | the encoding of each protocol |
//!
//! Bounds: [`MAX_DESTINATIONS`]; for each of them one batch in memory, planned for 5,000 samples or one step, and four
//! numbers per series.

pub mod batch;
pub mod cursor;
mod deliver;
mod destination;
pub mod graphite;
pub mod otlp;
pub mod progress;
mod pusher;
pub mod remote_write;
mod request_range;
pub mod row;
mod sender;
mod settings;

pub use self::destination::{DestinationStatus, LiveSeries, PushContext};
pub use self::pusher::Pusher;
pub use self::settings::{Engine, Settings};

/// The most destinations of one gateway. Each has a task, a batch in memory and a cursor file.
pub const MAX_DESTINATIONS: usize = 16;
