//! The folder of a record: a folder for each tier with a file for each span, named by the span's first second; a journal
//! of the hour that goes on; and what was damaged, put aside.
//!
//! Every file above the journal is made of files beneath it, which are kept until long after. So what a process that dies
//! leaves undone is done by the next, and doing it twice changes nothing.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::column::Column;
use super::hour::Hour;
use super::journal::{Journal, Second};
use super::segment::{Damage, RecordSegment};
use super::series::{Dictionary, Names};
use super::tier::Tier;
use super::topic::Topic;

const JOURNAL: &str = "journal";
const SERIES: &str = "series";
const LOCK: &str = "lock";
const UNFINISHED: &str = "new";
const DAMAGED: &str = "damaged";

/// No second of the record is as late.
const END_OF_TIME: u64 = 1 << 40;

/// See the module.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Has a folder that can be written to, for its owner only.
    pub fn new(path: &Path) -> io::Result<Folder> {
        let folder = Folder(path.to_owned());
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let parts = Tier::ALL.map(Tier::name);
        let topics = Topic::ALL.map(Topic::name);
        for part in parts.into_iter().chain([JOURNAL, DAMAGED]).chain(topics) {
            builder.create(path.join(part))?;
        }
        Ok(folder)
    }

    /// One that is only read.
    pub fn at(path: &Path) -> Folder {
        Folder(path.to_owned())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where notes are.
    pub fn notes(&self, topic: Topic) -> PathBuf {
        self.0.join(topic.name())
    }

    /// The days of which there are notes, in order, and their files.
    pub fn note_files(&self, topic: Topic) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut days = Vec::new();
        for entry in fs::read_dir(self.notes(topic))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(day) = name.and_then(|name| name.parse().ok()) {
                days.push((day, path));
            }
        }
        days.sort_unstable();
        Ok(days)
    }

    /// Bytes of all notes.
    pub fn note_bytes(&self) -> io::Result<u64> {
        let mut total = 0;
        for topic in Topic::ALL {
            for (_, path) in self.note_files(topic)? {
                total += fs::metadata(path).map_or(0, |file| file.len());
            }
        }
        Ok(total)
    }

    /// Where a span's file is.
    pub fn file(&self, tier: Tier, start: u64) -> PathBuf {
        self.0.join(tier.name()).join(start.to_string())
    }

    /// Reads the names of the series. No number of which anything is known is given again, even if its name is lost.
    pub fn series(&self) -> io::Result<(Names, Dictionary)> {
        let path = self.names();
        let opened = Names::open(&path).or_else(|damage| {
            self.put_away(&path, damage)?;
            Names::open(&path)
        });
        let (names, mut dictionary, lost) = opened.map_err(Damage::into_io)?;
        if lost {
            let aside = self.copy_aside(&path)?;
            let (path, aside) = (path.display(), aside.display());
            tracing::error!(%path, %aside, "names of series are lost: what the record knows of them is nobody's");
        }
        for tier in Tier::ALL {
            for start in self.starts(tier)? {
                let segment = self.open(tier, start)?;
                let last = segment.and_then(|segment| segment.series().last());
                dictionary.begin_at(last.map_or(0, |last| last.saturating_add(1)));
            }
        }
        Ok((names, dictionary))
    }

    /// Opens an hour's journal, and reads what is in it. One that is damaged begins anew.
    pub fn journal(&self, hour: u64, mut read: impl FnMut(Second)) -> io::Result<Journal> {
        let path = self.journal_file(hour);
        let opened = Journal::open(&path, hour, &mut read).or_else(|damage| {
            self.put_away(&path, damage)?;
            Journal::open(&path, hour, &mut read)
        });
        opened.map_err(Damage::into_io)
    }

    /// Where an hour's journal is.
    pub fn journal_file(&self, hour: u64) -> PathBuf {
        self.0.join(JOURNAL).join(hour.to_string())
    }

    /// The hours that have journals.
    pub fn journals(&self) -> io::Result<BTreeSet<u64>> {
        numbers(&self.0.join(JOURNAL), Tier::Second)
    }

    /// Where the names of series are.
    pub fn names(&self) -> PathBuf {
        self.0.join(SERIES)
    }

    /// The hours of which a process before has left journals: all are later than those that have files.
    pub fn unsealed(&self) -> io::Result<Vec<Arc<Hour>>> {
        let sealed = self.end(Tier::Second)?.unwrap_or(0);
        let mut hours = Vec::new();
        for start in self.journals()? {
            if start < sealed {
                // It has its file, or was given up for want of room.
                self.end_journal(start)?;
                continue;
            }
            let mut hour = Hour::new(start);
            let mut journal = self.journal(start, |second| {
                hour.add(&second);
            })?;
            if let (bytes, true) = journal.lost() {
                let path = self.journal_file(start);
                let aside = self.copy_aside(&path)?;
                let (path, aside) = (path.display(), aside.display());
                tracing::error!(bytes, %path, %aside, "a journal of the record is damaged: the seconds behind the damage are lost");
            }
            // What is told of it from now on, no loss of power takes back.
            journal.sync()?;
            hours.push(Arc::new(hour));
        }
        Ok(hours)
    }

    /// Removes an hour's journal.
    pub fn end_journal(&self, hour: u64) -> io::Result<()> {
        absent(fs::remove_file(self.journal_file(hour)))
    }

    /// Makes a file of an hour that is over.
    pub fn seal(&self, hour: &Hour) -> io::Result<()> {
        self.make(Tier::Second, hour.start(), |path| hour.write(path))?;
        self.end_journal(hour.start())
    }

    /// First seconds of the spans that have a file, in order.
    pub fn starts(&self, tier: Tier) -> io::Result<BTreeSet<u64>> {
        numbers(&self.0.join(tier.name()), tier)
    }

    /// The file that the one process locks which writes.
    pub fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(self.0.join(LOCK))
    }

    /// Whether it is still where it was when it was locked.
    pub fn is_there(&self, lock: &File) -> io::Result<()> {
        let (held, found) = (lock.metadata()?, fs::metadata(self.0.join(LOCK)));
        let same = |found: fs::Metadata| (found.dev(), found.ino()) == (held.dev(), held.ino());
        if found.is_ok_and(same) {
            return Ok(());
        }
        let path = self.0.display();
        Err(io::Error::other(format!(
            "`{path}` is not the folder any more that the gateway began to write: put that back, or restart the gateway"
        )))
    }

    /// Writes a file, and puts it in its place once it is whole.
    pub(super) fn make<E: From<io::Error>>(
        &self,
        tier: Tier,
        start: u64,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let unfinished = self.0.join(UNFINISHED);
        absent(fs::remove_file(&unfinished))?;
        if let Err(error) = write(&unfinished) {
            // What is half done takes room that others need; the next file removes it if this does not.
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        fs::rename(&unfinished, self.file(tier, start))?;
        Ok(File::open(self.0.join(tier.name()))?.sync_all()?)
    }

    /// Opens a span's file; nothing if there is none. One that is damaged is put aside.
    pub fn open(&self, tier: Tier, start: u64) -> io::Result<Option<RecordSegment>> {
        match RecordSegment::open(&self.file(tier, start), tier, start) {
            Ok(segment) => Ok(Some(segment)),
            Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(damage @ (Damage::Read(_) | Damage::Format(_))) => Err(damage.into_io()),
            Err(damage) => self.put_aside(tier, start, &damage).map(|()| None),
        }
    }

    /// What a series did in a file, if anything. A file in which that is damaged is put aside, and whoever has
    /// begun to use it must begin anew without.
    pub fn column(&self, segment: &RecordSegment, series: u32) -> Result<Option<Column>, Trouble> {
        segment.column(series).or_else(|damage| match damage {
            Damage::Read(error) => Err(Trouble::Io(error)),
            damage => {
                self.put_aside(segment.tier(), segment.start(), &damage)?;
                Err(Trouble::PutAside)
            }
        })
    }

    /// Puts aside what is not a span's file.
    pub fn put_away(&self, path: &Path, damage: Damage) -> Result<(), Damage> {
        if let Damage::Read(_) | Damage::Format(_) = damage {
            return Err(damage);
        }
        let to = self.aside(path);
        fs::rename(path, &to)?;
        let (path, aside) = (path.display(), to.display());
        tracing::error!(%path, %damage, %aside, "a file of the record is put aside, and what it alone knew is not known any more");
        Ok(())
    }

    /// Keeps a file as it is, before what is damaged is cut away.
    pub fn copy_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let to = self.aside(path);
        fs::copy(path, &to)?;
        Ok(to)
    }

    /// Where a file goes that is damaged: `damaged/1m-1728950400`.
    fn aside(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix(&self.0).unwrap_or(path);
        let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
        self.0.join(DAMAGED).join(parts.join("-"))
    }

    /// Bytes of all that is in it.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut total = self.note_bytes()?;
        let parts = Tier::ALL.map(Tier::name);
        for part in parts.into_iter().chain([JOURNAL, DAMAGED]) {
            total += size(&self.0.join(part))?.1;
        }
        Ok(total)
    }

    /// Deletes files that are older than they are kept. Then, down to `most` bytes, it deletes files that were put
    /// aside and the oldest of the finest steps. What nothing coarser knows yet stays.
    pub fn trim(&self, now: u64, keep: impl Fn(Tier) -> u64, most: u64) -> io::Result<()> {
        let mut total = size(&self.0.join(JOURNAL))?.1;
        let (mut files, bytes) = size(&self.0.join(DAMAGED))?;
        total += bytes;
        for tier in Tier::ALL {
            let coarser = Tier::ALL
                .into_iter()
                .find(|other| other.beneath() == Some(tier));
            let known = match coarser {
                Some(coarser) => self.end(coarser)?.unwrap_or(0),
                None => now,
            };
            for start in self.starts(tier)? {
                let path = self.file(tier, start);
                let end = start + tier.span();
                if end.saturating_add(keep(tier)) <= now {
                    absent(fs::remove_file(&path))?;
                    continue;
                }
                let bytes = fs::metadata(&path).map_or(0, |file| file.len());
                total += bytes;
                if end <= known.min(now) {
                    files.push((path, bytes));
                }
            }
        }
        for (path, bytes) in files {
            if total <= most {
                break;
            }
            absent(fs::remove_file(&path))?;
            total -= bytes;
        }
        Ok(())
    }

    fn put_aside(&self, tier: Tier, start: u64, damage: &Damage) -> io::Result<()> {
        let from = self.file(tier, start);
        let to = self.aside(&from);
        // Somebody else may have found it too.
        absent(fs::rename(&from, &to))?;
        let (path, aside) = (from.display(), to.display());
        tracing::error!(%path, %damage, %aside, "a file of the record is put aside; coarser steps may still know what it said");
        Ok(())
    }

    /// The first second of a tier in which anything was recorded.
    pub fn oldest(&self, tier: Tier) -> io::Result<Option<u64>> {
        for start in self.starts(tier)? {
            if let Some(segment) = self.open(tier, start)?
                && let Some(at) = segment.covered().iter().position(|covered| *covered > 0)
            {
                return Ok(Some(start + at as u64 * tier.step()));
            }
        }
        Ok(None)
    }

    /// The second behind the last bucket of a tier.
    pub fn end(&self, tier: Tier) -> io::Result<Option<u64>> {
        for start in self.starts(tier)?.into_iter().rev() {
            if let Some(segment) = self.open(tier, start)? {
                return Ok(Some(segment.end()));
            }
        }
        Ok(None)
    }
}

/// The files of a folder, the oldest first, and their bytes.
fn size(folder: &Path) -> io::Result<(Vec<(PathBuf, u64)>, u64)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Ok(file) = fs::metadata(&path) {
            files.push((file.modified()?, path, file.len()));
        }
    }
    files.sort();
    let total = files.iter().map(|(_, _, bytes)| bytes).sum();
    let files = files.into_iter().map(|(_, path, bytes)| (path, bytes));
    Ok((files.collect(), total))
}

/// What need not be there.
pub(super) fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Does it again for as long as something is put aside: the next time it is not there any more.
pub(super) fn anew<T>(mut act: impl FnMut() -> Result<T, Trouble>) -> io::Result<T> {
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(Trouble::Io(error)) => return Err(error),
            Err(Trouble::PutAside) => (),
        }
    }
}

/// Why something cannot be done.
#[derive(Debug)]
pub enum Trouble {
    /// The disk.
    Io(io::Error),
    /// A file was found damaged on the way, and is put aside.
    PutAside,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

/// The spans that have a file in a folder. What else is there is nobody's concern.
fn numbers(folder: &Path, tier: Tier) -> io::Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let start = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u64>().ok());
        found.extend(start.filter(|start| start % tier.span() == 0 && *start < END_OF_TIME));
    }
    Ok(found)
}
