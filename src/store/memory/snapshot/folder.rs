//! The folder of snapshots: two files that are written in turn, so that a complete one is always there; a lock, because only
//! one process may write; and a few damaged files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::blocks::SnapshotDamage;
use super::records::SnapshotReader;
use super::restore::{SavedCounts, look};
use super::settings::Settings;

const NAMES: [&str; 2] = ["counts.a", "counts.b"];
/// The file that is being written.
const UNFINISHED: &str = "counts.new";
const LOCK: &str = "lock";
/// Most damaged files that are kept; a further one replaces the last.
const KEPT: usize = 4;
/// Unsynced bytes before a sync, so that our write-back does not delay other writers for long.
const UNWRITTEN: usize = 4 << 20;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` cannot be used for snapshots: {cause}; it must be a folder that this user may write to, or choose another with `snapshots`", path = path.display())]
pub struct FolderError {
    path: PathBuf,
    cause: io::Error,
}

impl FolderError {
    pub(super) fn new(path: &Path, cause: io::Error) -> FolderError {
        let path = path.to_owned();
        FolderError { path, cause }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct SnapshotFolder(PathBuf);

/// Opens a regular file; opening a pipe would block forever.
fn open(path: &Path) -> io::Result<File> {
    plain(path)?;
    File::open(path)
}

fn plain(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is no file")),
        _ => Ok(()),
    }
}

impl SavedCounts {
    /// The newest snapshot in the folder, which is created if it is missing. Damaged files are put aside and logged.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used.
    pub fn newest(settings: &Settings) -> Result<Option<SavedCounts>, FolderError> {
        SnapshotFolder::new(&settings.folder)?.newest()
    }
}

impl SnapshotFolder {
    /// Opens the folder, and creates it for its owner only.
    ///
    /// # Errors
    ///
    /// When files in it cannot be written.
    pub(super) fn new(path: &Path) -> Result<SnapshotFolder, FolderError> {
        let folder = SnapshotFolder(path.to_owned());
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(path);
        made.and_then(|()| folder.lock_file())
            .map_err(|cause| FolderError::new(path, cause))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The file that the writing process locks.
    pub(super) fn lock_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let path = self.0.join(LOCK);
        plain(&path)?;
        options.open(path)
    }

    /// The newest complete snapshot. Damaged ones are put aside and logged.
    pub(super) fn newest(&self) -> Result<Option<SavedCounts>, FolderError> {
        let mut files = Vec::new();
        for name in NAMES {
            let path = self.0.join(name);
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(cause) => return Err(FolderError::new(&path, cause)),
            };
            match SnapshotReader::new(BufReader::new(&file)) {
                Ok(reading) => files.push((reading.head.number, path, file)),
                Err(damage) => self.put_aside(&path, &damage),
            }
        }
        files.sort_by_key(|(number, ..)| *number);
        while let Some((_, path, mut file)) = files.pop() {
            let rewound = file
                .rewind()
                .map_err(|error| SnapshotDamage::Read(0, error));
            match rewound.and_then(|()| look(BufReader::new(&file))) {
                Ok((head, end)) => {
                    return Ok(Some(SavedCounts {
                        path,
                        file,
                        secret: head.secret,
                        end,
                    }));
                }
                Err(damage) => self.put_aside(&path, &damage),
            }
        }
        Ok(None)
    }

    fn put_aside(&self, path: &Path, damage: &SnapshotDamage) {
        let aside = |number| PathBuf::from(format!("{}.corrupt-{number}", path.display()));
        let free = (1..KEPT).find(|number| !aside(*number).exists());
        let to = aside(free.unwrap_or(KEPT));
        let (path, aside) = (path.display(), to.display());
        match fs::rename(path.to_string(), &to) {
            Ok(()) if matches!(damage, SnapshotDamage::Format(_)) => tracing::error!(
                %path, %damage, %aside,
                "a snapshot of counts is of another version and is put aside; what it alone knew is forgotten. \
                 Run that version again to use it, or delete it"
            ),
            Ok(()) => tracing::error!(
                %path, %damage, %aside,
                "a snapshot of counts cannot be used and is put aside; what it alone knew is forgotten. \
                 Check the disk, then delete it"
            ),
            Err(error) => tracing::error!(
                %path, %damage, %error,
                "a snapshot of counts cannot be used, nor put aside; it will be overwritten"
            ),
        }
    }

    /// The next snapshot's number, and the file that it replaces: one that is missing or unreadable, or the older one.
    fn next(&self) -> (u64, PathBuf) {
        let number = |name: &&str| {
            let file = open(&self.0.join(name)).ok()?;
            let reading = SnapshotReader::new(BufReader::new(file)).ok()?;
            Some(reading.head.number)
        };
        let numbers = NAMES.each_ref().map(number);
        let [a, b] = numbers;
        let older = NAMES[usize::from(b < a)];
        let newest = a.max(b).unwrap_or(0);
        (newest.saturating_add(1), self.0.join(older))
    }

    /// Calls `write` with the next number and a new file. The file takes the place of the older snapshot once it is
    /// on the disk.
    pub(super) fn write<E: From<io::Error>>(
        &self,
        write: impl FnOnce(u64, SteadyFile) -> Result<SteadyFile, E>,
    ) -> Result<(), E> {
        let (number, to) = self.next();
        let unfinished = self.0.join(UNFINISHED);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&unfinished)?;
        let written = write(number, SteadyFile { file, unwritten: 0 })?;
        written.file.sync_all()?;
        fs::rename(&unfinished, to)?;
        File::open(&self.0)?.sync_all()?;
        Ok(())
    }
}

/// A file that is synced little by little.
#[derive(Debug)]
pub(super) struct SteadyFile {
    file: File,
    unwritten: usize,
}

impl Write for SteadyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unwritten += written;
        if self.unwritten >= UNWRITTEN {
            self.flush()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unwritten = 0;
        self.file.sync_data()
    }
}
