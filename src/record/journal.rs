//! The journal of an hour: a file to which each second is appended, so that a process that dies loses none of them.
//! `hour.rs` holds the same seconds in memory, and `frame_file.rs` reads and writes the file.
//!
//! Each frame of the [`FrameFile`] has one second, as varints. The first is the distance of the second from the start
//! of the hour. Two more follow for each series with a value, by ascending numbers: the distance of its number from the
//! lowest that may follow, and the value. The lowest is 0 at first, and then the number of the last series plus 1.

use std::io;
use std::path::Path;

use super::frame_file::FrameFile;
use super::segment::Damage;
use crate::base::varint::{put_varint, take_varint};

/// The first bytes of a journal.
const FILE_MARK: [u8; 16] = *b"tollgate second\n";

/// Bytes that are reserved for the distance of a second from the start of the hour, which takes at most two.
const SECOND_CAPACITY: usize = 2;
/// Bytes that are reserved for a value and its series. The buffer grows where they take more.
const VALUE_CAPACITY: usize = 3;

/// The values of all series in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// The number of the second since 1970.
    pub at: u64,
    /// The numbers of series, ascending, and their values. Series that are missing have the value zero.
    pub values: Vec<(u32, u64)>,
}

/// The open journal of an hour.
#[derive(Debug)]
pub struct Journal {
    file: FrameFile,
    /// The first second of the hour, since 1970.
    hour_start: u64,
}

impl Journal {
    /// Opens the journal of the hour that begins at `hour_start`, and passes its seconds to `visit` in the order in
    /// which they were added. A missing file counts as empty.
    ///
    /// # Errors
    ///
    /// Fails if the file is no journal of this hour or cannot be read. Damage behind sound seconds is no error.
    pub fn open(
        path: &Path,
        hour_start: u64,
        mut visit: impl FnMut(Second),
    ) -> Result<Journal, Damage> {
        let file = FrameFile::open(path, FILE_MARK, hour_start, |content| {
            decode_second(hour_start, content).map(&mut visit)
        })?;
        Ok(Journal { file, hour_start })
    }

    /// The number of unreadable bytes at the end of the file; `None` if there are none, or only one second that was
    /// being written when its process died.
    pub fn damaged_bytes(&self) -> Option<u64> {
        self.file.damaged_bytes()
    }

    /// The first second of the hour, since 1970.
    pub fn hour_start(&self) -> u64 {
        self.hour_start
    }

    /// Appends a second, which must be of this hour. When this succeeds, the second survives the end of the process,
    /// but not yet a crash of the machine.
    pub fn add(&mut self, second: &Second) -> io::Result<()> {
        let mut content =
            Vec::with_capacity(SECOND_CAPACITY + VALUE_CAPACITY * second.values.len());
        put_varint(&mut content, second.at.saturating_sub(self.hour_start));
        let mut next_number = 0;
        for (series_number, value) in &second.values {
            let series_number = u64::from(*series_number);
            put_varint(&mut content, series_number.saturating_sub(next_number));
            put_varint(&mut content, *value);
            next_number = series_number + 1;
        }
        self.file.append(&content)
    }

    /// Waits until the disk has all added seconds, so that they survive a crash of the machine.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Decodes the content of a frame. Returns `None` if a varint is incomplete, or a number is too great.
fn decode_second(hour_start: u64, mut content: &[u8]) -> Option<Second> {
    let at = hour_start.checked_add(take_varint(&mut content)?)?;
    let (mut values, mut next_number) = (Vec::new(), 0_u64);
    while !content.is_empty() {
        let series_number = next_number.checked_add(take_varint(&mut content)?)?;
        values.push((
            u32::try_from(series_number).ok()?,
            take_varint(&mut content)?,
        ));
        next_number = series_number + 1;
    }
    Some(Second { at, values })
}
