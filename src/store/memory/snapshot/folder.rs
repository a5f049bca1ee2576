//! [`SnapshotFolder`]: the folder of snapshots. Two files are replaced in turn, each by a new file that is complete. A lock
//! file tells which process may write. A file that is damaged or of another version is put aside: it is renamed, never read
//! again, and kept for its owner to look at. The newest snapshot is returned as [`SavedCounts`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::blocks::SnapshotDamage;
use super::records::SnapshotReader;
use super::saved_counts::{SavedCounts, check_snapshot};
use super::settings::Settings;

/// The files that are written in turn.
const SNAPSHOT_NAMES: [&str; 2] = ["counts.a", "counts.b"];
/// The file that is being written.
const UNFINISHED_NAME: &str = "counts.new";
/// The file that the writing process has locked.
const LOCK_NAME: &str = "lock";
/// Most damaged files that are kept for each name. A further one replaces the file with the highest number.
const MAX_DAMAGED_FILES: usize = 4;
/// A file with this many unsynced bytes is synced, so that the write-back of a snapshot does not delay other writers for
/// long.
const MAX_UNSYNCED_BYTES: usize = 4 << 20;

/// Why a folder cannot be used for snapshots.
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

/// The folder at a path. It existed when it was opened, and its lock file could be written.
#[derive(Debug)]
pub(super) struct SnapshotFolder(PathBuf);

/// Opens a regular file; opening a pipe would block forever.
fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(path)?;
    File::open(path)
}

/// Fails if the path leads to something other than a regular file. Succeeds if it leads to nothing, or cannot be looked up:
/// then opening it fails.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::other("it is no file")),
        _ => Ok(()),
    }
}

impl SavedCounts {
    /// The newest complete snapshot in the folder, which is created if it is missing. `None` if it has no such snapshot.
    /// Damaged files are put aside and logged.
    ///
    /// # Errors
    ///
    /// When the folder cannot be created, its lock file cannot be written, or a snapshot cannot be opened.
    pub fn newest(settings: &Settings) -> Result<Option<SavedCounts>, FolderError> {
        SnapshotFolder::new(&settings.folder)?.newest()
    }
}

impl SnapshotFolder {
    /// Opens the folder. Creates it, for its owner only, if it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be created, or its lock file cannot be written.
    pub(super) fn new(path: &Path) -> Result<SnapshotFolder, FolderError> {
        let folder = SnapshotFolder(path.to_owned());
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(path);
        created
            .and_then(|()| folder.lock_file())
            .map_err(|cause| FolderError::new(path, cause))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the file that the writing process locks, and creates it if it is missing.
    pub(super) fn lock_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let path = self.0.join(LOCK_NAME);
        check_regular(&path)?;
        options.open(path)
    }

    /// The newest complete snapshot; `None` if there is none. Damaged ones are put aside and logged.
    ///
    /// # Errors
    ///
    /// When a snapshot cannot be opened.
    pub(super) fn newest(&self) -> Result<Option<SavedCounts>, FolderError> {
        let mut numbered_files = Vec::new();
        for name in SNAPSHOT_NAMES {
            let path = self.0.join(name);
            let file = match open_regular(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(cause) => return Err(FolderError::new(&path, cause)),
            };
            match SnapshotReader::new(BufReader::new(&file)) {
                Ok(reader) => numbered_files.push((reader.head.number, path, file)),
                Err(damage) => self.put_aside(&path, &damage),
            }
        }
        numbered_files.sort_by_key(|(number, ..)| *number);
        while let Some((_, path, mut file)) = numbered_files.pop() {
            let rewound = file
                .rewind()
                .map_err(|error| SnapshotDamage::Read(0, error));
            match rewound.and_then(|()| check_snapshot(BufReader::new(&file))) {
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

    /// Renames a file that cannot be used, and logs why. If that fails, the file stays and a later snapshot replaces it.
    fn put_aside(&self, path: &Path, damage: &SnapshotDamage) {
        let numbered_path = |number| PathBuf::from(format!("{}.corrupt-{number}", path.display()));
        let free_number = (1..MAX_DAMAGED_FILES).find(|number| !numbered_path(*number).exists());
        let new_path = numbered_path(free_number.unwrap_or(MAX_DAMAGED_FILES));
        let (path, aside) = (path.display(), new_path.display());
        match fs::rename(path.to_string(), &new_path) {
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

    /// The number of the next snapshot, and the file that it replaces: a missing or unreadable file, or else the older one.
    fn next_snapshot(&self) -> (u64, PathBuf) {
        let read_number = |name: &&str| {
            let file = open_regular(&self.0.join(name)).ok()?;
            let reader = SnapshotReader::new(BufReader::new(file)).ok()?;
            Some(reader.head.number)
        };
        let [number_a, number_b] = SNAPSHOT_NAMES.each_ref().map(read_number);
        // `None`, for a missing or unreadable file, is less than any number.
        let replaced_name = SNAPSHOT_NAMES[usize::from(number_b < number_a)];
        let newest_number = number_a.max(number_b).unwrap_or(0);
        (newest_number.saturating_add(1), self.0.join(replaced_name))
    }

    /// Calls `write` with the next number and a new file. The file replaces the older snapshot once it is on the disk.
    ///
    /// # Errors
    ///
    /// When `write` fails, or the file cannot be made, synced or renamed: then both snapshots stay as they are. Also when
    /// the folder cannot be synced: then the new file has replaced the older one, but may be lost if the machine stops.
    pub(super) fn write<E: From<io::Error>>(
        &self,
        write: impl FnOnce(u64, SyncingFile) -> Result<SyncingFile, E>,
    ) -> Result<(), E> {
        let (number, replaced_path) = self.next_snapshot();
        let unfinished_path = self.0.join(UNFINISHED_NAME);
        match fs::remove_file(&unfinished_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&unfinished_path)?;
        let syncing_file = SyncingFile {
            file,
            unsynced_bytes: 0,
        };
        let written_file = write(number, syncing_file)?;
        written_file.file.sync_all()?;
        fs::rename(&unfinished_path, replaced_path)?;
        // The new name is on the disk only when the folder is.
        File::open(&self.0)?.sync_all()?;
        Ok(())
    }
}

/// A file that is synced after each [`MAX_UNSYNCED_BYTES`].
#[derive(Debug)]
pub(super) struct SyncingFile {
    file: File,
    unsynced_bytes: usize,
}

impl Write for SyncingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written_bytes = self.file.write(bytes)?;
        self.unsynced_bytes += written_bytes;
        if self.unsynced_bytes >= MAX_UNSYNCED_BYTES {
            self.flush()?;
        }
        Ok(written_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unsynced_bytes = 0;
        self.file.sync_data()
    }
}
