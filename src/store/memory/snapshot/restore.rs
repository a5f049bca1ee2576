//! A snapshot that the process before has left, and the clock that goes on after it.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::PathBuf;

use super::super::Memory;
use super::blocks::SnapshotDamage;
use super::load::{LoadedCounts, load as take_in};
use super::records::{IgnoreRecords, SnapshotEnd, SnapshotHead, SnapshotReader};
use crate::base::clock::{Clock, Nanos};

/// Longest time that a process is taken to have been down: a wall clock that was never set may say more.
const LONGEST_DOWN: Nanos = Nanos::from_secs(10 * 366 * 86_400);

/// A snapshot that is whole.
#[derive(Debug)]
pub struct SavedCounts {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) secret: [u8; 16],
    pub(super) end: SnapshotEnd,
}

impl SavedCounts {
    /// Under which keys are hashed.
    pub fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// A clock that goes on where that of the snapshot ended. A wall clock that was set back says nothing
    /// of the time in between: then there was none.
    pub fn clock(&self, clock: Clock) -> Clock {
        let wall = Nanos::from(clock.wall());
        let down = wall.since(self.end.wall).min(LONGEST_DOWN);
        clock.resumed(self.end.now.after(down))
    }

    /// Takes the counts into a store that has its limits and counts nothing yet.
    pub fn load(mut self, memory: &Memory, now: Nanos) -> Result<LoadedCounts, SnapshotDamage> {
        self.file
            .rewind()
            .map_err(|error| SnapshotDamage::Read(0, error))?;
        let loaded = load(BufReader::new(&self.file), memory, now)?;
        let (path, age) = (self.path.display(), now.since(self.end.now).ceil_secs());
        let LoadedCounts {
            keys,
            sketched,
            dropped,
        } = loaded;
        tracing::info!(%path, age, keys, sketched, dropped, "counts restored");
        Ok(loaded)
    }
}

/// Reads a whole snapshot and takes nothing from it.
pub(super) fn look(from: impl Read) -> Result<(SnapshotHead, SnapshotEnd), SnapshotDamage> {
    let reading = SnapshotReader::new(from)?;
    let head = reading.head;
    Ok((head, reading.all(&mut IgnoreRecords)?))
}

/// Takes a snapshot into a store that has its limits and counts nothing yet.
pub fn load(from: impl Read, memory: &Memory, now: Nanos) -> Result<LoadedCounts, SnapshotDamage> {
    take_in(SnapshotReader::new(from)?, memory, now)
}
