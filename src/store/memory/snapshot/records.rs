//! The records of a snapshot: a head, records, and an end, without which the snapshot is incomplete. Records are in the order
//! in which they were made: of two for the same entry the later one counts, and a limit comes before its first entry.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use super::super::Settings;
use super::super::sketch::Sketch;
use super::super::table::BUCKET;
use super::super::table::EntryMark;
use super::blocks::{Opening, Sealing, SnapshotDamage};
use super::limits;
use crate::base::clock::Nanos;
use crate::limit::{KeyState, Limit};

const LIMIT: u8 = 1;
const ENTRY: u8 = 2;
const WORDS: u8 = 3;
const ROW: u8 = 4;
const END: u8 = 5;

/// Upper bound for times and epochs in a snapshot; no process runs that long.
const LATEST: u64 = 1 << 62;

/// Buckets of the smallest table.
const LEAST: u32 = (Settings::LEAST / 4 / BUCKET) as u32;

/// The head of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotHead {
    /// The newer of two snapshots has the higher number.
    pub(super) number: u64,
    /// The secret with which keys are hashed.
    pub(super) secret: [u8; 16],
    /// Buckets of the table.
    pub(super) buckets: u32,
}

/// The end of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotEnd {
    /// The clock's and the wall clock's time when all was copied.
    pub(super) now: Nanos,
    pub(super) wall: Nanos,
}

/// The bucket and the mark of a saved entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedPlace {
    pub(super) bucket: u32,
    pub(super) mark: EntryMark,
}

/// Writes records.
pub(super) struct RecordWriter<W> {
    blocks: Sealing<W>,
    bytes: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    pub(super) fn new(out: W, head: SnapshotHead) -> io::Result<RecordWriter<W>> {
        let mut blocks = Sealing::new(out)?;
        blocks.put(&head.number.to_le_bytes())?;
        blocks.put(&head.secret)?;
        blocks.put(&head.buckets.to_le_bytes())?;
        let bytes = Vec::new();
        Ok(RecordWriter { blocks, bytes })
    }

    pub(super) fn limit(&mut self, slot: u16, scope: &str, limit: &Limit) -> io::Result<()> {
        let length = u32::try_from(scope.len()).map_err(io::Error::other)?;
        self.bytes.clear();
        self.bytes.push(LIMIT);
        self.bytes.extend(slot.to_le_bytes());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(scope.as_bytes());
        limits::write(limit, &mut self.bytes);
        self.blocks.put(&self.bytes)
    }

    pub(super) fn entry(&mut self, place: SavedPlace, state: u64) -> io::Result<()> {
        self.begin(ENTRY, place);
        self.bytes.extend(state.to_le_bytes());
        self.blocks.put(&self.bytes)
    }

    pub(super) fn words(&mut self, place: SavedPlace, words: &[u32]) -> io::Result<()> {
        self.begin(WORDS, place);
        self.bytes.extend((words.len() as u32).to_le_bytes());
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.bytes.extend(words);
        self.blocks.put(&self.bytes)
    }

    fn begin(&mut self, kind: u8, place: SavedPlace) {
        self.bytes.clear();
        self.bytes.push(kind);
        self.bytes.extend(place.bucket.to_le_bytes());
        self.bytes.extend(place.mark.0.to_le_bytes());
    }

    pub(super) fn row(&mut self, rung: u8, epoch: u64, row: u8, counts: &[u16]) -> io::Result<()> {
        self.bytes.clear();
        self.bytes.extend([ROW, rung, row]);
        self.bytes.extend(epoch.to_le_bytes());
        self.bytes.extend((counts.len() as u32).to_le_bytes());
        let counts = counts.iter().flat_map(|count| count.to_le_bytes());
        self.bytes.extend(counts);
        self.blocks.put(&self.bytes)
    }

    pub(super) fn end(mut self, end: SnapshotEnd) -> io::Result<W> {
        self.blocks.put(&[END])?;
        self.blocks.put(&end.now.0.to_le_bytes())?;
        self.blocks.put(&end.wall.0.to_le_bytes())?;
        self.blocks.finish()
    }
}

/// Receives the records of a snapshot.
pub(super) trait RecordVisitor {
    fn limit(&mut self, slot: u16, scope: &str, limit: &Limit);
    fn entry(&mut self, place: SavedPlace, state: u64);
    /// The state of a limit that outgrows an entry.
    fn words(&mut self, place: SavedPlace, words: &mut Vec<u32>);
    fn row(&mut self, rung: u8, epoch: u64, row: u8, counts: &[u16]);
}

/// Ignores all records, to check a snapshot.
pub(super) struct IgnoreRecords;

impl RecordVisitor for IgnoreRecords {
    fn limit(&mut self, _: u16, _: &str, _: &Limit) {}
    fn entry(&mut self, _: SavedPlace, _: u64) {}
    fn words(&mut self, _: SavedPlace, _: &mut Vec<u32>) {}
    fn row(&mut self, _: u8, _: u64, _: u8, _: &[u16]) {}
}

/// Reads a snapshot; the head is read already.
pub(super) struct SnapshotReader<R> {
    pub(super) head: SnapshotHead,
    from: Opening<R>,
    limits: HashMap<u16, Limit>,
    bytes: Vec<u8>,
    words: Vec<u32>,
    counts: Vec<u16>,
}

impl<R: Read> SnapshotReader<R> {
    pub(super) fn new(from: R) -> Result<SnapshotReader<R>, SnapshotDamage> {
        let mut from = Opening::new(from)?;
        let head = SnapshotHead {
            number: from.u64()?,
            secret: from.array()?,
            buckets: from.u32()?,
        };
        if head.buckets < LEAST {
            return Err(from.nonsense("the size of the table"));
        }
        Ok(SnapshotReader {
            head,
            from,
            limits: HashMap::new(),
            bytes: Vec::new(),
            words: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// Reads all records and the end.
    ///
    /// # Errors
    ///
    /// When the snapshot is damaged.
    pub(super) fn all(
        mut self,
        visitor: &mut impl RecordVisitor,
    ) -> Result<SnapshotEnd, SnapshotDamage> {
        loop {
            match self.from.u8()? {
                LIMIT => self.limit(visitor)?,
                ENTRY => {
                    let (place, limit) = self.place()?;
                    if !place.mark.network() && !limit.is_inline() {
                        return Err(self.from.nonsense("the kind of an entry"));
                    }
                    let state = self.from.u64()?;
                    visitor.entry(place, state);
                }
                WORDS => self.words(visitor)?,
                ROW => self.row(visitor)?,
                END => return self.end(),
                _ => return Err(self.from.nonsense("the kind of a record")),
            }
        }
    }

    fn limit(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let (slot, length) = (self.from.u16()?, self.from.u32()? as usize);
        if length > 1 << 20 {
            return Err(self.from.nonsense("the length of a name"));
        }
        self.bytes.resize(length, 0);
        self.from.take(&mut self.bytes)?;
        let limit = limits::read(&mut self.from)?;
        let Ok(scope) = std::str::from_utf8(&self.bytes) else {
            return Err(self.from.nonsense("a name"));
        };
        visitor.limit(slot, scope, &limit);
        self.limits.insert(slot, limit);
        Ok(())
    }

    fn place(&mut self) -> Result<(SavedPlace, &Limit), SnapshotDamage> {
        let bucket = self.from.u32()?;
        let mark = EntryMark(self.from.u64()?);
        let known = self.limits.get(&mark.slot());
        let limit = known.filter(|_| bucket < self.head.buckets && mark.named());
        let limit = limit.ok_or_else(|| self.from.nonsense("the place of an entry"))?;
        Ok((SavedPlace { bucket, mark }, limit))
    }

    fn words(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let (place, limit) = self.place()?;
        let limit = limit.clone();
        let count = self.from.u32()? as usize;
        // The longest log, with the words before its stamps.
        if place.mark.network() || limit.is_inline() || count > 65_535 + 16 {
            return Err(self.from.nonsense("the kind of an entry"));
        }
        self.words.clear();
        for _ in 0..count {
            let word = self.from.u32()?;
            self.words.push(word);
        }
        let cell = KeyState {
            limit: &limit,
            key: place.mark.key(),
            words: &mut self.words,
        };
        if !cell.is_valid() {
            return Err(self.from.nonsense("a state"));
        }
        visitor.words(place, &mut self.words);
        Ok(())
    }

    fn row(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let (rung, row) = (self.from.u8()?, self.from.u8()?);
        let (epoch, width) = (self.from.u64()?, self.from.u32()? as usize);
        if !Sketch::has(rung, row, width) || epoch > LATEST {
            return Err(self.from.nonsense("the place of a row"));
        }
        self.counts.clear();
        for _ in 0..width {
            let count = self.from.u16()?;
            self.counts.push(count);
        }
        visitor.row(rung, epoch, row, &self.counts);
        Ok(())
    }

    fn end(&mut self) -> Result<SnapshotEnd, SnapshotDamage> {
        let (now, wall) = (Nanos(self.from.u64()?), Nanos(self.from.u64()?));
        if now.0 > LATEST {
            return Err(self.from.nonsense("the time"));
        }
        if !self.from.ended()? {
            return Err(self.from.nonsense("more after the end"));
        }
        Ok(SnapshotEnd { now, wall })
    }
}
