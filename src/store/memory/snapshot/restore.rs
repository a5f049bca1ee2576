//! What a process leaves to the next: a copy of all counts in a folder, made over and over while it runs and
//! once more when it ends. It never holds up a decision, and what it cannot read it never takes for counts.
//!
//! | file | what it is |
//! |---|---|
//! | `folder` | two files in turn, a lock, and what becomes of damaged ones |
//! | `writer` | the thread that writes |
//! | `copy`, `copying` | copies the store while it is in use |
//! | `load` | takes a copy into a fresh store |
//! | `records`, `limits` | what a file says |
//! | `blocks` | how it is cut and checked |
//!
//! A copy holds times as they are. The next process does not change them: its clock goes on where that of
//! the one before ended, and later by as much as the wall clock says that has passed.

mod blocks;
mod copy;
mod copying;
mod folder;
mod limits;
mod load;
mod records;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::PathBuf;
use std::time::Duration;

use self::records::{End, Head, Nobody, Reading};
use super::Memory;
use crate::base::clock::{Clock, Nanos};

pub use blocks::{Damage, sealed};
pub(super) use copying::Copying;
pub use folder::Unusable;
pub use load::Loaded;
pub use writer::Writer;

/// Longest time that a process is taken to have been down: a wall clock that was never set may say more.
const LONGEST_DOWN: Nanos = Nanos::from_secs(10 * 366 * 86_400);

/// Where counts are kept, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder, which nothing else may use.
    pub folder: PathBuf,
    /// A crash forgives at most what was counted in so long, [`Settings::SHORTEST`] to [`Settings::LONGEST`].
    pub every: Duration,
}

impl Settings {
    /// What [`Settings::every`] is where nobody says.
    pub const USUAL: Duration = Duration::from_secs(10);
    /// The least that it may be.
    pub const SHORTEST: Duration = Duration::from_secs(1);
    /// The most that it may be.
    pub const LONGEST: Duration = Duration::from_secs(600);
}

/// A snapshot that is whole.
#[derive(Debug)]
pub struct Found {
    path: PathBuf,
    file: File,
    secret: [u8; 16],
    end: End,
}

impl Found {
    /// The newest snapshot in the folder, which is made if it is not there. What is damaged is put aside,
    /// and said.
    pub fn newest(settings: &Settings) -> Result<Option<Found>, Unusable> {
        folder::Folder::new(&settings.folder)?.newest()
    }

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
    pub fn load(mut self, memory: &Memory, now: Nanos) -> Result<Loaded, Damage> {
        self.file.rewind().map_err(|error| Damage::Read(0, error))?;
        let loaded = load(BufReader::new(&self.file), memory, now)?;
        let (path, age) = (self.path.display(), now.since(self.end.now).ceil_secs());
        let Loaded {
            keys,
            sketched,
            dropped,
        } = loaded;
        tracing::info!(%path, age, keys, sketched, dropped, "counts restored");
        Ok(loaded)
    }
}

/// Reads a whole snapshot and takes nothing from it.
fn look(from: impl Read) -> Result<(Head, End), Damage> {
    let reading = Reading::new(from)?;
    let head = reading.head;
    Ok((head, reading.all(&mut Nobody)?))
}

/// Takes a snapshot into a store that has its limits and counts nothing yet.
pub fn load(from: impl Read, memory: &Memory, now: Nanos) -> Result<Loaded, Damage> {
    load::load(Reading::new(from)?, memory, now)
}
