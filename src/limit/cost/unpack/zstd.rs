//! Decompresses zstd (RFC 8878) that comes in pieces. The decoder reads whole blocks, so pieces are gathered until a
//! block is complete. A block has at most 128 KiB, compressed or not.

use std::io::{self, ErrorKind, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window: RFC 9659.
const MAX_WINDOW: u64 = 8 * 1024 * 1024;

/// The largest block: RFC 8878, section 3.1.1.2.
const MAX_BLOCK: usize = 128 * 1024;

const BLOCK_HEAD: usize = 3;
const CHECKSUM: usize = 4;

/// Decompresses into `out`. Gathers at most one block.
pub struct Zstd<W> {
    pub out: W,
    decoder: FrameDecoder,
    gathered: Vec<u8>,
    part: FramePart,
}

/// The part of the stream that comes next.
#[derive(Clone, Copy)]
enum FramePart {
    Frame,
    Block {
        checksum: bool,
    },
    /// The rest of a skippable frame, in bytes.
    Skipped(u32),
}

/// The result of a step.
enum BlockStep {
    /// This many bytes were read.
    Read(usize),
    /// At least this many bytes are needed.
    Needs(usize),
}

impl<W: Write> Zstd<W> {
    pub fn new(out: W) -> Zstd<W> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Zstd {
            out,
            decoder,
            gathered: Vec::new(),
            part: FramePart::Frame,
        }
    }

    pub fn feed(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            let step = self.step(&gathered);
            self.gathered = gathered;
            match step? {
                BlockStep::Read(length) => {
                    self.gathered.drain(..length);
                }
                BlockStep::Needs(length) => {
                    let missing = length.saturating_sub(self.gathered.len());
                    if missing == 0 || data.is_empty() {
                        return self.keep(data);
                    }
                    let (part, rest) = data.split_at(missing.min(data.len()));
                    self.gathered.extend_from_slice(part);
                    data = rest;
                    if part.len() < missing {
                        return Ok(());
                    }
                }
            }
        }
        while !data.is_empty() {
            match self.step(data)? {
                BlockStep::Read(length) => data = &data[length..],
                BlockStep::Needs(_) => break,
            }
        }
        self.keep(data)
    }

    /// Keeps the rest of a piece, which is less than a block. An error if it is more.
    fn keep(&mut self, data: &[u8]) -> io::Result<()> {
        if self.gathered.len() + data.len() > MAX_BLOCK + BLOCK_HEAD + CHECKSUM {
            return Err(ErrorKind::InvalidData.into());
        }
        self.gathered.extend_from_slice(data);
        Ok(())
    }

    fn step(&mut self, data: &[u8]) -> io::Result<BlockStep> {
        match self.part {
            FramePart::Frame => self.frame(data),
            FramePart::Block { checksum } => self.block(data, checksum),
            FramePart::Skipped(left) => {
                let length = data.len().min(left as usize);
                self.part = match left - length as u32 {
                    0 => FramePart::Frame,
                    left => FramePart::Skipped(left),
                };
                Ok(BlockStep::Read(length))
            }
        }
    }

    fn frame(&mut self, data: &[u8]) -> io::Result<BlockStep> {
        let Some(magic) = data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else {
            return Ok(BlockStep::Needs(4));
        };
        if magic & 0xffff_fff0 == 0x184d_2a50 {
            let length = data[4..]
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes));
            let Some(length) = length else {
                return Ok(BlockStep::Needs(8));
            };
            self.part = match length {
                0 => FramePart::Frame,
                length => FramePart::Skipped(length),
            };
            return Ok(BlockStep::Read(8));
        }
        let Some(descriptor) = data.get(4) else {
            return Ok(BlockStep::Needs(5));
        };
        let single = descriptor >> 5 & 1 == 1;
        let window = usize::from(!single);
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = [usize::from(single), 2, 4, 8][usize::from(descriptor >> 6)];
        let length = 5 + window + dictionary + size;
        if data.len() < length {
            return Ok(BlockStep::Needs(length));
        }
        let begun = self.decoder.reset(&data[..length]);
        begun.map_err(|_| ErrorKind::InvalidData)?;
        let checksum = descriptor >> 2 & 1 == 1;
        self.part = FramePart::Block { checksum };
        Ok(BlockStep::Read(length))
    }

    fn block(&mut self, data: &[u8], checksum: bool) -> io::Result<BlockStep> {
        let Some([a, b, c]) = data.first_chunk() else {
            return Ok(BlockStep::Needs(BLOCK_HEAD));
        };
        let head = u32::from_le_bytes([*a, *b, *c, 0]);
        let (last, kind, size) = (head & 1 == 1, head >> 1 & 3, (head >> 3) as usize);
        if size > MAX_BLOCK {
            return Err(ErrorKind::InvalidData.into());
        }
        // A block of one repeated byte has that byte once.
        let content = if kind == 1 { 1 } else { size };
        let length = BLOCK_HEAD + content + if last && checksum { CHECKSUM } else { 0 };
        if data.len() < length {
            return Ok(BlockStep::Needs(length));
        }
        let mut block = &data[..length];
        let strategy = BlockDecodingStrategy::UptoBlocks(1);
        let decoded = self.decoder.decode_blocks(&mut block, strategy);
        decoded.map_err(|_| ErrorKind::InvalidData)?;
        self.decoder.collect_to_writer(&mut self.out)?;
        if last {
            self.part = FramePart::Frame;
        }
        Ok(BlockStep::Read(length))
    }

    /// An error if the stream was cut off.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.part {
            FramePart::Frame if self.gathered.is_empty() => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
