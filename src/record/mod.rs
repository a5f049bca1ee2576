//! The record: a time-series database of what the gateway did in every second, for years.
//!
//! Once a second the gateway adds a value for each series ([`Record::add`]). The current hour is in memory and, second
//! by second, in a journal. A finished hour becomes a file, the segment, and segments are rolled up into segments of
//! longer steps. A query reads the longest steps that are fine enough, and finer ones where those end. The modules of
//! this folder give no meaning to the name of a series or the text of a note; those of [`insight`], [`push`] and
//! [`promql`] do. Nothing here delays a request.
//!
//! | module | content |
//! |---|---|
//! | `open_record`, `query` | the open record: what is added, written and read |
//! | `hour`, `journal` | an hour in memory; the file to which its seconds are appended |
//! | `segment`, `column`, `block`, `bits` | a segment; the values of a series in it, and how they are compressed |
//! | `tier`, `roll_up` | the lengths of steps; segments of longer steps |
//! | `range` | reads series from segments and memory |
//! | `series` | the names of series and their numbers |
//! | `notes`, `topic` | texts with a time: key lists, samples and events |
//! | `folder`, `frame_file`, `verify` | the files on the disk; files that only grow; their check |
//! | `settings` | the folder and the size of the record |
//! | [`insight`] | the most frequent keys, and requests as examples |
//! | [`push`] | sends the record to metrics engines |
//! | [`promql`] | evaluates queries in the language of Prometheus |
//!
//! Bounds: each time an hour becomes a segment, old files are deleted until [`Settings::max_bytes`] suffice. In memory
//! are at most four hours, each with about 5 KB for a series that changes every second. Memory also holds the names of
//! at most [`SeriesDictionary::MAX_SERIES`] series and the latest notes. While the disk is full, 15 minutes of seconds
//! wait in memory too.

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
pub use self::folder::DiskUsage;
pub use self::journal::Second;
pub use self::open_record::Record;
pub use self::range::{Grid, RangeResult};
pub use self::segment::Damage;
pub use self::series::{Series, SeriesDictionary, SeriesKind};
pub use self::settings::{OpenError, Settings};
pub use self::tier::Tier;
pub use self::topic::{Note, Topic};
pub use self::verify::{Fault, VerifyReport, verify};
