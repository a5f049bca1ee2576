//! The open record: seconds and notes are added in memory, and written to the disk by another call.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::folder::Folder;
use super::hour::Hour;
use super::journal::{Journal, Second};
use super::notes::{self, Notes};
use super::series::{Dictionary, Names, Series};
use super::settings::Settings;
use super::tier::Tier;
use super::topic::{Note, Topic};

/// Most hours in memory: the one that goes on, the one before, and those that could not be written.
pub(super) const HOURS: usize = 4;

/// Seconds that an hour is kept open for clocks that go back and for processes that give way to others.
const OPEN: u64 = 120;

/// Most seconds that wait for a journal; what is older is in memory only, until its hour is written.
const WAITING: usize = 900;

/// Seconds after which a journal is on the disk.
const SYNC: u32 = 5;

/// Calls of [`Record::keep`] between two attempts to write an hour.
const PAUSE: u32 = 60;

/// Which part of the disk notes may take.
const NOTES: u64 = 8;

/// Why a record cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be read or written.
    #[error("`{path}` cannot be used for the record: {cause}; it must be a folder that this user may write to, or choose another with `record`", path = .0.display(), cause = .1)]
    Folder(PathBuf, io::Error),
    /// Another process writes to the folder.
    #[error("another process writes the record in `{path}`; give each gateway a folder of its own", path = .0.display())]
    InUse(PathBuf),
}

/// See the module.
#[derive(Debug)]
pub struct Record {
    dictionary: Mutex<Dictionary>,
    pub(super) memory: Mutex<RecentHours>,
    notes: Notes,
    pub(super) disk: Option<DiskWriter>,
}

/// The seconds that no file holds yet.
#[derive(Debug, Default)]
pub(super) struct RecentHours {
    /// In order.
    pub(super) hours: Vec<Arc<Hour>>,
    /// The second that was added last.
    pub(super) now: u64,
    /// Every earlier second is in a file, or was not recorded.
    pub(super) floor: u64,
    /// What was recorded of earlier seconds outlives the machine; without a folder there is no such thing.
    pub(super) durable: u64,
    /// The first and the last second of those that are in no journal, or in one that may not be on the disk: they outlive the
    /// machine once their hours are files.
    missed: Option<(u64, u64)>,
    /// Additions to seconds that were not the last.
    pub(super) late: u64,
    /// Whether it was said that seconds before the floor are not recorded.
    told: bool,
    /// Seconds that are in no journal yet.
    waiting: VecDeque<Second>,
}

#[derive(Debug)]
pub(super) struct DiskWriter {
    pub(super) folder: Folder,
    most_bytes: u64,
    writing: Mutex<WriteState>,
    /// Held for as long as this process writes.
    lock: File,
}

/// What one thread at a time does with the folder.
#[derive(Debug)]
struct WriteState {
    names: Names,
    journal: Option<Journal>,
    notes: notes::OpenFiles,
    /// Seconds that may not be on the disk.
    unsynced: u32,
    /// The second behind the last one that was written.
    reached: u64,
    /// Whether longer steps are to be made of shorter ones.
    due: bool,
    /// Calls until an hour is written again, after it could not be.
    pause: u32,
}

impl RecentHours {
    fn miss(&mut self, from: u64, to: u64) {
        let (first, last) = self.missed.unwrap_or((from, to));
        self.missed = Some((first.min(from), last.max(to)));
    }

    /// Earlier seconds are in journals that are on the disk, but for those that were missed.
    fn reach(&mut self, second: u64) {
        let missed = self.missed.filter(|(_, last)| *last >= self.floor);
        let most = missed.map_or(second, |(first, _)| second.min(first.max(self.floor)));
        self.durable = self.durable.max(most);
    }
}

impl Record {
    /// Opens a record, with all that the process before has left.
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
        let folder = Folder::new(path).map_err(unusable)?;
        let lock = folder.lock().map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.clone())),
            Err(TryLockError::Error(cause)) => return Err(unusable(cause)),
        }
        let (names, mut dictionary) = folder.series().map_err(unusable)?;
        let hours = folder.unsealed().map_err(unusable)?;
        for number in hours.iter().flat_map(|hour| hour.series()) {
            dictionary.begin_at(number.saturating_add(1));
        }
        let floor = folder.end(Tier::Second).map_err(unusable)?.unwrap_or(0);
        if dictionary.all().next().is_none() && (floor > 0 || !hours.is_empty()) {
            let path = folder.names();
            tracing::error!(path = %path.display(), "the names of all series are lost: what the record knows of them is nobody's");
        }
        record.dictionary = Mutex::new(dictionary);
        record.memory = Mutex::new(RecentHours {
            floor,
            durable: hours.last().map_or(floor, |hour| hour.end()),
            hours,
            ..RecentHours::default()
        });
        record.disk = Some(DiskWriter {
            folder,
            most_bytes: settings.most_bytes,
            writing: Mutex::new(WriteState {
                names,
                journal: None,
                notes: notes::OpenFiles::default(),
                unsynced: 0,
                reached: 0,
                due: true,
                pause: 0,
            }),
            lock,
        });
        Ok(record)
    }

    /// The number of a series, which is new if it has none; nothing when there is no room for it.
    pub fn number(&self, series: &Series) -> Option<u32> {
        self.dictionary.lock().number(series)
    }

    /// All series, living and gone, with their numbers.
    pub fn series(&self) -> Vec<(Series, u32)> {
        let dictionary = self.dictionary.lock();
        let all = dictionary.all();
        all.map(|(series, number)| (series.clone(), number))
            .collect()
    }

    /// Adds what happened in a second, to what is known of it; waits for no disk. What is earlier than an hour that has
    /// its file cannot be added any more.
    pub fn add(&self, second: Second) {
        let start = second.at - second.at % Tier::Second.span();
        let mut memory = self.memory.lock();
        let memory = &mut *memory;
        memory.now = second.at;
        if start < memory.floor {
            if !std::mem::replace(&mut memory.told, true) {
                tracing::error!(
                    until = memory.floor,
                    "the clock went back to before what is recorded: until it is there again nothing is recorded"
                );
            }
            return;
        }
        memory.told = false;
        if memory
            .hours
            .last()
            .is_some_and(|hour| second.at < hour.end())
        {
            memory.late += 1;
            memory.durable = memory.durable.min(second.at);
        }
        let place = memory.hours.partition_point(|hour| hour.start() < start);
        if memory
            .hours
            .get(place)
            .is_none_or(|hour| hour.start() > start)
        {
            memory.hours.insert(place, Arc::new(Hour::new(start)));
        }
        // Who reads it meanwhile keeps what was there.
        Arc::make_mut(&mut memory.hours[place]).add(&second);
        let over = memory.hours.len().saturating_sub(HOURS);
        for lost in memory.hours.drain(..over) {
            memory.floor = memory.floor.max(lost.over());
            if self.disk.is_some() {
                let hour = lost.start();
                tracing::error!(
                    hour,
                    "an hour of the record is lost: it could not be written for too long"
                );
            }
        }
        if self.disk.is_some() {
            memory.waiting.push_back(second);
            if memory.waiting.len() > WAITING
                && let Some(lost) = memory.waiting.pop_front()
            {
                memory.miss(lost.at, lost.at);
            }
        }
    }

    /// Writes what is not written yet, and waits for the disk. To be called each second; what fails is tried again
    /// later.
    pub fn keep(&self) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        disk.folder.is_there(&disk.lock)?;
        let mut writing = disk.writing.lock();
        self.write_names(&mut writing.names)?;
        // Hours free what their journals take.
        let hours = match writing.pause.checked_sub(1) {
            Some(left) => {
                writing.pause = left;
                Ok(())
            }
            None => self.write_hours(disk, &mut writing),
        };
        if hours.is_err() {
            writing.pause = PAUSE;
        }
        let seconds = self.write_seconds(disk, &mut writing);
        let most = disk.most_bytes / NOTES;
        let notes = self.notes.write(&disk.folder, &mut writing.notes, most);
        seconds.and(notes).and(hours)
    }

    /// Adds a note; waits for no disk. One that is not to be `kept` is known only as long as memory holds it.
    pub fn note(&self, topic: Topic, note: Note, kept: bool) {
        let now = self.memory.lock().now;
        let now = (now > 0).then_some(now);
        self.notes
            .add(topic, note, kept && self.disk.is_some(), now);
    }

    /// Shows the notes of a span of seconds, the latest first, until `see` has enough.
    pub fn notes(
        &self,
        topic: Topic,
        span: (u64, u64),
        see: impl FnMut(&Note) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        self.notes.see(folder, topic, span, see)
    }

    /// Where it is, if not in memory.
    pub fn folder(&self) -> Option<&Path> {
        self.disk.as_ref().map(|disk| disk.folder.path())
    }

    /// Bytes that it takes on the disk, and may take; nothing where it is in memory.
    pub fn bytes(&self) -> io::Result<Option<(u64, u64)>> {
        let disk = self.disk.as_ref();
        disk.map(|disk| Ok((disk.folder.bytes()?, disk.most_bytes)))
            .transpose()
    }

    fn write_names(&self, names: &mut Names) -> io::Result<()> {
        loop {
            let Some((number, series)) = self.dictionary.lock().unsaved() else {
                break;
            };
            names.add(number, &series)?;
            self.dictionary.lock().saved();
        }
        names.sync()
    }

    fn write_seconds(&self, disk: &DiskWriter, writing: &mut WriteState) -> io::Result<()> {
        loop {
            let Some(second) = self.memory.lock().waiting.front().cloned() else {
                break;
            };
            let hour = second.at - second.at % Tier::Second.span();
            let other = |journal: &Journal| journal.hour() != hour;
            if writing.journal.as_ref().is_some_and(other) {
                self.sync(writing)?;
                writing.journal = None;
            }
            let journal = match writing.journal.take() {
                Some(journal) => journal,
                None => disk.folder.journal(hour, |_| ())?,
            };
            let journal = writing.journal.insert(journal);
            journal.add(&second)?;
            let mut memory = self.memory.lock();
            if memory.waiting.front() == Some(&second) {
                memory.waiting.pop_front();
            }
            writing.unsynced += 1;
            writing.reached = writing.reached.max(second.at + 1);
        }
        if writing.unsynced >= SYNC {
            self.sync(writing)?;
        }
        Ok(())
    }

    fn sync(&self, writing: &mut WriteState) -> io::Result<()> {
        let synced = writing.journal.as_mut().map_or(Ok(()), Journal::sync);
        let notes = writing.notes.sync();
        let mut memory = self.memory.lock();
        if let Err(error) = synced {
            // The system says so once, and forgets what it could not write.
            let from = memory.durable;
            memory.miss(from, writing.reached.saturating_sub(1));
            writing.journal = None;
            return Err(error);
        }
        writing.unsynced = 0;
        // What came meanwhile is not written yet.
        if memory
            .waiting
            .iter()
            .all(|second| second.at >= writing.reached)
        {
            memory.reach(writing.reached);
        }
        notes
    }

    /// Has a file for each hour that is over, in order.
    fn write_hours(&self, disk: &DiskWriter, writing: &mut WriteState) -> io::Result<()> {
        loop {
            let (floor, hour) = {
                let memory = self.memory.lock();
                let over = |hour: &&Arc<Hour>| hour.over() + OPEN <= memory.now;
                (memory.floor, memory.hours.first().filter(over).cloned())
            };
            let Some(hour) = hour else {
                break;
            };
            disk.folder.seal(&hour)?;
            writing.due = true;
            let mut memory = self.memory.lock();
            memory.floor = floor.max(hour.over());
            memory.durable = memory.durable.max(memory.floor);
            // One that has got more meanwhile is written again.
            memory.hours.retain(|other| !Arc::ptr_eq(other, &hour));
            memory.waiting.retain(|second| second.at >= hour.over());
        }
        if writing.due {
            let (now, floor) = {
                let memory = self.memory.lock();
                (memory.now, memory.floor)
            };
            let rolled = disk.folder.roll_up();
            // A clock that went ahead makes nothing older.
            let now = now.min(floor);
            notes::trim(&disk.folder, now, disk.most_bytes / NOTES)?;
            let most = disk.most_bytes - disk.folder.note_bytes()?.min(disk.most_bytes / NOTES);
            let trimmed = disk.folder.trim(now, Settings::kept, most);
            rolled.and(trimmed)?;
            writing.due = false;
        }
        Ok(())
    }

    /// Has everything on the disk, and leaves the folder to another process.
    pub fn leave(&self) -> io::Result<()> {
        let kept = self.keep();
        let Some(disk) = &self.disk else {
            return kept;
        };
        let synced = self.sync(&mut disk.writing.lock());
        disk.lock.unlock()?;
        kept.and(synced)
    }
}
