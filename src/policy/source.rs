//! The sources of configuration files: the disk, or memory in tests and fuzzing. They read plain files only, and never
//! return more bytes than the caller allows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
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

    /// Notes how many entries of a list were left out because their time has come. By default it does nothing.
    fn record_ended_entries(&self, _count: usize) {}

    /// Lists a folder, but not what is in its sub-folders. The files include policies that cannot be read, so that none
    /// is ignored silently.
    ///
    /// # Errors
    ///
    /// The reason, in words that follow "cannot read the folder FOLDER:". An entry that looks like a policy or a folder
    /// of policies, but cannot be read as one, is a reason too.
    fn list(&self, folder: &Path) -> Result<FolderListing, String>;
}

/// The entries of a folder, without those whose name begins with a dot, such as `..data` of a Kubernetes ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FolderListing {
    /// The names of the files, sorted.
    pub files: Vec<String>,
    /// The names of the sub-folders, sorted.
    pub folders: Vec<String>,
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

    fn list(&self, folder: &Path) -> Result<FolderListing, String> {
        let (mut listing, mut mistakes) = (FolderListing::default(), Vec::new());
        for entry in fs::read_dir(folder).map_err(|error| describe_io_error(&error))? {
            let entry = entry.map_err(|error| describe_io_error(&error))?;
            match classify_entry(folder, &entry) {
                FolderEntry::File(name) => listing.files.push(name),
                FolderEntry::Folder(name) => listing.folders.push(name),
                FolderEntry::Mistake(mistake) => mistakes.push(mistake),
                FolderEntry::Ignored => {}
            }
            // Other files may lie beside the policies. This bounds the memory of the listing; the reader of the folder
            // bounds the number of policies exactly.
            let entries = listing.files.len() + listing.folders.len() + mistakes.len();
            if entries > 2 * MAX_POLICIES {
                return Err("it has too many files".into());
            }
        }
        listing.files.sort_unstable();
        listing.folders.sort_unstable();
        mistakes.sort_unstable();
        if mistakes.is_empty() {
            Ok(listing)
        } else {
            Err(mistakes.join(", "))
        }
    }
}

/// How a folder of policies lists one of its entries.
enum FolderEntry {
    /// A file of this name.
    File(String),
    /// A folder of this name.
    Folder(String),
    /// The entry would be ignored although it looks like a policy or a folder of policies; the text says what to do.
    Mistake(String),
    /// A hidden entry, one that was removed meanwhile, or a file that is no policy and whose name is not UTF-8.
    Ignored,
}

/// Decides how an entry of `folder` is listed, by its name and, if needed, by its kind.
fn classify_entry(folder: &Path, entry: &DirEntry) -> FolderEntry {
    let name = entry.file_name();
    let (shown, is_utf8) = (name.to_string_lossy(), name.to_str().is_some());
    let extension = Path::new(&*shown).extension();
    // Metadata follows links: the files of a Kubernetes ConfigMap are links into `..data`.
    let metadata = || fs::metadata(entry.path());
    let is_file = || metadata().is_ok_and(|metadata| !metadata.is_dir());
    let is_folder = || metadata().is_ok_and(|metadata| metadata.is_dir());
    let is_unreachable = || match metadata() {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            entry.file_type().is_ok_and(|kind| kind.is_symlink())
        }
        Err(_) => true,
    };
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
        Some("yaml") if is_utf8 => FolderEntry::File(shown.into_owned()),
        Some(extension) if is_yaml(extension) => {
            if !is_utf8 {
                FolderEntry::Mistake(format!("the name of `{shown}` is not UTF-8; rename it"))
            } else if extension == "yml" && is_file() {
                FolderEntry::File(shown.into_owned())
            } else if extension == "yml" {
                FolderEntry::Mistake(format!("`{shown}` is no file; replace or remove it"))
            } else {
                FolderEntry::Mistake(format!("`{shown}` does not end in `.yaml`; rename it"))
            }
        }
        _ if is_utf8 && is_file() => FolderEntry::File(shown.into_owned()),
        // It may be a folder of policies, whose limits would be gone.
        _ if is_unreachable() => FolderEntry::Mistake(format!(
            "`{shown}` is a link that leads nowhere, or cannot be read; mend or remove it"
        )),
        _ if !is_folder() => FolderEntry::Ignored,
        _ if !is_utf8 => {
            FolderEntry::Mistake(format!("the name of `{shown}` is not UTF-8; rename it"))
        }
        _ if leads_upward(folder, entry) => FolderEntry::Mistake(format!(
            "`{shown}` is a link to a folder that it is in; remove it"
        )),
        _ => FolderEntry::Folder(shown.into_owned()),
    }
}

/// Whether an entry is a link to `folder`, which it is in, or to a folder above, so that reading it would not end.
fn leads_upward(folder: &Path, entry: &DirEntry) -> bool {
    let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
    is_link
        && fs::canonicalize(entry.path())
            .and_then(|target| Ok(fs::canonicalize(folder)?.starts_with(target)))
            .unwrap_or(false)
}

/// The reason of an I/O error. The two common ones are in plainer words than those of the system.
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

    fn record_ended_entries(&self, count: usize) {
        count.hash(&mut *self.hasher.borrow_mut());
    }

    fn list(&self, folder: &Path) -> Result<FolderListing, String> {
        let listing = self.files.list(folder);
        self.record_result(folder, (folder, &listing));
        listing
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

    fn list(&self, folder: &Path) -> Result<FolderListing, String> {
        let mut listing = FolderListing::default();
        for path in self.0.keys() {
            let Ok(below) = path.strip_prefix(folder) else {
                continue;
            };
            let mut names = below.iter().map(OsStr::to_str);
            match (names.next().flatten(), names.next()) {
                (Some(name), _) if name.starts_with('.') => {}
                (Some(name), None) => listing.files.push(name.to_owned()),
                (Some(name), Some(_)) => listing.folders.push(name.to_owned()),
                (None, _) => {}
            }
        }
        // The paths are sorted, so equal names are neighbours.
        listing.folders.dedup();
        if listing == FolderListing::default() {
            Err("it does not exist".into())
        } else {
            Ok(listing)
        }
    }
}
