//! The file of the access log, and its rotation. The log's thread writes it.
//!
//! Other programs may move the file away, and the gateway itself may rotate it. So each batch begins with a check
//! whether the path still leads to the open file. A line is never split between two files. [`check_folder_writable`]
//! serves other settings too.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::policy::settings::LogRotation;

/// The open file of the log. Lines are only appended to it.
pub struct LogFile {
    path: PathBuf,
    /// When to rotate the file; `None` if the gateway never does.
    rotation: Option<LogRotation>,
    file: File,
    /// The identity of `file`; `None` for pipes and devices, which are never reopened.
    open_file_id: Option<FileId>,
    /// Whether the last attempt to reopen or rotate has failed. Its error has been logged, and is not logged again.
    has_logged_failure: bool,
}

/// What tells a plain file apart from all others of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl LogFile {
    /// Opens the file, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or it is to be rotated and its folder cannot be written.
    pub fn open(path: &Path, rotation: Option<LogRotation>) -> io::Result<LogFile> {
        if rotation.is_some() {
            let folder = path.parent().unwrap_or(Path::new(""));
            check_folder_writable(folder).map_err(|error| {
                let message = format!("its folder `{}`, for `rotate`: {error}", folder.display());
                io::Error::new(error.kind(), message)
            })?;
        }
        let file = open_for_append(path)?;
        Ok(LogFile {
            path: path.to_owned(),
            rotation,
            open_file_id: file_id(&file.metadata()?),
            file,
            has_logged_failure: false,
        })
    }

    /// Prepares the file for a batch of `batch_bytes`. Reopens the file if its path leads elsewhere by now, so that nothing
    /// is written into a file that was renamed and is being compressed. Rotates the file if it would become too long.
    ///
    /// A failure is logged once, and lines still go to the old file. Pipes and devices are left as they are.
    pub fn reopen_or_rotate(&mut self, batch_bytes: u64) {
        if self.open_file_id.is_none() {
            return;
        }
        let metadata_at_path = self.path.metadata().ok();
        let open_file = metadata_at_path.filter(|metadata| file_id(metadata) == self.open_file_id);
        let result = match (open_file, self.rotation) {
            (None, _) => self.reopen(),
            (Some(file), Some(rotation))
                if file.len() > 0 && file.len() + batch_bytes > rotation.max_bytes =>
            {
                self.rotate(rotation)
            }
            (Some(_), _) => return,
        };
        match result {
            Ok(()) => self.has_logged_failure = false,
            Err(error) if !self.has_logged_failure => {
                self.has_logged_failure = true;
                tracing::error!(%error, "the access log cannot be opened anew; the file before is written on");
            }
            Err(_) => {}
        }
    }

    /// Opens the file at the path, and creates it if it is missing.
    fn reopen(&mut self) -> io::Result<()> {
        let file = open_for_append(&self.path)?;
        self.open_file_id = file_id(&file.metadata()?);
        self.file = file;
        tracing::info!(file = %self.path.display(), "the access log is opened anew");
        Ok(())
    }

    /// Renames the file and opens a new one. During a hand-over a second process may write to the same file. The process
    /// that gets the file's lock first renames it, and the other process only reopens.
    fn rotate(&mut self, rotation: LogRotation) -> io::Result<()> {
        self.file.lock()?;
        let result = self.rename_files(rotation).and_then(|()| self.reopen());
        if result.is_err() {
            self.file.unlock()?;
        }
        // After success, the lock ended when the old file was closed.
        result
    }

    /// Renames the file to `.1`, `.1` to `.2` and so on, up to the first number that is free. If none is free, the oldest
    /// file is replaced. Does nothing if another process has renamed the file already.
    fn rename_files(&self, rotation: LogRotation) -> io::Result<()> {
        let id_at_path = match self.path.metadata() {
            Ok(metadata) => file_id(&metadata),
            // Another program has moved the file, or the other process has renamed it and not reopened it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error_with_path(&self.path, &error)),
        };
        if id_at_path != self.open_file_id {
            return Ok(());
        }
        let free_number =
            (1..rotation.kept_files).find(|number| !self.rotated_path(*number).exists());
        for number in (1..free_number.unwrap_or(rotation.kept_files)).rev() {
            rename_if_exists(&self.rotated_path(number), &self.rotated_path(number + 1))?;
        }
        rename_if_exists(&self.path, &self.rotated_path(1))
    }

    /// The path of the file that has been rotated `number` times.
    fn rotated_path(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

/// Checks that files can be created in a folder: creates a trial folder there and removes it. An empty path is the
/// current folder.
///
/// # Errors
///
/// The path is not a folder, or the system refuses to create or remove anything in it.
pub fn check_folder_writable(folder: &Path) -> io::Result<()> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    if !folder.metadata()?.is_dir() {
        return Err(io::Error::new(ErrorKind::NotADirectory, "it is no folder"));
    }
    // Permissions do not tell everything: some file systems are read-only for everybody.
    let trial_folder = folder.join(format!(".tollgate-check-{}", std::process::id()));
    // Processes in different containers may have the same id, and a killed process leaves its trial folder behind.
    match fs::create_dir(&trial_folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match fs::remove_dir(&trial_folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|error| error_with_path(path, &error))
}

fn rename_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error_with_path(from, &error)),
        _ => Ok(()),
    }
}

fn error_with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The identity of a plain file; `None` for pipes and devices.
fn file_id(file: &Metadata) -> Option<FileId> {
    file.is_file().then(|| FileId {
        device: file.dev(),
        inode: file.ino(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    const LINES_PER_WRITER: usize = 500;

    /// Two processes while one gives way to the other, each with its own descriptor and its own lock.
    #[test]
    fn two_processes_may_write_and_rotate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let rotation = LogRotation {
            max_bytes: 100,
            kept_files: 1000,
        };
        thread::scope(|scope| {
            for writer in ["a", "b"] {
                let path = &path;
                scope.spawn(move || {
                    let mut log = LogFile::open(path, Some(rotation)).unwrap();
                    for number in 0..LINES_PER_WRITER {
                        let line = format!("{writer}{number:08}\n");
                        log.reopen_or_rotate(line.len() as u64);
                        log.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        let mut lines = BTreeSet::new();
        let file_count = files.len();
        for file in files {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            // The other writer may add one line of 10 bytes after a writer has checked the length.
            assert!(text.len() <= 110, "{text}");
            for line in text.lines() {
                assert!(lines.insert(line.to_owned()), "{line}");
            }
        }
        assert!(file_count > LINES_PER_WRITER * 2 / 11, "{file_count}");
        assert_eq!(lines.len(), 2 * LINES_PER_WRITER);
    }

    #[test]
    fn a_trial_that_was_left_behind_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let trial_name = format!(".tollgate-check-{}", std::process::id());
        fs::create_dir(folder.path().join(trial_name)).unwrap();
        check_folder_writable(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn as_many_rotated_files_are_kept_as_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let rotation = LogRotation {
            max_bytes: 10,
            kept_files: 2,
        };
        let mut log = LogFile::open(&path, Some(rotation)).unwrap();
        for line in [
            "one one\n",
            "two two\n",
            "longer than a file may be\n",
            "last\n",
        ] {
            log.reopen_or_rotate(line.len() as u64);
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("access.log"), "last\n");
        assert_eq!(read("access.log.1"), "longer than a file may be\n");
        assert_eq!(read("access.log.2"), "two two\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
