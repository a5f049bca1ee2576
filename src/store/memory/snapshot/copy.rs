//! Copies the table and the sketch while they are in use: one bucket at a time under its lock, one row of
//! the sketch under the lock of its rung.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::Memory;
use super::super::cells::split;
use super::super::table::{ENTRIES, EntryAt};
use super::records::{RecordWriter, SavedPlace, SnapshotEnd, SnapshotHead};
use crate::base::clock::{Clock, Nanos};
use crate::limit::{KeyState, Limit};
use crate::store::Slot;

/// Why a copy was not completed.
#[derive(Debug)]
pub(super) enum CopyError {
    /// It was stopped.
    Told,
    /// The file cannot be written.
    Failed(io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> CopyError {
        CopyError::Failed(error)
    }
}

/// One entry as it was under its bucket's lock.
struct CopiedEntry {
    place: SavedPlace,
    scope: u32,
    limit: Arc<Limit>,
    state: u64,
    /// The range of its words among those copied, if it has words.
    words: Option<Range<usize>>,
}

/// A copy in progress.
struct TableCopy<'a, W> {
    memory: &'a Memory,
    out: RecordWriter<W>,
    /// The limits written so far, by slot: the number of the scope, and the limit.
    said: Vec<Option<(u32, Arc<Limit>)>>,
    entries: SmallVec<[CopiedEntry; ENTRIES]>,
    words: Vec<u32>,
    one: Vec<u32>,
}

/// Writes a snapshot. `breathe` is called between slices with the number done and the number of all, and returns whether to
/// go on.
pub(super) fn copy<W: Write>(
    memory: &Memory,
    out: W,
    (number, secret): (u64, [u8; 16]),
    clock: &Clock,
    mut breathe: impl FnMut(u32, u32) -> bool,
) -> Result<W, CopyError> {
    let table = &memory.cells.table;
    let count = table.count();
    let head = SnapshotHead {
        number,
        secret,
        buckets: count,
    };
    let mut copy = TableCopy {
        memory,
        out: RecordWriter::new(out, head)?,
        said: Vec::new(),
        entries: SmallVec::new(),
        words: Vec::new(),
        one: Vec::new(),
    };
    // Long enough that the thread wakes rarely, short enough that others do not miss the processor.
    let slice = (count / 64).clamp(1_024, 16_384);
    let slices = count.div_ceil(slice);
    table.copying.begin();
    let done = copy.table(slice, clock, |done| breathe(done, slices));
    table.copying.end();
    done?;
    memory
        .sketch
        .copy(|rung, epoch, row, counts| copy.out.row(rung, epoch, row, counts))?;
    let end = SnapshotEnd {
        now: clock.now(),
        wall: clock.wall().into(),
    };
    Ok(copy.out.end(end)?)
}

impl<W: Write> TableCopy<'_, W> {
    fn table(
        &mut self,
        slice: u32,
        clock: &Clock,
        mut breathe: impl FnMut(u32) -> bool,
    ) -> Result<(), CopyError> {
        let table = &self.memory.cells.table;
        let mut done = 0;
        let mut start = 0;
        while start < table.count() {
            let now = clock.now();
            let end = start.saturating_add(slice).min(table.count());
            for bucket in start..end {
                self.bucket(bucket, now, true)?;
            }
            let again = table.copying.again();
            for bucket in again.ok_or_else(|| io::Error::other("too many entries moved"))? {
                self.bucket(bucket, now, false)?;
            }
            (start, done) = (end, done + 1);
            if !breathe(done) {
                return Err(CopyError::Told);
            }
        }
        Ok(())
    }

    /// Copies a bucket, for the `first` time or again.
    fn bucket(&mut self, bucket: u32, now: Nanos, first: bool) -> io::Result<()> {
        self.entries.clear();
        self.words.clear();
        let cells = &self.memory.cells;
        let mut held = cells.table.hold(SmallVec::from_slice(&[bucket]));
        for entry in 0..ENTRIES as u32 {
            let at = EntryAt { bucket, entry };
            let Some(mark) = held.mark(at).filter(|_| !cells.fresh(&held, at, now)) else {
                continue;
            };
            let Some(info) = cells.slots.get(Slot(mark.slot())) else {
                continue;
            };
            let (state, limit) = (held.state(at), info.limit());
            let words = (!mark.network() && !info.inline()).then(|| {
                let cell = KeyState {
                    limit: &limit,
                    key: mark.key(),
                    words: cells.arena.words(&mut held, split(state)[0]),
                };
                cell.save(now, &mut self.one);
                let start = self.words.len();
                self.words.extend_from_slice(&self.one);
                start..self.words.len()
            });
            self.entries.push(CopiedEntry {
                place: SavedPlace { bucket, mark },
                scope: info.scope(),
                limit,
                state,
                words,
            });
        }
        if first {
            cells.table.copying.pass(bucket);
        }
        drop(held);
        self.record()
    }

    /// Writes the copied entries.
    fn record(&mut self) -> io::Result<()> {
        for copied in std::mem::take(&mut self.entries) {
            if !self.explain(&copied)? {
                continue;
            }
            match copied.words {
                Some(range) => self.out.words(copied.place, &self.words[range])?,
                None => self.out.entry(copied.place, copied.state)?,
            }
        }
        Ok(())
    }

    /// Writes the limit of an entry unless that is done; `false` when its scope is gone, and with it the entry.
    fn explain(&mut self, copied: &CopiedEntry) -> io::Result<bool> {
        let slot = copied.place.mark.slot();
        let place = usize::from(slot);
        if self.said.len() <= place {
            self.said.resize(place + 1, None);
        }
        let same = |(scope, limit): &(u32, Arc<Limit>)| {
            *scope == copied.scope && Arc::ptr_eq(limit, &copied.limit)
        };
        if self.said[place].as_ref().is_some_and(same) {
            return Ok(true);
        }
        let Some(scope) = self.memory.cells.slots.name(copied.scope) else {
            return Ok(false);
        };
        self.out.limit(slot, &scope, &copied.limit)?;
        self.said[place] = Some((copied.scope, copied.limit.clone()));
        Ok(true)
    }
}
