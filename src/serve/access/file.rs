//! The file of the access log. Others may move it away, and the gateway itself may put it aside: it is looked for at its
//! path before each piece.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::policy::settings::Rotate;

/// A file that is written at its end.
pub struct LogFile {
    path: PathBuf,
    rotate: Option<Rotate>,
    file: File,
    /// Which file it is, by device and inode; absent for what is no plain file and is never looked for.
    open: Option<(u64, u64)>,
    /// That something went wrong with it was told.
    told: bool,
}

impl LogFile {
    /// Opens the file, makes it where it is missing.
    ///
    /// # Errors
    ///
    /// It cannot be written, or nothing can be put beside it though it is to be put aside.
    pub fn open(path: &Path, rotate: Option<Rotate>) -> io::Result<LogFile> {
        if rotate.is_some() {
            let folder = path.parent().unwrap_or(Path::new(""));
            writable(folder).map_err(|error| {
                let message = format!("its folder `{}`, for `rotate`: {error}", folder.display());
                io::Error::new(error.kind(), message)
            })?;
        }
        let file = open(path)?;
        Ok(LogFile {
            path: path.to_owned(),
            rotate,
            open: identity(&file.metadata()?),
            file,
            told: false,
        })
    }

    /// Opens the file anew where its path leads elsewhere by now. So nothing is written into a file that was renamed
    /// and is being compressed. Puts the file aside where it is too long for so many bytes more. A failure is logged
    /// once, and the file before is written on.
    pub fn follow(&mut self, more: u64) {
        if self.open.is_none() {
            return;
        }
        let there = self.path.metadata().ok();
        let same = there.filter(|there| identity(there) == self.open);
        let done = match (same, self.rotate) {
            (None, _) => self.reopen(),
            (Some(file), Some(rotate)) if file.len() > 0 && file.len() + more > rotate.size => {
                self.put_aside(rotate)
            }
            (Some(_), _) => return,
        };
        match done {
            Ok(()) => self.told = false,
            Err(error) if !self.told => {
                self.told = true;
                tracing::error!(%error, "the access log cannot be opened anew; the file before is written on");
            }
            Err(_) => {}
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = open(&self.path)?;
        self.open = identity(&file.metadata()?);
        self.file = file;
        tracing::info!(file = %self.path.display(), "the access log is opened anew");
        Ok(())
    }

    /// Another process that takes over or gives way may write to the file as well. Who holds its lock renames; the
    /// other finds it gone.
    fn put_aside(&mut self, rotate: Rotate) -> io::Result<()> {
        self.file.lock()?;
        let done = self.renamed(rotate).and_then(|()| self.reopen());
        if done.is_err() {
            self.file.unlock()?;
        }
        // Else the lock went with the file before.
        done
    }

    fn renamed(&self, rotate: Rotate) -> io::Result<()> {
        if identity(&self.path.metadata()?) != self.open {
            return Ok(());
        }
        let free = (1..rotate.keep).find(|number| !self.aside(*number).exists());
        for number in (1..free.unwrap_or(rotate.keep)).rev() {
            rename(&self.aside(number), &self.aside(number + 1))?;
        }
        rename(&self.path, &self.aside(1))
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

/// Whether something can be made in a folder. Leaves nothing behind.
///
/// # Errors
///
/// The folder is none, or the system refuses to make anything in it.
pub fn writable(folder: &Path) -> io::Result<()> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    if !folder.metadata()?.is_dir() {
        return Err(io::Error::new(ErrorKind::NotADirectory, "it is no folder"));
    }
    // Rights alone do not say it: some file systems take nothing from anybody.
    let trial = folder.join(format!(".tollgate-check-{}", std::process::id()));
    // Processes of several containers may have the same number, and a killed one leaves its trial behind.
    match fs::create_dir(&trial) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match fs::remove_dir(&trial) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Write for LogFile {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.file.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|error| named(path, &error))
}

/// Renames what is there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(named(from, &error)),
        _ => Ok(()),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn identity(file: &Metadata) -> Option<(u64, u64)> {
    file.is_file().then(|| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    const LINES: usize = 500;

    /// Two processes while one gives way to the other, each with its own descriptor and its own lock.
    #[test]
    fn two_may_write_and_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let rotate = Rotate {
            size: 100,
            keep: 1000,
        };
        thread::scope(|scope| {
            for writer in ["a", "b"] {
                let path = &path;
                scope.spawn(move || {
                    let mut log = LogFile::open(path, Some(rotate)).unwrap();
                    for number in 0..LINES {
                        let line = format!("{writer}{number:08}\n");
                        log.follow(line.len() as u64);
                        log.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        let mut lines = BTreeSet::new();
        let many = files.len();
        for file in files {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            // One line more, of the other, between a look at the length and a line of its own.
            assert!(text.len() <= 110, "{text}");
            for line in text.lines() {
                assert!(lines.insert(line.to_owned()), "{line}");
            }
        }
        assert!(many > LINES * 2 / 11, "{many}");
        assert_eq!(lines.len(), 2 * LINES);
    }

    #[test]
    fn a_trial_that_was_left_behind_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let trial = format!(".tollgate-check-{}", std::process::id());
        fs::create_dir(folder.path().join(trial)).unwrap();
        writable(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn as_many_are_kept_as_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let rotate = Rotate { size: 10, keep: 2 };
        let mut log = LogFile::open(&path, Some(rotate)).unwrap();
        for line in [
            "one one\n",
            "two two\n",
            "longer than a file may be\n",
            "last\n",
        ] {
            log.follow(line.len() as u64);
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("access.log"), "last\n");
        assert_eq!(read("access.log.1"), "longer than a file may be\n");
        assert_eq!(read("access.log.2"), "two two\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
