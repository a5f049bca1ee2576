//! The outer form of a snapshot: a mark, the format's number, and blocks of at most 64 KiB, each with its length and a
//! checksum. All numbers are little-endian. No content is used before its checksum is verified. The checksum includes the
//! block's number, so that no block can replace another.

use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Write};

use siphasher::sip::SipHasher13;

/// The first bytes of a snapshot.
const FILE_MARK: [u8; 16] = *b"tollgate counts\n";
/// The format's number. Any change of the contents changes it.
const FORMAT: u32 = 2;
/// Bytes of a block before its content: a length of 4 bytes and a checksum of 8.
const HEAD_BYTES: usize = 12;
/// Most bytes of a block's content.
const MAX_CONTENT_BYTES: usize = 65_536 - HEAD_BYTES;

/// Why a file is not a complete snapshot. A `u64` is a position in the file, in bytes from its start.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotDamage {
    /// The file is of another kind, or shorter than the mark.
    #[error("it is not a snapshot of counts")]
    Foreign,
    /// The snapshot has the format of another version.
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(u32),
    /// The length or the checksum of a block is wrong.
    #[error("the block at byte {0} is damaged")]
    Block(u64),
    /// The file ends too early.
    #[error("it ends at byte {0}, too early")]
    Short(u64),
    /// The block's checksum is right, but its contents are invalid: what is wrong.
    #[error("the contents of the block at byte {0} are invalid: {1}")]
    Content(u64, &'static str),
    /// The file cannot be read.
    #[error("it cannot be read at byte {0}: {1}")]
    Read(u64, io::Error),
}

/// The checksum of a block: SipHash-1-3, with a key of zeros, of its number and its content.
fn checksum(block_number: u64, content: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&block_number.to_le_bytes());
    hasher.write(content);
    hasher.finish()
}

/// Writes bytes in blocks with checksums.
pub(super) struct BlockWriter<W> {
    out: W,
    /// The content of the next block.
    content: Vec<u8>,
    /// The number of the next block, from 0.
    next_number: u64,
}

impl<W: Write> BlockWriter<W> {
    /// Writes the mark and the format.
    pub(super) fn new(mut out: W) -> io::Result<BlockWriter<W>> {
        out.write_all(&FILE_MARK)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        Ok(BlockWriter {
            out,
            content: Vec::with_capacity(MAX_CONTENT_BYTES),
            next_number: 0,
        })
    }

    /// Adds bytes to the content, and writes the blocks that are full.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let free_bytes = MAX_CONTENT_BYTES - self.content.len();
            let (fitting_bytes, remaining_bytes) = bytes.split_at(bytes.len().min(free_bytes));
            self.content.extend_from_slice(fitting_bytes);
            bytes = remaining_bytes;
            if self.content.len() == MAX_CONTENT_BYTES {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Writes the content as one block, and empties it.
    fn write_block(&mut self) -> io::Result<()> {
        let length = self.content.len() as u32;
        self.out.write_all(&length.to_le_bytes())?;
        let checksum = checksum(self.next_number, &self.content);
        self.out.write_all(&checksum.to_le_bytes())?;
        self.out.write_all(&self.content)?;
        self.content.clear();
        self.next_number += 1;
        Ok(())
    }

    /// Writes the last block, if it has content, and returns the output.
    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.content.is_empty() {
            self.write_block()?;
        }
        Ok(self.out)
    }
}

/// A file with this content, in blocks with right checksums; for tests of the contents.
pub fn encode_blocks(content: &[u8]) -> Vec<u8> {
    let write = || {
        let mut writer = BlockWriter::new(Vec::new())?;
        writer.write_all(content)?;
        writer.finish()
    };
    // Writing to memory does not fail.
    write().unwrap_or_default()
}

/// Reads the blocks that a [`BlockWriter`] has written.
pub(super) struct BlockReader<R> {
    source: R,
    /// The content of the current block, whose checksum is verified.
    content: Vec<u8>,
    /// How many bytes of the content are read.
    read_byte_count: usize,
    /// The number of the next block, from 0.
    next_number: u64,
    /// The byte in the file at which the current block begins.
    block_start: u64,
    /// The byte in the file at which the next block begins.
    next_start: u64,
}

impl<R: Read> BlockReader<R> {
    /// Reads the mark and the format.
    ///
    /// # Errors
    ///
    /// Where the file is not a snapshot of this version, or cannot be read.
    pub(super) fn new(source: R) -> Result<BlockReader<R>, SnapshotDamage> {
        let mut reader = BlockReader {
            source,
            content: Vec::new(),
            read_byte_count: 0,
            next_number: 0,
            block_start: 0,
            next_start: 0,
        };
        let (mut mark, mut format) = ([0; 16], [0; 4]);
        if reader.fill(&mut mark)? < mark.len() || mark != FILE_MARK {
            return Err(SnapshotDamage::Foreign);
        }
        if reader.fill(&mut format)? < format.len() {
            return Err(SnapshotDamage::Short(reader.next_start));
        }
        match u32::from_le_bytes(format) {
            FORMAT => Ok(reader),
            other_format => Err(SnapshotDamage::Format(other_format)),
        }
    }

    /// Fills `bytes` from the file, up to its end. Returns the number of bytes read.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, SnapshotDamage> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read_bytes) => filled += read_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(SnapshotDamage::Read(self.next_start + filled as u64, error));
                }
            }
        }
        self.next_start += filled as u64;
        Ok(filled)
    }

    /// Reads the next block; `false` at the end of the file.
    fn read_block(&mut self) -> Result<bool, SnapshotDamage> {
        self.block_start = self.next_start;
        let mut head = [0; HEAD_BYTES];
        match self.fill(&mut head)? {
            0 => return Ok(false),
            HEAD_BYTES => {}
            _ => return Err(SnapshotDamage::Short(self.next_start)),
        }
        let [byte_0, byte_1, byte_2, byte_3, saved_checksum @ ..] = head;
        let length = u32::from_le_bytes([byte_0, byte_1, byte_2, byte_3]) as usize;
        if length == 0 || length > MAX_CONTENT_BYTES {
            return Err(SnapshotDamage::Block(self.block_start));
        }
        let mut content = std::mem::take(&mut self.content);
        content.resize(length, 0);
        let filled = self.fill(&mut content)?;
        self.content = content;
        if filled < length {
            return Err(SnapshotDamage::Short(self.next_start));
        }
        if checksum(self.next_number, &self.content) != u64::from_le_bytes(saved_checksum) {
            return Err(SnapshotDamage::Block(self.block_start));
        }
        self.next_number += 1;
        self.read_byte_count = 0;
        Ok(true)
    }

    /// Fills `bytes` from the content, and reads further blocks as needed.
    ///
    /// # Errors
    ///
    /// When the file has fewer bytes, is damaged, or cannot be read.
    pub(super) fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotDamage> {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.read_byte_count == self.content.len() && !self.read_block()? {
                return Err(SnapshotDamage::Short(self.next_start));
            }
            let unread = &self.content[self.read_byte_count..];
            let count = (bytes.len() - filled).min(unread.len());
            bytes[filled..filled + count].copy_from_slice(&unread[..count]);
            self.read_byte_count += count;
            filled += count;
        }
        Ok(())
    }

    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotDamage> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_u8(&mut self) -> Result<u8, SnapshotDamage> {
        Ok(self.read_array::<1>()?[0])
    }

    pub(super) fn read_u16(&mut self) -> Result<u16, SnapshotDamage> {
        Ok(u16::from_le_bytes(self.read_array()?))
    }

    pub(super) fn read_u32(&mut self) -> Result<u32, SnapshotDamage> {
        Ok(u32::from_le_bytes(self.read_array()?))
    }

    pub(super) fn read_u64(&mut self) -> Result<u64, SnapshotDamage> {
        Ok(u64::from_le_bytes(self.read_array()?))
    }

    /// Whether all of the file is read. May read the next block to see that.
    pub(super) fn is_at_end(&mut self) -> Result<bool, SnapshotDamage> {
        Ok(self.read_byte_count == self.content.len() && !self.read_block()?)
    }

    /// The error for content of the current block that is invalid. `what` names the content.
    pub(super) fn invalid_content(&self, what: &'static str) -> SnapshotDamage {
        SnapshotDamage::Content(self.block_start, what)
    }
}
