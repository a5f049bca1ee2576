//! The sources of configuration files: the disk, or memory in tests and fuzzing. They read plain files only, and never
//! return more bytes than the caller allows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Maximum number of policies in a folder and its sub-folders, far above what one gateway serves.
pub const MAX_POLICIES: usize = 20_000;

/// A source of files and of environment variables.
pub trait Files {
    /// Reads a whole file of at most `max_bytes` bytes.
    ///
    /// # Errors
    ///
    /// The reason, in words that follow "cannot read FILE:".
    fn read(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String>;

    /// Reads a variable of the environment; `None` if it is not set, or not UTF-8. By default there are none.
    fn environment_variable(&self, _name: &str) -> Option<String> {
        None
    }

    /// Lists the names of the files in a folder, sorted. The list includes policies that cannot be read, so that none
    /// is ignored silently.
    ///
    /// # Errors
    ///
    /// The reason, in words that follow "cannot read the folder FOLDER:".
    fn list(&self, folder: &Path) -> Result<Vec<String>, String>;
}

/// The files and the environment of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
        // The kind is checked before the file is opened, because opening a pipe would wait for its writer.
        let metadata = fs::metadata(path).map_err(|error| match fs::symlink_metadata(path) {
            Ok(link) if link.is_symlink() && error.kind() != ErrorKind::PermissionDenied => {
                "it is a link that leads to no file; point it at one, or remove it".into()
            }
            _ => describe_io_error(&error),
        })?;
        if metadata.is_dir() {
            return Err("it is a folder; put a file in its place, or rename it".into());
        }
        if !metadata.is_file() {
            return Err("it is not a plain file".into());
        }
        let file = File::open(path).map_err(|error| describe_io_error(&error))?;
        let mut bytes = Vec::new();
        // One byte more shows that the file is too large.
        let read_bytes = u64::try_from(max_bytes)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        file.take(read_bytes)
            .read_to_end(&mut bytes)
            .map_err(|error| describe_io_error(&error))?;
        check_size(bytes, max_bytes)
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        // No variable can have any other name.
        let is_valid = !name.is_empty() && !name.contains(['=', '\0']);
        is_valid.then(|| std::env::var(name).ok()).flatten()
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let (mut names, mut mistakes) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(|error| describe_io_error(&error))? {
            let entry = entry.map_err(|error| describe_io_error(&error))?;
            match classify_entry(&entry) {
                FolderEntry::Listed(name) => names.push(name),
                FolderEntry::Mistake(mistake) => mistakes.push(mistake),
                FolderEntry::Ignored => {}
            }
            if names.len() + mistakes.len() > 2 * MAX_POLICIES {
                return Err("it has too many files".into());
            }
        }
        names.sort_unstable();
        mistakes.sort_unstable();
        if mistakes.is_empty() {
            Ok(names)
        } else {
            Err(mistakes.join(", "))
        }
    }
}

/// How a folder of policies lists one of its entries.
enum FolderEntry {
    Listed(String),
    /// The entry looks like a policy that would be ignored; the text says what to do.
    Mistake(String),
    /// A hidden entry, one that was removed meanwhile, or a file that is no policy and whose name is not UTF-8.
    Ignored,
}

fn classify_entry(entry: &DirEntry) -> FolderEntry {
    let name = entry.file_name();
    let (shown, is_utf8) = (name.to_string_lossy(), name.to_str().is_some());
    let extension = Path::new(&*shown).extension();
    // Metadata follows links: the files of a Kubernetes ConfigMap are links into `..data`.
    let is_file = || fs::metadata(entry.path()).is_ok_and(|metadata| !metadata.is_dir());
    let is_yaml = |extension: &str| {
        let extensions = ["yaml", "yml"];
        extensions
            .iter()
            .any(|yaml| extension.eq_ignore_ascii_case(yaml))
    };
    // The first arm that matches decides. A name that ends in `.yaml` is listed whatever the entry is, so that the
    // attempt to read it reports what is wrong. Only other names need the kind of the entry.
    match extension.and_then(|extension| extension.to_str()) {
        _ if shown.starts_with('.') => FolderEntry::Ignored,
        Some("yaml") if is_utf8 => FolderEntry::Listed(shown.into_owned()),
        Some(extension) if is_yaml(extension) => {
            if !is_utf8 {
                FolderEntry::Mistake(format!("the name of `{shown}` is not UTF-8; rename it"))
            } else if extension == "yml" && is_file() {
                FolderEntry::Listed(shown.into_owned())
            } else if extension == "yml" {
                FolderEntry::Mistake(format!("`{shown}` is no file; replace or remove it"))
            } else {
                FolderEntry::Mistake(format!("`{shown}` does not end in `.yaml`; rename it"))
            }
        }
        _ if is_utf8 && is_file() => FolderEntry::Listed(shown.into_owned()),
        _ => FolderEntry::Ignored,
    }
}

/// The reason of an I/O error, with advice and without the number of the operating system.
fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "it does not exist".into(),
        ErrorKind::PermissionDenied => {
            "permission denied; let the user that runs the gateway read it".into()
        }
        _ => error.to_string(),
    }
}

/// The bytes, or the reason why they are too many.
fn check_size(bytes: Vec<u8>, max_bytes: usize) -> Result<Vec<u8>, String> {
    if bytes.len() > max_bytes {
        return Err(format!("it is larger than {} KiB", max_bytes / 1024));
    }
    Ok(bytes)
}

/// Computes a fingerprint of the files and folders that are read through it, and collects the folders. Entries that end
/// change the fingerprint too. Variables of the
/// environment are not part of the fingerprint.
pub struct FingerprintedFiles<'f> {
    files: &'f dyn Files,
    hasher: RefCell<DefaultHasher>,
    folders: RefCell<BTreeSet<PathBuf>>,
}

impl<'f> FingerprintedFiles<'f> {
    /// Reads from `files`, and has recorded nothing yet.
    pub fn new(files: &'f dyn Files) -> FingerprintedFiles<'f> {
        FingerprintedFiles {
            files,
            hasher: RefCell::default(),
            folders: RefCell::default(),
        }
    }

    /// A hash of the paths and results of all files and folders that were read so far, errors included. Another build
    /// of the program may compute another hash of the same files.
    pub fn fingerprint(&self) -> u64 {
        self.hasher.borrow().finish()
    }

    /// The folders that were listed or from which files were read so far, also without success.
    pub fn folders(&self) -> BTreeSet<PathBuf> {
        self.folders.borrow().clone()
    }

    /// Adds a result to the fingerprint, and notes the folder that it came from.
    fn record_result(&self, folder: &Path, result: impl Hash) {
        result.hash(&mut *self.hasher.borrow_mut());
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

impl Files for FingerprintedFiles<'_> {
    fn read(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
        let content = self.files.read(path, max_bytes);
        self.record_result(path.parent().unwrap_or(Path::new("")), (path, &content));
        content
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        self.files.environment_variable(name)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let names = self.files.list(folder);
        self.record_result(folder, (folder, &names));
        names
    }
}

/// Files that exist only in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub BTreeMap<PathBuf, Vec<u8>>);

impl MemoryFiles {
    /// Creates files from pairs of path and text.
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
    fn read(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
        let content = self.0.get(path).cloned().ok_or("it does not exist")?;
        check_size(content, max_bytes)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, String> {
        let name_in_folder = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str())?;
            (path.parent() == Some(folder) && !name.starts_with('.')).then(|| name.to_owned())
        };
        let names: Vec<String> = self.0.keys().filter_map(name_in_folder).collect();
        if names.is_empty() {
            Err("it does not exist".into())
        } else {
            Ok(names)
        }
    }
}
