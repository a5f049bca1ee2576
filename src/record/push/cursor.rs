//! The cursor of a destination: which seconds it has, and which counts were sent to it. The cursor is the only state
//! that pushing keeps on the disk.
//!
//! The file is `mark | checksum u64 | content`. It is written under another name and renamed once it is complete, so a
//! crash leaves the previous file. Bound: 36 bytes for each counter of the record; most take about 12.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use crate::base::varint::{put_varint, take_varint};

/// The first bytes of the file, which tell its format.
const FILE_MARK: [u8; 16] = *b"tollgate cursor\n";
/// Bytes before the content: the mark and the checksum.
const HEAD_BYTES: usize = 24;

/// Bytes that are reserved for the four times when a file is encoded. The times of this millennium take five bytes
/// each.
const TIMES_CAPACITY: usize = 24;
/// Bytes that are reserved for each counter when a file is encoded. The buffer grows where counters take more.
const COUNTER_CAPACITY: usize = 12;

/// The bit of a counter's flags that stands for [`CounterCursor::was_delivered`].
const DELIVERED_FLAG: u8 = 1;
/// The bit of a counter's flags that says that the attempted value follows them.
const ATTEMPTED_FLAG: u8 = 2;

/// Which seconds a destination has, and which values of each counter were sent to it. All times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// All earlier seconds are delivered, refused for good by the destination, or skipped.
    pub delivered_until: u64,
    /// The end of a batch that may have been sent and has had no response yet. It is not after `delivered_until` if
    /// there is no such batch.
    pub attempted_until: u64,
    /// The second from which cumulative counters count: the oldest of the record when pushing to the destination began,
    /// or the start of the first step if that is earlier.
    pub counted_since: u64,
    /// The end of the seconds that [`CounterCursor::base_count`] counts. The record changes no earlier second any more.
    pub base_until: u64,
    /// The counters, by the numbers of their series in the record.
    pub counters: BTreeMap<u32, CounterCursor>,
}

/// The part of a cursor that is about one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterCursor {
    /// Everything counted before [`Cursor::base_until`].
    pub base_count: u64,
    /// The value of the last delivered, refused or skipped sample; 0 if there is none. For a histogram's bucket, the
    /// counts of the buckets below are not included.
    pub delivered_value: u64,
    /// Whether any sample was delivered, refused or skipped.
    pub was_delivered: bool,
    /// The value of the last sample in a batch that has had no response yet; `None` if there is no such batch, or if it
    /// has no sample of this counter.
    pub attempted_value: Option<u64>,
}

/// Returns the path of the file, and the path at which it is written first.
fn cursor_paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(name), folder.join(format!(".{name}.new")))
}

impl Cursor {
    /// Reads a cursor. Returns `None` if there is no file.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::InvalidData`] if the file is damaged, and otherwise with the error of the disk.
    pub fn load(folder: &Path, name: &str) -> io::Result<Option<Cursor>> {
        let (path, _) = cursor_paths(folder, name);
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let damaged_error = || io::Error::new(ErrorKind::InvalidData, "it is damaged");
        decode_cursor(&bytes).map(Some).ok_or_else(damaged_error)
    }

    /// Writes the cursor. When this returns without an error, the cursor survives a crash of the machine.
    ///
    /// # Errors
    ///
    /// Fails if the disk does. Then the previous file, if there was one, or the new file is there as a whole.
    pub fn save(&self, folder: &Path, name: &str) -> io::Result<()> {
        let (path, unfinished_path) = cursor_paths(folder, name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&unfinished_path)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(unfinished_path, path)?;
        File::open(folder)?.sync_all()
    }

    /// Renames a damaged file to `{name}.damaged`, so that an operator can look at it. An earlier file of that name is
    /// replaced.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be renamed.
    pub fn set_aside(folder: &Path, name: &str) -> io::Result<()> {
        fs::rename(folder.join(name), folder.join(format!("{name}.damaged")))
    }

    /// Encodes the file. Numbers are varints, and the number of a series is written as its distance from the lowest
    /// number that it can have.
    fn encode(&self) -> Vec<u8> {
        let mut content =
            Vec::with_capacity(TIMES_CAPACITY + COUNTER_CAPACITY * self.counters.len());
        let times = [
            self.delivered_until,
            self.attempted_until,
            self.counted_since,
            self.base_until,
        ];
        for time in times {
            put_varint(&mut content, time);
        }
        let mut next_number = 0;
        for (number, counter) in &self.counters {
            put_varint(&mut content, u64::from(*number) - next_number);
            put_varint(&mut content, counter.base_count);
            put_varint(&mut content, counter.delivered_value);
            let delivered_flag = if counter.was_delivered {
                DELIVERED_FLAG
            } else {
                0
            };
            let attempted_flag = counter.attempted_value.map_or(0, |_| ATTEMPTED_FLAG);
            content.push(delivered_flag | attempted_flag);
            if let Some(attempted_value) = counter.attempted_value {
                put_varint(&mut content, attempted_value);
            }
            next_number = u64::from(*number) + 1;
        }
        let mut file = FILE_MARK.to_vec();
        file.extend(checksum(&content).to_le_bytes());
        file.extend(content);
        file
    }
}

/// Computes SipHash-1-3 without a key.
fn checksum(content: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(content);
    hasher.finish()
}

/// Decodes the bytes of a file. Returns `None` if the file is too short, or if the mark, the checksum or a number is
/// wrong.
fn decode_cursor(file_bytes: &[u8]) -> Option<Cursor> {
    let (head, mut content) = file_bytes.split_at_checked(HEAD_BYTES)?;
    let (mark, expected_checksum) = head.split_at(FILE_MARK.len());
    if mark != FILE_MARK || expected_checksum != checksum(content).to_le_bytes() {
        return None;
    }
    let mut cursor = Cursor {
        delivered_until: take_varint(&mut content)?,
        attempted_until: take_varint(&mut content)?,
        counted_since: take_varint(&mut content)?,
        base_until: take_varint(&mut content)?,
        counters: BTreeMap::new(),
    };
    let mut next_number = 0_u64;
    while !content.is_empty() {
        let number = next_number.checked_add(take_varint(&mut content)?)?;
        let base_count = take_varint(&mut content)?;
        let delivered_value = take_varint(&mut content)?;
        let flags = take_varint(&mut content)?;
        let counter = CounterCursor {
            base_count,
            delivered_value,
            was_delivered: flags & u64::from(DELIVERED_FLAG) > 0,
            attempted_value: match flags & u64::from(ATTEMPTED_FLAG) {
                0 => None,
                _ => Some(take_varint(&mut content)?),
            },
        };
        cursor.counters.insert(u32::try_from(number).ok()?, counter);
        next_number = number + 1;
    }
    Some(cursor)
}
