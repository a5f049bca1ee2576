//! The record: a time-series database of what the gateway did in every second, for years.
//!
//! Once a second the gateway adds a value for each series ([`Record::add`], `open_record.rs`). The current hour is in
//! memory (`hour.rs`) and, second by second, in a journal. A finished hour becomes a file (`segment.rs`), and such
//! files are rolled up into files of longer steps (`roll_up.rs`, [`Tier`]). A query (`query.rs`, `range.rs`) reads the
//! longest steps that are fine enough, and finer ones where those end. The record knows nothing of requests: only the
//! name of a series has a meaning.
//!
//! Bounds: on the disk [`Settings::max_bytes`] and the journals of the hours in memory. In memory at most four hours,
//! each with about 5 KB for a series that changes every second; while the disk is full, also 15 minutes of seconds.

mod bits;
mod block;
mod column;
mod folder;
mod frame_file;
mod hour;
pub mod insight;
mod journal;
mod notes;
mod open_record;
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

pub use self::column::Column;
pub use self::journal::Second;
pub use self::open_record::{DiskUsage, OpenError, Record};
pub use self::range::{Grid, RangeResult};
pub use self::segment::Damage;
pub use self::series::{Series, SeriesDictionary, SeriesKind};
pub use self::settings::Settings;
pub use self::tier::Tier;
pub use self::topic::{Note, Topic};
pub use self::verify::{Fault, VerifyReport, verify};
