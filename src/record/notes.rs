//! What numbers do not tell: notes with a time, as bytes that the record does not look into. Each kind has a folder, and in it
//! a file for each day that only grows.
//!
//! Bounds: [`Topic::recent`] notes of each kind in memory, and as many that wait for the disk; on the disk an eighth of what the record may take, the oldest of those
//! that are many going first.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::DAY;
use super::folder::{Folder, absent};
use super::frames::Frames;
use super::segment::Damage;

const MARK: [u8; 16] = *b"tollgate notes\n\n";

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Single requests.
    Sample,
    /// Who was counted most in a minute.
    Minute,
    /// The same of an hour.
    Hour,
    /// What was done to the gateway.
    Event,
}

impl Topic {
    /// All, those that are many first.
    pub const ALL: [Topic; 4] = [Topic::Sample, Topic::Minute, Topic::Hour, Topic::Event];

    /// The name of its folder.
    pub(super) fn name(self) -> &'static str {
        match self {
            Topic::Sample => "samples",
            Topic::Minute => "minutes",
            Topic::Hour => "hours",
            Topic::Event => "events",
        }
    }

    /// The most of its notes that are in memory.
    const fn recent(self) -> usize {
        match self {
            Topic::Sample => 10_000,
            Topic::Minute => 180,
            Topic::Hour => 48,
            Topic::Event => 1_000,
        }
    }

    /// Which part of what notes may take a day of these may.
    const fn part(self) -> u64 {
        match self {
            Topic::Sample => 4,
            Topic::Minute => 2,
            Topic::Hour | Topic::Event => 1,
        }
    }

    /// How many seconds its notes are kept.
    pub const fn kept(self) -> u64 {
        match self {
            Topic::Sample | Topic::Minute => 7 * DAY,
            Topic::Hour | Topic::Event => 400 * DAY,
        }
    }
}

/// A time and what is to be said of it.
pub type Note = (u64, Vec<u8>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notes {
    shelves: [Mutex<Shelf>; Topic::ALL.len()],
}

/// Notes of one topic.
#[derive(Debug, Default)]
struct Shelf {
    recent: VecDeque<Note>,
    /// Not written yet.
    waiting: VecDeque<Note>,
}

/// The files that are being written.
#[derive(Debug, Default)]
pub(super) struct Open {
    files: [Option<(u64, Frames)>; Topic::ALL.len()],
    /// The day when it was last looked what may go.
    trimmed: u64,
}

impl Notes {
    /// Adds a note; waits for no disk. One that is to be `kept` is written, unless that cannot be done for too long.
    pub(super) fn add(&self, topic: Topic, note: Note, kept: bool) {
        let mut shelf = self.shelves[topic as usize].lock();
        let put = |notes: &mut VecDeque<Note>, note| {
            if notes.len() >= topic.recent() {
                notes.pop_front();
            }
            notes.push_back(note);
        };
        if kept {
            put(&mut shelf.waiting, note.clone());
        }
        put(&mut shelf.recent, note);
    }

    /// Writes what is not written yet.
    pub(super) fn write(&self, folder: &Folder, open: &mut Open, most: u64) -> io::Result<()> {
        let mut last = 0;
        for topic in Topic::ALL {
            let shelf = &self.shelves[topic as usize];
            loop {
                let Some(note) = shelf.lock().waiting.front().cloned() else {
                    break;
                };
                let day = note.0 - note.0 % DAY;
                let (_, file) = match open.files[topic as usize].take() {
                    Some((of, file)) if of == day => open.files[topic as usize].insert((of, file)),
                    _ => {
                        let file = begin(folder, topic, day)?;
                        open.files[topic as usize].insert((day, file))
                    }
                };
                // Of what is many there is no more in a day than all of it may take.
                if file.length() < most / topic.part() {
                    file.add(&[&note.0.to_le_bytes(), &note.1[..]].concat())?;
                }
                last = last.max(note.0);
                let waiting = &mut shelf.lock().waiting;
                if waiting.front() == Some(&note) {
                    waiting.pop_front();
                }
            }
        }
        let hour = last - last % 3_600;
        if hour > open.trimmed {
            open.trimmed = hour;
            trim(folder, last, most)?;
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
        drop(shelf);
        let known: HashSet<&Note> = recent.iter().collect();
        for note in recent.iter().rev().filter(within) {
            if see(note).is_break() {
                return Ok(());
            }
        }
        let Some(folder) = folder else {
            return Ok(());
        };
        for (day, path) in days(folder, topic)?.into_iter().rev() {
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
                // It is put aside when it is written to, and found when the record is verified.
                Err(_) => continue,
            }
            // Some of them are in memory too.
            let unseen = |note: &&Note| !known.contains(*note);
            for note in notes.iter().rev().filter(within).filter(unseen) {
                if see(note).is_break() {
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
    opened.map_err(Damage::into_io)
}

/// The days of which there are notes, in order.
pub(super) fn days(folder: &Folder, topic: Topic) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(folder.notes(topic))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(day) = name.and_then(|name| name.parse().ok()) {
            days.push((day, path));
        }
    }
    days.sort_unstable();
    Ok(days)
}

/// Whether a day's file is sound.
pub(super) fn check(path: &Path, day: u64) -> Result<u64, Damage> {
    Frames::open(path, MARK, day, |content| {
        content.first_chunk::<8>().map(|_| ())
    })
    .map(|frames| frames.lost)
}

fn trim(folder: &Folder, now: u64, most: u64) -> io::Result<()> {
    let mut total = 0;
    let mut files = Vec::new();
    for topic in Topic::ALL {
        for (day, path) in days(folder, topic)? {
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

/// Bytes of all notes.
pub(super) fn size(folder: &Folder) -> io::Result<u64> {
    let mut total = 0;
    for topic in Topic::ALL {
        for (_, path) in days(folder, topic)? {
            total += fs::metadata(path).map_or(0, |file| file.len());
        }
    }
    Ok(total)
}
