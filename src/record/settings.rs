//! The settings of the record: its folder, its size, and how long each tier is kept; and why a record of such settings cannot
//! be opened.

use std::io;
use std::path::PathBuf;

use super::tier::{DAY_SECONDS, Tier};

/// The settings of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the record. Without a folder only four hours are kept, in memory, the current one among them.
    pub folder: Option<PathBuf>,
    /// The most bytes on the disk, of which notes may take an eighth. Damaged files that were set aside are deleted
    /// first, then the oldest segments of the finest tier. Journals and segments that are not rolled up yet stay, even
    /// above the bound. The names of series and the cursors of `push` are not counted.
    pub max_bytes: u64,
}

/// Why a record cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created, read or written.
    #[error("`{path}` cannot be used for the record: {cause}; it must be a folder that this user may write to, or choose another with `record`", path = .0.display(), cause = .1)]
    Folder(PathBuf, io::Error),
    /// Another process writes to the folder.
    #[error("another process writes the record in `{path}`; give each gateway a folder of its own", path = .0.display())]
    InUse(PathBuf),
}

impl Settings {
    /// The least value of `max_bytes`: 16 MiB.
    pub const MIN_BYTES: u64 = 16 << 20;
    /// The greatest value of `max_bytes`: 16 TiB.
    pub const MAX_BYTES: u64 = 1 << 44;
    /// The default of `max_bytes`: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// The seconds from the end of a segment until it is deleted for its age. A full record deletes it sooner. A year
    /// has 366 days here.
    pub const fn retention_seconds(tier: Tier) -> u64 {
        match tier {
            Tier::Second => 7 * DAY_SECONDS,
            Tier::Minute => 90 * DAY_SECONDS,
            Tier::FiveMinutes => 400 * DAY_SECONDS,
            Tier::Hour => 5 * 366 * DAY_SECONDS,
            Tier::Day => 20 * 366 * DAY_SECONDS,
        }
    }
}
