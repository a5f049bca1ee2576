//! [`SavedCounts`]: a complete snapshot of the former process, which `folder.rs` finds. It makes the clock that continues
//! after the snapshot, and loads the counts into a store. It never changes the file.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::PathBuf;

use super::super::MemoryStore;
use super::blocks::SnapshotDamage;
use super::load::{LoadedCounts, load_records};
use super::records::{IgnoreRecords, SnapshotEnd, SnapshotHead, SnapshotReader};
use crate::base::clock::{Clock, Nanos};

/// The longest time between a snapshot and its load that counts: ten years. A wall clock that was not yet set when the
/// snapshot was written makes the time seem longer.
const MAX_DOWNTIME: Nanos = Nanos::from_secs(10 * 366 * 86_400);

/// A complete snapshot, whose checksums were verified.
#[derive(Debug)]
pub struct SavedCounts {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) secret: [u8; 16],
    pub(super) end: SnapshotEnd,
}

impl SavedCounts {
    /// The secret with which the former process hashed keys.
    pub fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// A clock that continues at the snapshot's last time, plus the time since then by the wall clock, at most ten years.
    /// Where the wall clock was set back, no time is added.
    pub fn clock(&self, clock: Clock) -> Clock {
        let wall_time = Nanos::from(clock.wall());
        let downtime = wall_time.since(self.end.wall).min(MAX_DOWNTIME);
        clock.resumed(self.end.now.after(downtime))
    }

    /// Loads the counts into a store that has its limits and no counts yet, and logs how many.
    ///
    /// # Errors
    ///
    /// When the file is damaged or cannot be read; the records before that point are loaded.
    pub fn load(
        mut self,
        memory: &MemoryStore,
        now: Nanos,
    ) -> Result<LoadedCounts, SnapshotDamage> {
        self.file
            .rewind()
            .map_err(|error| SnapshotDamage::Read(0, error))?;
        let loaded = load_snapshot(BufReader::new(&self.file), memory, now)?;
        let (path, age) = (self.path.display(), now.since(self.end.now).ceil_secs());
        let LoadedCounts {
            key_count: keys,
            sketched_count: sketched,
            dropped_count: dropped,
            lost_credit_count: accounts,
        } = loaded;
        tracing::info!(%path, age, keys, sketched, dropped, "counts restored");
        if accounts > 0 {
            let message = "memory has no room for the used credits of some accounts, which begin as unused; \
                raise `store.memory` and start again";
            tracing::error!(%path, accounts, "{message}");
        }
        Ok(loaded)
    }
}

/// Checks a whole snapshot, and returns its head and end.
///
/// # Errors
///
/// When the snapshot is damaged or cannot be read.
pub(super) fn check_snapshot(
    source: impl Read,
) -> Result<(SnapshotHead, SnapshotEnd), SnapshotDamage> {
    let reader = SnapshotReader::new(source)?;
    let head = reader.head;
    Ok((head, reader.read_all(&mut IgnoreRecords)?))
}

/// Loads a snapshot into a store that has its limits and no counts yet.
///
/// # Errors
///
/// When the snapshot is damaged or cannot be read; the records before that point are loaded.
pub fn load_snapshot(
    source: impl Read,
    memory: &MemoryStore,
    now: Nanos,
) -> Result<LoadedCounts, SnapshotDamage> {
    load_records(SnapshotReader::new(source)?, memory, now)
}
