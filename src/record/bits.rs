//! Writes and reads numbers of 0 to 64 bits, one after another, for the blocks of `block.rs`. The lowest bit of a byte
//! comes first. What the numbers mean is decided in `block.rs`.

/// The width of the length that [`BitWriter::put_sized`] writes before each number. Lengths are 0 to 64.
const LENGTH_BITS: u32 = 7;

/// Writes numbers of 0 to 64 bits, one after another.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that are not in `bytes` yet, at most 31 between two calls. The first is the lowest.
    word: u64,
    /// The number of bits in `word`.
    word_bits: u32,
}

impl BitWriter {
    /// Appends the low `width` bits of `value`; `width` is at most 64.
    #[inline]
    pub fn put_bits(&mut self, value: u64, width: u32) {
        if width > 32 {
            self.put_bits(value & 0xffff_ffff, 32);
            return self.put_bits(value >> 32, width - 32);
        }
        self.word |= (value & ((1 << width) - 1)) << self.word_bits;
        self.word_bits += width;
        if self.word_bits >= 32 {
            self.bytes
                .extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.word_bits -= 32;
        }
    }

    /// Appends a number in a form in which small numbers are short: its length in bits, then the bits below its highest
    /// one-bit.
    pub fn put_sized(&mut self, value: u64) {
        let bit_length = 64 - value.leading_zeros();
        self.put_bits(u64::from(bit_length), LENGTH_BITS);
        self.put_bits(value, bit_length.saturating_sub(1));
    }

    /// Returns the written bytes. The last byte is filled up with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        let last_byte_count = self.word_bits.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.word.to_le_bytes()[..last_byte_count]);
        self.bytes
    }
}

/// Returns the number of bits that [`BitWriter::put_sized`] appends.
pub fn sized_bit_count(value: u64) -> u64 {
    let bits_below_highest = (64 - value.leading_zeros()).saturating_sub(1);
    u64::from(LENGTH_BITS + bits_below_highest)
}

/// Reads what a [`BitWriter`] wrote. After the end it reads zeros, and [`BitReader::is_overrun`] becomes true.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    /// All bytes, from which the offset of the next one is computed.
    all_bytes: &'a [u8],
    /// The bytes that are not in `word` yet.
    unread_bytes: &'a [u8],
    /// The bits to read next, from the lowest.
    word: u64,
    /// The number of bits in `word`.
    word_bits: u32,
    /// Whether more was read than there is; see [`BitReader::is_overrun`].
    is_overrun: bool,
}

impl<'a> BitReader<'a> {
    /// Makes a reader that begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader {
            all_bytes: bytes,
            unread_bytes: bytes,
            word: 0,
            word_bits: 0,
            is_overrun: false,
        }
    }

    /// Fills `word` to at least 56 bits, as far as there are bytes.
    #[inline]
    fn fill(&mut self) {
        if let Some(next_bytes) = self.unread_bytes.first_chunk::<8>() {
            // Only whole bytes count as read. The other bits of `next_bytes` are read again with their byte.
            self.word |= u64::from_le_bytes(*next_bytes) << self.word_bits;
            let whole_bytes = (63 - self.word_bits) / 8;
            self.unread_bytes = &self.unread_bytes[whole_bytes as usize..];
            self.word_bits += whole_bytes * 8;
        } else {
            self.fill_by_bytes();
        }
    }

    /// Fills `word` byte by byte, when fewer than eight bytes are left.
    #[cold]
    fn fill_by_bytes(&mut self) {
        while self.word_bits <= 56 {
            let Some((next_byte, later_bytes)) = self.unread_bytes.split_first() else {
                return;
            };
            self.word |= u64::from(*next_byte) << self.word_bits;
            self.word_bits += 8;
            self.unread_bytes = later_bytes;
        }
    }

    /// Removes `width` bits from `word`. The caller has filled it, so a `word` with fewer bits is an overrun.
    #[inline]
    fn skip_bits(&mut self, width: u32) {
        if width > self.word_bits {
            self.is_overrun = true;
            (self.word, self.word_bits) = (0, 0);
            return;
        }
        self.word >>= width;
        self.word_bits -= width;
    }

    /// Reads a number of `width` bits; `width` is at most 64.
    #[inline]
    pub fn get_bits(&mut self, width: u32) -> u64 {
        if width > 32 {
            let low = self.get_bits(32);
            return low | self.get_bits(width - 32) << 32;
        }
        if self.word_bits < width {
            self.fill();
        }
        let value = self.word & ((1 << width) - 1);
        self.skip_bits(width);
        value
    }

    /// Reads a number that [`BitWriter::put_sized`] wrote. A length of more than 64 bits reads as 0 and an overrun.
    pub fn get_sized(&mut self) -> u64 {
        match self.get_bits(LENGTH_BITS) as u32 {
            0 => 0,
            bit_length if bit_length > 64 => {
                self.is_overrun = true;
                0
            }
            bit_length => self.get_bits(bit_length - 1) | 1 << (bit_length - 1),
        }
    }

    /// Reads one-bits up to the next zero, and that zero too. Stops after `max_count` one-bits, at most 55. Returns the
    /// number of one-bits.
    #[inline]
    pub fn read_ones(&mut self, max_count: u32) -> u32 {
        if self.word_bits <= max_count {
            self.fill();
        }
        let count = self.word.trailing_ones().min(max_count);
        self.skip_bits(count + u32::from(count < max_count));
        count
    }

    /// Whether more bits were read than there were, or a length that [`BitWriter::put_sized`] cannot have written.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Returns the bytes after the last byte of which a bit was read. It is never `None`: the `Option` only avoids an
    /// index that could panic.
    pub fn following_bytes(&self) -> Option<&'a [u8]> {
        let untouched_bytes = self.word_bits as usize / 8;
        let offset = self.all_bytes.len() - self.unread_bytes.len() - untouched_bytes;
        self.all_bytes.get(offset..)
    }
}
