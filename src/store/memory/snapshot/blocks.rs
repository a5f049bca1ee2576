//! The outer form of a snapshot: a mark, the format's number, and blocks of at most 64 KiB, each with its length and a
//! checksum. All numbers are little-endian. No content is used before its checksum is verified. The checksum includes the
//! block's number, so that no block can stand in for another.

use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Write};

use siphasher::sip::SipHasher13;

/// The first bytes of a snapshot.
const MARK: [u8; 16] = *b"tollgate counts\n";
/// The format's number, to be changed with any change of the contents.
const FORMAT: u32 = 2;
/// Bytes of a block before its content: length and checksum.
const HEAD: usize = 12;
/// Most bytes of a block's content.
const MOST: usize = 65_536 - HEAD;

/// Why a file is not a complete snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotDamage {
    /// Another kind of file.
    #[error("it is not a snapshot of counts")]
    Foreign,
    /// A snapshot in another version's format.
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(u32),
    /// The checksum of a block is wrong.
    #[error("the block at byte {0} is damaged")]
    Block(u64),
    /// The file ends too early.
    #[error("it ends at byte {0}, too early")]
    Short(u64),
    /// The checksums are right, and the contents make no sense.
    #[error("the contents of the block at byte {0} are invalid: {1}")]
    Content(u64, &'static str),
    /// The file cannot be read.
    #[error("it cannot be read at byte {0}: {1}")]
    Read(u64, io::Error),
}

fn checksum(number: u64, content: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&number.to_le_bytes());
    hasher.write(content);
    hasher.finish()
}

/// Writes bytes in blocks with checksums.
pub(super) struct Sealing<W> {
    out: W,
    content: Vec<u8>,
    number: u64,
}

impl<W: Write> Sealing<W> {
    pub(super) fn new(mut out: W) -> io::Result<Sealing<W>> {
        out.write_all(&MARK)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        Ok(Sealing {
            out,
            content: Vec::with_capacity(MOST),
            number: 0,
        })
    }

    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(MOST - self.content.len()));
            self.content.extend_from_slice(now);
            bytes = later;
            if self.content.len() == MOST {
                self.seal()?;
            }
        }
        Ok(())
    }

    fn seal(&mut self) -> io::Result<()> {
        let length = self.content.len() as u32;
        self.out.write_all(&length.to_le_bytes())?;
        let sum = checksum(self.number, &self.content);
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.write_all(&self.content)?;
        self.content.clear();
        self.number += 1;
        Ok(())
    }

    /// Writes the last block.
    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.content.is_empty() {
            self.seal()?;
        }
        Ok(self.out)
    }
}

/// Any content as a snapshot has it.
pub fn sealed(content: &[u8]) -> Vec<u8> {
    let write = || {
        let mut sealing = Sealing::new(Vec::new())?;
        sealing.put(content)?;
        sealing.finish()
    };
    // Memory takes what it is given.
    write().unwrap_or_default()
}

/// Reads what [`Sealing`] has written.
pub(super) struct Opening<R> {
    from: R,
    content: Vec<u8>,
    /// How much of it is read.
    taken: usize,
    number: u64,
    /// Where in the file the block begins, and where the next one does.
    at: u64,
    next: u64,
}

impl<R: Read> Opening<R> {
    pub(super) fn new(from: R) -> Result<Opening<R>, SnapshotDamage> {
        let mut opening = Opening {
            from,
            content: Vec::new(),
            taken: 0,
            number: 0,
            at: 0,
            next: 0,
        };
        let (mut mark, mut format) = ([0; 16], [0; 4]);
        if opening.fill(&mut mark)? < mark.len() || mark != MARK {
            return Err(SnapshotDamage::Foreign);
        }
        if opening.fill(&mut format)? < format.len() {
            return Err(SnapshotDamage::Short(opening.next));
        }
        match u32::from_le_bytes(format) {
            FORMAT => Ok(opening),
            other => Err(SnapshotDamage::Format(other)),
        }
    }

    /// Fills `bytes` from the file, as far as that goes.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, SnapshotDamage> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.from.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotDamage::Read(self.next + filled as u64, error)),
            }
        }
        self.next += filled as u64;
        Ok(filled)
    }

    /// The next block; false at the end of the file.
    fn block(&mut self) -> Result<bool, SnapshotDamage> {
        self.at = self.next;
        let mut head = [0; HEAD];
        match self.fill(&mut head)? {
            0 => return Ok(false),
            HEAD => {}
            _ => return Err(SnapshotDamage::Short(self.next)),
        }
        let [a, b, c, d, sum @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length == 0 || length > MOST {
            return Err(SnapshotDamage::Block(self.at));
        }
        let mut content = std::mem::take(&mut self.content);
        content.resize(length, 0);
        let filled = self.fill(&mut content)?;
        self.content = content;
        if filled < length {
            return Err(SnapshotDamage::Short(self.next));
        }
        if checksum(self.number, &self.content) != u64::from_le_bytes(sum) {
            return Err(SnapshotDamage::Block(self.at));
        }
        self.number += 1;
        self.taken = 0;
        Ok(true)
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    ///
    /// When fewer bytes are left, or the file is damaged.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotDamage> {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.taken == self.content.len() && !self.block()? {
                return Err(SnapshotDamage::Short(self.next));
            }
            let some = (bytes.len() - filled).min(self.content.len() - self.taken);
            let from = &self.content[self.taken..self.taken + some];
            bytes[filled..filled + some].copy_from_slice(from);
            self.taken += some;
            filled += some;
        }
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotDamage> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, SnapshotDamage> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, SnapshotDamage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, SnapshotDamage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, SnapshotDamage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Whether all is read.
    pub(super) fn ended(&mut self) -> Result<bool, SnapshotDamage> {
        Ok(self.taken == self.content.len() && !self.block()?)
    }

    /// What was read last makes no sense.
    pub(super) fn nonsense(&self, what: &'static str) -> SnapshotDamage {
        SnapshotDamage::Content(self.at, what)
    }
}
