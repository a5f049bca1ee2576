//! The notes of a record, in memory and on the disk: lists of keys, examples and events. The record does not look into
//! their texts.
//!
//! Each topic has a folder with one file per day, which only grows ([`FrameFile`]). The latest notes are in memory too.
//! Bounds: [`Topic::max_in_memory`] notes of each topic in memory, and as many that wait for the disk. On the disk an
//! eighth of what the record may take; the oldest notes of the first topics are deleted first.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::Path;

use parking_lot::Mutex;

use super::folder::{RecordFolder, ignore_missing};
use super::frame_file::FrameFile;
use super::segment::Damage;
use super::tier::DAY_SECONDS;
use super::topic::{Note, Topic};

/// The first bytes of a file of notes.
const FILE_MARK: [u8; 16] = *b"tollgate notes\n\n";

/// The notes of all topics that are in memory.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The notes of each topic, by its number. No lock is held while the disk is used.
    topics: [Mutex<TopicNotes>; Topic::ALL.len()],
}

/// The notes of a topic that are in memory.
#[derive(Debug, Default)]
struct TopicNotes {
    /// The latest notes, written or not.
    recent: VecDeque<Note>,
    /// The second from which on all notes are in `recent`, so that no file need be read. `None` until a note is added
    /// after the first second that this process records.
    complete_since: Option<u64>,
    /// Notes that are not in a file yet.
    unwritten: VecDeque<Note>,
}

/// The files to which notes are being written.
#[derive(Debug, Default)]
pub(super) struct NoteFiles(Mutex<OpenFiles>);

/// The open files, by topic.
#[derive(Debug, Default)]
struct OpenFiles {
    files: [Option<DayFile>; Topic::ALL.len()],
    /// Whether another process may write the folder now.
    is_closed: bool,
}

/// The file of the notes of a day.
#[derive(Debug)]
struct DayFile {
    /// The first second of the day.
    start: u64,
    frames: FrameFile,
    /// Whether it was logged that the file is full.
    is_full_logged: bool,
}

impl NoteFiles {
    /// Writes the notes that were appended to the open files to the disk, so that they survive a crash of the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        let files = &mut self.0.lock().files;
        let mut files = files.iter_mut().flatten();
        files.try_for_each(|file| file.frames.sync())
    }

    /// Lets no more notes be written.
    pub(super) fn close(&self) {
        self.0.lock().is_closed = true;
    }
}

impl Notes {
    /// Adds a note. A persistent note is written later, unless [`Topic::max_in_memory`] newer ones come before that.
    ///
    /// `last_second` is the second that this process recorded last, or `None` before the first. All notes about later
    /// seconds come from this process, so memory has them.
    pub(super) fn add(
        &self,
        topic: Topic,
        note: Note,
        is_persistent: bool,
        last_second: Option<u64>,
    ) {
        let notes = &mut *self.topics[topic as usize].lock();
        // Returns the note that was dropped for the new one.
        let push_bounded = |queue: &mut VecDeque<Note>, note| {
            let is_full = queue.len() >= topic.max_in_memory();
            let dropped = if is_full { queue.pop_front() } else { None };
            queue.push_back(note);
            dropped
        };
        if is_persistent {
            push_bounded(&mut notes.unwritten, note.clone());
        }
        let next_second = last_second.map(|second| second + 1);
        notes.complete_since = notes.complete_since.or(next_second);
        let dropped = push_bounded(&mut notes.recent, note);
        if let (Some(dropped), Some(complete_since)) = (dropped, &mut notes.complete_since) {
            *complete_since = dropped.at.saturating_add(1).max(*complete_since);
        }
    }

    /// Writes the notes of a topic that are in no file yet. `max_bytes` is what all notes together may take. The file of one
    /// day may take the part that [`Topic::day_divisor`] says; once it is full, further notes of the day are dropped. Fails if
    /// the files were closed, or if the disk does.
    pub(super) fn write_pending(
        &self,
        topic: Topic,
        folder: &RecordFolder,
        note_files: &NoteFiles,
        max_bytes: u64,
    ) -> io::Result<()> {
        let mut open = note_files.0.lock();
        if open.is_closed {
            return Err(io::Error::other("another process may write the record now"));
        }
        let open_file = &mut open.files[topic as usize];
        let notes = &self.topics[topic as usize];
        loop {
            let Some(note) = notes.lock().unwritten.front().cloned() else {
                return Ok(());
            };
            let day_start = note.at - note.at % DAY_SECONDS;
            let file = match open_file.take() {
                Some(file) if file.start == day_start => file,
                previous_day => {
                    if let Some(mut file) = previous_day {
                        file.frames.sync()?;
                    }
                    DayFile {
                        start: day_start,
                        frames: open_day_file(folder, topic, day_start)?,
                        is_full_logged: false,
                    }
                }
            };
            let file = open_file.insert(file);
            // Further notes of a day whose file is full are dropped, so that one day cannot displace all others.
            if file.frames.sound_bytes() < max_bytes / topic.day_divisor() {
                let text = [&note.at.to_le_bytes(), &note.text[..]].concat();
                file.frames.append(&text)?;
            } else if !std::mem::replace(&mut file.is_full_logged, true) {
                let topic = topic.folder_name();
                tracing::error!(
                    topic,
                    "the record has no room for further notes of this day"
                );
            }
            let unwritten = &mut notes.lock().unwritten;
            if unwritten.front() == Some(&note) {
                unwritten.pop_front();
            }
        }
    }

    /// Passes the notes from the second `from` to before `to` to `visit`, the latest first, until it breaks.
    ///
    /// Notes in memory come first, then files by day, the latest first. In memory and in a file, the note that was
    /// added last comes first. Fails if a file cannot be read now.
    pub(super) fn visit(
        &self,
        folder: Option<&RecordFolder>,
        topic: Topic,
        (from, to): (u64, u64),
        mut visit: impl FnMut(&Note) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let is_in_span = |note: &&Note| (from..to).contains(&note.at);
        let notes = self.topics[topic as usize].lock();
        let recent: Vec<Note> = notes.recent.iter().cloned().collect();
        let is_complete = notes.complete_since.is_some_and(|since| from >= since);
        drop(notes);
        for note in recent.iter().rev().filter(is_in_span) {
            if visit(note).is_break() {
                return Ok(());
            }
        }
        let Some(folder) = folder.filter(|_| !is_complete) else {
            return Ok(());
        };
        // How often each note was visited already. Two processes may write equal notes, so a set would not do.
        let mut visit_counts: HashMap<&Note, usize> = HashMap::new();
        for note in &recent {
            *visit_counts.entry(note).or_default() += 1;
        }
        for (day_start, path) in folder.note_files(topic)?.into_iter().rev() {
            if day_start >= to || day_start + DAY_SECONDS <= from {
                continue;
            }
            let stored_notes = read_day_file(&path, day_start)?;
            for note in stored_notes.iter().rev().filter(is_in_span) {
                if let Some(count) = visit_counts.get_mut(note).filter(|count| **count > 0) {
                    *count -= 1;
                } else if visit(note).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads the notes of a day, as far as the file is sound. A file that is missing, foreign or lost by the disk has no
/// notes.
fn read_day_file(path: &Path, day_start: u64) -> io::Result<Vec<Note>> {
    let mut notes = Vec::new();
    let read_result = FrameFile::open(path, FILE_MARK, day_start, |content| {
        let (at, text) = content.split_first_chunk()?;
        notes.push(Note {
            at: u64::from_le_bytes(*at),
            text: text.to_vec(),
        });
        Some(())
    });
    match read_result {
        Ok(_) => Ok(notes),
        Err(Damage::Read(error)) if error.kind() != ErrorKind::NotFound => Err(error),
        // Damage is no error of a query: writing sets the file aside, and `verify` reports it.
        Err(_) => Ok(Vec::new()),
    }
}

/// Opens the file of a day for writing. A foreign file is set aside. A damaged one is copied to `damaged`, because the
/// next note cuts off its damaged end.
fn open_day_file(folder: &RecordFolder, topic: Topic, day_start: u64) -> io::Result<FrameFile> {
    let path = folder.notes_folder(topic).join(day_start.to_string());
    let open = || FrameFile::open(&path, FILE_MARK, day_start, |_| Some(()));
    let opened = open().or_else(|damage| {
        folder.set_aside_file(&path, damage)?;
        open()
    });
    let frames = opened.map_err(Damage::into_io)?;
    if let Some(bytes) = frames.damaged_bytes() {
        let aside_path = folder.copy_aside(&path)?;
        let (path, aside) = (path.display(), aside_path.display());
        tracing::error!(bytes, %path, %aside, "notes of the record are damaged: those behind the damage are lost");
    }
    Ok(frames)
}

/// Counts the damaged bytes at the end of the file of a day; 0 if it is sound. A note that was being written when its
/// process died is no damage. Fails if the file is foreign or cannot be read.
pub(super) fn count_damaged_bytes(path: &Path, day_start: u64) -> Result<u64, Damage> {
    let frames = FrameFile::open(path, FILE_MARK, day_start, |content| {
        content.first_chunk::<8>().map(|_| ())
    })?;
    Ok(frames.damaged_bytes().unwrap_or(0))
}

/// Deletes files of notes that are too old at the second `now`. Then deletes the oldest ones in the order of
/// [`Topic::ALL`], until at most `max_bytes` are left. The files of the current day stay.
pub(super) fn trim_notes(folder: &RecordFolder, now: u64, max_bytes: u64) -> io::Result<()> {
    let mut remaining_bytes = 0;
    let mut deletable_files = Vec::new();
    for topic in Topic::ALL {
        for (day_start, path) in folder.note_files(topic)? {
            if day_start + DAY_SECONDS + topic.retention_seconds() <= now {
                ignore_missing(fs::remove_file(path))?;
                continue;
            }
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            remaining_bytes += bytes;
            // The file of the current day stays, because it is open.
            if day_start + DAY_SECONDS <= now {
                deletable_files.push((path, bytes));
            }
        }
    }
    for (path, bytes) in deletable_files {
        if remaining_bytes <= max_bytes {
            break;
        }
        ignore_missing(fs::remove_file(path))?;
        remaining_bytes -= bytes;
    }
    Ok(())
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Second, Settings, verify};

    const TODAY: u64 = 20_000 * DAY_SECONDS;

    fn open(folder: &Path) -> Record {
        Record::open(&Settings {
            folder: Some(folder.to_owned()),
            max_bytes: Settings::MIN_BYTES,
        })
        .unwrap()
    }

    fn record_note(record: &Record, at: u64) {
        record.add(Second {
            at,
            values: Vec::new(),
        });
        let text = b"text".to_vec();
        record.add_note(Topic::Minute, Note { at, text }, true);
        record.write_pending().unwrap();
    }

    fn note_times(folder: &Path) -> Vec<u64> {
        let mut times = Vec::new();
        let visit = |note: &Note| {
            times.push(note.at - TODAY);
            ControlFlow::Continue(())
        };
        let record = open(folder);
        record
            .visit_notes(Topic::Minute, (0, u64::MAX), visit)
            .unwrap();
        times
    }

    #[test]
    fn damage_is_reported_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        (0..3).for_each(|minute| record_note(&record, TODAY + minute * 60));
        drop(record);
        let file = folder.path().join("minutes").join(TODAY.to_string());
        let sound = fs::read(&file).unwrap();
        let faults = || verify(folder.path()).unwrap().faults;
        // The last note was being written.
        fs::write(&file, &sound[..sound.len() - 3]).unwrap();
        assert_eq!(faults().len(), 0);
        let mut damaged = sound.clone();
        // A byte of the second of three frames of 20 bytes, after the head of 24 bytes.
        damaged[24 + 20 + 12] ^= 1;
        fs::write(&file, &damaged).unwrap();
        let damage_faults = faults();
        assert_eq!((damage_faults.len(), &damage_faults[0].path), (1, &file));
        assert!(
            damage_faults[0].description.contains("last 40 bytes"),
            "{}",
            damage_faults[0].description
        );
        assert_eq!(note_times(folder.path()), [0]);
        record_note(&open(folder.path()), TODAY + 300);
        let aside = format!("damaged/minutes-{TODAY}");
        assert_eq!(fs::read(folder.path().join(aside)).unwrap(), damaged);
        assert_eq!(
            (note_times(folder.path()), faults().len()),
            (vec![300, 0], 0)
        );
    }

    #[test]
    fn a_clock_that_goes_ahead_for_a_while_deletes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        record_note(&record, TODAY);
        record_note(&record, TODAY + 30 * DAY_SECONDS);
        // Live streams go on from the second to which the clock came back.
        record_note(&record, TODAY + 7_200);
        assert_eq!(record.last_second_end(), TODAY + 7_201);
        drop(record);
        assert_eq!(note_times(folder.path()), [30 * DAY_SECONDS, 7_200, 0]);
    }
}
