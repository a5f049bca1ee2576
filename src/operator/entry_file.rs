//! [`EntryFile`]: the file that keeps entries over restarts. It is replaced by a file that is complete and on the disk, so a
//! crash leaves the old or the new one. Two processes may use it at once while one takes over from the other:
//! each takes over what the other has written, before it writes and when it polls.
//!
//! The first line is [`HEAD`]. Each other line is the checksum of an entry, a blank, and the entry. A line with another
//! checksum is damage; it is skipped and counted. A sound line that is no entry stays as it is: a newer gateway, which may
//! run again later, has entries of other kinds.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use super::entry::{OperatorEntry, SlotKey};
use super::entry_map::EntryMap;

/// The first line of the file, with the version of its format.
const HEAD: &str = "tollgate operator entries 1";

/// Most bytes of the file that are read. Accounts that gateways have filled have at most some 200 MiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Most lines of a newer gateway that are kept.
const MAX_UNKNOWN_LINES: usize = EntryMap::MAX_ENTRIES;

/// The file of entries at a path.
#[derive(Debug)]
pub struct EntryFile {
    path: PathBuf,
    /// The state of the file when it was last read or written; `None` before, and while there is none.
    seen: Option<FileStamp>,
    /// The sound lines that are no entries to this gateway, with their checksums, as of the last time the file was read.
    unknown_lines: Vec<String>,
}

/// What differs between two states of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    changed_at: (i64, i64),
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct FileContent {
    /// The entries, in no certain order.
    pub entries: Vec<OperatorEntry>,
    /// The number of lines that could not be read.
    pub damaged_lines: usize,
}

impl EntryFile {
    /// The file at this path, which need not exist. Its folder is created if it is missing.
    ///
    /// # Errors
    ///
    /// The folder cannot be created.
    pub fn new(path: &Path) -> io::Result<EntryFile> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(EntryFile {
            path: path.to_owned(),
            seen: None,
            unknown_lines: Vec::new(),
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds, if it has changed since it was last read or written; `None` if it has not, or if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it is no file of entries.
    pub fn read_if_changed(&mut self) -> io::Result<Option<FileContent>> {
        let stamp = FileStamp::of(&self.path)?;
        if stamp == self.seen || stamp.is_none() {
            return Ok(None);
        }
        let content = self.read()?;
        self.seen = stamp;
        Ok(Some(content))
    }

    /// Writes all entries to the disk, and takes over those that another process has written meanwhile. What has changed by
    /// them is added to `changed`, also if writing fails.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written; the former one stays.
    pub fn save(
        &mut self,
        entries: &mut EntryMap,
        changed: &mut BTreeSet<SlotKey>,
    ) -> io::Result<()> {
        let lock = self.lock()?;
        if let Some(content) = self.read_if_changed()? {
            for entry in content.entries {
                let slot_key = entry.slot_key();
                if entries.merge(entry) {
                    changed.insert(slot_key);
                }
            }
        }
        let mut text = format!("{HEAD}\n");
        for slot in entries.slots() {
            let line = slot.entry.to_line();
            text += &format!("{:016x} {line}\n", checksum(&line));
        }
        for line in &self.unknown_lines {
            text.push_str(line);
            text.push('\n');
        }
        let new_path = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new_path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new_path, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        self.seen = FileStamp::of(&self.path)?;
        drop(lock);
        Ok(())
    }

    /// Locks the file against other processes until the returned file is dropped.
    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(self.path.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    fn read(&mut self) -> io::Result<FileContent> {
        let mut bytes = Vec::new();
        let file = File::open(&self.path)?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            let message = "it is no file of entries, or one of a newer version";
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        let mut content = FileContent::default();
        self.unknown_lines.clear();
        for line in lines {
            let sound_entry = line.split_once(' ').filter(|(digits, entry)| {
                u64::from_str_radix(digits, 16).is_ok_and(|number| number == checksum(entry))
            });
            let Some((_, entry)) = sound_entry else {
                content.damaged_lines += 1;
                continue;
            };
            match OperatorEntry::parse(entry) {
                Some(entry) if entry.is_possible() => content.entries.push(entry),
                Some(_) => content.damaged_lines += 1,
                None if self.unknown_lines.len() < MAX_UNKNOWN_LINES => {
                    self.unknown_lines.push(line.to_owned());
                }
                None => {}
            }
        }
        Ok(content)
    }
}

impl FileStamp {
    /// The state of the file at a path; `None` if there is none.
    fn of(path: &Path) -> io::Result<Option<FileStamp>> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Opening a pipe would block for ever.
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is no file"));
        }
        Ok(Some(FileStamp {
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed_at: (metadata.mtime(), metadata.mtime_nsec()),
        }))
    }
}

/// The checksum of a line: SipHash-1-3 without a key.
fn checksum(line: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(line.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::entry::EntryKind;

    fn ban(key: &str, changed_at: u64) -> OperatorEntry {
        OperatorEntry {
            kind: EntryKind::Ban,
            key: key.into(),
            hash: None,
            reason: "\"quoted\"\nand é".into(),
            by: "test".into(),
            earlier_bans: 0,
            terms: None,
            since: 0,
            until: 1_000,
            keep_until: 1_000,
            changed_at,
            origin: 1,
            is_revoked: false,
        }
    }

    #[test]
    fn two_processes_share_the_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("new/entries");
        let (mut first, mut second) = (EntryFile::new(&path)?, EntryFile::new(&path)?);
        let (mut first_map, mut second_map) = (EntryMap::default(), EntryMap::default());
        let mut changed = BTreeSet::new();
        assert!(first.read_if_changed()?.is_none());
        first_map.merge(ban("user=a", 1));
        first.save(&mut first_map, &mut changed)?;
        assert!(changed.is_empty());
        second_map.merge(ban("user=b", 2));
        second.save(&mut second_map, &mut changed)?;
        assert_eq!(changed.len(), 1);
        assert_eq!(second_map.slots().count(), 2, "it took over the other's");
        let content = first.read_if_changed()?;
        assert_eq!(content.map(|content| content.entries.len()), Some(2));
        assert!(first.read_if_changed()?.is_none(), "nothing has changed");
        Ok(())
    }

    /// The file does not count as changed any more, so nobody else would publish it.
    #[test]
    fn what_is_read_is_told_although_writing_fails() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("entries");
        let (mut first, mut second) = (EntryFile::new(&path)?, EntryFile::new(&path)?);
        let (mut map, mut changed) = (EntryMap::default(), BTreeSet::new());
        map.merge(ban("user=a", 1));
        first.save(&mut map, &mut BTreeSet::new())?;
        fs::create_dir(path.with_extension("new"))?;
        let saved = second.save(&mut EntryMap::default(), &mut changed);
        assert!(saved.is_err() && changed.len() == 1, "{changed:?}");
        Ok(())
    }

    #[test]
    fn damaged_lines_are_skipped() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("entries");
        let mut file = EntryFile::new(&path)?;
        let mut map = EntryMap::default();
        map.merge(ban("user=alice", 1));
        map.merge(ban("user=bob", 2));
        file.save(&mut map, &mut BTreeSet::new())?;
        let text = fs::read_to_string(&path)?;
        fs::write(&path, text.replace("alice", "alicf") + "half a line")?;
        let content = file.read_if_changed()?.unwrap_or_default();
        assert_eq!(content.damaged_lines, 2);
        let keys: Vec<_> = content.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["user=bob"]);
        fs::write(&path, "version: 1\n")?;
        assert!(file.read_if_changed().is_err());
        Ok(())
    }

    /// An old line has no terms; a newer gateway may have kinds and terms that this one does not know.
    #[test]
    fn lines_of_other_versions_stay() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("entries");
        let old = r#"{"kind":"ban","key":"user=a","reason":"","by":"","since":0,"until":9,"keep_until":9,"changed_at":1,"origin":1}"#;
        let newer_kind = old.replace("ban", "toll");
        let newer_terms = old.replace("\"by\"", "\"terms\":{\"toll\":{}},\"by\"");
        let mut text = format!("{HEAD}\n");
        for line in [&newer_kind, old, &newer_terms] {
            text += &format!("{:016x} {line}\n", checksum(line));
        }
        fs::write(&path, text)?;
        let (mut file, mut map) = (EntryFile::new(&path)?, EntryMap::default());
        let content = file.read_if_changed()?.unwrap_or_default();
        assert_eq!((content.entries.len(), content.damaged_lines), (1, 0));
        map.merge(ban("user=b", 2));
        file.save(&mut map, &mut BTreeSet::new())?;
        let text = fs::read_to_string(&path)?;
        assert!(
            text.contains(&newer_kind) && text.contains(&newer_terms) && text.contains("user=b")
        );
        Ok(())
    }
}
