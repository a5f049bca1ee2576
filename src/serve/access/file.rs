//! The file of the access log, which other programs may move away: it is looked for at its path before each piece.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is written at its end.
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Which file it is, by device and inode; absent for what is no plain file and is never looked for.
    open: Option<(u64, u64)>,
    /// That it cannot be opened anew was told.
    told: bool,
}

impl LogFile {
    /// Opens the file, makes it where it is missing.
    pub fn open(path: &Path) -> io::Result<LogFile> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(named)?;
        Ok(LogFile {
            path: path.to_owned(),
            open: identity(&file.metadata()?),
            file,
            told: false,
        })
    }

    /// Opens the file anew where its path leads elsewhere by now. So nothing is written into a file that was renamed a
    /// moment ago and that a program compresses. What cannot be opened is told once; the file before goes on.
    pub fn follow(&mut self) {
        if self.open.is_none() {
            return;
        }
        let there = self.path.metadata();
        if there.is_ok_and(|there| identity(&there) == self.open) {
            return;
        }
        match LogFile::open(&self.path) {
            Ok(anew) => {
                tracing::info!(file = %self.path.display(), "the access log is opened anew");
                *self = anew;
            }
            Err(error) if !self.told => {
                self.told = true;
                tracing::error!(%error, "the access log cannot be opened anew; the file before is written on");
            }
            Err(_) => {}
        }
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

fn identity(file: &Metadata) -> Option<(u64, u64)> {
    file.is_file().then(|| (file.dev(), file.ino()))
}
