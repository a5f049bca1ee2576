//! The journal of an hour: a file to which each second is appended, so that a process that dies loses none of them.
//!
//! A frame ([`Frames`]) has one second, all in varints. First comes its distance from the start of the hour. Then
//! follows, for each series with a value, the distance of its number from the one before, and the value.

use std::io;
use std::path::Path;

use super::frames::Frames;
use super::segment::Damage;
use crate::base::varint::{put_varint, take_varint};

/// The first bytes of a journal.
const FILE_MARK: [u8; 16] = *b"tollgate second\n";

/// The values of all series in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Seconds since 1970.
    pub at: u64,
    /// The numbers of series, ascending, and their values. Series that are missing have the value zero.
    pub values: Vec<(u32, u64)>,
}

/// The open journal of an hour.
#[derive(Debug)]
pub struct Journal {
    frames: Frames,
    hour: u64,
}

impl Journal {
    /// Opens the journal of the hour that begins at `hour`, and passes its seconds to `visit`. A missing file is an
    /// empty one.
    ///
    /// # Errors
    ///
    /// Fails if the file is no journal of this hour or cannot be read. Damage behind sound seconds is no error.
    pub fn open(path: &Path, hour: u64, mut visit: impl FnMut(Second)) -> Result<Journal, Damage> {
        let frames = Frames::open(path, FILE_MARK, hour, |content| {
            decode(hour, content).map(&mut visit)
        })?;
        Ok(Journal { frames, hour })
    }

    /// The unreadable bytes at its end, if they are more than one second that was being written when its process died.
    pub fn damaged_bytes(&self) -> Option<u64> {
        self.frames.damaged_bytes()
    }

    /// The first second of its hour.
    pub fn hour(&self) -> u64 {
        self.hour
    }

    /// Appends a second. When this returns, the second survives the end of the process, but not yet that of the
    /// machine.
    pub fn add(&mut self, second: &Second) -> io::Result<()> {
        let mut content = Vec::with_capacity(2 + 3 * second.values.len());
        put_varint(&mut content, second.at.saturating_sub(self.hour));
        let mut next = 0;
        for (series, value) in &second.values {
            put_varint(&mut content, u64::from(*series).saturating_sub(next));
            put_varint(&mut content, *value);
            next = u64::from(*series) + 1;
        }
        self.frames.add(&content)
    }

    /// Writes all added seconds to the disk, so that they survive a crash of the machine.
    pub fn sync(&mut self) -> io::Result<()> {
        self.frames.sync()
    }
}

fn decode(hour: u64, mut content: &[u8]) -> Option<Second> {
    let at = hour.checked_add(take_varint(&mut content)?)?;
    let (mut values, mut next) = (Vec::new(), 0_u64);
    while !content.is_empty() {
        let series = next.checked_add(take_varint(&mut content)?)?;
        values.push((u32::try_from(series).ok()?, take_varint(&mut content)?));
        next = series + 1;
    }
    Some(Second { at, values })
}
