//! The contents of a snapshot: a head, records, and an end, without which the snapshot is incomplete. Of two records for
//! the same entry the later one counts, and a limit comes before its first entry. A file may be forged, so the reader
//! checks the numbers that memory and arithmetic depend on.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use super::super::Settings;
use super::super::bucket_layout::BUCKET_BYTES;
use super::super::entry_mark::EntryMark;
use super::super::sketch::{Sketch, SketchRow};
use super::blocks::{BlockReader, BlockWriter, SnapshotDamage};
use super::limits;
use crate::base::clock::{Nanos, WallOffset};
use crate::limit::{KeyState, RateLimit};

/// The first byte of a record with a limit.
const LIMIT_RECORD: u8 = 1;
/// The first byte of a record with an entry that has its state.
const ENTRY_RECORD: u8 = 2;
/// The first byte of a record with an entry whose state outgrows it.
const WORDS_RECORD: u8 = 3;
/// The first byte of a record with a row of the sketch.
const ROW_RECORD: u8 = 4;
/// The first byte of the end.
const END_RECORD: u8 = 5;

/// The latest time in a snapshot, in nanoseconds, and also its highest epoch. It is 146 years, and no process runs that
/// long.
const MAX_TIME_NANOS: u64 = 1 << 62;
/// Most bytes of a scope's name: more than any policy has. It bounds what a damaged file makes the reader allocate.
const MAX_NAME_BYTES: usize = 1 << 20;
/// Most words of a state: the longest log, with the words before its stamps.
const MAX_STATE_WORDS: usize = 65_535 + 16;

/// The number of buckets of the smallest table.
const MIN_BUCKETS: u32 = (Settings::MIN_BUDGET_BYTES / 4 / BUCKET_BYTES) as u32;

/// The head of a snapshot, which is read without the records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotHead {
    /// The snapshot's number. The newer of two snapshots has the higher one.
    pub(super) number: u64,
    /// The secret with which keys are hashed.
    pub(super) secret: [u8; 16],
    /// The number of buckets of the saved table.
    pub(super) bucket_count: u32,
}

/// The end of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotEnd {
    /// The clock's time when everything was copied.
    pub(super) now: Nanos,
    /// The wall clock's time at that moment.
    pub(super) wall: Nanos,
}

/// The bucket and the mark of a saved entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedPlace {
    pub(super) bucket_index: u32,
    pub(super) mark: EntryMark,
}

/// Writes a snapshot: the head, then one record with each call, then the end.
pub(super) struct RecordWriter<W> {
    blocks: BlockWriter<W>,
    /// The bytes of the record that is being written; kept for their capacity.
    record: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    /// Begins a snapshot with its head.
    pub(super) fn new(out: W, head: SnapshotHead) -> io::Result<RecordWriter<W>> {
        let mut blocks = BlockWriter::new(out)?;
        blocks.write_all(&head.number.to_le_bytes())?;
        blocks.write_all(&head.secret)?;
        blocks.write_all(&head.bucket_count.to_le_bytes())?;
        let record = Vec::new();
        Ok(RecordWriter { blocks, record })
    }

    pub(super) fn write_limit(
        &mut self,
        slot: u16,
        scope: &str,
        limit: &RateLimit,
    ) -> io::Result<()> {
        let scope_bytes = u32::try_from(scope.len()).map_err(io::Error::other)?;
        self.record.clear();
        self.record.push(LIMIT_RECORD);
        self.record.extend(slot.to_le_bytes());
        self.record.extend(scope_bytes.to_le_bytes());
        self.record.extend(scope.as_bytes());
        limits::encode_limit(limit, &mut self.record);
        self.blocks.write_all(&self.record)
    }

    pub(super) fn write_entry(&mut self, place: SavedPlace, state: u64) -> io::Result<()> {
        self.begin_entry(ENTRY_RECORD, place);
        self.record.extend(state.to_le_bytes());
        self.blocks.write_all(&self.record)
    }

    pub(super) fn write_words(&mut self, place: SavedPlace, words: &[u32]) -> io::Result<()> {
        self.begin_entry(WORDS_RECORD, place);
        self.record.extend((words.len() as u32).to_le_bytes());
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.record.extend(words);
        self.blocks.write_all(&self.record)
    }

    fn begin_entry(&mut self, kind: u8, place: SavedPlace) {
        self.record.clear();
        self.record.push(kind);
        self.record.extend(place.bucket_index.to_le_bytes());
        self.record.extend(place.mark.0.to_le_bytes());
    }

    pub(super) fn write_row(&mut self, row: SketchRow<'_>) -> io::Result<()> {
        self.record.clear();
        self.record
            .extend([ROW_RECORD, row.rung_index, row.row_index]);
        self.record.extend(row.epoch.to_le_bytes());
        self.record.extend((row.counts.len() as u32).to_le_bytes());
        let counts = row.counts.iter().flat_map(|count| count.to_le_bytes());
        self.record.extend(counts);
        self.blocks.write_all(&self.record)
    }

    /// Writes the end and the last block, and returns the output.
    pub(super) fn finish(mut self, end: SnapshotEnd) -> io::Result<W> {
        self.blocks.write_all(&[END_RECORD])?;
        self.blocks.write_all(&end.now.0.to_le_bytes())?;
        self.blocks.write_all(&end.wall.0.to_le_bytes())?;
        self.blocks.finish()
    }
}

/// Receives the records of a snapshot, in their order. Slots, buckets and marks are those of the former process.
pub(super) trait RecordVisitor {
    fn visit_limit(&mut self, slot: u16, scope: &str, limit: &RateLimit);
    fn visit_entry(&mut self, place: SavedPlace, state: u64);
    /// Receives an entry whose state outgrows the entry. The visitor may change the words.
    fn visit_words(&mut self, place: SavedPlace, words: &mut Vec<u32>);
    fn visit_row(&mut self, row: SketchRow<'_>);
}

/// Ignores all records, to check a snapshot.
pub(super) struct IgnoreRecords;

impl RecordVisitor for IgnoreRecords {
    fn visit_limit(&mut self, _: u16, _: &str, _: &RateLimit) {}
    fn visit_entry(&mut self, _: SavedPlace, _: u64) {}
    fn visit_words(&mut self, _: SavedPlace, _: &mut Vec<u32>) {}
    fn visit_row(&mut self, _: SketchRow<'_>) {}
}

/// Reads a snapshot. [`SnapshotReader::new`] reads the head, [`SnapshotReader::read_all`] the rest.
pub(super) struct SnapshotReader<R> {
    pub(super) head: SnapshotHead,
    blocks: BlockReader<R>,
    /// The limits read so far, by slot.
    limits: HashMap<u16, RateLimit>,
    /// The name of the scope that is read; kept for its capacity, like the two below.
    name: Vec<u8>,
    /// The words of the state that is read.
    words: Vec<u32>,
    /// The counters of the row that is read.
    counts: Vec<u16>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the head of a snapshot, and checks it.
    ///
    /// # Errors
    ///
    /// When the source is no snapshot of this version, is damaged or cannot be read, or its table is smaller than any
    /// store's.
    pub(super) fn new(source: R) -> Result<SnapshotReader<R>, SnapshotDamage> {
        let mut blocks = BlockReader::new(source)?;
        let head = SnapshotHead {
            number: blocks.read_u64()?,
            secret: blocks.read_array()?,
            bucket_count: blocks.read_u32()?,
        };
        if head.bucket_count < MIN_BUCKETS {
            return Err(blocks.invalid_content("the size of the table"));
        }
        Ok(SnapshotReader {
            head,
            blocks,
            limits: HashMap::new(),
            name: Vec::new(),
            words: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// Reads all records and the end.
    ///
    /// # Errors
    ///
    /// When the snapshot is damaged or cannot be read. The visitor has received all records before that point.
    pub(super) fn read_all(
        mut self,
        visitor: &mut impl RecordVisitor,
    ) -> Result<SnapshotEnd, SnapshotDamage> {
        loop {
            match self.blocks.read_u8()? {
                LIMIT_RECORD => self.read_limit(visitor)?,
                ENTRY_RECORD => {
                    let (place, limit) = self.read_place()?;
                    if !place.mark.is_network() && !limit.is_inline() {
                        return Err(self.blocks.invalid_content("the kind of an entry"));
                    }
                    let state = self.blocks.read_u64()?;
                    visitor.visit_entry(place, state);
                }
                WORDS_RECORD => self.read_words(visitor)?,
                ROW_RECORD => self.read_row(visitor)?,
                END_RECORD => return self.read_end(),
                _ => return Err(self.blocks.invalid_content("the kind of a record")),
            }
        }
    }

    fn read_limit(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let slot = self.blocks.read_u16()?;
        let name_bytes = self.blocks.read_u32()? as usize;
        if name_bytes > MAX_NAME_BYTES {
            return Err(self.blocks.invalid_content("the length of a name"));
        }
        self.name.resize(name_bytes, 0);
        self.blocks.read_exact(&mut self.name)?;
        let limit = limits::decode_limit(&mut self.blocks)?;
        let Ok(scope) = std::str::from_utf8(&self.name) else {
            return Err(self.blocks.invalid_content("a name"));
        };
        visitor.visit_limit(slot, scope, &limit);
        self.limits.insert(slot, limit);
        Ok(())
    }

    /// Reads the place of an entry, and looks up the limit of its slot.
    fn read_place(&mut self) -> Result<(SavedPlace, &RateLimit), SnapshotDamage> {
        let bucket_index = self.blocks.read_u32()?;
        let mark = EntryMark(self.blocks.read_u64()?);
        let limit = self.limits.get(&mark.slot());
        let limit = limit.filter(|_| bucket_index < self.head.bucket_count && mark.has_key());
        let limit = limit.ok_or_else(|| self.blocks.invalid_content("the place of an entry"))?;
        Ok((SavedPlace { bucket_index, mark }, limit))
    }

    fn read_words(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let (place, limit) = self.read_place()?;
        let limit = limit.clone();
        let word_count = self.blocks.read_u32()? as usize;
        if place.mark.is_network() || limit.is_inline() || word_count > MAX_STATE_WORDS {
            return Err(self.blocks.invalid_content("the kind of an entry"));
        }
        self.words.clear();
        for _ in 0..word_count {
            let word = self.blocks.read_u32()?;
            self.words.push(word);
        }
        let cell = KeyState {
            limit: &limit,
            key: place.mark.key(),
            wall: WallOffset::default(),
            words: &mut self.words,
        };
        if !cell.is_valid() {
            return Err(self.blocks.invalid_content("a state"));
        }
        visitor.visit_words(place, &mut self.words);
        Ok(())
    }

    fn read_row(&mut self, visitor: &mut impl RecordVisitor) -> Result<(), SnapshotDamage> {
        let rung_index = self.blocks.read_u8()?;
        let row_index = self.blocks.read_u8()?;
        let epoch = self.blocks.read_u64()?;
        let width = self.blocks.read_u32()? as usize;
        if !Sketch::is_valid_row(rung_index, row_index, width) || epoch > MAX_TIME_NANOS {
            return Err(self.blocks.invalid_content("the place of a row"));
        }
        self.counts.clear();
        for _ in 0..width {
            let count = self.blocks.read_u16()?;
            self.counts.push(count);
        }
        visitor.visit_row(SketchRow {
            rung_index,
            epoch,
            row_index,
            counts: &self.counts,
        });
        Ok(())
    }

    fn read_end(&mut self) -> Result<SnapshotEnd, SnapshotDamage> {
        let now = Nanos(self.blocks.read_u64()?);
        let wall = Nanos(self.blocks.read_u64()?);
        if now.0 > MAX_TIME_NANOS {
            return Err(self.blocks.invalid_content("the time"));
        }
        if !self.blocks.is_at_end()? {
            return Err(self.blocks.invalid_content("more after the end"));
        }
        Ok(SnapshotEnd { now, wall })
    }
}
