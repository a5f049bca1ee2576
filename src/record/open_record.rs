//! The open record. Seconds and notes are added in memory, and [`Record::write_pending`] writes them to the disk.
//! `query.rs` reads them.
//!
//! Additions never wait for the disk. One process at a time writes a folder, and one thread of that process; orders of
//! operators write their notes beside it. To seal an hour means to write its segment, after which nothing is added to it.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::folder::{DiskUsage, RecordFolder};
use super::hour::Hour;
use super::journal::{Journal, Second};
use super::notes::{self, NoteFiles, Notes};
use super::series::{NamesFile, Series, SeriesDictionary};
use super::settings::{OpenError, Settings};
use super::tier::Tier;
use super::topic::{Note, Topic};

/// The most hours in memory: the current one, the one before, and up to two that could not be written. A record without
/// a folder keeps as many.
pub(super) const MAX_HOURS: usize = 4;

/// Seconds after its end for which an hour stays open. A clock may go back, and an old process may serve beside a new
/// one.
const SEAL_DELAY_SECONDS: u64 = 120;

/// The most seconds that wait for the journal. Older seconds are in memory only, until their hour becomes a segment.
const MAX_UNWRITTEN_SECONDS: usize = 900;

/// Journals and notes are synced once so many seconds were written since the last sync. A crash of the machine may lose
/// what was written since then.
const SYNC_INTERVAL_SECONDS: u32 = 5;

/// Calls of [`Record::write_pending`], one a second, that pass after a failure to write segments before the next
/// attempt.
const SEAL_RETRY_CALLS: u32 = 60;

/// The bytes that the record may take on the disk, divided by this number, are those that notes may take.
const NOTES_DIVISOR: u64 = 8;

/// A record that is open for additions and queries.
///
/// The locks of the dictionary, of the memory and of notes are held for a moment only. The lock of [`DiskWriter`] is
/// held while the disk is written, and acquired before the others.
#[derive(Debug)]
pub struct Record {
    /// The numbers of the series.
    dictionary: Mutex<SeriesDictionary>,
    /// The hours that have no segment yet.
    pub(super) memory: Mutex<RecentHours>,
    notes: Notes,
    /// `None` for a record in memory.
    pub(super) disk: Option<DiskWriter>,
}

/// The hours that have no segment yet.
#[derive(Debug, Default)]
pub(super) struct RecentHours {
    /// The hours in the order of time. Readers share them, and an addition copies an hour that is being read.
    pub(super) hours: Vec<Arc<Hour>>,
    /// The second that was passed to [`Record::add`] last, even if it is before others or was refused; 0 before the
    /// first.
    pub(super) last_second: u64,
    /// The end of the hours that are in segments, were dropped, or were never recorded. Nothing is added to hours
    /// before it.
    pub(super) sealed_until: u64,
    /// The end of the seconds that survive a crash of the machine. It has no meaning without a folder.
    pub(super) durable_until: u64,
    /// The first and the last second that no synced journal has; `None` if all seconds have one. Such seconds become
    /// durable with the segments of their hours.
    unjournaled: Option<(u64, u64)>,
    /// How often a second was added that is not after all seconds in memory.
    pub(super) late_addition_count: u64,
    /// Whether it was logged that the clock is before `sealed_until`, so that it is logged once.
    is_clock_error_logged: bool,
    /// Seconds that are not in the journal yet.
    unwritten_seconds: VecDeque<Second>,
}

/// The folder of a record, and the state of writing it.
#[derive(Debug)]
pub(super) struct DiskWriter {
    pub(super) folder: RecordFolder,
    /// The most bytes that the record may take on the disk.
    max_bytes: u64,
    state: Mutex<WriteState>,
    /// Apart from `state`, so that no order of an operator waits while an hour is sealed.
    note_files: NoteFiles,
    /// Locked for as long as this process writes.
    lock_file: File,
}

/// The state of the one thread that writes the folder.
#[derive(Debug)]
struct WriteState {
    names: NamesFile,
    /// The journal of the hour to which seconds were written last.
    journal: Option<Journal>,
    /// Seconds that were written since the last sync.
    unsynced_seconds: u32,
    /// The second after the latest one that this process has written to a journal; 0 before the first.
    written_until: u64,
    /// Whether segments are to be rolled up and deleted, because an hour was sealed or this process has just started.
    is_roll_up_due: bool,
    /// Calls of [`Record::write_pending`] that pass before sealing is tried again.
    seal_pause_calls: u32,
}

impl RecentHours {
    /// Remembers that no synced journal has these seconds. The range includes both ends.
    fn mark_unjournaled(&mut self, from: u64, to: u64) {
        let (first, last) = self.unjournaled.unwrap_or((from, to));
        self.unjournaled = Some((first.min(from), last.max(to)));
    }

    /// Marks the seconds before `until` as durable, except those that no synced journal has.
    fn mark_synced(&mut self, until: u64) {
        let unjournaled = self
            .unjournaled
            .filter(|(_, last)| *last >= self.sealed_until);
        let durable_until =
            unjournaled.map_or(until, |(first, _)| until.min(first.max(self.sealed_until)));
        self.durable_until = self.durable_until.max(durable_until);
    }
}

impl Record {
    /// Opens a record with everything that earlier processes recorded. Damaged files are set aside or copied, and
    /// logged.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be used, or if another process writes it.
    pub fn open(settings: &Settings) -> Result<Record, OpenError> {
        let mut record = Record {
            dictionary: Mutex::default(),
            memory: Mutex::default(),
            notes: Notes::default(),
            disk: None,
        };
        let Some(path) = &settings.folder else {
            return Ok(record);
        };
        let unusable = |cause| OpenError::Folder(path.clone(), cause);
        let folder = RecordFolder::create(path).map_err(unusable)?;
        let lock_file = folder.open_lock_file().map_err(unusable)?;
        match lock_file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.clone())),
            Err(TryLockError::Error(cause)) => return Err(unusable(cause)),
        }
        let (names, mut dictionary) = folder.load_names().map_err(unusable)?;
        let hours = folder.load_journals().map_err(unusable)?;
        for number in hours.iter().flat_map(|hour| hour.series_numbers()) {
            dictionary.reserve_below(number.saturating_add(1));
        }
        let seconds_end = folder.tier_end(Tier::Second).map_err(unusable)?;
        let sealed_until = seconds_end.unwrap_or(0);
        if dictionary.all().next().is_none() && (sealed_until > 0 || !hours.is_empty()) {
            let path = folder.names_path();
            tracing::error!(path = %path.display(), "the names of all series are lost: what the record knows of them is nobody's");
        }
        record.dictionary = Mutex::new(dictionary);
        record.memory = Mutex::new(RecentHours {
            sealed_until,
            durable_until: hours.last().map_or(sealed_until, |hour| hour.end()),
            hours,
            ..RecentHours::default()
        });
        record.disk = Some(DiskWriter {
            folder,
            max_bytes: settings.max_bytes,
            state: Mutex::new(WriteState {
                names,
                journal: None,
                unsynced_seconds: 0,
                written_until: 0,
                is_roll_up_due: true,
                seal_pause_calls: 0,
            }),
            note_files: NoteFiles::default(),
            lock_file,
        });
        Ok(record)
    }

    /// Returns the number of a series, and gives a new series the next number. Returns `None` for a new series if there
    /// are [`SeriesDictionary::MAX_SERIES`] already.
    pub fn number_of(&self, series: &Series) -> Option<u32> {
        self.dictionary.lock().number_of(series)
    }

    /// Lists all series that were ever recorded, with their numbers.
    pub fn series(&self) -> Vec<(Series, u32)> {
        let dictionary = self.dictionary.lock();
        let numbered_series = dictionary.all();
        numbered_series
            .map(|(series, number)| (series.clone(), number))
            .collect()
    }

    /// Adds the values of a second to its values so far. Never waits for the disk.
    ///
    /// A second of an hour that has a segment already, or was dropped, is not added. That is logged once until a second
    /// is added again. The oldest hours above [`MAX_HOURS`] are dropped.
    pub fn add(&self, second: Second) {
        let hour_start = second.at - second.at % Tier::Second.file_seconds();
        let mut memory = self.memory.lock();
        let memory = &mut *memory;
        memory.last_second = second.at;
        if hour_start < memory.sealed_until {
            if !std::mem::replace(&mut memory.is_clock_error_logged, true) {
                tracing::error!(
                    until = memory.sealed_until,
                    "the clock went back to before what is recorded: until it is there again nothing is recorded"
                );
            }
            return;
        }
        memory.is_clock_error_logged = false;
        if memory
            .hours
            .last()
            .is_some_and(|hour| second.at < hour.end())
        {
            memory.late_addition_count += 1;
            memory.durable_until = memory.durable_until.min(second.at);
        }
        let index = memory
            .hours
            .partition_point(|hour| hour.start() < hour_start);
        if memory
            .hours
            .get(index)
            .is_none_or(|hour| hour.start() > hour_start)
        {
            memory.hours.insert(index, Arc::new(Hour::new(hour_start)));
        }
        // A query that reads the hour meanwhile keeps the copy without this second.
        Arc::make_mut(&mut memory.hours[index]).add(&second);
        let excess_count = memory.hours.len().saturating_sub(MAX_HOURS);
        for dropped_hour in memory.hours.drain(..excess_count) {
            memory.sealed_until = memory.sealed_until.max(dropped_hour.next_hour());
            if self.disk.is_some() {
                let hour = dropped_hour.start();
                tracing::error!(
                    hour,
                    "an hour of the record is lost: it could not be written for too long"
                );
            }
        }
        if self.disk.is_some() {
            memory.unwritten_seconds.push_back(second);
            if memory.unwritten_seconds.len() > MAX_UNWRITTEN_SECONDS
                && let Some(skipped) = memory.unwritten_seconds.pop_front()
            {
                memory.mark_unjournaled(skipped.at, skipped.at);
            }
        }
    }

    /// Writes all additions to the disk: names and notes to their files, seconds to the journal, finished hours to
    /// segments. After a new segment it also rolls segments up and deletes old files.
    ///
    /// Must be called once a second. It waits for the disk. Whatever fails is tried again by the next call, and a
    /// segment by the call after [`SEAL_RETRY_CALLS`].
    ///
    /// # Errors
    ///
    /// Fails if the folder was replaced or the names cannot be written, and then writes nothing else. Fails if the disk
    /// does; of several errors the first in the order seconds, notes, segments is returned.
    pub fn write_pending(&self) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        disk.folder.check_lock(&disk.lock_file)?;
        let mut state = disk.state.lock();
        // Names come first: see `NamesFile::sync`.
        self.write_names(&mut state.names)?;
        // A sealed hour needs no journal any more, which frees space, so sealing comes before the seconds.
        let seal_result = match state.seal_pause_calls.checked_sub(1) {
            Some(remaining) => {
                state.seal_pause_calls = remaining;
                Ok(())
            }
            None => self.seal_hours(disk, &mut state),
        };
        if seal_result.is_err() {
            state.seal_pause_calls = SEAL_RETRY_CALLS;
        }
        let seconds_result = self.write_seconds(disk, &mut state);
        let notes_result = Topic::ALL
            .into_iter()
            .try_for_each(|topic| self.write_topic(disk, topic));
        // Each part is tried, whether or not another one fails.
        seconds_result.and(notes_result).and(seal_result)
    }

    /// Adds a note. Never waits for the disk. A note that is not persistent exists only as long as memory holds it.
    pub fn add_note(&self, topic: Topic, note: Note, is_persistent: bool) {
        let last_second = self.memory.lock().last_second;
        let last_second = (last_second > 0).then_some(last_second);
        let is_persistent = is_persistent && self.disk.is_some();
        self.notes.add(topic, note, is_persistent, last_second);
    }

    /// Writes the notes of a topic to the disk, so that they survive a crash of the machine. It waits for the disk.
    ///
    /// Does nothing for a record in memory.
    ///
    /// # Errors
    ///
    /// Fails if the folder was replaced, or if the disk does: [`Record::write_pending`] tries again. Fails for good if the
    /// record was closed.
    pub fn write_notes(&self, topic: Topic) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        disk.folder.check_lock(&disk.lock_file)?;
        self.write_topic(disk, topic)?;
        disk.note_files.sync()
    }

    /// Passes the notes of a span of seconds to `visit`, the latest first, until it breaks. The second of the two
    /// numbers of `span` is outside of it.
    ///
    /// # Errors
    ///
    /// Fails if a file of notes cannot be read now. Damaged ones are read as far as they are sound.
    pub fn visit_notes(
        &self,
        topic: Topic,
        span: (u64, u64),
        visit: impl FnMut(&Note) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        self.notes.visit(folder, topic, span, visit)
    }

    /// The path of the folder; `None` for a record in memory.
    pub fn folder(&self) -> Option<&Path> {
        self.disk.as_ref().map(|disk| disk.folder.path())
    }

    /// Measures the space that the record takes on the disk. Returns `None` for a record in memory. Fails if the disk
    /// does.
    pub fn disk_usage(&self) -> io::Result<Option<DiskUsage>> {
        let measure = |disk: &DiskWriter| {
            Ok(DiskUsage {
                used_bytes: disk.folder.total_bytes()?,
                max_bytes: disk.max_bytes,
            })
        };
        self.disk.as_ref().map(measure).transpose()
    }

    /// Writes the names of new series to the disk.
    fn write_names(&self, names: &mut NamesFile) -> io::Result<()> {
        loop {
            let Some((number, series)) = self.dictionary.lock().first_unsaved() else {
                break;
            };
            names.add(number, &series)?;
            self.dictionary.lock().mark_first_saved();
        }
        names.sync()
    }

    /// Writes the notes of a topic to their files.
    fn write_topic(&self, disk: &DiskWriter, topic: Topic) -> io::Result<()> {
        let max_bytes = disk.max_bytes / NOTES_DIVISOR;
        self.notes
            .write_pending(topic, &disk.folder, &disk.note_files, max_bytes)
    }

    /// Writes seconds to the journals of their hours, and syncs them as [`SYNC_INTERVAL_SECONDS`] says.
    fn write_seconds(&self, disk: &DiskWriter, state: &mut WriteState) -> io::Result<()> {
        loop {
            let Some(second) = self.memory.lock().unwritten_seconds.front().cloned() else {
                break;
            };
            let hour_start = second.at - second.at % Tier::Second.file_seconds();
            let is_other_hour = |journal: &Journal| journal.hour_start() != hour_start;
            if state.journal.as_ref().is_some_and(is_other_hour) {
                self.sync(disk, state)?;
                state.journal = None;
            }
            let journal = match state.journal.take() {
                Some(journal) => journal,
                None => disk.folder.open_journal(hour_start, |_| ())?,
            };
            let journal = state.journal.insert(journal);
            journal.add(&second)?;
            let mut memory = self.memory.lock();
            if memory.unwritten_seconds.front() == Some(&second) {
                memory.unwritten_seconds.pop_front();
            }
            state.unsynced_seconds += 1;
            state.written_until = state.written_until.max(second.at + 1);
        }
        if state.unsynced_seconds >= SYNC_INTERVAL_SECONDS {
            self.sync(disk, state)?;
        }
        Ok(())
    }

    /// Syncs the journal and the notes, and marks the journal's seconds as durable. Fails if either cannot be synced.
    fn sync(&self, disk: &DiskWriter, state: &mut WriteState) -> io::Result<()> {
        let journal_result = state.journal.as_mut().map_or(Ok(()), Journal::sync);
        let notes_result = disk.note_files.sync();
        let mut memory = self.memory.lock();
        if let Err(error) = journal_result {
            // After a failed sync the system drops the unwritten pages, and a second sync would succeed without them.
            let from = memory.durable_until;
            memory.mark_unjournaled(from, state.written_until.saturating_sub(1));
            state.journal = None;
            return Err(error);
        }
        state.unsynced_seconds = 0;
        // Late values that were added meanwhile are not in the journal yet.
        if memory
            .unwritten_seconds
            .iter()
            .all(|second| second.at >= state.written_until)
        {
            memory.mark_synced(state.written_until);
        }
        notes_result
    }

    /// Writes segments of all finished hours, the oldest first. If one was written, or after the start, rolls segments
    /// up and deletes old files.
    fn seal_hours(&self, disk: &DiskWriter, state: &mut WriteState) -> io::Result<()> {
        loop {
            let (sealed_until, hour) = {
                let memory = self.memory.lock();
                let is_over =
                    |hour: &&Arc<Hour>| hour.next_hour() + SEAL_DELAY_SECONDS <= memory.last_second;
                let hour = memory.hours.first().filter(is_over).cloned();
                (memory.sealed_until, hour)
            };
            let Some(hour) = hour else {
                break;
            };
            disk.folder.seal_hour(&hour)?;
            state.is_roll_up_due = true;
            let mut memory = self.memory.lock();
            memory.sealed_until = sealed_until.max(hour.next_hour());
            memory.durable_until = memory.durable_until.max(memory.sealed_until);
            // An hour that was changed while it was written is another `Arc` now, stays, and is written again.
            memory
                .hours
                .retain(|kept_hour| !Arc::ptr_eq(kept_hour, &hour));
            let next_hour = hour.next_hour();
            memory
                .unwritten_seconds
                .retain(|second| second.at >= next_hour);
        }
        if state.is_roll_up_due {
            let now = {
                let memory = self.memory.lock();
                // The end of the segments is a bound, so a clock that is ahead does not make files look too old.
                memory.last_second.min(memory.sealed_until)
            };
            let roll_up_result = disk.folder.roll_up();
            let max_note_bytes = disk.max_bytes / NOTES_DIVISOR;
            notes::trim_notes(&disk.folder, now, max_note_bytes)?;
            let note_bytes = disk.folder.note_bytes()?.min(max_note_bytes);
            let max_bytes = disk.max_bytes - note_bytes;
            let trim_result =
                disk.folder
                    .trim_segments(now, Settings::retention_seconds, max_bytes);
            roll_up_result.and(trim_result)?;
            state.is_roll_up_due = false;
        }
        Ok(())
    }

    /// Writes and syncs everything, and unlocks the folder for another process. The folder is unlocked even if writing
    /// fails.
    pub fn close(&self) -> io::Result<()> {
        let write_result = self.write_pending();
        let Some(disk) = &self.disk else {
            return write_result;
        };
        let sync_result = self.sync(disk, &mut disk.state.lock());
        disk.note_files.close();
        disk.lock_file.unlock()?;
        write_result.and(sync_result)
    }
}
