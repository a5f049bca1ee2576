//! The seconds of the hour that goes on, written one by one: what a process that dies leaves for the next.
//!
//! A frame begins with the second's distance from the hour's first. For each series with a value follow the distance
//! to its number and the value, as varints.

use std::io;
use std::path::Path;

use super::frames::Frames;
use super::segment::Damage;
use crate::base::varint::{put, take};

const MARK: [u8; 16] = *b"tollgate second\n";

/// One second: its time since 1970, and what each series did, by ascending numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Since 1970.
    pub at: u64,
    /// Numbers of series and their values; what is missing is zero.
    pub values: Vec<(u32, u64)>,
}

/// See the module.
#[derive(Debug)]
pub struct Journal {
    frames: Frames,
    hour: u64,
}

impl Journal {
    /// Opens an hour's journal, and reads what is in it.
    pub fn open(path: &Path, hour: u64, mut read: impl FnMut(Second)) -> Result<Journal, Damage> {
        let frames = Frames::open(path, MARK, hour, |content| {
            parse(hour, content).map(&mut read)
        })?;
        Ok(Journal { frames, hour })
    }

    /// Bytes at its end that cannot be read, and whether they are more than a second that was being written.
    pub fn lost(&self) -> (u64, bool) {
        (self.frames.lost, self.frames.damaged)
    }

    /// Its hour's first second.
    pub fn hour(&self) -> u64 {
        self.hour
    }

    /// Adds a second. When it returns, the system has it, and the process may die.
    pub fn add(&mut self, second: &Second) -> io::Result<()> {
        let mut content = Vec::with_capacity(2 + 3 * second.values.len());
        put(&mut content, second.at.saturating_sub(self.hour));
        let mut next = 0;
        for (series, value) in &second.values {
            put(&mut content, u64::from(*series).saturating_sub(next));
            put(&mut content, *value);
            next = u64::from(*series) + 1;
        }
        self.frames.add(&content)
    }

    /// Has on the disk what was added: now the machine may die too.
    pub fn sync(&mut self) -> io::Result<()> {
        self.frames.sync()
    }
}

fn parse(hour: u64, mut content: &[u8]) -> Option<Second> {
    let at = hour.checked_add(take(&mut content)?)?;
    let (mut values, mut next) = (Vec::new(), 0_u64);
    while !content.is_empty() {
        let series = next.checked_add(take(&mut content)?)?;
        values.push((u32::try_from(series).ok()?, take(&mut content)?));
        next = series + 1;
    }
    Some(Second { at, values })
}
