//! A file that only grows, frame by frame. Journals, names of series and notes are such files.
//!
//! The file is `mark | seed u64`, then for each frame `length u32 | checksum u32 | content`, in little-endian numbers.
//! The checksum also covers the seed and the frame's offset, so that no frame stands for another. A sound frame is
//! complete, has the right checksum, and follows only sound frames. Bytes after the last sound frame are a frame that
//! was being written when its process died, or damage. They are cut off when the next frame is written, and never
//! before.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use super::segment::Damage;

/// Bytes of the mark, 16, and of the seed, 8.
const HEAD_BYTES: usize = 24;
/// Bytes of a frame before its content: the length and the checksum.
const FRAME_HEAD_BYTES: usize = 8;
/// The most bytes of a frame's content: 1 MiB. A greater length counts as damage when the file is read.
const MAX_CONTENT_BYTES: usize = 1 << 20;

/// A file of frames.
#[derive(Debug)]
pub(super) struct FrameFile {
    path: PathBuf,
    /// The mark and the seed.
    head: Vec<u8>,
    /// Part of every checksum: the first second of the hour or the day that the file is for, or 0.
    seed: u64,
    /// The bytes of the head and of all sound frames; 0 while the head is not complete.
    sound_bytes: u64,
    /// The file, open for writing at `sound_bytes`. It is opened when the first frame is added, so that reading works
    /// on a full disk.
    file: Option<File>,
    /// Whether frames may not be on the disk yet.
    is_unsynced: bool,
    /// The number of bytes after the last sound frame when the file was opened.
    lost_bytes: u64,
    /// Whether the lost bytes are more than one frame that was being written.
    is_damaged: bool,
}

/// Computes the checksum of a frame: the lower half of SipHash-1-3 without a key.
fn checksum(seed: u64, offset: u64, content: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(&seed.to_le_bytes());
    hasher.write(&offset.to_le_bytes());
    hasher.write(content);
    hasher.finish() as u32
}

impl FrameFile {
    /// Reads the whole file and passes the contents of its sound frames to `visit`, in order. A missing file counts as
    /// empty. A frame for which `visit` returns `None` counts as damage, and ends the reading.
    ///
    /// # Errors
    ///
    /// Fails if the file has another mark or seed, is no regular file, or cannot be read. Damage after the head is no
    /// error.
    pub(super) fn open(
        path: &Path,
        mark: [u8; 16],
        seed: u64,
        mut visit: impl FnMut(&[u8]) -> Option<()>,
    ) -> Result<FrameFile, Damage> {
        let mut file_bytes = Vec::new();
        match fs::metadata(path) {
            // Opening a pipe would block for ever.
            Ok(metadata) if !metadata.is_file() => return Err(Damage::Foreign),
            Ok(_) => {
                File::open(path)?.read_to_end(&mut file_bytes)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let mut head = mark.to_vec();
        head.extend(seed.to_le_bytes());
        let compared_bytes = file_bytes.len().min(HEAD_BYTES);
        if file_bytes[..compared_bytes] != head[..compared_bytes] {
            return Err(Damage::Foreign);
        }
        let mut sound_bytes = if compared_bytes < HEAD_BYTES {
            0
        } else {
            HEAD_BYTES
        };
        while sound_bytes > 0
            && let Some(content) = read_frame(seed, sound_bytes, &file_bytes)
            && visit(content).is_some()
        {
            sound_bytes += FRAME_HEAD_BYTES + content.len();
        }
        Ok(FrameFile {
            path: path.to_owned(),
            head,
            seed,
            sound_bytes: sound_bytes as u64,
            file: None,
            // The process that wrote it may have been killed before it could sync.
            is_unsynced: sound_bytes > 0,
            lost_bytes: (file_bytes.len() - sound_bytes) as u64,
            is_damaged: sound_bytes > 0 && !is_unfinished_frame(&file_bytes[sound_bytes..]),
        })
    }

    /// The number of bytes after the last sound frame when the file was opened. They may be an unfinished frame.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The number of lost bytes; `None` if there are none, or only one frame that was being written when its process
    /// died.
    pub(super) fn damaged_bytes(&self) -> Option<u64> {
        self.is_damaged.then_some(self.lost_bytes)
    }

    /// Appends a frame, whose content must have at most [`MAX_CONTENT_BYTES`]. When this succeeds, the frame survives
    /// the end of the process, but not yet a crash of the machine.
    pub(super) fn append(&mut self, content: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open_for_writing()?,
        };
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + content.len());
        frame.extend((content.len() as u32).to_le_bytes());
        frame.extend(checksum(self.seed, self.sound_bytes, content).to_le_bytes());
        frame.extend(content);
        // After an error half a frame may be written. The file stays closed, and is cut when it is opened again.
        file.write_all(&frame)?;
        self.sound_bytes += frame.len() as u64;
        self.file = Some(file);
        self.is_unsynced = true;
        Ok(())
    }

    /// Opens the file or creates it, cuts it after the last sound frame, and writes the head if that is not complete.
    fn open_for_writing(&mut self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&self.path)?;
        file.set_len(self.sound_bytes)?;
        file.seek(SeekFrom::Start(self.sound_bytes))?;
        if self.sound_bytes == 0 {
            file.write_all(&self.head)?;
            self.sound_bytes = HEAD_BYTES as u64;
        }
        Ok(file)
    }

    /// The number of bytes of the head and of all sound frames; 0 while the head is not complete.
    pub(super) fn sound_bytes(&self) -> u64 {
        self.sound_bytes
    }

    /// Waits until the disk has all added frames, so that they survive a crash of the machine.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_unsynced {
            match &self.file {
                Some(file) => file.sync_data()?,
                // The file is closed after a failed write, but the frames before it are to be synced too.
                None => File::open(&self.path)?.sync_data()?,
            }
            self.is_unsynced = false;
        }
        Ok(())
    }
}

/// Whether these bytes after the last sound frame are none, zeros, or a frame whose process or machine died before the
/// frame was complete.
fn is_unfinished_frame(last_bytes: &[u8]) -> bool {
    let content_bytes = last_bytes
        .first_chunk()
        .map(|length| u32::from_le_bytes(*length));
    let frame_bytes = content_bytes.map(|length| FRAME_HEAD_BYTES + length as usize);
    frame_bytes.is_none_or(|frame_bytes| {
        last_bytes.len() < frame_bytes && frame_bytes <= FRAME_HEAD_BYTES + MAX_CONTENT_BYTES
    })
        // A file system may have made the file longer without writing its content.
        || last_bytes.iter().all(|byte| *byte == 0)
}

/// Returns the content of the frame at an offset of the file; `None` if the frame is not complete, is too long, or has
/// a wrong checksum.
fn read_frame(seed: u64, offset: usize, file_bytes: &[u8]) -> Option<&[u8]> {
    let frame = file_bytes.get(offset..)?;
    let length = u32::from_le_bytes(*frame.first_chunk()?) as usize;
    let expected_checksum = u32::from_le_bytes(*frame.get(4..)?.first_chunk()?);
    if length > MAX_CONTENT_BYTES {
        return None;
    }
    let content = frame.get(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + length)?;
    (checksum(seed, offset as u64, content) == expected_checksum).then_some(content)
}
