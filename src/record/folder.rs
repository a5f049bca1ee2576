//! The folder of a record: where each of its files is, and how a file gets its name once it is complete, is set aside
//! when damaged, and is deleted. `segment.rs`, `journal.rs`, `series.rs` and `notes.rs` say what the files contain.
//!
//! Each tier has a folder with segments, named by their first second. Beside them are the journals, the names of the
//! series, a folder of notes for each topic, `damaged`, and the cursors of `push`. A segment is made of a journal,
//! which stays until the segment is complete, or of finer segments, which stay for days. So the next process writes the
//! segments that a process that died did not finish. Writing one twice changes nothing.

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
use super::series::{NamesFile, SeriesDictionary};
use super::tier::Tier;
use super::topic::Topic;

/// The folder of the journals.
const JOURNAL_FOLDER: &str = "journal";
/// The file with the names of the series.
const NAMES_FILE: &str = "series";
/// The empty file that the writing process locks.
const LOCK_FILE: &str = "lock";
/// The name of a segment until it is complete. There is one at a time.
const UNFINISHED_FILE: &str = "new";
/// The folder of files that were set aside.
const DAMAGED_FOLDER: &str = "damaged";

/// Segments and journals begin before this second, some 35,000 years after 1970. So a start and the length of a file
/// can be added without overflow.
const MAX_SECOND: u64 = 1 << 40;

/// The folder of a record, by its path.
#[derive(Clone, Debug)]
pub struct RecordFolder(PathBuf);

/// The space that a record takes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// The bytes of all files but the names of the series and the cursors of `push`.
    pub used_bytes: u64,
    /// The most bytes that the files may take.
    pub max_bytes: u64,
}

impl RecordFolder {
    /// Creates the folder and its subfolders where they are missing. Only their owner may read those that are created.
    pub fn create(path: &Path) -> io::Result<RecordFolder> {
        let folder = RecordFolder(path.to_owned());
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let tiers = Tier::ALL.map(Tier::name).into_iter();
        let topics = Topic::ALL.map(Topic::folder_name);
        for name in tiers.chain([JOURNAL_FOLDER, DAMAGED_FOLDER]).chain(topics) {
            builder.create(path.join(name))?;
        }
        Ok(folder)
    }

    /// Returns a folder that is only read. Nothing is created, so reading fails where the folder does not exist.
    pub fn for_reading(path: &Path) -> RecordFolder {
        RecordFolder(path.to_owned())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of a topic's notes.
    pub fn notes_folder(&self, topic: Topic) -> PathBuf {
        self.0.join(topic.folder_name())
    }

    /// Lists the files of a topic's notes, in the order of time, each with the first second of its day. Files with
    /// names that are no numbers are ignored.
    pub fn note_files(&self, topic: Topic) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.notes_folder(topic))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(day_start) = name.and_then(|name| name.parse().ok()) {
                files.push((day_start, path));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Sums the bytes of all files of notes.
    pub fn note_bytes(&self) -> io::Result<u64> {
        let mut note_bytes = 0;
        for topic in Topic::ALL {
            for (_, path) in self.note_files(topic)? {
                note_bytes += fs::metadata(path).map_or(0, |metadata| metadata.len());
            }
        }
        Ok(note_bytes)
    }

    /// The path of a segment.
    pub fn segment_path(&self, tier: Tier, start: u64) -> PathBuf {
        self.0.join(tier.name()).join(start.to_string())
    }

    /// Reads the names of the series. The numbers in segments are reserved, so that no new series gets one whose name
    /// is lost. A file that is no list of names is set aside, and one with unreadable bytes at its end is copied.
    /// Damaged segments are set aside too.
    pub fn load_names(&self) -> io::Result<(NamesFile, SeriesDictionary)> {
        let path = self.names_path();
        let opened = NamesFile::open(&path).or_else(|damage| {
            self.set_aside_file(&path, damage)?;
            NamesFile::open(&path)
        });
        let (names, mut dictionary) = opened.map_err(Damage::into_io)?;
        if names.has_lost_bytes() {
            let aside_path = self.copy_aside(&path)?;
            let (path, aside) = (path.display(), aside_path.display());
            tracing::error!(%path, %aside, "names of series are lost: what the record knows of them is nobody's");
        }
        for tier in Tier::ALL {
            for start in self.segment_starts(tier)? {
                let segment = self.open_segment(tier, start)?;
                let last_number = segment.and_then(|segment| segment.series_numbers().last());
                dictionary.reserve_below(last_number.map_or(0, |number| number.saturating_add(1)));
            }
        }
        Ok((names, dictionary))
    }

    /// Opens the journal of an hour, and passes its seconds to `visit`. A file that is not this journal, or that the
    /// disk has lost, is set aside, and the journal is then empty.
    pub fn open_journal(
        &self,
        hour_start: u64,
        mut visit: impl FnMut(Second),
    ) -> io::Result<Journal> {
        let path = self.journal_path(hour_start);
        let opened = Journal::open(&path, hour_start, &mut visit).or_else(|damage| {
            self.set_aside_file(&path, damage)?;
            Journal::open(&path, hour_start, &mut visit)
        });
        opened.map_err(Damage::into_io)
    }

    /// The path of an hour's journal.
    pub fn journal_path(&self, hour_start: u64) -> PathBuf {
        self.0.join(JOURNAL_FOLDER).join(hour_start.to_string())
    }

    /// Lists the first seconds of the hours that have journals, in ascending order.
    pub fn journal_starts(&self) -> io::Result<BTreeSet<u64>> {
        file_starts(&self.0.join(JOURNAL_FOLDER), Tier::Second)
    }

    /// The path of the file with the names of the series.
    pub fn names_path(&self) -> PathBuf {
        self.0.join(NAMES_FILE)
    }

    /// Reads the journals that an earlier process left, the oldest first, and syncs them. Journals of hours before the
    /// end of the segments are removed, and damaged ones are copied.
    pub fn load_journals(&self) -> io::Result<Vec<Arc<Hour>>> {
        let sealed_until = self.tier_end(Tier::Second)?.unwrap_or(0);
        let mut hours = Vec::new();
        for start in self.journal_starts()? {
            if start < sealed_until {
                // The hour has its segment, or was dropped because the disk was full for too long.
                self.remove_journal(start)?;
                continue;
            }
            let mut hour = Hour::new(start);
            let mut journal = self.open_journal(start, |second| {
                hour.add(&second);
            })?;
            if let Some(bytes) = journal.damaged_bytes() {
                let path = self.journal_path(start);
                let aside_path = self.copy_aside(&path)?;
                let (path, aside) = (path.display(), aside_path.display());
                tracing::error!(bytes, %path, %aside, "a journal of the record is damaged: the seconds behind the damage are lost");
            }
            // The seconds of the journal count as durable from now on.
            journal.sync()?;
            hours.push(Arc::new(hour));
        }
        Ok(hours)
    }

    /// Removes an hour's journal, if there is one.
    pub fn remove_journal(&self, hour_start: u64) -> io::Result<()> {
        ignore_missing(fs::remove_file(self.journal_path(hour_start)))
    }

    /// Writes the segment of a finished hour, and removes its journal.
    pub fn seal_hour(&self, hour: &Hour) -> io::Result<()> {
        self.write_segment(Tier::Second, hour.start(), |path| hour.write_segment(path))?;
        self.remove_journal(hour.start())
    }

    /// Lists the first seconds of a tier's segments, in ascending order.
    pub fn segment_starts(&self, tier: Tier) -> io::Result<BTreeSet<u64>> {
        file_starts(&self.0.join(tier.name()), tier)
    }

    /// Opens the file that the writing process locks, and creates it if it is missing. The caller locks it.
    pub fn open_lock_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(self.0.join(LOCK_FILE))
    }

    /// Verifies that the path still leads to the folder whose lock file this process has locked.
    ///
    /// # Errors
    ///
    /// Fails if the folder was moved, replaced or unmounted, or if the lock file cannot be examined.
    pub fn check_lock(&self, lock: &File) -> io::Result<()> {
        let locked_file = lock.metadata()?;
        let is_locked_file =
            |file: fs::Metadata| (file.dev(), file.ino()) == (locked_file.dev(), locked_file.ino());
        if fs::metadata(self.0.join(LOCK_FILE)).is_ok_and(is_locked_file) {
            return Ok(());
        }
        let path = self.0.display();
        Err(io::Error::other(format!(
            "`{path}` is not the folder any more that the gateway began to write: put that back, or restart the gateway"
        )))
    }

    /// Calls `write` with the path of a new file, which it must write and sync. Then renames that file to the segment's
    /// path. When this succeeds, the renaming survives a crash of the machine.
    pub(super) fn write_segment<E: From<io::Error>>(
        &self,
        tier: Tier,
        start: u64,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let unfinished_path = self.0.join(UNFINISHED_FILE);
        ignore_missing(fs::remove_file(&unfinished_path))?;
        if let Err(error) = write(&unfinished_path) {
            // A half-written file takes room. If it cannot be removed now, the next call does.
            let _ = fs::remove_file(&unfinished_path);
            return Err(error);
        }
        fs::rename(&unfinished_path, self.segment_path(tier, start))?;
        Ok(File::open(self.0.join(tier.name()))?.sync_all()?)
    }

    /// Opens a segment. Returns `None` if there is no such segment. A damaged one is set aside and counts as missing.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read now, has the format of another version, or cannot be set aside.
    pub fn open_segment(&self, tier: Tier, start: u64) -> io::Result<Option<RecordSegment>> {
        match RecordSegment::open(&self.segment_path(tier, start), tier, start) {
            Ok(segment) => Ok(Some(segment)),
            Err(Damage::Read(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(damage @ (Damage::Read(_) | Damage::Format(_))) => Err(damage.into_io()),
            Err(damage) => self.set_aside_segment(tier, start, &damage).map(|()| None),
        }
    }

    /// Reads a column of a segment. Returns `None` if all its values are zero.
    ///
    /// # Errors
    ///
    /// If the column is damaged, sets the segment aside and fails with [`SegmentError::SetAside`]. Fails with
    /// [`SegmentError::Io`] if the disk does.
    pub fn read_column(
        &self,
        segment: &RecordSegment,
        series_number: u32,
    ) -> Result<Option<Column>, SegmentError> {
        segment
            .read_column(series_number)
            .or_else(|damage| match damage {
                Damage::Read(error) => Err(SegmentError::Io(error)),
                damage => {
                    self.set_aside_segment(segment.tier(), segment.start(), &damage)?;
                    Err(SegmentError::SetAside)
                }
            })
    }

    /// Moves a damaged file that is not a segment to `damaged`, in place of an earlier one, and logs that.
    ///
    /// # Errors
    ///
    /// Returns the damage if the file may still be of use: it cannot be read now, or has the format of another version.
    /// Fails also if the file cannot be moved.
    pub fn set_aside_file(&self, path: &Path, damage: Damage) -> Result<(), Damage> {
        if let Damage::Read(_) | Damage::Format(_) = damage {
            return Err(damage);
        }
        let aside_path = self.aside_path(path);
        fs::rename(path, &aside_path)?;
        let (path, aside) = (path.display(), aside_path.display());
        tracing::error!(%path, %damage, %aside, "a file of the record is put aside, and what it alone knew is not known any more");
        Ok(())
    }

    /// Copies a file to `damaged`, before its damaged end is cut off. Returns the path of the copy, which replaces an
    /// earlier one.
    pub fn copy_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let aside_path = self.aside_path(path);
        fs::copy(path, &aside_path)?;
        Ok(aside_path)
    }

    /// The path to which a file is set aside: `damaged/1m-1728950400` for `1m/1728950400`.
    fn aside_path(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix(&self.0).unwrap_or(path);
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        self.0.join(DAMAGED_FOLDER).join(parts.join("-"))
    }

    /// Sums the bytes of segments, journals, notes and files that were set aside. The names of series and the cursors
    /// of `push` are not counted.
    pub fn total_bytes(&self) -> io::Result<u64> {
        let mut total_bytes = self.note_bytes()?;
        let tiers = Tier::ALL.map(Tier::name).into_iter();
        for name in tiers.chain([JOURNAL_FOLDER, DAMAGED_FOLDER]) {
            total_bytes += list_files(&self.0.join(name))?.total_bytes;
        }
        Ok(total_bytes)
    }

    /// Deletes segments that are too old at the second `now`. Then deletes files until segments, journals and files
    /// that were set aside take at most `max_bytes`.
    ///
    /// Files that were set aside are deleted first, then segments, the oldest of the finest tier first. Journals stay,
    /// and so do segments that are not rolled up yet, even if that takes more than `max_bytes`.
    pub fn trim_segments(
        &self,
        now: u64,
        retention_seconds: impl Fn(Tier) -> u64,
        max_bytes: u64,
    ) -> io::Result<()> {
        let journals = list_files(&self.0.join(JOURNAL_FOLDER))?;
        let damaged = list_files(&self.0.join(DAMAGED_FOLDER))?;
        let mut remaining_bytes = journals.total_bytes + damaged.total_bytes;
        let mut deletable_files = damaged.files;
        for tier in Tier::ALL {
            let rolled_up_until = match tier.coarser() {
                Some(coarser) => self.tier_end(coarser)?.unwrap_or(0),
                None => now,
            };
            for start in self.segment_starts(tier)? {
                let path = self.segment_path(tier, start);
                let end = start + tier.file_seconds();
                if end.saturating_add(retention_seconds(tier)) <= now {
                    ignore_missing(fs::remove_file(&path))?;
                    continue;
                }
                let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                remaining_bytes += bytes;
                if end <= rolled_up_until.min(now) {
                    deletable_files.push((path, bytes));
                }
            }
        }
        for (path, bytes) in deletable_files {
            if remaining_bytes <= max_bytes {
                break;
            }
            ignore_missing(fs::remove_file(&path))?;
            remaining_bytes -= bytes;
        }
        Ok(())
    }

    /// Moves a damaged segment to `damaged`, and logs that. An earlier file of that name is replaced.
    fn set_aside_segment(&self, tier: Tier, start: u64, damage: &Damage) -> io::Result<()> {
        let path = self.segment_path(tier, start);
        let aside_path = self.aside_path(&path);
        // Another query may have set it aside already.
        ignore_missing(fs::rename(&path, &aside_path))?;
        let (path, aside) = (path.display(), aside_path.display());
        tracing::error!(%path, %damage, %aside, "a file of the record is put aside; coarser steps may still know what it said");
        Ok(())
    }

    /// Returns the start of the first bucket of a tier that has recorded seconds; `None` if none has.
    pub fn oldest_recorded_second(&self, tier: Tier) -> io::Result<Option<u64>> {
        for start in self.segment_starts(tier)? {
            if let Some(segment) = self.open_segment(tier, start)?
                && let Some(bucket) = segment
                    .covered_seconds()
                    .iter()
                    .position(|seconds| *seconds > 0)
            {
                return Ok(Some(start + bucket as u64 * tier.step_seconds()));
            }
        }
        Ok(None)
    }

    /// Returns the second after the last bucket of a tier; `None` if it has no segment.
    pub fn tier_end(&self, tier: Tier) -> io::Result<Option<u64>> {
        for start in self.segment_starts(tier)?.into_iter().rev() {
            if let Some(segment) = self.open_segment(tier, start)? {
                return Ok(Some(segment.end()));
            }
        }
        Ok(None)
    }
}

/// The files of a folder.
struct FileList {
    /// The path of each file and its length in bytes, the one that was changed longest ago first.
    files: Vec<(PathBuf, u64)>,
    /// The sum of the lengths.
    total_bytes: u64,
}

/// Lists the files of a folder. A file that cannot be examined, as one that is deleted meanwhile, is left out.
fn list_files(folder: &Path) -> io::Result<FileList> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Ok(file) = fs::metadata(&path) {
            files.push((file.modified()?, path, file.len()));
        }
    }
    files.sort();
    let total_bytes = files.iter().map(|(_, _, bytes)| bytes).sum();
    let files = files.into_iter().map(|(_, path, bytes)| (path, bytes));
    Ok(FileList {
        files: files.collect(),
        total_bytes,
    })
}

/// Turns the error that a file does not exist into success.
pub(super) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Calls `read` again whenever it has set a damaged segment aside. Each time there is one segment fewer, so the loop
/// ends.
pub(super) fn retry_without_damaged<T>(
    mut read: impl FnMut() -> Result<T, SegmentError>,
) -> io::Result<T> {
    loop {
        match read() {
            Ok(result) => return Ok(result),
            Err(SegmentError::Io(error)) => return Err(error),
            Err(SegmentError::SetAside) => (),
        }
    }
}

/// Why segments cannot be read or written.
#[derive(Debug)]
pub enum SegmentError {
    /// The disk failed, or a file has the format of another version.
    Io(io::Error),
    /// A segment is damaged and was set aside. The caller must start again without it.
    SetAside,
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> SegmentError {
        SegmentError::Io(error)
    }
}

/// Lists the first seconds of the spans that files of a folder hold, which are their names. Files with names that are
/// no starts of a span of the tier are ignored.
fn file_starts(folder: &Path, tier: Tier) -> io::Result<BTreeSet<u64>> {
    let mut starts = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let start = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u64>().ok());
        starts
            .extend(start.filter(|start| start % tier.file_seconds() == 0 && *start < MAX_SECOND));
    }
    Ok(starts)
}
