//! Decompresses zstd (RFC 8878) that comes in pieces. The decoder reads whole blocks, so pieces are gathered until a
//! block is complete. A block has at most 128 KiB, compressed or not, and no more than one is ever gathered.

use std::io::{self, ErrorKind, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window that RFC 9659 allows.
const MAX_WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// The largest block that RFC 8878, section 3.1.1.2, allows.
const MAX_BLOCK_BYTES: usize = 128 * 1024;

/// The bytes before the content of a block.
const BLOCK_HEADER_BYTES: usize = 3;
/// The bytes of the checksum, which stands behind the last block of a frame.
const CHECKSUM_BYTES: usize = 4;
/// The kind of a block that is one byte, repeated (RFC 8878, section 3.1.1.2.2).
const RLE_BLOCK: u32 = 1;

/// Decompresses a stream of frames into `out`, piece by piece.
pub struct ZstdDecoder<W> {
    /// Receives the decompressed bytes.
    pub out: W,
    decoder: FrameDecoder,
    /// The beginning of a block or header that is not complete.
    gathered: Vec<u8>,
    /// The part of the stream that comes next.
    next_part: FramePart,
}

/// A part of the stream.
#[derive(Clone, Copy)]
enum FramePart {
    /// The header of a frame.
    FrameHeader,
    /// A block of the current frame.
    Block {
        /// Whether the frame ends with a checksum.
        has_checksum: bool,
    },
    /// The rest of a skippable frame, in bytes.
    Skipped(u32),
}

/// The result of decoding one part of the stream.
enum DecodeStep {
    /// This many bytes were read.
    Read(usize),
    /// At least this many bytes are needed, counted from the beginning of the part.
    Needs(usize),
}

impl<W: Write> ZstdDecoder<W> {
    /// A decoder before the first frame.
    pub fn new(out: W) -> ZstdDecoder<W> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW_BYTES);
        ZstdDecoder {
            out,
            decoder,
            gathered: Vec::new(),
            next_part: FramePart::FrameHeader,
        }
    }

    /// Decompresses the next piece of the stream.
    ///
    /// # Errors
    ///
    /// The piece breaks the format or exceeds its bounds, or `out` fails.
    pub fn feed(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(mut data) = self.complete_gathered(data)? else {
            return Ok(());
        };
        while !data.is_empty() {
            match self.decode_step(data)? {
                DecodeStep::Read(length) => data = &data[length..],
                DecodeStep::Needs(_) => break,
            }
        }
        self.gather(data)
    }

    /// Completes the gathered parts with bytes of `data` and decodes them. Returns the bytes of `data` that are left;
    /// `None` if all of it was gathered.
    fn complete_gathered<'a>(&mut self, mut data: &'a [u8]) -> io::Result<Option<&'a [u8]>> {
        while !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            let step = self.decode_step(&gathered);
            self.gathered = gathered;
            match step? {
                DecodeStep::Read(length) => {
                    self.gathered.drain(..length);
                }
                DecodeStep::Needs(length) => {
                    let missing_bytes = length.saturating_sub(self.gathered.len());
                    if missing_bytes == 0 || data.is_empty() {
                        self.gather(data)?;
                        return Ok(None);
                    }
                    let (added_data, remaining_data) = data.split_at(missing_bytes.min(data.len()));
                    self.gathered.extend_from_slice(added_data);
                    data = remaining_data;
                    if added_data.len() < missing_bytes {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(data))
    }

    /// Keeps the rest of a piece, which is less than a block. An error if it is more.
    fn gather(&mut self, data: &[u8]) -> io::Result<()> {
        if self.gathered.len() + data.len() > MAX_BLOCK_BYTES + BLOCK_HEADER_BYTES + CHECKSUM_BYTES
        {
            return Err(ErrorKind::InvalidData.into());
        }
        self.gathered.extend_from_slice(data);
        Ok(())
    }

    /// Decodes the part of the stream that `data` begins with, if it is complete.
    fn decode_step(&mut self, data: &[u8]) -> io::Result<DecodeStep> {
        match self.next_part {
            FramePart::FrameHeader => self.read_frame_header(data),
            FramePart::Block { has_checksum } => self.decode_block(data, has_checksum),
            FramePart::Skipped(bytes) => {
                let length = data.len().min(bytes as usize);
                self.skip_next(bytes - length as u32);
                Ok(DecodeStep::Read(length))
            }
        }
    }

    /// Skips the next `bytes` of the stream, up to another frame.
    fn skip_next(&mut self, bytes: u32) {
        self.next_part = match bytes {
            0 => FramePart::FrameHeader,
            bytes => FramePart::Skipped(bytes),
        };
    }

    /// Reads the header of a frame (RFC 8878, section 3.1.1.1), or of a skippable frame (section 3.1.2).
    fn read_frame_header(&mut self, data: &[u8]) -> io::Result<DecodeStep> {
        let Some(magic) = data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else {
            return Ok(DecodeStep::Needs(4));
        };
        if magic & 0xffff_fff0 == 0x184d_2a50 {
            let length = data[4..]
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes));
            let Some(length) = length else {
                return Ok(DecodeStep::Needs(8));
            };
            self.skip_next(length);
            return Ok(DecodeStep::Read(8));
        }
        let Some(descriptor) = data.get(4) else {
            return Ok(DecodeStep::Needs(5));
        };
        let is_single_segment = descriptor >> 5 & 1 == 1;
        let window_bytes = usize::from(!is_single_segment);
        let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size_bytes = [usize::from(is_single_segment), 2, 4, 8][usize::from(descriptor >> 6)];
        let length = 5 + window_bytes + dictionary_bytes + size_bytes;
        if data.len() < length {
            return Ok(DecodeStep::Needs(length));
        }
        let reset = self.decoder.reset(&data[..length]);
        reset.map_err(|_| ErrorKind::InvalidData)?;
        let has_checksum = descriptor >> 2 & 1 == 1;
        self.next_part = FramePart::Block { has_checksum };
        Ok(DecodeStep::Read(length))
    }

    /// Decodes one block of the current frame into `out`, and the checksum behind the last one.
    fn decode_block(&mut self, data: &[u8], has_checksum: bool) -> io::Result<DecodeStep> {
        let Some([low, middle, high]) = data.first_chunk() else {
            return Ok(DecodeStep::Needs(BLOCK_HEADER_BYTES));
        };
        let header = u32::from_le_bytes([*low, *middle, *high, 0]);
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, (header >> 3) as usize);
        if size > MAX_BLOCK_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let content_bytes = if kind == RLE_BLOCK { 1 } else { size };
        let checksum_bytes = if is_last && has_checksum {
            CHECKSUM_BYTES
        } else {
            0
        };
        let length = BLOCK_HEADER_BYTES + content_bytes + checksum_bytes;
        if data.len() < length {
            return Ok(DecodeStep::Needs(length));
        }
        let mut block = &data[..length];
        let strategy = BlockDecodingStrategy::UptoBlocks(1);
        let decoded = self.decoder.decode_blocks(&mut block, strategy);
        decoded.map_err(|_| ErrorKind::InvalidData)?;
        self.decoder.collect_to_writer(&mut self.out)?;
        if is_last {
            self.next_part = FramePart::FrameHeader;
        }
        Ok(DecodeStep::Read(length))
    }

    /// Ends the stream. An error if it was cut off.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.next_part {
            FramePart::FrameHeader if self.gathered.is_empty() => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
