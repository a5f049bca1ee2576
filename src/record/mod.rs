//! The record: what the gateway did in every second, for years.
//!
//! Once a second each series says what it did ([`Record::add`], `write.rs`). The current hour is in memory (`hour.rs`) and,
//! second by second, in a journal. An hour that is over becomes a file (`segment.rs`), and files become files of longer steps
//! (`folder.rs`, [`Tier`]). A query (`query.rs`, `range.rs`) is answered from the longest steps that are fine enough, and where
//! those end, from the finer ones beneath. The record knows nothing of requests: what a series means is its name.
//!
//! Bounds: on the disk [`Settings::most_bytes`], beside the journals of the hours in memory. In memory at most four hours, each
//! with some 5 KB for a series that did something in every second of it; while the disk is full also 15 minutes of seconds.

mod bits;
mod block;
mod column;
mod folder;
mod frames;
mod hour;
pub mod insight;
mod journal;
mod notes;
pub mod promql;
pub mod push;
mod query;
mod range;
mod roll_up;
mod segment;
mod series;
mod settings;
mod tier;
mod topic;
mod verify;
mod write;

pub use self::column::Column;
pub use self::journal::Second;
pub use self::range::{Grid, RangeResult};
pub use self::segment::Damage;
pub use self::series::{Dictionary, Kind, Series};
pub use self::settings::Settings;
pub use self::tier::Tier;
pub use self::topic::{Note, Topic};
pub use self::verify::{Fault, Verified, verify};
pub use self::write::{OpenError, Record};
