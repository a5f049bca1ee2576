//! Where files come from: the disk, or a map in tests and fuzzing. Only plain files are read, and never more bytes
//! than the caller allows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Most policies of one folder.
pub const MAX_POLICIES: usize = 20_000;

/// Something that files are read from.
pub trait Files {
    /// The whole file, of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// Why it cannot be had, in words that follow "cannot read FILE:".
    fn read(&self, path: &Path, most: usize) -> Result<Vec<u8>, String>;

    /// A variable of the environment.
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    /// The names of the files of a folder, sorted; also those of policies that will turn out to be
    /// unreadable, so that none is left out in silence.
    ///
    /// # Errors
    ///
    /// Why it cannot be had, in words that follow "cannot read the folder FOLDER:".
    fn list(&self, folder: &Path) -> Result<Vec<String>, String>;
}

/// The machine's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path, most: usize) -> Result<Vec<u8>, String> {
        // Asked before it is opened: opening a pipe would wait for its other end.
        let kind = fs::metadata(path).map_err(|error| match fs::symlink_metadata(path) {
            Ok(kind) if kind.is_symlink() && error.kind() != ErrorKind::PermissionDenied => {
                "it is a link that leads to no file; point it at one, or remove it".into()
            }
            _ => reason(&error),
        })?;
        if kind.is_dir() {
            return Err("it is a folder; put a file in its place, or rename it".into());
        }
        if !kind.is_file() {
            return Err("it is not a plain file".into());
        }
        let file = File::open(path).map_err(|error| reason(&error))?;
        let mut bytes = Vec::new();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| reason(&error))?;
        fits(bytes, most)
    }

    fn variable(&self, name: &str) -> Option<String> {
        // Asking for such a name would panic.
        let sound = !name.is_empty() && !name.contains(['=', '\0']);
        sound.then(|| std::env::var(name).ok()).flatten()
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let (mut names, mut wrong) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(|error| reason(&error))? {
            let entry = entry.map_err(|error| reason(&error))?;
            let name = entry.file_name();
            let (shown, whole) = (name.to_string_lossy(), name.to_str().is_some());
            let end = Path::new(&*shown).extension().and_then(|end| end.to_str());
            // Follows links: the files of a Kubernetes ConfigMap are links into `..data`.
            let file = || fs::metadata(entry.path()).is_ok_and(|kind| !kind.is_dir());
            match end {
                _ if shown.starts_with('.') => {}
                Some("yaml") if whole => names.push(shown.into_owned()),
                Some(end) if ["yaml", "yml"].iter().any(|e| end.eq_ignore_ascii_case(e)) => {
                    if !whole {
                        wrong.push(format!("the name of `{shown}` is not UTF-8; rename it"));
                    } else if end == "yml" && file() {
                        names.push(shown.into_owned());
                    } else if end == "yml" {
                        wrong.push(format!("`{shown}` is no file; replace or remove it"));
                    } else {
                        wrong.push(format!("`{shown}` does not end in `.yaml`; rename it"));
                    }
                }
                _ if whole && file() => names.push(shown.into_owned()),
                _ => {}
            }
            if names.len() + wrong.len() > 2 * MAX_POLICIES {
                return Err("it has too many files".into());
            }
        }
        names.sort_unstable();
        wrong.sort_unstable();
        if wrong.is_empty() {
            Ok(names)
        } else {
            Err(wrong.join(", "))
        }
    }
}

/// The operating system's reason without its number.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "it does not exist".into(),
        ErrorKind::PermissionDenied => {
            "permission denied; let the user that runs the gateway read it".into()
        }
        _ => error.to_string(),
    }
}

fn fits(bytes: Vec<u8>, most: usize) -> Result<Vec<u8>, String> {
    if bytes.len() > most {
        return Err(format!("it is larger than {} KiB", most / 1024));
    }
    Ok(bytes)
}

/// Hashes everything that is read through it, and remembers from which folders.
pub struct RecordingFiles<'f> {
    files: &'f dyn Files,
    hash: RefCell<DefaultHasher>,
    folders: RefCell<BTreeSet<PathBuf>>,
}

impl<'f> RecordingFiles<'f> {
    /// Records what is read from `files`.
    pub fn new(files: &'f dyn Files) -> RecordingFiles<'f> {
        RecordingFiles {
            files,
            hash: RefCell::default(),
            folders: RefCell::default(),
        }
    }

    /// The hash and the folders of all that was read so far.
    pub fn traces(&self) -> (u64, BTreeSet<PathBuf>) {
        (self.hash.borrow().finish(), self.folders.borrow().clone())
    }

    fn note(&self, folder: &Path, what: impl Hash) {
        what.hash(&mut *self.hash.borrow_mut());
        // The empty path is the current folder.
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        if !self.folders.borrow().contains(folder) {
            self.folders.borrow_mut().insert(folder.to_owned());
        }
    }
}

impl Files for RecordingFiles<'_> {
    fn read(&self, path: &Path, most: usize) -> Result<Vec<u8>, String> {
        let read = self.files.read(path, most);
        self.note(path.parent().unwrap_or(Path::new("")), (path, &read));
        read
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.files.variable(name)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let names = self.files.list(folder);
        self.note(folder, (folder, &names));
        names
    }
}

/// Files that exist only in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub BTreeMap<PathBuf, Vec<u8>>);

impl MemoryFiles {
    /// Files by path and text.
    pub fn new<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> MemoryFiles {
        let files = files.into_iter();
        MemoryFiles(
            files
                .map(|(path, text)| (path.into(), text.as_bytes().to_vec()))
                .collect(),
        )
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &Path, most: usize) -> Result<Vec<u8>, String> {
        fits(self.0.get(path).cloned().ok_or("it does not exist")?, most)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let inside = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str())?;
            (path.parent() == Some(folder) && !name.starts_with('.')).then(|| name.to_owned())
        };
        let names: Vec<String> = self.0.keys().filter_map(inside).collect();
        if names.is_empty() {
            Err("it does not exist".into())
        } else {
            Ok(names)
        }
    }
}
