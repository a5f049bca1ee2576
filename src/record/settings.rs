//! The settings of the record: its folder, its size, and how long each tier is kept.

use std::path::PathBuf;

use super::tier::{DAY_SECONDS, Tier};

/// The settings of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the record. Without a folder only the last hours are kept, in memory.
    pub folder: Option<PathBuf>,
    /// The most bytes on the disk, notes included. Damaged files that were set aside are deleted first, then the oldest
    /// files of the finest tiers.
    pub max_bytes: u64,
}

impl Settings {
    /// The least value of `max_bytes`: 16 MiB.
    pub const MIN_BYTES: u64 = 16 << 20;
    /// The greatest value of `max_bytes`: 16 TiB.
    pub const MAX_BYTES: u64 = 1 << 44;
    /// The default of `max_bytes`: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// The seconds after which a file of a tier is deleted.
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
