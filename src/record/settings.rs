//! Where the record is kept, and for how long.

use std::path::PathBuf;

use super::tier::{DAY, Tier};

/// Where the record is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the record; without one, the last hours are kept in memory.
    pub folder: Option<PathBuf>,
    /// Most bytes on the disk. The oldest files of the finest steps are deleted first.
    pub most_bytes: u64,
}

impl Settings {
    /// The least that `most_bytes` may be.
    pub const LEAST: u64 = 16 << 20;
    /// The most that `most_bytes` may be.
    pub const MOST: u64 = 1 << 44;
    /// The default of `most_bytes`.
    pub const USUAL: u64 = 1 << 30;

    /// Seconds for which the buckets of a tier are kept.
    pub const fn kept(tier: Tier) -> u64 {
        match tier {
            Tier::Second => 7 * DAY,
            Tier::Minute => 90 * DAY,
            Tier::FiveMinutes => 400 * DAY,
            Tier::Hour => 5 * 366 * DAY,
            Tier::Day => 20 * 366 * DAY,
        }
    }
}
