//! What numbers do not tell: notes with a time, as bytes that the record does not look into. Each kind has a folder, and in it
//! a file for each day that only grows.
//!
//! Bounds: [`Topic::recent`] notes of each kind in memory, and as many that wait for the disk; on the disk an eighth of what the record may take, the oldest of those
//! that are many going first.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::Path;

use parking_lot::Mutex;

use super::folder::{Folder, absent};
use super::frames::Frames;
use super::segment::Damage;
use super::tier::DAY;
use super::topic::{Note, Topic};

const MARK: [u8; 16] = *b"tollgate notes\n\n";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notes {
    shelves: [Mutex<Shelf>; Topic::ALL.len()],
}

/// Notes of one topic.
#[derive(Debug, Default)]
struct Shelf {
    recent: VecDeque<Note>,
    /// All notes of this second and those behind it are among the recent ones.
    whole: Option<u64>,
    /// Not written yet.
    waiting: VecDeque<Note>,
}

/// The files that are being written, and their days.
#[derive(Debug, Default)]
pub(super) struct OpenFiles([Option<(u64, Frames)>; Topic::ALL.len()]);

impl OpenFiles {
    /// Has on the disk what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.0
            .iter_mut()
            .flatten()
            .try_for_each(|(_, file)| file.sync())
    }
}

impl Notes {
    /// Adds a note; waits for no disk. One that is to be `kept` is written, unless that cannot be done for too long. `now` is the
    /// last second of this process, if there was one: what others have noted is no later.
    pub(super) fn add(&self, topic: Topic, note: Note, kept: bool, now: Option<u64>) {
        let shelf = &mut *self.shelves[topic as usize].lock();
        let put = |notes: &mut VecDeque<Note>, note| {
            let full = notes.len() >= topic.recent();
            let gone = if full { notes.pop_front() } else { None };
            notes.push_back(note);
            gone
        };
        if kept {
            put(&mut shelf.waiting, note.clone());
        }
        shelf.whole = shelf.whole.or(now.map(|now| now + 1));
        if let (Some((at, _)), Some(whole)) = (put(&mut shelf.recent, note), &mut shelf.whole) {
            *whole = at.saturating_add(1).max(*whole);
        }
    }

    /// Writes what is not written yet.
    pub(super) fn write(&self, folder: &Folder, open: &mut OpenFiles, most: u64) -> io::Result<()> {
        for topic in Topic::ALL {
            let shelf = &self.shelves[topic as usize];
            loop {
                let Some(note) = shelf.lock().waiting.front().cloned() else {
                    break;
                };
                let day = note.0 - note.0 % DAY;
                let file = match open.0[topic as usize].take() {
                    Some((of, file)) if of == day => file,
                    before => {
                        if let Some((_, mut before)) = before {
                            before.sync()?;
                        }
                        begin(folder, topic, day)?
                    }
                };
                let (_, file) = open.0[topic as usize].insert((day, file));
                // Of what is many there is no more in a day than all of it may take.
                if file.length() < most / topic.part() {
                    file.add(&[&note.0.to_le_bytes(), &note.1[..]].concat())?;
                }
                let waiting = &mut shelf.lock().waiting;
                if waiting.front() == Some(&note) {
                    waiting.pop_front();
                }
            }
        }
        Ok(())
    }

    /// Shows the notes of a span, the latest day first and within a day the latest note, until `see` has enough.
    pub(super) fn see(
        &self,
        folder: Option<&Folder>,
        topic: Topic,
        (from, to): (u64, u64),
        mut see: impl FnMut(&Note) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let within = |(at, _): &&Note| (from..to).contains(at);
        let shelf = self.shelves[topic as usize].lock();
        let recent: Vec<Note> = shelf.recent.iter().cloned().collect();
        let all = shelf.whole.is_some_and(|whole| from >= whole);
        drop(shelf);
        // Two processes may note the same.
        let mut known: HashMap<&Note, usize> = HashMap::new();
        for note in &recent {
            *known.entry(note).or_default() += 1;
        }
        for note in recent.iter().rev().filter(within) {
            if see(note).is_break() {
                return Ok(());
            }
        }
        let Some(folder) = folder.filter(|_| !all) else {
            return Ok(());
        };
        for (day, path) in folder.note_files(topic)?.into_iter().rev() {
            if day >= to || day + DAY <= from {
                continue;
            }
            let mut notes = Vec::new();
            let read = Frames::open(&path, MARK, day, |content| {
                let (at, text) = content.split_first_chunk()?;
                notes.push((u64::from_le_bytes(*at), text.to_vec()));
                Some(())
            });
            match read {
                Ok(_) => {}
                Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => continue,
                Err(Damage::Read(error)) => return Err(error),
                // It is put aside when it is written to, and found when the record is verified, as what is behind damage is.
                Err(_) => continue,
            }
            // Some of them are in memory too.
            for note in notes.iter().rev().filter(within) {
                if let Some(times) = known.get_mut(note).filter(|times| **times > 0) {
                    *times -= 1;
                } else if see(note).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn begin(folder: &Folder, topic: Topic, day: u64) -> io::Result<Frames> {
    let path = folder.notes(topic).join(day.to_string());
    let open = || Frames::open(&path, MARK, day, |_| Some(()));
    let opened = open().or_else(|damage| {
        folder.put_away(&path, damage)?;
        open()
    });
    let frames = opened.map_err(Damage::into_io)?;
    if frames.damaged {
        let aside = folder.copy_aside(&path)?;
        let (bytes, path, aside) = (frames.lost, path.display(), aside.display());
        tracing::error!(bytes, %path, %aside, "notes of the record are damaged: those behind the damage are lost");
    }
    Ok(frames)
}

/// Bytes of a day's file that damage has taken. What was being written when its process died is not.
pub(super) fn check(path: &Path, day: u64) -> Result<u64, Damage> {
    let frames = Frames::open(path, MARK, day, |content| {
        content.first_chunk::<8>().map(|_| ())
    })?;
    Ok(if frames.damaged { frames.lost } else { 0 })
}

/// Deletes what is older than it is kept, and then, until there are no more than `most` bytes, the oldest.
pub(super) fn trim(folder: &Folder, now: u64, most: u64) -> io::Result<()> {
    let mut total = 0;
    let mut files = Vec::new();
    for topic in Topic::ALL {
        for (day, path) in folder.note_files(topic)? {
            if day + DAY + topic.kept() <= now {
                absent(fs::remove_file(path))?;
                continue;
            }
            let bytes = fs::metadata(&path).map_or(0, |file| file.len());
            total += bytes;
            // What is being written stays.
            if day + DAY <= now {
                files.push((path, bytes));
            }
        }
    }
    for (path, bytes) in files {
        if total <= most {
            break;
        }
        absent(fs::remove_file(path))?;
        total -= bytes;
    }
    Ok(())
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Second, Settings, verify};

    const TODAY: u64 = 20_000 * DAY;

    fn open(folder: &Path) -> Record {
        Record::open(&Settings {
            folder: Some(folder.to_owned()),
            most_bytes: Settings::LEAST,
        })
        .unwrap()
    }

    fn note(record: &Record, at: u64) {
        record.add(Second {
            at,
            values: Vec::new(),
        });
        record.note(Topic::Minute, (at, b"text".to_vec()), true);
        record.keep().unwrap();
    }

    fn noted(folder: &Path) -> Vec<u64> {
        let mut noted = Vec::new();
        let see = |(at, _): &Note| {
            noted.push(*at - TODAY);
            ControlFlow::Continue(())
        };
        let record = open(folder);
        record.notes(Topic::Minute, (0, u64::MAX), see).unwrap();
        noted
    }

    #[test]
    fn damage_is_told_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        (0..3).for_each(|at| note(&record, TODAY + at * 60));
        drop(record);
        let file = folder.path().join("minutes").join(TODAY.to_string());
        let sound = fs::read(&file).unwrap();
        let faults = || verify(folder.path()).unwrap().faults;
        // One that was being written.
        fs::write(&file, &sound[..sound.len() - 3]).unwrap();
        assert_eq!(faults().len(), 0);
        let mut damaged = sound.clone();
        damaged[24 + 20 + 12] ^= 1;
        fs::write(&file, &damaged).unwrap();
        let found = faults();
        assert_eq!((found.len(), &found[0].path), (1, &file));
        assert!(found[0].what.contains("last 40 bytes"), "{}", found[0].what);
        assert_eq!(noted(folder.path()), [0]);
        note(&open(folder.path()), TODAY + 300);
        let aside = format!("damaged/minutes-{TODAY}");
        assert_eq!(fs::read(folder.path().join(aside)).unwrap(), damaged);
        assert_eq!((noted(folder.path()), faults().len()), (vec![300, 0], 0));
    }

    #[test]
    fn a_clock_that_goes_ahead_for_a_while_deletes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        note(&record, TODAY);
        note(&record, TODAY + 30 * DAY);
        // The answers to those who watch go on where it came back.
        note(&record, TODAY + 7_200);
        assert_eq!(record.reached(), TODAY + 7_201);
        drop(record);
        assert_eq!(noted(folder.path()), [30 * DAY, 7_200, 0]);
    }
}
