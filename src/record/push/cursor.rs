//! How far a destination has got, in a file: `mark | checksum u64 | content`, put in its place when it is whole.
//!
//! Bound: some 20 bytes for each series of the record.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use crate::base::varint::{put, take};

const MARK: [u8; 16] = *b"tollgate cursor\n";
const HEAD: usize = 24;

/// How far it has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Every earlier second is delivered.
    pub at: u64,
    /// Where it leads to what may be on its way, or may have arrived; no later than `at` if that is nothing.
    pub trying: u64,
    /// The second from which on everything is counted.
    pub begun: u64,
    /// The second before which [`Count::base`] was counted. What the record knows of earlier ones does not change any more.
    pub base_at: u64,
    /// By the numbers of series in the record.
    pub counts: BTreeMap<u32, Count>,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All that was counted before `base_at`.
    pub base: u64,
    /// What was said last.
    pub sent: u64,
    /// Whether anything was.
    pub told: bool,
    /// What may have been said: the last sample on its way.
    pub trying: Option<u64>,
}

/// Where the file is, and where it is while it is not whole.
fn paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(name), folder.join(format!(".{name}.new")))
}

impl Cursor {
    /// Reads it; nothing if there is no file. One that is damaged is an error of its own kind.
    pub fn load(folder: &Path, name: &str) -> io::Result<Option<Cursor>> {
        let (path, _) = paths(folder, name);
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let damaged = || io::Error::new(ErrorKind::InvalidData, "it is damaged");
        parse(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Has it on the disk.
    pub fn save(&self, folder: &Path, name: &str) -> io::Result<()> {
        let (path, unfinished) = paths(folder, name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(&self.bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, path)?;
        File::open(folder)?.sync_all()
    }

    /// Keeps a damaged one under another name, for whoever wants to know.
    pub fn set_aside(folder: &Path, name: &str) -> io::Result<()> {
        fs::rename(folder.join(name), folder.join(format!("{name}.damaged")))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(24 + 12 * self.counts.len());
        for value in [self.at, self.trying, self.begun, self.base_at] {
            put(&mut content, value);
        }
        let mut next = 0;
        for (number, count) in &self.counts {
            put(&mut content, u64::from(*number) - next);
            put(&mut content, count.base);
            put(&mut content, count.sent);
            let flags = u8::from(count.told) | u8::from(count.trying.is_some()) << 1;
            content.push(flags);
            if let Some(trying) = count.trying {
                put(&mut content, trying);
            }
            next = u64::from(*number) + 1;
        }
        let mut out = MARK.to_vec();
        out.extend(checksum(&content).to_le_bytes());
        out.extend(content);
        out
    }
}

fn checksum(content: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(content);
    hasher.finish()
}

fn parse(bytes: &[u8]) -> Option<Cursor> {
    let (head, mut content) = bytes.split_at_checked(HEAD)?;
    let (mark, sum) = head.split_at(MARK.len());
    if mark != MARK || sum != checksum(content).to_le_bytes() {
        return None;
    }
    let mut cursor = Cursor {
        at: take(&mut content)?,
        trying: take(&mut content)?,
        begun: take(&mut content)?,
        base_at: take(&mut content)?,
        counts: BTreeMap::new(),
    };
    let mut next = 0_u64;
    while !content.is_empty() {
        let number = next.checked_add(take(&mut content)?)?;
        let (base, sent) = (take(&mut content)?, take(&mut content)?);
        let flags = take(&mut content)?;
        let count = Count {
            base,
            sent,
            told: flags & 1 > 0,
            trying: match flags & 2 {
                0 => None,
                _ => Some(take(&mut content)?),
            },
        };
        cursor.counts.insert(u32::try_from(number).ok()?, count);
        next = number + 1;
    }
    Some(cursor)
}
