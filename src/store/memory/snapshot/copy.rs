//! Copies the table and the sketch into a file while they are in use. It locks a bucket while it copies it to memory, and a
//! rung of the sketch while it copies one row. None of them is locked while it writes to the file.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::MemoryStore;
use super::super::bucket_layout::BUCKET_ENTRIES;
use super::super::bucket_table::EntryPosition;
use super::super::entry_state::split_state;
use super::records::{RecordWriter, SavedPlace, SnapshotEnd, SnapshotHead};
use crate::base::clock::{Clock, Nanos};
use crate::limit::{KeyState, RateLimit};
use crate::store::LimitSlot;

/// Fewest buckets of a slice, the part of the table after which the copy may pause.
const MIN_SLICE_BUCKETS: u32 = 1_024;
/// Most buckets of a slice.
const MAX_SLICE_BUCKETS: u32 = 16_384;
/// The number of slices into which a table is divided, between the two bounds above.
const USUAL_SLICES: u32 = 64;

/// Why a copy was not completed.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The writer was ordered to do something else.
    Stopped,
    /// The file cannot be written, or too many entries moved while a slice was copied.
    Io(io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> CopyError {
        CopyError::Io(error)
    }
}

/// One entry as it was while its bucket was locked.
struct CopiedEntry {
    place: SavedPlace,
    /// The number of the limit's scope.
    scope_number: u32,
    limit: Arc<RateLimit>,
    state: u64,
    /// The range of its words in [`TableCopy::words`], if its state outgrows an entry.
    words: Option<Range<usize>>,
}

/// Whether a bucket is copied in its turn, or again because an entry moved to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketPass {
    First,
    Again,
}

/// A copy of the table that is in progress.
struct TableCopy<'a, W> {
    memory: &'a MemoryStore,
    out: RecordWriter<W>,
    /// The limits written so far, by slot: the number of the scope, and the limit.
    written_limits: Vec<Option<(u32, Arc<RateLimit>)>>,
    /// The entries of the bucket that is copied.
    entries: SmallVec<[CopiedEntry; BUCKET_ENTRIES]>,
    /// The words of all these entries.
    words: Vec<u32>,
    /// The words of one entry; kept for their capacity.
    entry_words: Vec<u32>,
}

/// Writes a snapshot with this number and secret, and returns `out`. Calls `wait_after_slice` after each slice, with the
/// number of slices done and the number of all. If that returns `false`, the copy stops.
///
/// # Errors
///
/// [`CopyError::Stopped`] if `wait_after_slice` returns `false`; [`CopyError::Io`] otherwise.
pub(super) fn write_snapshot<W: Write>(
    memory: &MemoryStore,
    out: W,
    number: u64,
    secret: [u8; 16],
    clock: &Clock,
    mut wait_after_slice: impl FnMut(u32, u32) -> bool,
) -> Result<W, CopyError> {
    let table = &memory.cells.table;
    let bucket_count = table.bucket_count();
    let head = SnapshotHead {
        number,
        secret,
        bucket_count,
    };
    let mut copy = TableCopy {
        memory,
        out: RecordWriter::new(out, head)?,
        written_limits: Vec::new(),
        entries: SmallVec::new(),
        words: Vec::new(),
        entry_words: Vec::new(),
    };
    // Long enough that the thread wakes rarely, short enough that other threads get the processor.
    let slice_buckets = (bucket_count / USUAL_SLICES).clamp(MIN_SLICE_BUCKETS, MAX_SLICE_BUCKETS);
    let slice_count = bucket_count.div_ceil(slice_buckets);
    table.copy_progress.reset();
    let copy_result = copy.copy_table(slice_buckets, clock, |slices_done| {
        wait_after_slice(slices_done, slice_count)
    });
    table.copy_progress.reset();
    copy_result?;
    memory.sketch.copy_rows(|row| copy.out.write_row(row))?;
    let end = SnapshotEnd {
        now: clock.now(),
        wall: clock.wall().into(),
    };
    Ok(copy.out.finish(end)?)
}

impl<W: Write> TableCopy<'_, W> {
    /// Copies all buckets in slices. At the end of a slice, copies again the buckets to which entries have moved after
    /// their copy.
    fn copy_table(
        &mut self,
        slice_buckets: u32,
        clock: &Clock,
        mut wait_after_slice: impl FnMut(u32) -> bool,
    ) -> Result<(), CopyError> {
        let table = &self.memory.cells.table;
        let mut slices_done = 0;
        let mut slice_start = 0;
        while slice_start < table.bucket_count() {
            let now = clock.now();
            let slice_end = slice_start
                .saturating_add(slice_buckets)
                .min(table.bucket_count());
            for bucket_index in slice_start..slice_end {
                self.copy_bucket(bucket_index, now, BucketPass::First)?;
            }
            let buckets_to_recopy = table.copy_progress.take_recopied();
            for bucket_index in
                buckets_to_recopy.ok_or_else(|| io::Error::other("too many entries moved"))?
            {
                self.copy_bucket(bucket_index, now, BucketPass::Again)?;
            }
            slice_start = slice_end;
            slices_done += 1;
            if !wait_after_slice(slices_done) {
                return Err(CopyError::Stopped);
            }
        }
        Ok(())
    }

    /// Copies the entries of a bucket that are not fresh, and writes them.
    fn copy_bucket(&mut self, bucket_index: u32, now: Nanos, pass: BucketPass) -> io::Result<()> {
        self.entries.clear();
        self.words.clear();
        let cells = &self.memory.cells;
        let mut locked = cells.table.lock_all(SmallVec::from_slice(&[bucket_index]));
        for position in EntryPosition::all_of_bucket(bucket_index) {
            let Some(mark) = locked
                .mark(position)
                .filter(|_| !cells.is_fresh(&locked, position, now))
            else {
                continue;
            };
            let Some(info) = cells.slots.get(LimitSlot(mark.slot())) else {
                continue;
            };
            let (state, limit) = (locked.state(position), info.limit());
            let words = (!mark.is_network() && !info.is_inline()).then(|| {
                let cell = KeyState {
                    limit: &limit,
                    key: mark.key(),
                    wall: cells.wall(),
                    words: cells.arena.words(&mut locked, split_state(state)[0]),
                };
                cell.save(now, &mut self.entry_words);
                let words_start = self.words.len();
                self.words.extend_from_slice(&self.entry_words);
                words_start..self.words.len()
            });
            self.entries.push(CopiedEntry {
                place: SavedPlace { bucket_index, mark },
                scope_number: info.scope_number(),
                limit,
                state,
                words,
            });
        }
        if pass == BucketPass::First {
            cells.table.copy_progress.mark_copied(bucket_index);
        }
        drop(locked);
        self.write_entries()
    }

    /// Writes the copied entries.
    fn write_entries(&mut self) -> io::Result<()> {
        for copied in std::mem::take(&mut self.entries) {
            if !self.write_limit_once(&copied)? {
                continue;
            }
            match copied.words {
                Some(range) => self.out.write_words(copied.place, &self.words[range])?,
                None => self.out.write_entry(copied.place, copied.state)?,
            }
        }
        Ok(())
    }

    /// Writes the limit of an entry, unless it is written already. Returns `false` if its scope is gone: then the entry is
    /// gone too, and must not be written.
    fn write_limit_once(&mut self, copied: &CopiedEntry) -> io::Result<bool> {
        let slot = copied.place.mark.slot();
        let index = usize::from(slot);
        if self.written_limits.len() <= index {
            self.written_limits.resize(index + 1, None);
        }
        let is_this_limit = |(scope_number, limit): &(u32, Arc<RateLimit>)| {
            *scope_number == copied.scope_number && Arc::ptr_eq(limit, &copied.limit)
        };
        if self.written_limits[index]
            .as_ref()
            .is_some_and(is_this_limit)
        {
            return Ok(true);
        }
        let Some(scope) = self.memory.cells.slots.scope_name(copied.scope_number) else {
            return Ok(false);
        };
        self.out.write_limit(slot, &scope, &copied.limit)?;
        self.written_limits[index] = Some((copied.scope_number, copied.limit.clone()));
        Ok(true)
    }
}
