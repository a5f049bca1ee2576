//! A file that only grows, frame by frame: `mark | seed u64`, then for each frame `length u32 | checksum u32 | content`. The checksum
//! covers the seed and the place too. What is behind the last sound frame was being written when its process died.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use super::segment::Damage;

const HEAD: usize = 24;
/// Most bytes of a frame's content.
const MOST: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Frames {
    path: PathBuf,
    head: Vec<u8>,
    seed: u64,
    /// Bytes that are sound.
    length: u64,
    /// Open for writing, at the end of what is sound; not before the first frame, for who only reads must need no room.
    file: Option<File>,
    /// Whether something was added that may not be on the disk.
    unsynced: bool,
    /// Bytes behind what is sound that were there when it was opened.
    pub(super) lost: u64,
    /// Whether those are more than a frame that was being written.
    pub(super) damaged: bool,
}

fn checksum(seed: u64, place: u64, content: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(&seed.to_le_bytes());
    hasher.write(&place.to_le_bytes());
    hasher.write(content);
    hasher.finish() as u32
}

impl Frames {
    /// Reads a file, if there is one, and gives its frames to `read` in order, for as long as that finds sense in them.
    pub(super) fn open(
        path: &Path,
        mark: [u8; 16],
        seed: u64,
        mut read: impl FnMut(&[u8]) -> Option<()>,
    ) -> Result<Frames, Damage> {
        let mut bytes = Vec::new();
        match fs::metadata(path) {
            // A pipe in its place would be waited for without end.
            Ok(found) if !found.is_file() => return Err(Damage::Foreign),
            Ok(_) => {
                File::open(path)?.read_to_end(&mut bytes)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let mut head = mark.to_vec();
        head.extend(seed.to_le_bytes());
        let known = bytes.len().min(HEAD);
        if bytes[..known] != head[..known] {
            return Err(Damage::Foreign);
        }
        let mut length = if known < HEAD { 0 } else { HEAD };
        while length > 0
            && let Some(content) = next(seed, length, &bytes)
            && read(content).is_some()
        {
            length += 8 + content.len();
        }
        Ok(Frames {
            path: path.to_owned(),
            head,
            seed,
            length: length as u64,
            file: None,
            // Who wrote it may have been killed before.
            unsynced: length > 0,
            lost: (bytes.len() - length) as u64,
            damaged: length > 0 && !unfinished(&bytes[length..]),
        })
    }

    /// Adds a frame. When it returns, the system has it, and the process may die.
    pub(super) fn add(&mut self, content: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin()?,
        };
        let mut frame = Vec::with_capacity(8 + content.len());
        frame.extend((content.len() as u32).to_le_bytes());
        frame.extend(checksum(self.seed, self.length, content).to_le_bytes());
        frame.extend(content);
        // After half a frame, what is sound is found again.
        file.write_all(&frame)?;
        self.length += frame.len() as u64;
        self.file = Some(file);
        self.unsynced = true;
        Ok(())
    }

    /// The file, cut behind what is sound.
    fn begin(&mut self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&self.path)?;
        file.set_len(self.length)?;
        file.seek(SeekFrom::Start(self.length))?;
        if self.length == 0 {
            file.write_all(&self.head)?;
            self.length = HEAD as u64;
        }
        Ok(file)
    }

    /// Bytes of it that are sound.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Has on the disk what was added: now the machine may die too.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            match &self.file {
                Some(file) => file.sync_data()?,
                // It is closed after half a frame; those before it are there.
                None => File::open(&self.path)?.sync_data()?,
            }
            self.unsynced = false;
        }
        Ok(())
    }
}

/// Whether this is nothing, or a frame that was not whole when its process or its machine died.
fn unfinished(rest: &[u8]) -> bool {
    let length = rest.first_chunk().map(|length| u32::from_le_bytes(*length));
    let whole = length.map(|length| 8 + length as usize);
    whole.is_none_or(|whole| rest.len() < whole && whole <= 8 + MOST)
        || rest.iter().all(|byte| *byte == 0)
}

/// The next frame's content, if it is whole.
fn next(seed: u64, place: usize, bytes: &[u8]) -> Option<&[u8]> {
    let frame = bytes.get(place..)?;
    let length = u32::from_le_bytes(*frame.first_chunk()?) as usize;
    let sum = u32::from_le_bytes(*frame.get(4..)?.first_chunk()?);
    if length > MOST {
        return None;
    }
    let content = frame.get(8..8 + length)?;
    (checksum(seed, place as u64, content) == sum).then_some(content)
}
